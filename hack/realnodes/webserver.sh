#!/bin/sh
# The entry point of the webserver image: runs BusyBox's httpd. httpd has no handler for SIGTERM, and the kernel drops a
# signal without a handler for process 1, so pods would end only after their grace period.
trap 'exit 0' TERM INT
busybox httpd -f -p 80 &
wait
