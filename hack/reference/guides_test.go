package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the checkout, from this package.
const root = "../.."

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	span    = regexp.MustCompile("`([^`\n]+)`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	reason  = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	flag    = regexp.MustCompile(`--[a-z][a-z-]+`)
	key     = regexp.MustCompile(`[a-z.]*tenancy\.x-k8s\.io/[A-Za-z-]+`)
	field   = regexp.MustCompile(`^(?:spec\.)?[a-z][A-Za-z]+\.[a-z][A-Za-z.]+$`)
	verb    = regexp.MustCompile(`^kubectl vc (debug [a-z]+|[a-z]+)`)

	// others are reasons and flags of Kubernetes, and files that look like fields.
	others = []string{
		"FailedBinding", "FailedScheduling", "OOMKilled", "ProvisioningFailed", "Terminating", "WaitForFirstConsumer",
		"--kubelet-preferred-address-types", "fs.inotify", "spec.nodeName", "spec.schedulerName", "requests.storage",
	}
)

// unknown returns what the code spans of a page name and no page of the reference has: reasons and conditions, flags,
// labels and annotations, fields, and verbs of kubectl vc. reference has the text of each page by its name.
func unknown(page string, reference map[string]string) []string {
	var missing []string
	want := func(name, of string, texts ...string) {
		has := func(text string) bool { return strings.Contains(reference[of], text) }
		if !slices.ContainsFunc(texts, has) && !slices.ContainsFunc(others, func(other string) bool { return strings.HasPrefix(name, other) }) {
			missing = append(missing, name+" in "+of)
		}
	}
	for _, match := range span.FindAllStringSubmatch(page, -1) {
		text := match[1]
		command := verb.FindStringSubmatch(text)
		switch {
		case reason.MatchString(text):
			want(text, "events-and-conditions.md", "`"+text+"`")
		case field.MatchString(text):
			path := "`spec." + strings.TrimPrefix(text, "spec.")
			want(text, "crds.md", path+"`", path+"[", path+".")
		case command != nil:
			want("kubectl vc "+command[1], "kubectl-vc.md", "\n## "+command[1]+"\n")
			for _, name := range flag.FindAllString(text, -1) {
				want(name, "kubectl-vc.md", "`"+name+"`")
			}
		case strings.HasPrefix(text, "--"):
			want(flag.FindString(text), "flags-and-gates.md", "`"+flag.FindString(text)+"`")
		}
		for _, name := range key.FindAllString(text, -1) {
			want(name, "annotations-and-labels.md", "`"+name+"`")
		}
	}
	return missing
}

// slug returns the fragment by which a heading is linked to.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 127:
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// broken returns the relative links of the page at path, below the root, that lead to no file or to no heading. read
// returns the text of a page, "" for a file without headings and for a folder, and an error where there is nothing.
func broken(path string, read func(path string) (string, error)) ([]string, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	var missing []string
	prose := span.ReplaceAllString(fence.ReplaceAllString(text, ""), "code")
	for _, match := range link.FindAllStringSubmatch(prose, -1) {
		target, fragment, _ := strings.Cut(match[1], "#")
		if strings.Contains(target, ":") {
			continue // a URL
		}
		at := path
		if target != "" {
			at = filepath.Join(filepath.Dir(path), target)
		}
		page, err := read(at)
		if err != nil {
			missing = append(missing, match[1])
			continue
		}
		headings := heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1)
		if fragment != "" && !slices.ContainsFunc(headings, func(one []string) bool { return slug(one[1]) == fragment }) {
			missing = append(missing, match[1])
		}
	}
	return missing, nil
}

// readPage is read of broken for the checkout.
func readPage(path string) (string, error) {
	if filepath.Ext(path) != ".md" {
		_, err := os.Stat(filepath.Join(root, path))
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, path))
	return string(text), err
}

// here are the second cells of the tables of a page, which say what there is in the place of what there was.
var here = regexp.MustCompile(`(?m)^\| .*? \| (.*?) \|`)

func TestGuidesNameWhatThereIs(t *testing.T) {
	t.Parallel()
	reference := map[string]string{}
	for _, name := range sortedKeys(pages()) {
		text, err := readPage("docs/reference/" + name)
		require.NoError(t, err)
		reference[name] = text
	}
	page, err := readPage("docs/troubleshooting.md")
	require.NoError(t, err)
	require.Contains(t, page, "`NotPlaced`", "the test reads another page")
	require.Empty(t, unknown(page, reference))

	page, err = readPage("docs/from-virtualcluster.md")
	require.NoError(t, err)
	var cells []string
	for _, match := range here.FindAllStringSubmatch(page, -1) {
		cells = append(cells, match[1])
	}
	require.Contains(t, cells, "`--super-cluster-kubeconfig`", "the test reads another column")
	require.Empty(t, unknown(strings.Join(cells, "\n"), reference))
}

func TestLinks(t *testing.T) {
	t.Parallel()
	var paths []string
	for _, folder := range []string{".", "docs", "plugins", "examples"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && folder == "." && filepath.Clean(path) != root {
				return filepath.SkipDir
			}
			if filepath.Ext(path) == ".md" {
				below, err := filepath.Rel(root, path)
				paths = append(paths, below)
				return err
			}
			return nil
		}))
	}
	require.Contains(t, paths, "docs/concepts.md")
	require.Contains(t, paths, "README.md")
	for _, path := range paths {
		missing, err := broken(path, readPage)
		require.NoError(t, err)
		require.Empty(t, missing, path)
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	reference := map[string]string{
		"events-and-conditions.md":  "| `NotPlaced` | x |",
		"flags-and-gates.md":        "| `--shard` | x |",
		"kubectl-vc.md":             "\n## drain\n\n| `--all` | x |",
		"annotations-and-labels.md": "| `tenancy.x-k8s.io/cluster` | x |",
		"crds.md":                   "| `spec.limits.writes` | x |",
	}
	for page, want := range map[string][]string{
		"`NotPlaced`, `FailedScheduling`, Elsewhere":               nil,
		"`Placed`, `NotPlacedAtAll`":                               {"Placed in events-and-conditions.md", "NotPlacedAtAll in events-and-conditions.md"},
		"`--shard=1/2`, `--shards`":                                {"--shards in flags-and-gates.md"},
		"`kubectl vc drain --all r1`, `kubectl drain --force`":     nil,
		"`kubectl vc drain --each x`, `kubectl vc fill r1`":        {"--each in kubectl-vc.md", "kubectl vc fill in kubectl-vc.md"},
		"`tenancy.x-k8s.io/cluster=a`, `x.tenancy.x-k8s.io/other`": {"x.tenancy.x-k8s.io/other in annotations-and-labels.md"},
		"`limits.writes`, `spec.limits.writes`, `limits.write`":    {"limits.write in crds.md"},
	} {
		require.Equal(t, want, unknown(page, reference), page)
	}
}

func TestBroken(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"README.md": "[a](docs/a.md) [b](docs/a.md#two-words) [c](docs/a.md#three) [d](docs/b.md) `[g](h)` [e](https://example.com/x.md#y)\n```\n[f](none.md)\n```\n",
		"docs/a.md": "# A\n\n## Two words\n\n[up](../README.md) [here](#two-words) [there](#nowhere)\n\n```sh\n# three\n```\n",
	}
	read := func(path string) (string, error) {
		if text, ok := files[path]; ok {
			return text, nil
		}
		return "", fmt.Errorf("no %s", path)
	}
	for path, want := range map[string][]string{"README.md": {"docs/a.md#three", "docs/b.md"}, "docs/a.md": {"#nowhere"}} {
		missing, err := broken(path, read)
		require.NoError(t, err)
		require.Equal(t, want, missing)
	}
	_, err := broken("none.md", read)
	require.Error(t, err)
	require.Equal(t, "what-is-writerateexceeded-a--b", slug("What is `WriteRateExceeded`: a & b?"))
}
