package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// lack is a program that the images of the bed's nodes do not hold, because the machine that packed them did not have
// it.
type lack struct {
	// Program and Package are its name, and the Debian package that has it.
	Program, Package string
	// Tests are the names of the tests of this run that can fail for it.
	Tests []string
}

// readLacks reads what hack/realnodes/images.sh wrote of the images, rows of hack/lib/packages.sh: program, package,
// "images", and a regular expression over the names of tests. Of these it keeps the ones that are in tests, and no
// program that costs none of them. A file that is not there means that the images are not of this checkout: nothing is
// known of them.
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
		found := lack{Program: fields[0], Package: fields[1]}
		for _, test := range tests {
			if expression.MatchString(test) {
				found.Tests = append(found.Tests, test)
			}
		}
		if len(found.Tests) > 0 {
			lacks = append(lacks, found)
		}
	}
	return lacks, nil
}

// String is one line, and one more for each test unless they are many.
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
