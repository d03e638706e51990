package objects_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/provision/objects"
)

const root = "default-abc123-acme"

// settings returns a ConfigMap of vc-manager as it is to be.
func settings(value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: "settings", Labels: controlplane.Labels("settings")},
		Data:       map[string]string{"key": value},
	}
}

// writer returns a Writer of a meta cluster with some objects.
func writer(there ...client.Object) objects.Writer {
	c := fake.NewClientBuilder().WithObjects(there...).Build()
	return objects.Writer{Client: c, Reader: c}
}

// TestApply: what was applied is not written again, what somebody else has made or changed is not overwritten.
func TestApply(t *testing.T) {
	t.Parallel()
	w := writer()
	first, err := w.Apply(t.Context(), settings("a"))
	require.NoError(t, err)
	again, err := w.Apply(t.Context(), settings("a"))
	require.NoError(t, err)
	require.Equal(t, first.GetResourceVersion(), again.GetResourceVersion())
	second, err := w.Apply(t.Context(), settings("b"))
	require.NoError(t, err)
	require.NotEqual(t, first.GetResourceVersion(), second.GetResourceVersion())
	require.Equal(t, "b", second.(*corev1.ConfigMap).Data["key"])

	err = w.ApplyOver(t.Context(), settings("c"), first)
	require.True(t, apierrors.IsConflict(err), "it was read before the second one was written: %v", err)

	foreign := settings("a")
	foreign.Labels = nil
	w = writer(foreign)
	_, err = w.Apply(t.Context(), settings("b"))
	var broken *objects.BrokenError
	require.ErrorAs(t, err, &broken)
	require.EqualError(t, err, "ConfigMap "+root+"/settings is not vc-manager's: delete it")
	live := &corev1.ConfigMap{}
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(foreign), live))
	require.Equal(t, "a", live.Data["key"])
}

// TestRevive: a workload gets as many pods as it had, whatever somebody has written there, and none that has pods gets
// others.
func TestRevive(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		had, has int32
		// written is what the annotation says instead, "" for what EndAll has written.
		written string
		want    int32
	}{
		"as many as it had":  {had: 3, want: 3},
		"it has pods":        {had: 3, has: 2, want: 2},
		"no number":          {had: 3, written: "many"},
		"less than none":     {had: 3, written: "-1"},
		"too many":           {had: 3, written: "10", want: 9},
		"more than 32 bits":  {had: 3, written: strconv.Itoa(1<<32 + 1), want: 9},
		"more than any bits": {had: 3, written: "99999999999999999999", want: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: controlplane.APIServer, Labels: controlplane.Labels(controlplane.APIServer)}}
			servers.Spec.Replicas = ptr.To(tc.had)
			w := writer(servers)
			waits, err := w.EndAll(t.Context(), root)
			require.NoError(t, err)
			require.Equal(t, controlplane.APIServer, waits)
			require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(servers), servers))
			require.Zero(t, *servers.Spec.Replicas)
			if tc.written != "" {
				servers.Annotations["tenancy.x-k8s.io/paused-replicas"] = tc.written
			}
			servers.Spec.Replicas = ptr.To(tc.has)
			require.NoError(t, w.Client.Update(t.Context(), servers))
			require.NoError(t, w.Revive(t.Context(), servers, objects.PausedReplicas(servers)))
			require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(servers), servers))
			require.Equal(t, tc.want, *servers.Spec.Replicas)
		})
	}
}
