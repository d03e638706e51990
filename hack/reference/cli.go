package main

import (
	"fmt"
	"strings"

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
	for _, verb := range command.Commands() {
		if !verb.IsAvailableCommand() || verb.Name() == "help" || verb.Name() == "completion" {
			continue
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s.\n\n%s\n\n```sh\n%s\n```\n\n%s", verb.Name(), verb.Short, verb.Long, dedent(verb.Example), table([]string{"flag", "default", "what"}, flagRows(verb)))
	}
	return page.String(), nil
}

// dedent takes two spaces from the beginning of each line.
func dedent(text string) string {
	return strings.TrimPrefix(strings.ReplaceAll(text, "\n  ", "\n"), "  ")
}
