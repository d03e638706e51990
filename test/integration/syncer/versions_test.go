package syncer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// testFieldsDropped: of a field that the super cluster lacks, the tenant is told. Nobody has said here which version
// the super cluster has.
func (w *world) testFieldsDropped(t *testing.T) {
	pod := newPod("web", "overrides")
	pod.Spec.HostnameOverride = new("web")
	create(t, w.tenant, pod) // which has the field only if the tenant is new enough
	superPod := appears(t, w.super, w.superName("web"), pod.Name, &corev1.Pod{}, nil)
	if pod.Spec.HostnameOverride != nil && superPod.Spec.HostnameOverride == nil {
		w.warned(t, "web", pod.Name, "FieldsDropped")
		return
	}
	require.Equal(t, pod.Spec.HostnameOverride, superPod.Spec.HostnameOverride)
	events := &corev1.EventList{}
	require.NoError(t, w.tenant.List(t.Context(), events))
	for i := range events.Items { // of all pods before, too
		require.NotEqual(t, "FieldsDropped", events.Items[i].Reason, events.Items[i].Message)
	}
}
