package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// checkout writes files into a new folder, and parses those below apis and internal.
func checkout(t *testing.T, files map[string]string) (*source, error) {
	t.Helper()
	root := t.TempDir()
	for _, folder := range []string{"apis", "internal"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return parse(root, "apis", "internal")
}

// parsed is checkout of code that is valid.
func parsed(t *testing.T, files map[string]string) *source {
	t.Helper()
	code, err := checkout(t, files)
	require.NoError(t, err)
	return code
}

func TestParse(t *testing.T) {
	t.Parallel()
	code := parsed(t, map[string]string{
		"internal/b/b.go": "package b", "apis/a.go": "package a", "apis/a_test.go": "no Go", "apis/zz_generated.go": "no Go", "apis/read.me": "no Go",
		"hack/h.go": "no Go",
	})
	require.Equal(t, []string{"apis/a.go", "internal/b/b.go"}, code.paths)
	require.Len(t, code.files, 2)

	_, err := checkout(t, map[string]string{"apis/a.go": "package"})
	require.ErrorContains(t, err, "reading apis: ")
	_, err = parse(t.TempDir(), "apis")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestConstants(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		want       []constant
		wantErr    string
	}{
		{name: "none", text: "var ReasonA = `A`"},
		{
			name: "alone", text: "// ReasonA is\n// the first.\nconst ReasonA = \"A\"",
			want: []constant{{Folder: "apis", Name: "ReasonA", Value: "A", Doc: "ReasonA is the first."}},
		},
		{
			name: "in a block", text: "// The reasons.\nconst (\n// ReasonA is it.\nReasonA = `A`\n)",
			want: []constant{{Folder: "apis", Name: "ReasonA", Value: "A", Doc: "ReasonA is it.", Group: "The reasons."}},
		},
		{
			name: "another's value", text: "// ReasonA is it.\nconst ReasonA = `A`\n// ReasonB is that.\nconst ReasonB = ReasonA",
			want: []constant{
				{Folder: "apis", Name: "ReasonA", Value: "A", Doc: "ReasonA is it."}, {Folder: "apis", Name: "ReasonB", Value: "A", Doc: "ReasonB is that."},
			},
		},
		{name: "the value of what is not known", text: "const ReasonB = elsewhere"},
		{name: "the prefix alone", text: "const Reason = `A`"},
		{name: "the prefix of a longer word", text: "const Reasonable = `A`"},
		{name: "not at the beginning", text: "const TheReasonA = `A`"},
		{name: "a number", text: "const ReasonA = 3"},
		{name: "an expression", text: "const ReasonA = `A` + `B`"},
		{name: "several names", text: "const ReasonA, ReasonB = `A`, `B`"},
		{name: "no comment", text: "const ReasonA = `A`", wantErr: "apis/a.go: constant ReasonA has no comment"},
		{name: "a comment of the block is none of its constants", text: "// The reasons.\nconst (\nReasonA = `A`\n)", wantErr: "constant ReasonA has no comment"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := parsed(t, map[string]string{"apis/a.go": "package a\n" + tc.text}).constants("Reason", "Other")
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

// TestConstantsOfTwoPackages: a name stands for the value that it has in its own package.
func TestConstantsOfTwoPackages(t *testing.T) {
	t.Parallel()
	got, err := parsed(t, map[string]string{
		"apis/a/a.go": "package a\n// ReasonA is a's.\nconst ReasonA = `1`",
		"apis/b/b.go": "package b\n// ReasonB is b's.\nconst ReasonB = ReasonA",
	}).constants("Reason")
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]constant{{Folder: "apis/a", Name: "ReasonA", Value: "1", Doc: "ReasonA is a's."}}, got))
}
