#!/bin/sh
# What the webserver image runs: BusyBox's httpd. It has no handler for SIGTERM, which as process 1 it would not notice,
# and pods would end by their grace period.
trap 'exit 0' TERM INT
busybox httpd -f -p 80 &
wait
