package provision

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// TestInputThatIsRefusedLater: what no single object shows is said before anything is made of it, and before anything
// changes of what runs. What the API server refuses is in TestInput of test/integration/provision.
func TestInputThatIsRefusedLater(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*tenancyv1alpha1.ClusterVersionSpec)
		// refuses is the name of an object that the meta cluster refuses.
		refuses string
		want    string
		// isNew is whether it is of what never ran alone.
		isNew bool
	}{
		"kubernetesVersion, too old": {
			change: func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v1.33.9" }, isNew: true,
			want: "ClusterVersion v1.37: spec.kubernetesVersion: this vc-manager makes v1.34 to v1.40, and not v1.33.9; what runs goes on",
		},
		"kubernetesVersion, too new": {
			change: func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v1.41.0" }, isNew: true,
			want: "ClusterVersion v1.37: spec.kubernetesVersion: this vc-manager makes v1.34 to v1.40, and not v1.41.0; what runs goes on",
		},
		"kubernetesVersion, of none": {
			change: func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v2.37.0" }, isNew: true,
			want: "this vc-manager makes v1.34 to v1.40, and not v2.37.0",
		},
		"extraArgs, a file that is not given": {
			change: func(version *tenancyv1alpha1.ClusterVersionSpec) {
				version.APIServer.ExtraArgs = map[string]string{"audit-policy-file": "/etc/kubernetes/files/audit.yaml"}
				version.Etcd.Files = []tenancyv1alpha1.ComponentFile{{Name: "audit.yaml", Content: "x"}}
			},
			want: "ClusterVersion v1.37: spec.apiServer.extraArgs: audit-policy-file is /etc/kubernetes/files/audit.yaml, and spec.apiServer.files has no audit.yaml; what runs goes on",
		},
		"what the meta cluster refuses of the last part": {
			refuses: "kube-controller-manager", want: `"kube-controller-manager" is invalid; what runs goes on`,
		},
		"what it refuses of the API servers": {refuses: "kube-apiserver", want: `"kube-apiserver" is invalid; what runs goes on`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := func(version *tenancyv1alpha1.ClusterVersionSpec) {
				version.Etcd.Image, version.APIServer.Image, version.ControllerManager.Image = "other", "other", "other"
				if tc.change != nil {
					tc.change(version)
				}
			}
			says := func(b *bed) {
				t.Helper()
				b.reconcile()
				missing, message := b.conditions()
				require.Equal(t, "Invalid", missing["UpToDate"])
				require.Contains(t, message, tc.want)
				before := b.writes
				b.reconcile()
				require.Equal(t, before, b.writes)
			}
			b := newBed(t, nil)
			b.change(change)
			b.refuses = tc.refuses
			says(b)
			require.Empty(t, b.exists(), "nothing is half made")
			if tc.isNew {
				return
			}
			b = newBed(t, nil)
			b.whole()
			b.refuses = tc.refuses
			b.change(change)
			says(b)
			set := &appsv1.StatefulSet{}
			require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "etcd"}, set))
			require.NotEqual(t, "other", set.Spec.Template.Spec.Containers[0].Image, "nothing is changed before")
			require.True(t, meta.IsStatusConditionTrue(b.vc().Status.Conditions, tenancyv1alpha1.ConditionEtcdReady), "what runs goes on")
		})
	}
}
