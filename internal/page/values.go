package page

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"

	"sigs.k8s.io/yaml"
)

// JSON writes a value for programs.
func JSON(out io.Writer, value any) error {
	encoded, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return write(out, escaped(string(encoded), func(r rune) string {
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	})+"\n")
}

// YAML writes a value for programs. Where a text in it has characters that YAML does not escape and a terminal may obey,
// all of it is in the form of JSON, which is YAML, too, and has them escaped.
func YAML(out io.Writer, value any) error {
	encoded, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if safe := escaped(string(encoded), func(r rune) string { return fmt.Sprintf(`\U%08x`, r) }); safe != string(encoded) {
		return write(out, safe+"\n")
	}
	text, err := yaml.JSONToYAML(encoded)
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return write(out, string(text))
}

func write(out io.Writer, text string) error {
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// escaped returns JSON in which no character is one that a terminal may obey: they are in its strings alone, but for the
// ends of its lines, and encoding/json has escaped those below U+0020 already. astral escapes those above U+FFFF.
func escaped(encoded string, astral func(rune) string) string {
	var text strings.Builder
	for _, r := range encoded {
		switch {
		case r == '\n' || !isUnprintable(r):
			text.WriteRune(r)
		case r > 0xffff:
			text.WriteString(astral(r))
		default:
			_, _ = fmt.Fprintf(&text, `\u%04x`, r) // a Builder takes everything
		}
	}
	return text.String()
}
