package stores

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/controlplane"
)

// TestAnExternalStoreThatIsWhole: API servers are told where it is before anything is made of them, also where somebody
// changes the ConfigMap meanwhile: else theirs would be a store of their own, which nobody has made.
func TestAnExternalStoreThatIsWhole(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	first := b.plane()
	require.Zero(t, b.make(first))
	require.Equal(t, &controlplane.External{Endpoints: []string{"https://a:2379", "https://b:2379"}, Secret: "external", ID: "a"}, first.External)
	require.NotEmpty(t, first.Trusted[controlplane.EtcdCA])
	b.dialed = func() {
		told := b.told()
		told.Labels = nil
		b.update(told)
	}
	second := b.plane()
	require.Zero(t, b.make(second))
	require.Equal(t, first.External, second.External)
	b.dialed = nil
	record, err := b.stores.Record(t.Context(), root)
	require.NoError(t, err)
	_, err = b.stores.Open(t.Context(), b.plane(), record, "")
	require.ErrorContains(t, err, "ConfigMap "+root+"/etcd is not vc-manager's: kubectl -n "+root+" label configmap etcd app.kubernetes.io/managed-by=vc-manager")
}
