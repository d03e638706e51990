package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

// suite returns the names of all conformance tests that the tests' binary lists, in its order; if beyond, of all
// others.
func suite(ctx context.Context, binary string, beyond bool) ([]string, error) {
	if beyond {
		content, err := exec.CommandContext(ctx, binary, "--list-tests").Output()
		if err != nil {
			return nil, fmt.Errorf("listing the tests: %w", err)
		}
		return parseTests(string(content)), nil
	}
	content, err := exec.CommandContext(ctx, binary, "--list-conformance-tests").Output()
	if err != nil {
		return nil, fmt.Errorf("listing the conformance tests: %w", err)
	}
	return parseSuite(content)
}

// parseTests returns what a list of all tests has beside conformance tests. A line of it is "file:line: name"; the
// first one is a heading. It folds white space in names. A name that two tests have is there once: a focus runs both.
func parseTests(content string) []string {
	seen := sets.New[string]()
	var names []string
	for line := range strings.Lines(content) {
		_, name, isTest := strings.Cut(line, ": [")
		name = "[" + strings.Join(strings.Fields(name), " ")
		if isTest && !strings.Contains(name, "[Conformance]") && !seen.Has(name) {
			seen.Insert(name)
			names = append(names, name)
		}
	}
	return names
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

// readKnown reads the names of tests that are known to fail, one a line; # begins a comment. "" names none. Each must
// be one of all.
func readKnown(path string, all []string) (sets.Set[string], error) {
	known := sets.New[string]()
	if path == "" {
		return known, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--known: %w", err)
	}
	exists := sets.New(all...)
	for line := range strings.Lines(string(content)) {
		name := strings.TrimSpace(line)
		switch {
		case name == "" || strings.HasPrefix(name, "#"):
		case !exists.Has(name):
			return nil, fmt.Errorf("--known: %s: there is no test %q", path, name)
		default:
			known.Insert(name)
		}
	}
	return known, nil
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

// secondCIDR is a test that is not marked [Serial]. While it runs, the tenant's API server gives new Services of all
// tests addresses of its ServiceCIDR, which are not in spec.serviceCIDRs of the VirtualCluster.
const secondCIDR = "Service CIDRs should create Services and serve on different Service CIDRs"

// isSerial reports whether a test must not run in parallel with others.
func isSerial(name string) bool {
	return strings.Contains(name, "[Serial]") || strings.HasSuffix(name, secondCIDR)
}
