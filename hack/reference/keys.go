package main

import (
	"fmt"
	"regexp"
	"strings"
)

// whoPattern is the last sentence of a key's comment.
var whoPattern = regexp.MustCompile(`^(.*?) ?Written by ([^;]+); read by ([^;]+)\.$`)

// keysPage lists annotations, labels and taints. A key whose comment does not end with "Written by ...; read by ...."
// is an error.
func keysPage(code *source) (string, error) {
	constants, err := code.constants("Annotation", "Label", "Taint", "DeprecatedAnnotation", "Finalizer")
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString(notice + "# Annotations and labels\n")
	group := ""
	var rows [][]string
	flush := func() {
		if len(rows) > 0 {
			fmt.Fprintf(&page, "\n%s\n\n%s", group, table([]string{"key", "what", "written by", "read by"}, rows))
		}
		rows = nil
	}
	for _, one := range constants {
		if !strings.HasPrefix(one.Folder, "apis/") || !strings.Contains(one.Value, "/") {
			continue
		}
		if one.Group != group {
			flush()
			group = one.Group
		}
		who := whoPattern.FindStringSubmatch(one.Doc)
		if who == nil {
			return "", fmt.Errorf(`the comment of %s in %s must end with "Written by ...; read by ...."`, one.Name, one.Folder)
		}
		one.Doc = who[1]
		rows = append(rows, []string{"`" + one.Value + "`", one.meaning(), who[2], who[3]})
	}
	flush()
	return page.String(), nil
}
