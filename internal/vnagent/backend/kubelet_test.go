package backend

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReadPods: a list that breaks off is no shorter list.
func TestReadPods(t *testing.T) {
	t.Parallel()
	two := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"items": "items"}}}, {ObjectMeta: metav1.ObjectMeta{Name: "q"}},
	}}
	text, err := json.Marshal(two)
	require.NoError(t, err)
	got, err := readPods(strings.NewReader(string(text)))
	require.NoError(t, err)
	if diff := cmp.Diff([]*corev1.Pod{&two.Items[0], &two.Items[1]}, got); diff != "" {
		t.Error("pods (-want +got):", diff)
	}
	for end := range strings.LastIndex(string(text), "]") {
		_, err := readPods(strings.NewReader(string(text)[:end]))
		require.Error(t, err, string(text)[:end])
	}
	for _, empty := range []string{`{"kind":"PodList","items":null}`, `{"items":[],"kind":"PodList"}`} {
		got, err := readPods(strings.NewReader(empty))
		require.NoError(t, err)
		require.Empty(t, got)
	}
	for _, other := range []string{"", "no", `{"items":7}`, `{"items":{"a":{}}}`, `{"items":["a"]}`} {
		_, err := readPods(strings.NewReader(other))
		require.Error(t, err, other)
	}
}
