package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	kubectlvc "github.com/superpool/superpool/cmd/kubectl-vc/app"
)

// cliPage has the help of each verb of kubectl vc.
func cliPage(*source) (string, error) {
	command := kubectlvc.NewCommand(genericiooptions.IOStreams{})
	var page strings.Builder
	fmt.Fprintf(&page, `%s# kubectl vc

%s

Put `+"`bin/kubectl-vc` (`make build`)"+` into your PATH: kubectl finds it. It takes the flags of kubectl that reach a cluster, as
`+"`--context` and `--namespace`"+`, and writes what it waits for to the standard error. Its exit code is 1 where what was wished for is
refused, or is not there in time, and 3 where something does not fit into the pool. For completion by the shell put a script `+"`kubectl_complete-vc`"+` beside it:

`+"```sh\n#!/bin/sh\nexec kubectl vc __complete \"$@\"\n```\n", notice, command.Long)
	writeVerbs(&page, command)
	return page.String(), nil
}

// writeVerbs writes the help of each verb of a command, and of those below it.
func writeVerbs(page *strings.Builder, command *cobra.Command) {
	for _, verb := range command.Commands() {
		switch {
		case !verb.IsAvailableCommand() || verb.Name() == "help" || verb.Name() == "completion":
		case verb.HasAvailableSubCommands():
			writeVerbs(page, verb)
		default:
			_, name, _ := strings.Cut(verb.CommandPath(), "kubectl vc ")
			fmt.Fprintf(page, "\n## %s\n\n%s.\n\n%s\n\n```sh\n%s\n```\n\n%s", name, verb.Short, verb.Long, dedent(verb.Example), table([]string{"flag", "default", "what"}, flagRows(verb)))
		}
	}
}

// dedent takes two spaces from the beginning of each line.
func dedent(text string) string {
	return strings.TrimPrefix(strings.ReplaceAll(text, "\n  ", "\n"), "  ")
}
