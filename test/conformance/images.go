package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// lack is a program that the images of the bed lack, because it was not installed on the machine that packed them.
type lack struct {
	// Program and Package are its name, and the Debian package that has it.
	Program, Package string
	// Tests holds the names of the tests of this run that can fail without it.
	Tests []string
}

// readLacks parses the file that hack/realnodes/images.sh writes, rows of hack/lib/packages.sh: program, package,
// "images", and a regular expression over the names of tests. It returns the programs whose expression matches one of
// tests. It returns none where the file does not exist: then the images were not packed in this checkout, and what they
// lack is not known.
func readLacks(path string, tests []string) ([]lack, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what the images lack: %w", err)
	}
	var lacks []lack
	for row := range strings.Lines(string(content)) {
		fields := strings.SplitN(strings.TrimSpace(row), " ", 4)
		if len(fields) < 4 {
			return nil, fmt.Errorf("%s (make realnodes-images writes it): the row %q has fewer than four fields", path, row)
		}
		expression, err := regexp.Compile(fields[3])
		if err != nil {
			return nil, fmt.Errorf("%s (make realnodes-images writes it): %w", path, err)
		}
		program := lack{Program: fields[0], Package: fields[1]}
		for _, test := range tests {
			if expression.MatchString(test) {
				program.Tests = append(program.Tests, test)
			}
		}
		if len(program.Tests) > 0 {
			lacks = append(lacks, program)
		}
	}
	return lacks, nil
}

// String returns a line about the program, and a line for each test unless there are more than 20.
func (l lack) String() string {
	const many = 20
	text := fmt.Sprintf("the images lack %s (apt-get install %s, then make realnodes): %d tests can fail for it\n", l.Program, l.Package, len(l.Tests))
	if len(l.Tests) > many {
		return text
	}
	for _, test := range l.Tests {
		text += "  " + test + "\n"
	}
	return text
}
