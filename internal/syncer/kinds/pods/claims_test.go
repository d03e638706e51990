package pods_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/kinds/pods"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestReferToClaims: a generic ephemeral volume is the claim of its pod.
func TestReferToClaims(t *testing.T) {
	t.Parallel()
	pod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Name = "web-1"
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: true}}},
		}
	})
	require.True(t, pods.ReferToClaims(pod))
	require.Empty(t, cmp.Diff([]corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-1-scratch"}}},
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data", ReadOnly: true}}},
	}, pod.Spec.Volumes))
	require.False(t, pods.ReferToClaims(pod))
}
