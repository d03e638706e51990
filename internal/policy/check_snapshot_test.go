package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/policy"
)

// TestCheckSnapshots: what snapshots may be taken, and what claims may be restored from.
func TestCheckSnapshots(t *testing.T) {
	t.Parallel()
	spec := policy.Default().Spec().DeepCopy()
	spec.Offers.VolumeSnapshotClasses, spec.Pods.StorageClasses = []string{"", "quick"}, []string{"fast"}
	spec.Limits.PersistentVolumeClaims = 1
	allowing, err := policy.New("few", spec)
	require.NoError(t, err)
	snapshot := func(kind, class string, source map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "snapshot.storage.k8s.io/v1", "kind": kind, "spec": map[string]any{"volumeSnapshotClassName": class, "source": source},
		}}
	}
	ofClaim, ofContent := map[string]any{"persistentVolumeClaimName": "data"}, map[string]any{"volumeSnapshotContentName": "c"}
	existing := snapshot("VolumeSnapshot", "slow", ofClaim)
	existing.SetUID("uid")
	labelled := snapshot("VolumeSnapshot", "quick", ofClaim)
	labelled.SetLabels(map[string]string{"storage.k8s.io/x": "y"})
	for _, tc := range []struct {
		name   string
		policy *policy.Policy
		object *unstructured.Unstructured
		want   []string
	}{
		{name: "a class that is listed", policy: allowing, object: snapshot("VolumeSnapshot", "quick", ofClaim)},
		{name: "the default class", policy: allowing, object: snapshot("VolumeSnapshot", "", ofClaim)},
		{name: "a class that is not", policy: allowing, object: snapshot("VolumeSnapshot", "slow", ofClaim), want: []string{
			`spec.volumeSnapshotClassName: VolumeSnapshotClass slow is not allowed: offers.volumeSnapshotClasses allows "", quick`,
		}},
		{name: "no classes", policy: policy.Default(), object: snapshot("VolumeSnapshot", "", ofClaim), want: []string{
			"spec.volumeSnapshotClassName: a snapshot of the default VolumeSnapshotClass is not allowed: offers.volumeSnapshotClasses allows none",
		}},
		{name: "a content", policy: allowing, object: snapshot("VolumeSnapshot", "quick", ofContent), want: []string{
			`spec.source.volumeSnapshotContentName: a snapshot may not name a VolumeSnapshotContent, as "c": it is taken of a claim`,
		}},
		{name: "a label", policy: allowing, object: labelled, want: []string{
			`metadata.labels[storage.k8s.io/x]: label storage.k8s.io/x is not allowed: metadata.labels allows "", app.kubernetes.io, apps.kubernetes.io, batch.kubernetes.io, statefulset.kubernetes.io`,
		}},
		{name: "one that exists", policy: allowing, object: existing},
		{name: "another kind of the group", policy: allowing, object: snapshot("VolumeGroupSnapshot", "slow", ofContent)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, refusal := range policy.Check(tc.policy, tc.object, policy.Facts{}) {
				got = append(got, refusal.Field+": "+refusal.Message)
			}
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}

	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("fast"), DataSource: &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "s"},
		DataSourceRef: &corev1.TypedObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "s"},
	}}
	require.Empty(t, policy.Check(allowing, claim, policy.Facts{}))
	claim.Spec.DataSourceRef.Namespace = ptr.To("other")
	require.Len(t, policy.Check(allowing, claim, policy.Facts{}), 2)
	claim.Spec.DataSourceRef.Namespace, claim.Spec.DataSource.Name = nil, "t"
	require.Len(t, policy.Check(allowing, claim, policy.Facts{}), 1)
}
