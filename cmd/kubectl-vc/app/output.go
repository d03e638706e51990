package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/superpool/superpool/internal/simulation"
)

// output is how what was found is printed: "" for a table.
type output string

const (
	outputTable output = ""
	outputWide  output = "wide"
	outputJSON  output = "json"
	outputYAML  output = "yaml"
	outputName  output = "name"
)

// formats are those that have a name.
var formats = []string{string(outputWide), string(outputJSON), string(outputYAML), string(outputName)}

func (o *output) addTo(command *cobra.Command) {
	command.Flags().VarP(o, "output", "o", "how to print: wide, json, yaml or name; default: a table")
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// String implements pflag.Value.
func (o *output) String() string { return string(*o) }

// Set implements pflag.Value.
func (o *output) Set(text string) error {
	if !slices.Contains(formats, text) {
		return fmt.Errorf("give one of %s", strings.Join(formats, ", "))
	}
	*o = output(text)
	return nil
}

// Type implements pflag.Value.
func (*output) Type() string { return "format" }

// show prints what was found: value for programs, names of objects as kubectl has them, or a table.
func (c *cli) show(o output, value any, names []string, table func(page *simulation.Page)) error {
	switch o {
	case outputJSON:
		return simulation.PrintJSON(c.Out, value) //nolint:wrapcheck // it says what it did
	case outputYAML:
		text, err := yaml.Marshal(value)
		if err == nil {
			_, err = c.Out.Write(text)
		}
		return err //nolint:wrapcheck // that of Write says what it did
	case outputName:
		page := simulation.NewPage(c.Out)
		for _, name := range names {
			page.Line("%s", line(name))
		}
		return page.Flush() //nolint:wrapcheck // as above
	case outputTable, outputWide:
	}
	page := simulation.NewPage(c.Out)
	table(page)
	return page.Flush() //nolint:wrapcheck // as above
}

// showNone prints that nothing was found: value for programs, or a sentence beside what is printed.
func (c *cli) showNone(o output, value any, sentence string) error {
	if o == outputTable || o == outputWide {
		_, _ = fmt.Fprintln(c.ErrOut, sentence) // nobody reads it who has closed it
		return nil
	}
	return c.show(o, value, nil, nil)
}
