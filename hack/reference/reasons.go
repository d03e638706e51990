package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// bothPrograms is who records the Events whose reasons both declare in one place.
const bothPrograms = "vc-scheduler and syncer"

// programs says which program writes what a package below a folder records.
var programs = []struct{ folder, program string }{
	{"internal/syncer", "syncer"},
	{"cmd/syncer", "syncer"},
	{"internal/vnagent", "vn-agent"},
	{"internal/provision", "vc-manager"},
	{"internal/census/controlplanes.go", "vc-manager"},
	{"internal/tenancy", bothPrograms},
	{"apis", ""},
	{"", "vc-scheduler"},
}

func programOf(folder string) string {
	for _, known := range programs {
		if strings.HasPrefix(folder, known.folder) {
			return known.program
		}
	}
	return ""
}

// reasonsPage lists the conditions of our kinds, and the reasons of conditions and Events.
func reasonsPage(code *source) (string, error) {
	conditions, err := code.constants("Condition", "Node")
	if err != nil {
		return "", err
	}
	reasons, err := code.constants("Reason", "reason")
	if err != nil {
		return "", err
	}
	var page strings.Builder
	page.WriteString(notice + "# Events and conditions\n\n## Conditions\n\n")
	var rows [][]string
	for _, one := range conditions {
		if !strings.HasPrefix(one.Folder, "apis/") {
			continue
		}
		if who := whoPattern.FindStringSubmatch(one.Doc); who != nil {
			one.Doc = who[1]
		}
		rows = append(rows, []string{cmp.Or(one.Kind, "virtual Node"), "`" + one.Value + "`", one.meaning()})
	}
	page.WriteString(table([]string{"of", "condition", "what"}, rows))
	page.WriteString("\nTheir reasons:\n\n" + reasonTable(reasons, func(one constant) bool { return strings.HasPrefix(one.Folder, "apis/") }))
	for _, program := range []string{"vc-scheduler", "syncer", bothPrograms} {
		fmt.Fprintf(&page, "\n## Events of %s\n\n%s", program, reasonTable(reasons, func(one constant) bool { return programOf(one.Folder) == program }))
	}
	return page.String(), nil
}

// reasonTable lists the chosen reasons by name. A reason that two packages have is listed once with each meaning,
// joined.
func reasonTable(reasons []constant, chosen func(constant) bool) string {
	meanings := map[string][]string{}
	for _, one := range reasons {
		if meaning := one.meaning(); chosen(one) && !slices.Contains(meanings[one.Value], meaning) {
			meanings[one.Value] = append(meanings[one.Value], meaning)
		}
	}
	var rows [][]string
	for _, reason := range sortedKeys(meanings) {
		rows = append(rows, []string{"`" + reason + "`", strings.Join(meanings[reason], " ")})
	}
	return table([]string{"reason", "what"}, rows)
}
