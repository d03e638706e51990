package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	syncer "github.com/superpool/superpool/cmd/syncer/app"
	vcmanager "github.com/superpool/superpool/cmd/vc-manager/app"
	vcscheduler "github.com/superpool/superpool/cmd/vc-scheduler/app"
	vnagent "github.com/superpool/superpool/cmd/vn-agent/app"
)

// flagsPage lists the flags of each program, those that several have once, and the gates of Superpool and of logging.
// vc-scheduler has those of Kubernetes besides, because it is made of kube-scheduler: few of them change anything here.
func flagsPage(*source) (string, error) {
	if err := os.Unsetenv("NODE_IP"); err != nil { // defaults of vn-agent
		return "", fmt.Errorf("reading no environment: %w", err)
	}
	syncerCommand, err := syncer.NewCommand()
	if err != nil {
		return "", fmt.Errorf("building the syncer's command: %w", err)
	}
	commands := []*cobra.Command{vcscheduler.NewCommand(), syncerCommand, vcmanager.NewCommand(), vnagent.NewCommand()}
	of := map[string][]string{} // names of commands by the row of a flag
	for _, command := range commands {
		for _, row := range flagRows(command) {
			of[strings.Join(row, "|")] = append(of[strings.Join(row, "|")], command.CommandPath())
		}
	}
	var page strings.Builder
	page.WriteString(notice + "# Flags and feature gates\n")
	var common [][]string
	for _, command := range commands {
		var own [][]string
		for _, row := range flagRows(command) {
			programs := of[strings.Join(row, "|")]
			switch {
			case len(programs) == 1:
				own = append(own, row)
			case programs[0] == command.CommandPath():
				common = append(common, append(row, strings.Join(programs, ", ")))
			}
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s.\n\n%s", command.CommandPath(), command.Short, table([]string{"flag", "default", "what"}, own))
	}
	page.WriteString("\n## Of several\n\n" + table([]string{"flag", "default", "what", "of"}, common))
	gates := gateRows(syncerCommand.LocalFlags().Lookup("feature-gates").Usage)
	page.WriteString("\n## Gates\n\nOf `--feature-gates` of the syncer. vc-scheduler has those of kube-scheduler, `vc-scheduler --help` lists them.\n\n" +
		table([]string{"gate", "default and stage"}, gates))
	return page.String(), nil
}

// flagRows returns a row for each flag of a command.
func flagRows(command *cobra.Command) (rows [][]string) {
	command.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains([]string{"feature-gates", "help", "version"}, flag.Name) {
			rows = append(rows, []string{"`--" + flag.Name + "`", code(flag.DefValue), escapeHTML(flag.Usage)})
		}
	})
	return rows
}

// gateRows reads the usage of --feature-gates, a line for each gate: "Name=true|false (ALPHA - default=false)".
func gateRows(usage string) [][]string {
	var rows [][]string
	for line := range strings.Lines(usage) {
		name, rest, found := strings.Cut(strings.TrimSpace(line), "=true|false (")
		if !found || strings.HasPrefix(name, "All") {
			continue
		}
		rows = append(rows, []string{"`" + name + "`", strings.TrimSuffix(rest, ")")})
	}
	return rows
}

func code(value string) string {
	if value == "" || value == "[]" {
		return ""
	}
	return "`" + value + "`"
}

func escapeHTML(text string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(text)
}
