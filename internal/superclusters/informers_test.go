package superclusters

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/test/builders"
)

var webKey = types.NamespacedName{Namespace: "tenant", Name: "web"}

func amounts(list corev1.ResourceList) slice.Amounts { return slice.Of(list) }

// TestTrimmedObjectsCountTheSame: what the transforms of the informers drop, the ledger must not need.
func TestTrimmedObjectsCountTheSame(t *testing.T) {
	t.Parallel()
	sidecar := corev1.Container{Name: "sidecar", Image: "large", Env: []corev1.EnvVar{{Name: "SECRET", Value: "x"}}, Resources: builders.Requests("cpu", "100m")}
	sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	for name, pod := range map[string]*corev1.Pod{
		"one container": builders.Pod("web", "p", "cpu", "1", "memory", "1Gi").Node("n1").Obj(),
		"a sidecar": func() *corev1.Pod {
			pod := builders.Pod("web", "p", "cpu", "1").Node("n1").Obj()
			pod.Spec.InitContainers = []corev1.Container{sidecar, {Name: "init", Resources: builders.Requests("cpu", "3")}}
			return pod
		}(),
		"overhead":  builders.Pod("web", "p", "cpu", "1").Node("n1").Overhead(builders.Resources("cpu", "250m")).Obj(),
		"pod level": builders.Pod("web", "p").Node("n1").Resources(builders.Requests("cpu", "2", "memory", "1Gi")).Obj(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trimmed, err := usage.TrimPod(pod)
			require.NoError(t, err)
			ledger := usage.NewLedger()
			ledger.SetNode(builders.Node("n1", "cpu", "8", "memory", "8Gi", "pods", "110").Obj())
			ledger.SetRecord(trimmed.(*usage.PodRecord))
			whole := amounts(builders.Resources("cpu", "8", "memory", "8Gi", "pods", "110"))
			require.Equal(t, whole.Minus(slice.Taken(pod, slice.Reading{Pods: true})).String(), ledger.Capacity().Offered.String())
			require.NotEqual(t, whole.String(), ledger.Capacity().Offered.String())
		})
	}
	quota := builders.OwnedQuota(webKey, "u1", "requests.cpu", "1", "requests.storage", "5Gi")
	quota.Annotations[schedulerv1alpha1.AnnotationDecision], quota.Annotations[schedulerv1alpha1.AnnotationHoldsStorage] = "d1", "true"
	quota.Status = corev1.ResourceQuotaStatus{Hard: builders.Resources("requests.cpu", "2"), Used: builders.Resources("requests.cpu", "3")}
	trimmed, err := trimQuota(quota)
	require.NoError(t, err)
	ledger, whole := usage.NewLedger(), usage.NewLedger()
	ledger.SetQuota(trimmed.(*corev1.ResourceQuota))
	whole.SetQuota(quota)
	require.Equal(t, whole.Use(webKey), ledger.Use(webKey))
	require.Equal(t, placement.Use{Requests: slice.Amounts{}, Hard: amounts(builders.Resources("cpu", "3", "storage", "5Gi")), NamespaceUID: "u1", Decision: "d1"}, ledger.Use(webKey))
	claim := builders.OwnedClaim(webKey, "c", "1Gi")
	claim.Status.Capacity = builders.Resources("storage", "2Gi")
	trimmed, err = trimClaim(claim)
	require.NoError(t, err)
	ledger = usage.NewLedger()
	ledger.SetClaim(trimmed.(*corev1.PersistentVolumeClaim))
	require.EqualValues(t, 1, ledger.Use(webKey).Claims)
	require.Equal(t, "storage=2Gi", ledger.Use(webKey).Requests.String())
	tombstone := cache.DeletedFinalStateUnknown{Key: "web/p"}
	for _, trim := range []cache.TransformFunc{usage.TrimPod, trimNode, trimQuota, trimClaim} {
		got, err := trim(tombstone)
		require.NoError(t, err)
		require.Equal(t, tombstone, got)
	}
}

func TestLast(t *testing.T) {
	t.Parallel()
	node := builders.Node("n1").Obj()
	for _, tc := range []struct {
		name   string
		object any
		want   *corev1.Node
	}{
		{name: "the object", object: node, want: node},
		{name: "a tombstone", object: cache.DeletedFinalStateUnknown{Obj: node}, want: node},
		{name: "a tombstone by value only", object: cache.DeletedFinalStateUnknown{Key: "n1"}},
		{name: "another kind", object: builders.Pod("web", "p").Obj()},
		{name: "another kind's tombstone", object: cache.DeletedFinalStateUnknown{Obj: builders.Pod("web", "p").Obj()}},
		{name: "nothing", object: nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, ok := engage.Object[*corev1.Node](tc.object)
			require.Equal(t, tc.want != nil, ok)
			require.Equal(t, tc.want, got)
		})
	}
}
