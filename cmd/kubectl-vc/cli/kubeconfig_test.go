package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCurrent: of a kubeconfig that somebody else wrote the current context is used, and none that runs a program or has none.
func TestCurrent(t *testing.T) {
	t.Parallel()
	const one = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}, {name: b, context: {cluster: b, user: a}}],
		clusters: [{name: a, cluster: {server: "https://a"}}, {name: b, cluster: {server: "https://b"}}], users: [{name: a, user: {token: x}}]}`
	text, err := current([]byte(strings.ReplaceAll(one, "\t", " ")))
	require.NoError(t, err)
	require.Contains(t, string(text), "https://a")
	require.NotContains(t, string(text), "https://b")
	for _, hostile := range []string{
		`{apiVersion: v1, kind: Config, clusters: [{name: "", cluster: {server: "https://a"}}]}`,
		strings.ReplaceAll(strings.Replace(one, "token: x", "exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}", 1), "\t", " "),
		strings.ReplaceAll(strings.Replace(one, "token: x", "tokenFile: /etc/passwd", 1), "\t", " "),
	} {
		_, err := current([]byte(hostile))
		require.Error(t, err, hostile)
	}
}
