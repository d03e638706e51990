package main

import (
	"fmt"
	"go/doc"
	"strings"

	"github.com/superpool/superpool/plugins"
)

// library comes before the list of plugins of plugins/library.
const library = "Built here ([plugins/library](../../plugins/library/README.md)), with names and args of scheduler-plugins: no release of\n" +
	"it that can be downloaded has plugins that compile with this version of Kubernetes."

// pluginsPage lists the plugins of plugins.Entries: ours with the first sentence of their packages' comments, those in
// place of scheduler-plugins', and those that are not registered with the reason.
func pluginsPage(code *source) (string, error) {
	var ours, theirs, left [][]string
	for _, entry := range plugins.Entries(plugins.Options{}) {
		about := strings.TrimSpace(entry.Doc)
		if entry.InPlaceOf != "" {
			about += " In the place of " + entry.InPlaceOf + "."
		}
		var schedulers []string
		for _, scheduler := range entry.Schedulers {
			schedulers = append(schedulers, string(scheduler))
		}
		folder := "plugins/" + strings.ToLower(entry.Name)
		synopsis, exists := code.packageSynopsis(folder)
		switch of := strings.Join(schedulers, ", "); {
		case entry.Factory == nil:
			left = append(left, []string{entry.Name, entry.WhyNot})
		case exists && synopsis == "":
			return "", fmt.Errorf("no file of %s has a package comment", folder)
		case exists:
			name := fmt.Sprintf("[%s](../../%s/README.md)", entry.Name, folder)
			ours = append(ours, []string{name, of, strings.TrimSpace(synopsis + " " + about)})
		default:
			theirs = append(theirs, []string{entry.Name, of, about})
		}
	}
	columns := []string{"plugin", "scheduler of", "what it does"}
	return notice + "# Plugins\n\n" + table(columns, ours) +
		"\n## In place of scheduler-plugins'\n\n" + library + "\n\n" + table(columns, theirs) +
		"\n## Not registered\n\n" + table([]string{"plugin", "why not"}, left), nil
}

// packageSynopsis returns the first sentence of the comment of the package in a folder, without "Package name", and
// false if no file lies there.
func (s *source) packageSynopsis(folder string) (string, bool) {
	exists := false
	for _, path := range s.paths {
		name, found := strings.CutPrefix(path, folder+"/")
		if !found || strings.Contains(name, "/") {
			continue
		}
		exists = true
		if file := s.files[path]; file.Doc != nil {
			sentence := new(doc.Package).Synopsis(file.Doc.Text())
			return constant{Name: "Package " + file.Name.Name, Doc: sentence}.meaning(), true
		}
	}
	return "", exists
}
