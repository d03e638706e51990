package podscheduler

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestVolumesOfAnySize: pods whose claims a tenant has given any size are judged, and so are those after them, also
// where the tenant has volumes of any size and a StorageClass of any name.
func TestVolumesOfAnySize(t *testing.T) {
	t.Parallel()
	schedulertest.Bubble(t, func(t *testing.T) {
		spec := policy.Default().Spec().DeepCopy()
		spec.Pods.Volumes = append(spec.Pods.Volumes, "persistentVolumeClaim")
		spec.Pods.StorageClasses = []string{"fast"}
		volumes, err := policy.New("volumes", spec)
		require.NoError(t, err)
		c := newTenantWith(t, func(c *tenantControlPlane) { c.policy.Set(volumes) })
		c.cluster("r1")
		c.place("web", "r1", "5")
		const noClass = "tenancy.x-k8s.io/no-class"
		for _, name := range []string{"fast", "other", noClass} {
			class := schedulingtest.StorageClassOf(storagev1.VolumeBindingWaitForFirstConsumer, "r1")
			class.Name = name
			_, err := c.api.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{})
			require.NoError(t, err)
			_, err = c.api.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "of-" + name},
				Spec:       corev1.PersistentVolumeSpec{StorageClassName: name, Capacity: builders.Resources("storage", "1e2147483647")},
				Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		for i, tc := range []struct {
			class string
			sizes []string
		}{
			{class: "other", sizes: []string{"1", "1e2147483647", "2"}},
			{class: "fast", sizes: []string{"0e2147483647", "1Gi"}},
			{class: "fast", sizes: []string{"1Gi", "1e2147483647"}},
			{class: noClass, sizes: []string{"1Gi"}},
			{class: "fast", sizes: []string{"1Gi"}},
		} {
			name := fmt.Sprintf("p%d", i)
			var used []corev1.Volume
			for j, size := range tc.sizes {
				claim := schedulingtest.HomelessClaim(fmt.Sprintf("%s-%d", name, j), func(claim *corev1.PersistentVolumeClaim) {
					claim.Spec.StorageClassName = ptr.To(tc.class)
					claim.Spec.Resources.Requests = builders.Resources("storage", size)
				})
				_, err := c.api.CoreV1().PersistentVolumeClaims("web").Create(t.Context(), claim, metav1.CreateOptions{})
				require.NoError(t, err)
				used = append(used, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
				}})
			}
			c.create("web", name, "100m", func(pod *corev1.Pod) { pod.Spec.Volumes = used })
			c.wantIn("web", name, "r1")
		}
	})
}
