package route

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Options is the parsed query of a request. Each kind has some of the fields; Parse drops keys that are not of its
// kind.
type Options struct {
	// Fields of Logs. nil is unset; SinceTime is in RFC 3339, Stream is All, Stdout, Stderr or "".
	Follow, Previous, Timestamps        bool
	SinceSeconds, TailLines, LimitBytes *int64
	SinceTime                           string
	Stream                              string

	// Fields of Exec and Attach; Command of Exec alone.
	Stdin, Stdout, Stderr, TTY bool
	Command                    []string

	// Ports of PortForward: WebSocket clients send them in the query, SPDY clients in the headers of their streams.
	Ports []int32

	// Cmd of Run: words separated by single spaces.
	Cmd string

	// OnlyCPUAndMemory of Summary.
	OnlyCPUAndMemory bool
}

// The query keys of streams and ports: first the kubelet's, then the API server's.
var (
	stdinKeys  = []string{"input", "stdin"}
	stdoutKeys = []string{"output", "stdout"}
	stderrKeys = []string{"error", "stderr"}
	portKeys   = []string{"port", "ports"}
)

// reader parses typed values of a query and keeps the first error.
type reader struct {
	values url.Values
	err    *Error
}

func parseOptions(kind Kind, query string) (Options, *Error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return Options{}, badRequest("query cannot be read")
	}
	in := &reader{values: values}
	var options Options
	switch kind {
	case Logs:
		options = in.logs()
	case Exec:
		options = in.streams()
		options.Command = in.text("command")
	case Attach:
		options = in.streams()
	case PortForward:
		options.Ports = in.ports()
	case Run:
		options.Cmd = in.one("cmd")
		if options.Cmd == "" {
			in.fail("cmd is missing")
		}
	case Summary:
		options.OnlyCPUAndMemory = in.flag("only_cpu_and_memory")
	case Health, Pods, Resource, Cadvisor, Probes:
	}
	if in.err != nil {
		return Options{}, in.err
	}
	return options, nil
}

func (in *reader) fail(reason string) {
	if in.err == nil {
		in.err = badRequest(reason)
	}
}

// one returns the value of the key with the spellings keys, "" if there is none. More than one value is an error:
// vn-agent and the backend might choose different ones.
func (in *reader) one(keys ...string) string {
	var found []string
	for _, key := range keys {
		found = append(found, in.values[key]...)
	}
	if len(found) > 1 {
		in.fail(keys[0] + " has more than one value")
	}
	if len(found) == 0 {
		return ""
	}
	return in.clean(keys[0], found[0])
}

// clean returns value, and fails on one with a zero byte.
func (in *reader) clean(key, value string) string {
	if strings.ContainsRune(value, 0) {
		in.fail(key + " has a zero byte")
	}
	return value
}

// text returns all values of key, in order.
func (in *reader) text(key string) []string {
	for _, value := range in.values[key] {
		in.clean(key, value)
	}
	return in.values[key]
}

func (in *reader) flag(keys ...string) bool {
	switch in.one(keys...) {
	case "", "0", "false":
		return false
	case "1", "true":
		return true
	default:
		in.fail(keys[0] + " is neither true nor false")
		return false
	}
}

// number returns nil if there is no value, and fails on one below minimum.
func (in *reader) number(key string, minimum int64) *int64 {
	text := in.one(key)
	if text == "" {
		return nil
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || value < minimum {
		in.fail(key + " is not a number that can be used")
		return nil
	}
	return &value
}

func (in *reader) logs() Options {
	options := Options{
		Follow:       in.flag("follow"),
		Previous:     in.flag("previous"),
		Timestamps:   in.flag("timestamps"),
		SinceSeconds: in.number("sinceSeconds", 1),
		TailLines:    in.number("tailLines", 0),
		LimitBytes:   in.number("limitBytes", 1),
		SinceTime:    in.one("sinceTime"),
		Stream:       in.one("stream"),
	}
	if options.SinceTime != "" {
		sinceTime, err := time.Parse(time.RFC3339Nano, options.SinceTime)
		if err != nil || sinceTime.Year() < 1 || sinceTime.Year() > 9999 {
			in.fail("sinceTime is not in RFC 3339")
		}
		options.SinceTime = sinceTime.UTC().Format(time.RFC3339Nano)
	}
	if options.SinceTime != "" && options.SinceSeconds != nil {
		in.fail("at most one of sinceTime and sinceSeconds can be used")
	}
	switch options.Stream {
	case "", corev1.LogStreamAll, corev1.LogStreamStdout, corev1.LogStreamStderr:
	default:
		in.fail("stream is not All, Stdout or Stderr")
	}
	return options
}

func (in *reader) streams() Options {
	return Options{
		Stdin:  in.flag(stdinKeys...),
		Stdout: in.flag(stdoutKeys...),
		Stderr: in.flag(stderrKeys...),
		TTY:    in.flag("tty"),
	}
}

func (in *reader) ports() []int32 {
	var ports []int32
	for _, key := range portKeys {
		for _, value := range in.values[key] {
			for text := range strings.SplitSeq(value, ",") {
				port, err := strconv.ParseUint(text, 10, 16)
				if err != nil || port == 0 {
					in.fail("port is not a number from 1 to 65535")
					return nil
				}
				ports = append(ports, int32(port))
			}
		}
	}
	return ports
}

// KubeletQuery returns the query for a kubelet, with the kubelet's keys.
func (r Request) KubeletQuery() url.Values {
	values := r.commonQuery()
	r.streamQuery(values, "1", stdinKeys[0], stdoutKeys[0], stderrKeys[0])
	r.portQuery(values, portKeys[0])
	if r.Options.Cmd != "" {
		values.Set("cmd", r.Options.Cmd)
	}
	return values
}

// APIServerQuery returns the query for the pod's subresource at an API server, with its keys.
func (r Request) APIServerQuery() url.Values {
	values := r.commonQuery()
	r.streamQuery(values, "true", stdinKeys[1], stdoutKeys[1], stderrKeys[1])
	r.portQuery(values, portKeys[1])
	if r.Container != "" {
		values.Set("container", r.Container)
	}
	if r.Options.Cmd != "" {
		values["command"] = strings.Split(r.Options.Cmd, " ")
		values.Set("stdout", "true")
		values.Set("stderr", "true")
	}
	return values
}

func (r Request) commonQuery() url.Values {
	options, values := r.Options, url.Values{}
	for key, value := range map[string]bool{
		"follow": options.Follow, "previous": options.Previous, "timestamps": options.Timestamps,
		"only_cpu_and_memory": options.OnlyCPUAndMemory,
	} {
		if value {
			values.Set(key, "true")
		}
	}
	for key, value := range map[string]*int64{
		"sinceSeconds": options.SinceSeconds, "tailLines": options.TailLines, "limitBytes": options.LimitBytes,
	} {
		if value != nil {
			values.Set(key, strconv.FormatInt(*value, 10))
		}
	}
	for key, value := range map[string]string{"sinceTime": options.SinceTime, "stream": options.Stream} {
		if value != "" {
			values.Set(key, value)
		}
	}
	if len(options.Command) > 0 {
		values["command"] = append([]string(nil), options.Command...)
	}
	return values
}

func (r Request) streamQuery(values url.Values, trueValue, stdin, stdout, stderr string) {
	for key, value := range map[string]bool{
		stdin: r.Options.Stdin, stdout: r.Options.Stdout, stderr: r.Options.Stderr, "tty": r.Options.TTY,
	} {
		if value {
			values.Set(key, trueValue)
		}
	}
}

func (r Request) portQuery(values url.Values, key string) {
	for _, port := range r.Options.Ports {
		values.Add(key, strconv.Itoa(int(port)))
	}
}
