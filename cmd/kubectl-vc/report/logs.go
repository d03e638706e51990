package report

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/superpool/superpool/cmd/kubectl-vc/text"
)

// longestLine is how many bytes a line of a log has at most: a longer one is left out.
const longestLine = 64 << 10

var (
	// header is what klog begins a line with, before what it says.
	header = regexp.MustCompile(`^[IWEF]\d{4} \d{2}:\d{2}:\d{2}\.\d{6} +\d+ [\w./-]+\.go:\d+\] `)
	// bare is a value that klog writes without quotes, of a pair that is understood.
	bare = regexp.MustCompile(`^[\w./:+-]*`)
	// stack is a line of what Go prints when a program ends by a panic, without the values of its arguments.
	stack = regexp.MustCompile(`^(goroutine \d+ \[[a-z ]+|created by [\w./*()-]+|\t[\w./@-]+\.go:\d+)`)
	// quoted is what an error quotes, as names and values of objects.
	quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?|'[^']*'?|` + "`[^`]*`?")
)

// keys are those whose values are taken of a line: names of objects, and figures.
var keys = map[string]bool{
	"attempt": true, "cluster": true, "controller": true, "count": true, "duration": true, "generation": true, "kind": true, "name": true, "namespace": true,
	"node": true, "plugin": true, "pod": true, "reason": true, "shard": true, "slices": true, "superCluster": true, "tenant": true, "version": true,
	"virtualCluster": true,
}

// takeLog returns what is taken of a log of a program of ours in klog's text format, the last bytes of it at most: of each line
// when and where it was written, its constant message, values of some keys, and of errors what they do not quote.
func takeLog(log io.Reader, most int) ([]byte, error) {
	var taken bytes.Buffer
	left := 0
	lines := bufio.NewReaderSize(log, longestLine)
	for {
		line, isLonger, err := lines.ReadLine()
		for isLonger && err == nil { // the rest of it
			line = nil
			_, isLonger, err = lines.ReadLine()
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the log: %w", err)
		}
		if kept := takeLine(string(line)); kept != "" {
			taken.WriteString(kept + "\n")
		} else {
			left++
		}
		if taken.Len() > 2*most {
			taken.Next(taken.Len() - most)
		}
	}
	if taken.Len() > most {
		taken.Next(taken.Len() - most)
	}
	fmt.Fprintf(&taken, "%d lines were left out.\n", left)
	return taken.Bytes(), nil
}

// takeLine returns what is taken of a line, "" for nothing.
func takeLine(line string) string {
	if at := stack.FindString(line); at != "" {
		return at
	}
	begin := header.FindString(line)
	if begin == "" {
		return ""
	}
	rest := line[len(begin):]
	message, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return begin + "(text without a constant message)"
	}
	taken, rest := begin+message, rest[len(message):]
	for {
		key, after, isPair := strings.Cut(strings.TrimLeft(rest, " "), "=")
		if !isPair {
			return taken
		}
		value, err := strconv.QuotedPrefix(after)
		if err != nil {
			value = bare.FindString(after)
		}
		rest = after[len(value):]
		if value == "" || rest != "" && rest[0] != ' ' {
			return taken // a value of another form: what is behind it is not understood either
		}
		switch {
		case key == "err" || key == "error" || key == "reason" && value[0] == '"': // syncers log errors as reasons
			text, _ := strconv.Unquote(value) // a value without quotes is no error
			taken += " " + key + "=" + strconv.Quote(withoutValues(text))
		case keys[key]:
			taken += " " + key + "=" + text.Shortened(value, longestText)
		}
	}
}

// withoutValues returns an error without what it quotes, and without what follows a value that it names.
func withoutValues(text string) string {
	text, _, isValue := strings.Cut(text, "Invalid value")
	if isValue {
		text += "Invalid value ..."
	}
	return shortened(quoted.ReplaceAllString(text, `"..."`))
}

func shortened(value string) string { return text.Shortened(value, longestText) }
