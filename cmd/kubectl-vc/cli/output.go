package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/simulation"
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

// formats are those that have a name.
var formats = []string{string(OutputWide), string(OutputJSON), string(OutputYAML), string(OutputName)}

// AddTo adds the flag, with its completion.
func (o *Output) AddTo(command *cobra.Command) {
	command.Flags().VarP(o, "output", "o", "how to print: wide, json, yaml or name; default: a table")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// String implements pflag.Value.
func (o *Output) String() string { return string(*o) }

// Set implements pflag.Value.
func (o *Output) Set(text string) error {
	if !slices.Contains(formats, text) {
		return fmt.Errorf("give one of %s", strings.Join(formats, ", "))
	}
	*o = Output(text)
	return nil
}

// Type implements pflag.Value.
func (*Output) Type() string { return "format" }

// Show prints what was found: value for programs, names of objects as kubectl has them, or a table.
func (c *CLI) Show(o Output, value any, names []string, table func(page *simulation.Page)) error {
	switch o {
	case OutputJSON:
		return simulation.PrintJSON(c.Out, value) //nolint:wrapcheck // it says what it did
	case OutputYAML:
		encoded, err := yaml.Marshal(value)
		if err == nil {
			_, err = c.Out.Write(encoded)
		}
		return err //nolint:wrapcheck // that of Write says what it did
	case OutputName:
		page := simulation.NewPage(c.Out)
		for _, name := range names {
			page.Line("%s", text.Line(name))
		}
		return page.Flush() //nolint:wrapcheck // as above
	case OutputTable, OutputWide:
	}
	page := simulation.NewPage(c.Out)
	table(page)
	return page.Flush() //nolint:wrapcheck // as above
}

// ShowNone prints that nothing was found: value for programs, or a sentence beside what is printed.
func (c *CLI) ShowNone(o Output, value any, sentence string) error {
	if o == OutputTable || o == OutputWide {
		_, _ = fmt.Fprintln(c.ErrOut, sentence) // nobody reads it who has closed it
		return nil
	}
	return c.Show(o, value, nil, nil)
}

// Width returns how wide the terminal of the output is.
func (c *CLI) Width() int {
	if out, isFile := c.Out.(*os.File); isFile {
		if width, _, err := term.GetSize(int(out.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return text.Narrow
}
