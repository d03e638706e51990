package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	syncer "github.com/superpool/superpool/cmd/syncer/app"
	vcscheduler "github.com/superpool/superpool/cmd/vc-scheduler/app"
	vnagent "github.com/superpool/superpool/cmd/vn-agent/app"
)

// flagsPage lists the flags of each program, with the feature gates in their own table.
func flagsPage(*source) (string, error) {
	if err := os.Unsetenv("NODE_IP"); err != nil { // defaults of vn-agent
		return "", fmt.Errorf("reading no environment: %w", err)
	}
	syncerCommand, err := syncer.NewCommand()
	if err != nil {
		return "", fmt.Errorf("building the syncer's command: %w", err)
	}
	var page strings.Builder
	page.WriteString(notice + "# Flags and feature gates\n")
	scheduler := vcscheduler.NewCommand()
	commands := append([]*cobra.Command{scheduler}, scheduler.Commands()...)
	for _, command := range append(commands, syncerCommand, vnagent.NewCommand()) {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n", command.CommandPath(), command.Short)
		var flags, gates [][]string
		command.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Name == "feature-gates" {
				gates = gateRows(flag.Usage)
				return
			}
			if flag.Name == "help" || flag.Name == "version" {
				return
			}
			flags = append(flags, []string{"`--" + flag.Name + "`", code(flag.DefValue), escapeHTML(flag.Usage)})
		})
		page.WriteString(table([]string{"flag", "default", "what"}, flags))
		if len(gates) > 0 {
			page.WriteString("\nGates of `--feature-gates`:\n\n" + table([]string{"gate", "default and stage"}, gates))
		}
	}
	return page.String(), nil
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
