package modcache_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/test/modcache"
)

// fakeGo is a go command that answers as `go mod download -json` does.
const fakeGo = `#!/bin/sh
[ "$*" = "mod download -json example.com/module" ] || { echo "called with $*" >&2; exit 2; }
printf '%s' "$ANSWER"
printf '%s' "$WORDS" >&2
exit "$CODE"
`

func TestDir(t *testing.T) {
	for _, tc := range []struct {
		name, answer, words, code string
		want, wantError           string
	}{
		{name: "downloaded", answer: `{"Path": "example.com/module", "Dir": "/cache/example.com/module@v1.0.0"}`, code: "0", want: "/cache/example.com/module@v1.0.0"},
		{name: "the proxy does not answer", answer: `{"Error": "dial tcp: no route to host"}`, code: "1", wantError: "downloading module example.com/module: dial tcp: no route to host"},
		{name: "the go.mod has an error", words: "go: errors parsing go.mod", code: "1", wantError: "go: errors parsing go.mod"},
		{name: "an answer that is no JSON", answer: "warning", code: "0", wantError: "warning"},
		{name: "no folder", answer: `{"Path": "example.com/module"}`, code: "0", wantError: "names no folder"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bin := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(fakeGo), 0o755)) //nolint:gosec // it is run
			t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			t.Setenv("ANSWER", tc.answer)
			t.Setenv("WORDS", tc.words)
			t.Setenv("CODE", tc.code)
			got, err := modcache.Dir(t.Context(), "example.com/module")
			if tc.wantError != "" {
				require.ErrorContains(t, err, tc.wantError)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}
