package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// suite returns the names of all conformance tests that the tests' binary lists, in its order.
func suite(ctx context.Context, binary string) ([]string, error) {
	content, err := exec.CommandContext(ctx, binary, "--list-conformance-tests").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the conformance tests: %w", err)
	}
	return parseSuite(content)
}

// parseSuite parses that list. It folds white space in names.
func parseSuite(content []byte) ([]string, error) {
	var tests []struct {
		Codename string `json:"codename"`
	}
	if err := yaml.Unmarshal(content, &tests); err != nil {
		return nil, fmt.Errorf("parsing the list of conformance tests: %w", err)
	}
	names := make([]string, 0, len(tests))
	for _, test := range tests {
		names = append(names, strings.Join(strings.Fields(test.Codename), " "))
	}
	return names, nil
}

// choose returns the tests that match focus but not skip, and those that match both. Empty expressions choose all and
// skip none. An error means an invalid expression, or that no test is chosen.
func choose(tests []string, focus, skip string) (chosen, skipped []string, err error) {
	focused, err := regexp.Compile(focus)
	if err != nil {
		return nil, nil, fmt.Errorf("--focus: %w", err)
	}
	excluded, err := regexp.Compile(skip)
	if err != nil {
		return nil, nil, fmt.Errorf("--skip: %w", err)
	}
	for _, name := range tests {
		switch {
		case !focused.MatchString(name):
		case skip != "" && excluded.MatchString(name):
			skipped = append(skipped, name)
		default:
			chosen = append(chosen, name)
		}
	}
	if len(chosen) == 0 {
		return nil, nil, fmt.Errorf("none of %d tests matches --focus %q --skip %q", len(tests), focus, skip)
	}
	return chosen, skipped, nil
}

// isSerial reports whether a test must not run in parallel with others.
func isSerial(name string) bool { return strings.Contains(name, "[Serial]") }
