package view_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	volumehelper "k8s.io/component-helpers/storage/volume"
	corev1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/view"
)

// TestTenantClaim: a home is the selected node of a view of super clusters, whatever a tenant says of nodes.
func TestTenantClaim(t *testing.T) {
	t.Parallel()
	projected, err := view.TenantClaim(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "data", UID: "uid", ResourceVersion: "7", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{
			"scheduler.tenancy.x-k8s.io/superCluster": "r1", "volume.kubernetes.io/selected-node": "r2", "pv.kubernetes.io/bind-completed": "yes", "other": "x",
		}},
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "r1.pv", StorageClassName: ptr.To("fast")},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "data", UID: "uid", ResourceVersion: "7", Annotations: map[string]string{
			"scheduler.tenancy.x-k8s.io/superCluster": "r1", "volume.kubernetes.io/selected-node": "r1", "pv.kubernetes.io/bind-completed": "yes",
		}},
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "r1.pv", StorageClassName: ptr.To("fast")},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}, projected))
	homeless, err := view.TenantClaim(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"volume.kubernetes.io/selected-node": "r2"}}})
	require.NoError(t, err)
	require.Empty(t, homeless.(*corev1.PersistentVolumeClaim).Annotations, "a node that the tenant selects is none")
	forged, err := view.TenantClaim(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"scheduler.tenancy.x-k8s.io/superCluster": strings.Repeat("r", 200000),
	}}})
	require.NoError(t, err)
	require.Empty(t, forged.(*corev1.PersistentVolumeClaim).Annotations, "what is no id is not kept")

	failed := failedchoice.Failures(nil).Plus("r1", failedchoice.Quota, time.Unix(1_000_000, 0)).String()
	for _, tc := range []struct {
		annotations map[string]string
		want        string
	}{
		{map[string]string{"scheduler.tenancy.x-k8s.io/failed-super-clusters": failed}, failed},
		{map[string]string{"scheduler.tenancy.x-k8s.io/failed-super-clusters": failed, "scheduler.tenancy.x-k8s.io/superCluster": "r2"}, ""},
		{map[string]string{"scheduler.tenancy.x-k8s.io/failed-super-clusters": strings.Repeat("r", 200000)}, ""},
	} {
		object, err := view.TenantClaim(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}})
		require.NoError(t, err)
		require.Equal(t, tc.want, object.(*corev1.PersistentVolumeClaim).Annotations["scheduler.tenancy.x-k8s.io/failed-super-clusters"])
	}
}

// TestStorageOfAnyExponent: what VolumeBinding compares of claims and volumes is no larger than a pool, however the
// tenant has written it, and no other resource.
func TestStorageOfAnyExponent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ size, want string }{
		{size: "1Gi", want: "1Gi"},
		{size: "1500m", want: "2"},
		{size: "8Pi", want: "8Pi"},
		{size: "9Pi", want: "8Pi"},
		{size: "1e2147483647", want: "8Pi"},
		{size: "1" + strings.Repeat("0", 1000), want: "8Pi"},
		{size: "0"},
		{size: "0e2147483647"},
		{size: "-1"},
		{size: "-1e2147483647"},
		{},
	} {
		list := func(name corev1.ResourceName, size string) corev1.ResourceList {
			if size == "" {
				return nil
			}
			return corev1.ResourceList{name: resource.MustParse(size)}
		}
		written, want := list(corev1.ResourceStorage, tc.size), list(corev1.ResourceStorage, tc.want)
		if written != nil {
			written[corev1.ResourceCPU] = written[corev1.ResourceStorage]
		}
		object, err := view.TenantClaim(&corev1.PersistentVolumeClaim{
			Spec:   corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: written, Limits: written}},
			Status: corev1.PersistentVolumeClaimStatus{Capacity: written, AllocatedResources: written},
		})
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}},
			Spec:       corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: want}},
			Status:     corev1.PersistentVolumeClaimStatus{Capacity: want, AllocatedResources: want},
		}, object), "%.20s", tc.size)
		object, err = view.TenantVolume(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{Capacity: written}})
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(want, object.(*corev1.PersistentVolume).Spec.Capacity), "%.20s", tc.size)
	}
}

// TestClassOfAClaim: a claim has its class where VolumeBinding reads it.
func TestClassOfAClaim(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		spec, annotation *string
		want             *string
	}{
		{name: "the default class"},
		{name: "a class", spec: ptr.To("fast"), want: ptr.To("fast")},
		{name: "none", spec: ptr.To(""), want: ptr.To("")},
		{name: "a class in the older annotation", annotation: ptr.To("fast"), want: ptr.To("fast")},
		{name: "another class in the older annotation", spec: ptr.To("slow"), annotation: ptr.To("fast"), want: ptr.To("fast")},
		{name: "none in the older annotation", spec: ptr.To("slow"), annotation: ptr.To(""), want: ptr.To("")},
	} {
		claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: tc.spec}}
		if tc.annotation != nil {
			claim.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: *tc.annotation}
		}
		object, err := view.TenantClaim(claim)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(tc.want, object.(*corev1.PersistentVolumeClaim).Spec.StorageClassName), tc.name)
		require.Empty(t, object.(*corev1.PersistentVolumeClaim).Annotations, tc.name)
	}
}

// TestTenantVolume: no claim that waits for a volume is compared with those of the tenant, and the affinity stays.
func TestTenantVolume(t *testing.T) {
	t.Parallel()
	affinity := &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "tenancy.x-k8s.io/superclusterid", Operator: corev1.NodeSelectorOpIn, Values: []string{"r1"}}},
	}}}}
	for _, class := range []string{"", "fast", "tenancy.x-k8s.io/no-class"} {
		object, err := view.TenantVolume(&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "own", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{corev1.BetaStorageClassAnnotation: class}},
			Spec:       corev1.PersistentVolumeSpec{StorageClassName: class, NodeAffinity: affinity},
		})
		require.NoError(t, err)
		volume := object.(*corev1.PersistentVolume)
		require.Empty(t, volumehelper.GetPersistentVolumeClass(volume), "a claim that waits for its pod has a class")
		require.Equal(t, affinity, volume.Spec.NodeAffinity)
		require.Empty(t, volume.Labels)
	}
}

// TestTenantStorageClass: a class is allowed where it is offered, and nowhere if nobody offers it.
func TestTenantStorageClass(t *testing.T) {
	t.Parallel()
	for _, offering := range [][]string{nil, {"r1"}, {"r1", "r2"}} {
		class := &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{"other": "x"}}, Provisioner: "kubernetes.io/no-provisioner",
			VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), Parameters: map[string]string{"secret": "x"},
			AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "rack", Values: []string{"7"}}}}},
		}
		for _, id := range offering {
			class.Annotations["offered-by.tenancy.x-k8s.io/"+id] = "x"
		}
		object, err := view.TenantStorageClass(class)
		require.NoError(t, err)
		projected := object.(*storagev1.StorageClass)
		require.Equal(t, class.VolumeBindingMode, projected.VolumeBindingMode)
		require.NotEqual(t, "kubernetes.io/no-provisioner", projected.Provisioner, "a super cluster has volumes")
		require.Empty(t, projected.Parameters)
		for _, id := range []string{"r1", "r2", "r3"} {
			want := false
			for _, offers := range offering {
				want = want || offers == id
			}
			matches := corev1helper.MatchTopologySelectorTerms(projected.AllowedTopologies, labels.Set{"tenancy.x-k8s.io/superclusterid": id})
			require.Equal(t, want, matches, "%s of %v", id, offering)
		}
	}
}

// TestClaimsOfPods: the view has the claims of a pod until it is bound, and says of one with very many.
func TestClaimsOfPods(t *testing.T) {
	t.Parallel()
	volume := func(i int) corev1.Volume {
		return corev1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}
	}
	project := func(node string, volumes ...corev1.Volume) *corev1.Pod {
		projected, err := view.TenantPod(&corev1.Pod{Spec: corev1.PodSpec{NodeName: node, Volumes: volumes}, Status: corev1.PodStatus{
			StartTime:  &metav1.Time{},
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		}})
		require.NoError(t, err)
		return projected.(*corev1.Pod)
	}
	others := corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}
	require.Equal(t, []corev1.Volume{volume(1)}, project("", others, volume(1)).Spec.Volumes)
	require.Empty(t, project("r1.n1", volume(1)).Spec.Volumes)
	var many []corev1.Volume
	for i := range 101 {
		many = append(many, volume(i))
	}
	require.Contains(t, project("", many...).Annotations, "scheduler.tenancy.x-k8s.io/excess")
	require.NotContains(t, project("", many[1:]...).Annotations, "scheduler.tenancy.x-k8s.io/excess")
}
