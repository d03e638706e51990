package scheduling

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

// told are the warnings of an API server.
type told struct {
	mu   sync.Mutex
	says []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *told) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.says = append(w.says, text)
}

// all returns them, and forgets them.
func (w *told) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	says := w.says
	w.says = nil
	return says
}

// TestAWarningOfPlainCordon: whoever cordons a virtual Node by kubectl is told what that does, once. Who writes anything else,
// kubectl vc, and who cordons any other Node are not.
func TestAWarningOfPlainCordon(t *testing.T) {
	w := shared
	w.run(t)
	w.putBack(t)
	require.NoError(t, controlplane.Apply(t.Context(), w.metaPlane, "base/cordon-warning.yaml"))
	other := builders.Node("of-the-meta-cluster").Obj()
	require.NoError(t, w.meta.Create(t.Context(), other))
	t.Cleanup(func() { require.NoError(t, w.meta.Delete(context.WithoutCancel(t.Context()), other)) })

	var told told
	config := rest.CopyConfig(w.metaPlane.Config)
	config.WarningHandlerWithContext = &told
	meta, err := client.New(config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	// kubectl sends strategic merge patches without the name of a field manager.
	patch := func(node, subresource, patch string, options ...client.PatchOption) []string {
		t.Helper()
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		var err error
		if raw := client.RawPatch(types.StrategicMergePatchType, []byte(patch)); subresource == "" {
			err = meta.Patch(t.Context(), object, raw, options...)
		} else {
			err = meta.Status().Patch(t.Context(), object, raw)
		}
		require.NoError(t, err)
		return told.all()
	}
	const cordon, uncordon, taint = `{"spec":{"unschedulable":true}}`, `{"spec":{"unschedulable":null}}`, `{"spec":{"taints":[{"key":"maintenance","effect":"NoSchedule"}]}}`
	warning := []string{"Validation failed for ValidatingAdmissionPolicy 'superpool-cordon' with binding 'superpool-cordon': " +
		"super cluster r1 is cordoned: nothing new goes there, and what is there stays. kubectl vc drain r1 empties it"}
	require.Eventually(t, func() bool { // the API server has seen the policy
		return len(patch("r1", "", cordon, client.DryRunAll)) > 0
	}, patience, tick, "a warning")
	require.Empty(t, cmp.Diff(warning, patch("r1", "", cordon)))
	for name, says := range map[string][]string{
		"cordoned already":      patch("r1", "", cordon),
		"labels of a cordoned":  patch("r1", "", `{"metadata":{"labels":{"example.com/a":"b"}}}`),
		"no label":              patch("r1", "", `{"metadata":{"labels":{"example.com/a":null}}}`),
		"status of a cordoned":  patch("r1", "status", `{"status":{"conditions":[{"type":"example.com/A","status":"True"}]}}`),
		"uncordon":              patch("r1", "", uncordon),
		"a taint":               patch("r1", "", taint),
		"by kubectl vc":         patch("r1", "", cordon, client.FieldOwner("kubectl-vc")),
		"uncordon of kubectl":   patch("r1", "", uncordon),
		"a Node of the cluster": patch(other.Name, "", cordon),
	} {
		require.Empty(t, says, name)
	}
	_, said, code := w.operator(t).vc(t, "cordon", "r1")
	require.Zero(t, code)
	require.Empty(t, said, "kubectl vc cordon says itself what it does")
}
