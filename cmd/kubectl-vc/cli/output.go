package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/page"
)

// Output is how what was found is printed: "" for a table.
type Output string

// The formats.
const (
	OutputTable Output = ""
	OutputWide  Output = "wide"
	OutputJSON  Output = "json"
	OutputYAML  Output = "yaml"
	OutputName  Output = "name"
)

// AddTo adds the flag, with its completion, for some formats besides a table: all of them where none is named.
func (o *Output) AddTo(command *cobra.Command, formats ...Output) {
	if len(formats) == 0 {
		formats = []Output{OutputWide, OutputJSON, OutputYAML, OutputName}
	}
	names := make([]string, len(formats))
	for i, format := range formats {
		names[i] = string(format)
	}
	last := len(names) - 1
	usage := fmt.Sprintf("how to print: %s or %s; default: a table", strings.Join(names[:last], ", "), names[last])
	command.Flags().VarP(&outputFlag{Output: o, names: names}, "output", "o", usage)
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// outputFlag is the flag of an Output that may have some values.
type outputFlag struct {
	*Output
	names []string
}

// String implements pflag.Value.
func (o *outputFlag) String() string {
	if o.Output == nil {
		return ""
	}
	return string(*o.Output)
}

// Set implements pflag.Value.
func (o *outputFlag) Set(text string) error {
	switch {
	case text == "table":
		*o.Output = OutputTable
	case slices.Contains(o.names, text):
		*o.Output = Output(text)
	default:
		return fmt.Errorf("give one of %s", strings.Join(o.names, ", "))
	}
	return nil
}

// Type implements pflag.Value.
func (*outputFlag) Type() string { return "format" }

// Show prints what was found: value for programs, names of objects as kubectl has them, or a table.
func (c *CLI) Show(o Output, value any, names []string, table func(p *page.Page)) error {
	switch o {
	case OutputJSON:
		return page.JSON(c.Out, value) //nolint:wrapcheck // it says what it did
	case OutputYAML:
		return page.YAML(c.Out, value) //nolint:wrapcheck // as above
	case OutputName:
		table = func(p *page.Page) {
			for _, name := range names {
				p.Line("%s", name)
			}
		}
	case OutputTable, OutputWide:
	}
	p := page.New(c.Out, c.width())
	table(p)
	return p.Flush() //nolint:wrapcheck // as above
}

// ShowNone prints that nothing was found: value for programs, or a sentence beside what is printed.
func (c *CLI) ShowNone(o Output, value any, sentence string) error {
	if o == OutputTable || o == OutputWide {
		_, _ = fmt.Fprintln(c.ErrOut, sentence) // nobody reads it who has closed it
		return nil
	}
	return c.Show(o, value, nil, nil)
}

// NoTerminal returns an error where the output is a terminal, which keeps what it shows. what is what would be there, and
// instead what to do.
func (c *CLI) NoTerminal(what, instead string) error {
	if out, isFile := c.Out.(*os.File); isFile && term.IsTerminal(int(out.Fd())) {
		return fmt.Errorf("%s is not for a terminal: %s", what, instead)
	}
	return nil
}

// WriteFile has a file written that was not there, for its owner alone. Until it is whole and on the disk its name ends
// with .part, and where that fails it is removed. "-" is the output, unless that is a terminal; what is what is written.
func (c *CLI) WriteFile(path, what string, write func(io.Writer) error) error {
	if path == "-" {
		if err := c.NoTerminal(what, "give -o FILE"); err != nil {
			return err
		}
		return write(c.Out)
	}
	part := path + ".part"
	for _, name := range []string{path, part} {
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("%s is there: name another file, or remove it", name)
		}
	}
	const own = 0o600
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, own)
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	err = write(file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return nil
}

// width returns how wide the output is, 0 where nothing says it.
func (c *CLI) width() int {
	if c.Columns > 0 {
		return c.Columns
	}
	if out, isFile := c.Out.(*os.File); isFile {
		if width, _, err := term.GetSize(int(out.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// Width returns how wide text is to be.
func (c *CLI) Width() int { return cmp.Or(c.width(), text.Narrow) }
