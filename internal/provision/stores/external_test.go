package stores

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/provision/objects"
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
	require.Equal(t, 2, b.dials)
	require.Equal(t, b.dials, b.shared.Closed, "connections are closed")
	require.ErrorContains(t, err, "ConfigMap "+root+"/etcd is not vc-manager's: kubectl -n "+root+" label configmap etcd app.kubernetes.io/managed-by=vc-manager")
}

// TestSecretsOfExternalStores: without whom an external store trusts, and who is trusted as it, it is not asked.
func TestSecretsOfExternalStores(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*corev1.Secret)
		want   string
	}{
		"another type": {
			change: func(secret *corev1.Secret) { secret.Type = corev1.SecretTypeTLS },
			want:   "Secret vc-manager/external is of type kubernetes.io/tls: make it anew, of type tenancy.x-k8s.io/external-etcd",
		},
		"no authority": {
			change: func(secret *corev1.Secret) { secret.Data[corev1.TLSPrivateKeyKey] = []byte("none") },
			want:   "Secret vc-manager/external holds no authority: ",
		},
		"none that is trusted": {
			change: func(secret *corev1.Secret) { delete(secret.Data, "ca.crt") },
			want:   "Secret vc-manager/external holds no certificate in key ca.crt: ",
		},
		"too many that are trusted": {
			change: func(secret *corev1.Secret) {
				secret.Data["ca.crt"] = bytes.Repeat(secret.Data["ca.crt"], 64<<10/len(secret.Data["ca.crt"])+1)
			},
			want: "Secret vc-manager/external holds no certificate in key ca.crt: it has ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			secret := &corev1.Secret{}
			require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: "vc-manager", Name: "external"}, secret))
			tc.change(secret)
			b.update(secret)
			store, err := b.stores.Open(t.Context(), b.plane(), &Record{}, "")
			require.NoError(t, err)
			_, err = store.Make(t.Context())
			var broken *objects.BrokenError
			require.ErrorAs(t, err, &broken)
			require.ErrorContains(t, err, tc.want)
			require.Zero(t, b.dials)
			require.Empty(t, b.shared.Users)
		})
	}
}
