package podspec_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestFilesOfOneField: files that show the same share an annotation, so that two volumes with all annotations take no
// more than one. A super pod of an earlier version has one for each, which its volumes name for ever.
func TestFilesOfOneField(t *testing.T) {
	t.Parallel()
	pod := kindtest.TenantPod(func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{"note": "1"}
		pod.Spec.Volumes = []corev1.Volume{downwardFiles(2, "metadata.annotations"), downwardFiles(1, "metadata.labels"), projectedFiles(1, "metadata.annotations")}
	})
	superPod := &corev1.Pod{}
	podspec.SuperPod(pod, superPod, kindtest.OwnerOf(pod.UID), nil, &podspec.PodEnvironment{})
	shown := func(volume int) string { return superPod.Spec.Volumes[volume].DownwardAPI.Items[0].FieldRef.FieldPath }
	const first, third = "downward.tenancy.x-k8s.io/0", "downward.tenancy.x-k8s.io/2"
	require.Equal(t, []string{"metadata.annotations['" + first + "']", "metadata.annotations['" + third + "']"}, []string{shown(0), shown(1)})
	require.Equal(t, "metadata.annotations['"+first+"']", superPod.Spec.Volumes[0].DownwardAPI.Items[1].FieldRef.FieldPath)
	require.Equal(t, "metadata.annotations['"+first+"']", superPod.Spec.Volumes[2].Projected.Sources[0].DownwardAPI.Items[0].FieldRef.FieldPath)
	downward := func() (keys int) {
		for key := range superPod.Annotations {
			if strings.HasPrefix(key, "downward.") {
				keys++
			}
		}
		return keys
	}
	require.Equal(t, 2, downward())

	const earlier = "downward.tenancy.x-k8s.io/3"
	superPod.UID, superPod.Annotations[earlier], pod.Annotations["note"] = "super-uid", "", "2"
	podspec.SuperPod(pod, superPod, kindtest.OwnerOf(pod.UID), nil, nil)
	require.Equal(t, []string{"note=\"2\"", "note=\"2\""}, []string{superPod.Annotations[first], superPod.Annotations[earlier]})
	require.Equal(t, 3, downward())
}

// TestFilesThatGrow: what a pod shows of itself may become too much while it runs. Its files stay as they were, the
// tenant is told once, and all else goes down.
func TestFilesThatGrow(t *testing.T) {
	t.Parallel()
	var updated *corev1.Pod
	p := kindtest.NewPool(t, interceptor.Funcs{Update: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.UpdateOption) error {
		updated, _ = object.(*corev1.Pod)
		return nil
	}})
	p.Placed(t)
	pod, _, key := p.Running(t, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{"note": "short"}
		pod.Spec.Volumes = []corev1.Volume{downwardFiles(1, "metadata.annotations")}
	})
	pod.Annotations["note"], pod.Labels["team"], pod.Spec.Containers[0].Image = strings.Repeat(`"`, 140<<10), "a", "image:2"
	for range 3 {
		_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
		require.NoError(t, err)
		require.NotNil(t, updated)
		updated.Status.Phase = corev1.PodRunning
		p.SuperCache[kind.Pod] = []client.Object{updated}
		live := &corev1.Pod{}
		require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), live))
		pod.ResourceVersion = live.ResourceVersion
	}
	require.Equal(t, []string{"image:2", "a", "note=\"short\""},
		[]string{updated.Spec.Containers[0].Image, updated.Labels["label.tenancy.x-k8s.io/team"], updated.Annotations["downward.tenancy.x-k8s.io/0"]})
	require.Equal(t, []string{"Warning TenantLimit Super cluster r1: the files of its downward API show 286768 bytes of labels and annotations: at most 262144 go down"}, p.Told())
}

// TestFilesOfANewPod: two volumes with large annotations go down, and what an API server would refuse is told in its
// words: how much there is, and how much may be.
func TestFilesOfANewPod(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		size int
		want string
	}{
		{name: "two volumes", size: 140 << 10},
		{
			name: "more than there is room for beside the owner", size: 262_144 - 100,
			want: "Warning TenantLimit Super cluster r1: the annotations of its super pod would take ",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBounded(t)
			pod := kindtest.TenantPod(func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{"note": strings.Repeat("x", tc.size)}
				pod.Spec.Volumes = []corev1.Volume{downwardFiles(1, "metadata.annotations"), downwardFiles(1, "metadata.annotations")}
			})
			b.TenantCache[kind.Pod] = []client.Object{pod}
			b.reconcile(pod)
			told := strings.Join(b.Told(), "\n")
			require.Equal(t, tc.want == "", b.created == 1, told)
			require.True(t, strings.HasPrefix(told, tc.want), told)
		})
	}
}
