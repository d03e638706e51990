package page_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/superpool/superpool/internal/page"
)

// TestPrintable: what others wrote is a line without what moves a cursor or turns the direction of writing.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "",
		"waiting\r\nfor\tetcd":               "waiting  for etcd",
		"\x1b]0;x\x1b[2J the pool \u009bJ ü": "\ufffd]0;x\ufffd[2J the pool \ufffdJ ü",
		"a\u202eb\u2028c\u200bd\u0085e\x7f":  "a\ufffdb c\ufffdd e\ufffd",
		"\U000e0041":                         "\ufffd",
		"\xff":                               "\ufffd",
	} {
		require.Equal(t, want, page.Printable(text), "%q", text)
	}
}

// TestLines: rows have their columns below each other, and lines that are too long go on below, indented.
func TestLines(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		0:  "A   B\nxx  y\n\n  no room of namespace web: 300m of 300m cpu used\nz\n",
		80: "A   B\nxx  y\n\n  no room of namespace web: 300m of 300m cpu used\nz\n",
		30: "A   B\nxx  y\n\n  no room of namespace web:\n    300m of 300m cpu used\nz\n",
		1:  "A   B\nxx  y\n\n  no room of namespace\n    web: 300m of 300m\n    cpu used\nz\n",
	} {
		var out bytes.Buffer
		p := page.New(&out, width)
		p.Row("A", "B")
		p.Row("xx", "y", "")
		p.Line("")
		p.Line("  no room of namespace %s: 300m of 300m cpu used", "web")
		p.Row("z")
		require.NoError(t, p.Flush())
		require.Equal(t, want, out.String(), width)
	}
}

type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, errors.New("nobody reads it") }

// TestWritesFail: what cannot be written is an error, in each format.
func TestWritesFail(t *testing.T) {
	t.Parallel()
	p := page.New(closed{}, 0)
	p.Line("a")
	p.Line("b")
	for _, err := range []error{p.Flush(), page.JSON(closed{}, 1), page.YAML(closed{}, 1)} {
		require.EqualError(t, err, "printing: nobody reads it")
	}
	require.ErrorContains(t, page.JSON(&bytes.Buffer{}, func() {}), "printing: json: unsupported type")
	require.ErrorContains(t, page.YAML(&bytes.Buffer{}, func() {}), "printing: ")
}

// TestValues: a program reads what was there, and a terminal obeys nothing of it.
func TestValues(t *testing.T) {
	t.Parallel()
	hostile := map[string]string{"a\u202e": "\x00\x1b[2J\x7f\u0085\u009b2J\u061c\u200f\u2028\u2066\ufeff\U000e0041<ü>", "b": "two\nlines"}
	for name, format := range map[string]struct {
		print  func(out *bytes.Buffer, value any) error
		decode func([]byte, any) error
		plain  string
	}{
		"JSON": {
			print:  func(out *bytes.Buffer, value any) error { return page.JSON(out, value) },
			decode: json.Unmarshal, plain: "{\n  \"b\": \"two\\nlines\"\n}\n",
		},
		"YAML": {
			print:  func(out *bytes.Buffer, value any) error { return page.YAML(out, value) },
			decode: func(text []byte, into any) error { return yaml.Unmarshal(text, into) }, plain: "b: |-\n  two\n  lines\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			require.NoError(t, format.print(&out, hostile))
			require.Equal(t, -1, strings.IndexFunc(out.String(), func(r rune) bool {
				return r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
			}), out.String())
			require.Contains(t, out.String(), `\u009b`)
			var read map[string]string
			require.NoError(t, format.decode(out.Bytes(), &read))
			require.Equal(t, hostile, read)

			out.Reset()
			require.NoError(t, format.print(&out, map[string]string{"b": "two\nlines"}))
			require.Equal(t, format.plain, out.String())
		})
	}
}
