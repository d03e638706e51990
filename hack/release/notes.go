package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// writeNotes writes NOTES.md: where to begin, what has changed by the changelog, and how to upgrade.
func (r *release) writeNotes(images []*packed) error {
	changelog, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return fmt.Errorf("reading the changelog: %w", err)
	}
	operating, err := os.ReadFile(filepath.Join(r.root, "docs", "operating.md"))
	if err != nil {
		return fmt.Errorf("reading the steps of an upgrade: %w", err)
	}
	changes := section(string(changelog), r.version)
	if changes == "" {
		r.say("CHANGELOG.md has no section %s: NOTES.md has what is under Unreleased", r.version)
		changes = section(string(changelog), "Unreleased")
	}
	steps := section(string(operating), "Upgrading")
	if changes == "" || steps == "" {
		return fmt.Errorf("the changelog has neither a section %s nor Unreleased, or docs/operating.md no section Upgrading", r.version)
	}
	var notes strings.Builder
	_, _ = fmt.Fprintf(&notes, "# Superpool %s\n\nCommit %s. [Installing](%s) says what is for what.\n\n| image | digest |\n|---|---|\n",
		r.version, r.revision, link("docs/install.md", r.version))
	for _, image := range images {
		_, _ = fmt.Fprintf(&notes, "| `%s` | `%s` |\n", image.repository.Tag(r.version), image.digest)
	}
	notes.WriteString("\n## Changes\n\n" + absolute(changes, "CHANGELOG.md", r.version) + "\n## Upgrading\n\n" + absolute(steps, "docs/operating.md", r.version))
	return r.save("NOTES.md", []byte(notes.String()))
}

// section returns what is below a heading of the second level, up to the next one; a heading may have a date behind the
// title. It returns "" without one.
func section(text, title string) string {
	var lines []string
	inside := false
	for line := range strings.Lines(text) {
		if heading, is := strings.CutPrefix(line, "## "); is {
			name, _, _ := strings.Cut(strings.TrimSpace(heading), " ")
			inside = strings.Trim(name, "[]") == title
			continue
		}
		if inside {
			lines = append(lines, line)
		}
	}
	found := strings.TrimSpace(strings.Join(lines, ""))
	if found == "" {
		return ""
	}
	return found + "\n"
}

var relativeLink = regexp.MustCompile(`\]\(([^):]*)\)`)

// absolute makes links of a document of the repository work outside of it.
func absolute(text, document, version string) string {
	return relativeLink.ReplaceAllStringFunc(text, func(match string) string {
		target := relativeLink.FindStringSubmatch(match)[1]
		if strings.HasPrefix(target, "#") {
			target = path.Base(document) + target
		}
		return "](" + link(path.Join(path.Dir(document), target), version) + ")"
	})
}

func link(target, version string) string {
	return "https://" + module + "/blob/" + version + "/" + target
}
