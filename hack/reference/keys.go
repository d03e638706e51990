package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// whoPattern is the last sentence of a key's comment.
var whoPattern = regexp.MustCompile(`^(.*?) ?Written by ([^;]+); read by ([^;]+)\.$`)

// ownKeys is the heading of keys that are declared outside of apis.
const ownKeys = "Keys by which the programs remember what they wrote. Nobody else needs to write them."

// views are the packages whose keys are on Pods in memory, which never reach an API server.
var views = []string{"internal/clusterchoice", "internal/nodegroups", "internal/skew", "internal/slicepod", "internal/view"}

// keysPage lists annotations, labels, taints and finalizers. A key whose comment does not end with "Written by ...;
// read by ...." is an error.
func keysPage(code *source) (string, error) {
	constants, err := code.constants("Annotation", "Label", "Taint", "DeprecatedAnnotation", "Finalizer", "annotation", "labelDomain")
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
		if !isKey(one) {
			continue
		}
		if !strings.HasPrefix(one.Folder, "apis/") {
			one.Group = ownKeys
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
		rows = append(rows, []string{"`" + one.Value + "`", escapeHTML(one.meaning()), who[2], who[3]})
	}
	flush()
	return page.String(), nil
}

// isKey returns whether a constant is a key of the pool's that an API server sees.
func isKey(one constant) bool {
	isOurs := strings.Contains(one.Value, "tenancy.x-k8s.io/") || strings.HasPrefix(one.Folder, "apis/") && strings.Contains(one.Value, "/")
	return isOurs && !slices.Contains(views, one.Folder)
}
