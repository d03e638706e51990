package claimhome_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/claimhome"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, annotation, volume, want string }{
		{name: "none was chosen"},
		{name: "chosen", annotation: "r1", want: "r1"},
		{name: "bound", annotation: "r2", volume: "r1.pvc-1", want: "r1"},
		{name: "bound to a volume of the tenant's", annotation: "r2", volume: "own"},
		{name: "no id was chosen", annotation: "no id"},
		{name: "what was chosen is too long", annotation: strings.Repeat("r", 64)},
		{name: "bound to a volume whose name begins with no id", annotation: "r2", volume: strings.Repeat("r", 64) + ".pvc-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: tc.volume}}
			if tc.annotation != "" {
				claim.Annotations = map[string]string{"scheduler.tenancy.x-k8s.io/superCluster": tc.annotation}
			}
			require.Equal(t, tc.want, claimhome.Of(claim))
		})
	}
}

func TestOfferedBy(t *testing.T) {
	t.Parallel()
	require.Empty(t, claimhome.OfferedBy(&storagev1.StorageClass{}))
	require.Equal(t, []string{"r1", "r2"}, claimhome.OfferedBy(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"offered-by.tenancy.x-k8s.io/r2": "x", "offered-by.tenancy.x-k8s.io/r1": "", "offered-by.tenancy.x-k8s.io/": "x",
		"offered-by.tenancy.x-k8s.io/not an id": "x", "other": "r3",
	}}}))
}

func TestClaimName(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	for want, source := range map[string]corev1.VolumeSource{
		"":     {ConfigMap: &corev1.ConfigMapVolumeSource{}},
		"data": {PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
		"p-v":  {Ephemeral: &corev1.EphemeralVolumeSource{}},
	} {
		require.Equal(t, want, claimhome.ClaimName(pod, &corev1.Volume{Name: "v", VolumeSource: source}))
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	group, foreign := "snapshot.storage.k8s.io", "other"
	local := func(group *string, kind string) *corev1.TypedLocalObjectReference {
		return &corev1.TypedLocalObjectReference{APIGroup: group, Kind: kind, Name: "s"}
	}
	ref := func(namespace *string) *corev1.TypedObjectReference {
		return &corev1.TypedObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "s", Namespace: namespace}
	}
	for _, tc := range []struct {
		name string
		spec corev1.PersistentVolumeClaimSpec
		want string
	}{
		{name: "none"},
		{name: "a snapshot", spec: corev1.PersistentVolumeClaimSpec{DataSource: local(&group, "VolumeSnapshot")}, want: "s"},
		{name: "as API servers write it", spec: corev1.PersistentVolumeClaimSpec{DataSource: local(&group, "VolumeSnapshot"), DataSourceRef: ref(nil)}, want: "s"},
		{name: "a claim", spec: corev1.PersistentVolumeClaimSpec{DataSource: local(nil, "PersistentVolumeClaim")}},
		{name: "a snapshot of nobody's group", spec: corev1.PersistentVolumeClaimSpec{DataSource: local(nil, "VolumeSnapshot")}},
		{name: "of another namespace", spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: ref(&foreign)}},
		{name: "of another namespace, beside one of this", spec: corev1.PersistentVolumeClaimSpec{DataSource: local(&group, "VolumeSnapshot"), DataSourceRef: ref(&foreign)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, claimhome.Snapshot(&corev1.PersistentVolumeClaim{Spec: tc.spec}))
		})
	}
}
