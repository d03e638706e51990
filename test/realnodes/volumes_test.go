//go:build realnodes

package realnodes_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// keeps is a script that writes a text of its own to its volume, unless that has one, and prints what the volume has.
const keeps = `[ -s /data/text ] || cat /proc/sys/kernel/random/uuid >/data/text; cat /data/text; exec sleep 3600`

// TestStatefulData lets a StatefulSet keep data in folders of nodes: over the deletion of a pod, over scaling, and over
// a drain of the super cluster that has them, in which its pod waits and says why. Then a claim is deleted, and its
// volume in the super cluster goes, folder and all. It is not parallel: everything leaves a super cluster.
func TestStatefulData(t *testing.T) {
	const namespace = "stateful"
	meta, tenant := connect(t, "meta"), tenant1(t)
	afterwardsWhole(t)
	tenant.namespace(t, namespace, 4)
	eventually(t, "two slices are in each super cluster", placed(tenant, namespace, map[string]int{"r1": 2, "r2": 2}))
	tenant.keep(t, namespace, 2)
	first, second := tenant.another(t, namespace, "db-0", ""), tenant.another(t, namespace, "db-1", "")
	data := map[string]string{}
	for _, pod := range []*corev1.Pod{first, second} {
		data[pod.Name] = tenant.run(t, namespace, "exec", pod.Name, "--", "cat", "/data/text")
		require.NotEmpty(t, data[pod.Name])
	}
	home := first.Labels[schedulerv1alpha1.LabelSuperCluster]
	volume := tenant.volumeOf(t, namespace, "data-db-0")
	require.True(t, strings.HasPrefix(volume, home+"."), "volume %s is in %s", volume, home)
	same := func(pod *corev1.Pod, is *corev1.Pod) {
		t.Helper()
		require.Equal(t, is.Labels[schedulerv1alpha1.LabelSuperCluster], pod.Labels[schedulerv1alpha1.LabelSuperCluster])
		require.Equal(t, is.Spec.NodeName, pod.Spec.NodeName, "its volume is a folder of that node")
		require.Equal(t, data[pod.Name], tenant.run(t, namespace, "exec", pod.Name, "--", "cat", "/data/text"))
	}

	tenant.run(t, namespace, "delete", "pod", "db-0")
	same(tenant.another(t, namespace, first.Name, first.UID), first)

	tenant.run(t, namespace, "scale", "statefulset", "db", "--replicas=1")
	tenant.run(t, namespace, "wait", "--for=delete", "pod/db-1", "--timeout="+patience.String())
	tenant.run(t, namespace, "scale", "statefulset", "db", "--replicas=2")
	same(tenant.another(t, namespace, second.Name, second.UID), second)

	// A drain moves what can be moved: not the claim, nor the pod that needs it.
	meta.run(t, "", "taint", "node", home, "maintenance=test:NoExecute")
	undrain := func(ctx context.Context) error {
		return meta.command(ctx, t, "", "taint", "node", home, "maintenance-").Run()
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { _ = undrain(ctx) }) // fails where the test has done it
	eventually(t, "the pod waits and says why", func(ctx context.Context) (bool, error) {
		pod, err := tenant.client.CoreV1().Pods(namespace).Get(ctx, "db-0", metav1.GetOptions{})
		if err != nil {
			return false, orMissing(err)
		}
		for i := range pod.Status.Conditions {
			if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return strings.Contains(c.Message, "data-db-0") && strings.Contains(c.Message, home), nil
			}
		}
		return false, nil
	})
	eventually(t, "the operator is told that volumes stay", func(ctx context.Context) (bool, error) {
		node, err := meta.client.CoreV1().Nodes().Get(ctx, home, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == schedulerv1alpha1.NodeDrained && c.Reason == "VolumesStay"
		}), err
	})
	require.Equal(t, volume, tenant.volumeOf(t, namespace, "data-db-0"), "the claim stays where it is")

	require.NoError(t, undrain(t.Context()))
	same(tenant.another(t, namespace, first.Name, first.UID), first)

	// Nothing is left of a claim that its tenant deletes.
	folders := filepath.Join(bed(t), "nodes", hostOfNode(first.Spec.NodeName), "var", "local-path-provisioner", strings.TrimPrefix(volume, home+".")+"_*")
	found, err := filepath.Glob(folders)
	require.NoError(t, err)
	require.Len(t, found, 1)
	tenant.run(t, namespace, "scale", "statefulset", "db", "--replicas=0")
	tenant.run(t, namespace, "delete", "pvc", "data-db-0", "--timeout="+patience.String())
	superVolume := strings.TrimPrefix(volume, home+".")
	super := connect(t, home)
	eventually(t, "the volumes are gone on both sides", func(ctx context.Context) (bool, error) {
		for _, of := range []struct {
			in   *cluster
			name string
		}{{super, superVolume}, {tenant, volume}} {
			_, err := of.in.client.CoreV1().PersistentVolumes().Get(ctx, of.name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return true, nil
	})
	found, err = filepath.Glob(folders)
	require.NoError(t, err)
	require.Empty(t, found)
	require.NotEmpty(t, tenant.volumeOf(t, namespace, "data-db-1"), "the other claim stays")
}

// orMissing returns nil for an object that is not there, else err.
func orMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// keep creates a StatefulSet db whose pods have a volume each.
func (c *cluster) keep(t *testing.T, namespace string, replicas int32) {
	t.Helper()
	pod := newPod(t, "db", keeps)
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	_, err := c.client.AppsV1().StatefulSets(namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "db", PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("local-path"),
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Mi")}},
				},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// another waits until a pod is ready whose controller makes it, and that is not an earlier one of its name. It returns
// the pod.
func (c *cluster) another(t *testing.T, namespace, name string, earlier types.UID) (pod *corev1.Pod) {
	t.Helper()
	eventually(t, "another pod "+name+" is ready", func(ctx context.Context) (bool, error) {
		var err error
		pod, err = c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err == nil && pod.UID != earlier && podutil.IsPodReady(pod), orMissing(err)
	})
	return pod
}

// volumeOf returns the name of the volume that a claim is bound to.
func (c *cluster) volumeOf(t *testing.T, namespace, claim string) string {
	t.Helper()
	return c.run(t, namespace, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
}
