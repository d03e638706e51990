package parameters

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRows: each row has its text in a file of the manifests, and each preset a TenantPolicy.
func TestRows(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(".."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path.Join("..", name))
		files[name] = string(content)
		return err
	}))
	values := map[string]string{}
	for _, p := range All() {
		values[p.Name] = "other"
		found := false
		for _, content := range files {
			found = found || strings.Contains(content, p.Text)
		}
		require.True(t, found, "no file has %s", p.Text)
	}
	for name, content := range files {
		put, err := Put(content, values)
		require.NoError(t, err, name)
		require.NotContains(t, put, Registry.Text, name)
		require.NotContains(t, put, ID.Text, name)
		require.NotContains(t, put, Version.Text, name)
	}
	for _, preset := range Presets {
		require.Contains(t, files["policies/"+PolicyOf(preset)+".yaml"], "\n  name: "+PolicyOf(preset)+"\n")
	}
}

// TestPut: what has a value is replaced, also where one text is in another, and what has none stays.
func TestPut(t *testing.T) {
	t.Parallel()
	const text = "ghcr.io/superpool/syncer:latest ghcr.io/superpool/syncer ghcr.io/superpool/vn-agent:latest vc-syncer-supercluster-id"
	for want, values := range map[string]map[string]string{
		text: {"syncer": ""},
		"a/b@c ghcr.io/superpool/syncer ghcr.io/superpool/vn-agent:latest vc-syncer-r1": {"syncer": "a/b@c", "id": "r1"},
		"a/b@c d/syncer d/vn-agent:latest vc-syncer-supercluster-id":                    {"syncer": "a/b@c", "registry": "d"},
	} {
		put, err := Put(text, values)
		require.NoError(t, err)
		require.Equal(t, want, put)
	}
	for _, image := range []string{"ghcr.io/superpool/other:latest", "ghcr.io/superpool/syncer:dev", "ghcr.io/superpool/syncers"} {
		_, err := Put("image: "+image+"\n", nil)
		require.EqualError(t, err, "image "+image+" is of no program that there is")
	}
}

// TestCheck: a value that would change more of a file than its own place is refused.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, p := range All() {
		for _, wrong := range []string{"", "a b", "a\n", "a\nb", `a"`, "{{ .Values }}", "-a", "/a"} {
			require.Error(t, p.Check(wrong), "%s %q", p.Name, wrong)
		}
	}
	for _, id := range []string{"r1", "17", strings.Repeat("a", 52)} {
		require.NoError(t, ID.Check(id))
	}
	require.ErrorContains(t, ID.Check("a-"), `"a-" is not a DNS label`)
	require.ErrorContains(t, ID.Check(strings.Repeat("a", 53)), "is not a DNS label of at most 52 characters")
	require.NoError(t, Registry.Check("localhost:5000/a"))
	require.ErrorContains(t, Registry.Check("a/"), `"a/" is not a registry with a path`)
	require.NoError(t, Images[0].Check("localhost:5000/a/syncer@sha256:ab"))
}
