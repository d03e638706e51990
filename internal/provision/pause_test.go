package provision

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
)

// pause asks for a pause, or takes that back. given is whether vc-scheduler says that the tenant holds nothing any more.
func (b *bed) pause(paused, given bool) {
	b.t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
	vc.Spec.Paused = paused
	require.NoError(b.t, b.reconciler.Client.Update(b.t.Context(), vc))
	status := metav1.ConditionFalse
	if given {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&vc.Status.Conditions, metav1.Condition{Type: tenancyv1alpha1.ConditionPaused, Status: status, Reason: "Test"})
	require.NoError(b.t, b.reconciler.Client.Status().Update(b.t.Context(), vc))
}

// sizes returns how many pods the workloads are to have, in the order in which they are made.
func (b *bed) sizes() (sizes []int32) {
	b.t.Helper()
	for _, name := range []string{controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager} {
		object := workload(name)
		require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKeyFromObject(object), object))
		switch live := object.(type) {
		case *appsv1.StatefulSet:
			sizes = append(sizes, *live.Spec.Replicas)
		case *appsv1.Deployment:
			sizes = append(sizes, *live.Spec.Replicas)
		}
	}
	return sizes
}

// ended says that a workload has no pods any more.
func (b *bed) ended(name string) {
	b.t.Helper()
	object := workload(name)
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKeyFromObject(object), object))
	switch live := object.(type) {
	case *appsv1.StatefulSet:
		live.Status.Replicas, live.Status.ObservedGeneration = 0, live.Generation
		require.NoError(b.t, b.reconciler.Client.DeleteAllOf(b.t.Context(), &corev1.Pod{}, client.InNamespace(root)))
	case *appsv1.Deployment:
		live.Status = appsv1.DeploymentStatus{ObservedGeneration: live.Generation}
	}
	require.NoError(b.t, b.reconciler.Client.Status().Update(b.t.Context(), object))
}

// TestAPause: a control plane runs until its tenant holds nothing. Then its programs end, the one that asks first, and
// afterwards they come back as they were, whatever was changed meanwhile.
func TestAPause(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	b.pause(true, false)
	b.reconcile()
	require.Equal(t, []int32{1, 1, 1}, b.sizes(), "pods are deleted through it")
	lacks, _ := b.conditions()
	require.Empty(t, cmp.Diff(map[string]string{"Paused": "Test"}, lacks))

	b.pause(true, true)
	for _, step := range []struct {
		ended string
		want  []int32
		says  string
	}{
		{want: []int32{1, 1, 0}, says: "waiting for the end of kube-controller-manager"},
		{ended: controlplane.ControllerManager, want: []int32{1, 0, 0}, says: "waiting for the end of kube-apiserver"},
		{ended: controlplane.APIServer, want: []int32{0, 0, 0}, says: "waiting for the end of etcd"},
		{ended: controlplane.Etcd, want: []int32{0, 0, 0}, says: "nothing of its control plane runs"},
	} {
		if step.ended != "" {
			b.ended(step.ended)
		}
		b.reconcile()
		require.Equal(t, step.want, b.sizes())
		_, message := b.conditions()
		require.Equal(t, "The tenant is paused: "+step.says, message)
		before := b.writes
		b.reconcile()
		require.Equal(t, before, b.writes)
	}
	lacks, _ = b.conditions()
	require.Empty(t, cmp.Diff(map[string]string{"EtcdReady": "Paused", "APIServerReady": "Paused", "ControllerManagerReady": "Paused", "Exposed": "Paused", "UpToDate": "Paused"}, lacks))
	require.Equal(t, "v1.37.2", b.version())

	b.pause(false, false)
	b.reconcile()
	require.Equal(t, []int32{1, 0, 0}, b.sizes())
	b.ready(controlplane.Etcd)
	b.reconcile()
	require.Equal(t, []int32{1, 1, 0}, b.sizes())
	b.ready(controlplane.APIServer)
	b.reconcile()
	b.ready(controlplane.ControllerManager)
	b.reconcile()
	require.Equal(t, []int32{1, 1, 1}, b.sizes())
	lacks, _ = b.conditions()
	require.Empty(t, cmp.Diff(map[string]string{"Paused": "Test"}, lacks))
}

// TestAResumeWithoutClusterVersion: where the ClusterVersion is gone all comes back as it was.
func TestAResumeWithoutClusterVersion(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	b.paused()
	b.pause(false, false)
	b.delete(&tenancyv1alpha1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "v1.37"}})
	b.reconcile()
	_, message := b.conditions()
	require.Contains(t, message, "There is no ClusterVersion v1.37")
	require.Equal(t, []int32{1, 1, 1}, b.sizes())
}

// paused returns a bed whose control plane is scaled to nothing.
func (b *bed) paused() {
	b.t.Helper()
	b.pause(true, true)
	for _, name := range []string{controlplane.ControllerManager, controlplane.APIServer, controlplane.Etcd} {
		b.reconcile()
		b.ended(name)
	}
	b.reconcile()
	require.Equal(b.t, []int32{0, 0, 0}, b.sizes())
}

// TestAResumeIntoWhatIsRefused: where the version is refused, or waits for a backup, all comes back as it was.
func TestAResumeIntoWhatIsRefused(t *testing.T) {
	t.Parallel()
	for wanted, why := range map[string]string{
		"v1.35.0": "API servers of v1.37.2 may have written what those of v1.35.0 do not read",
		"v1.38.0": "A backup is due, and no member of etcd is ready",
	} {
		t.Run(wanted, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.whole()
			b.paused()
			b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
				version.KubernetesVersion, version.Etcd.Image, version.Backup = wanted, "newer", &tenancyv1alpha1.BackupTemplate{}
			})
			b.pause(false, false)
			b.reconcile()
			_, message := b.conditions()
			require.Contains(t, message, why)
			require.Equal(t, []int32{1, 1, 1}, b.sizes())
			set := workload(controlplane.Etcd).(*appsv1.StatefulSet)
			require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set))
			require.Equal(t, "of v1.37.2", set.Spec.Template.Spec.Containers[0].Image)
			before := b.writes
			b.reconcile()
			require.Equal(t, before, b.writes)

			b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
				version.KubernetesVersion, version.Etcd.Image, version.Backup = "v1.37.2", "of v1.37.2", nil
			})
			b.made()
			missing, _ := b.conditions()
			require.Empty(t, cmp.Diff(map[string]string{"Paused": "Test"}, missing))
		})
	}
}

// TestAPauseOfWhatWasNeverMade scales nothing, and makes nothing.
func TestAPauseOfWhatWasNeverMade(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.pause(true, true)
	b.reconcile()
	require.Empty(t, b.exists())
	_, message := b.conditions()
	require.Equal(t, "The tenant is paused: nothing of its control plane runs", message)
}
