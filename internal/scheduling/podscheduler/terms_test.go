package podscheduler

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
)

// TestTermsCount: what kube-scheduler makes of the terms of a pod counts for its tenant, whatever they look like.
func TestTermsCount(t *testing.T) { //nolint:paralleltest // it reads the size of the heap
	names := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint("name", i))
		}
		return all
	}
	for name, term := range map[string]corev1.PodAffinityTerm{
		"nothing":    {TopologyKey: "zone"},
		"one label":  {TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		"namespaces": {TopologyKey: "zone", Namespaces: names(100)},
		"values": {TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: names(100)},
		}}},
		"requirements": {TopologyKey: "zone", NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "a", Operator: metav1.LabelSelectorOpExists}, {Key: "b", Operator: metav1.LabelSelectorOpExists}, {Key: "c", Operator: metav1.LabelSelectorOpExists},
		}}},
	} {
		for _, preferred := range []bool{false, true} {
			t.Run(fmt.Sprint(name, preferred), func(t *testing.T) { //nolint:paralleltest // as above
				peers := &corev1.PodAntiAffinity{}
				for range 100 {
					if preferred {
						peers.PreferredDuringSchedulingIgnoredDuringExecution = append(peers.PreferredDuringSchedulingIgnoredDuringExecution, corev1.WeightedPodAffinityTerm{Weight: 1, PodAffinityTerm: term})
					} else {
						peers.RequiredDuringSchedulingIgnoredDuringExecution = append(peers.RequiredDuringSchedulingIgnoredDuringExecution, term)
					}
				}
				pod := builders.Pod("web", "p").Obj()
				pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: peers}
				kept := make([]*framework.PodInfo, 100)
				before := living()
				for i := range kept {
					info, err := framework.NewPodInfo(pod)
					require.NoError(t, err)
					kept[i] = info
				}
				takes := (living() - before) / int64(len(kept))
				require.GreaterOrEqual(t, 100*termsOf(pod), 85*takes)
				require.LessOrEqual(t, 100*termsOf(pod), 250*takes)
				runtime.KeepAlive(kept)
			})
		}
	}
	require.Zero(t, termsOf(builders.Pod("web", "p").Obj()))
	require.Zero(t, termsOf(&corev1.Node{}))
}

// TestTermsAreInTheAccount: they are taken from the tenant's budget with their pod, and given back with it.
func TestTermsAreInTheAccount(t *testing.T) {
	t.Parallel()
	kept := func(topologyKeys int) int64 {
		pod := builders.Pod("web", "p").Obj()
		peers := &corev1.PodAntiAffinity{}
		for range topologyKeys {
			peers.RequiredDuringSchedulingIgnoredDuringExecution = append(peers.RequiredDuringSchedulingIgnoredDuringExecution, corev1.PodAffinityTerm{TopologyKey: "zone"})
		}
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: peers}
		bounds := tenantclient.New(&policy.Ref{})
		stop := make(chan struct{})
		factory := NewInformers(t.Context(), builders.Clientset(pod), view.NewNodeSource(), NewChoices(), bounds, func(err error) { t.Error(err) })
		factory.Start(stop)
		factory.WaitForCacheSync(stop)
		require.Eventually(t, func() bool { objects, _ := bounds.Kept(); return objects == 1 }, patience, time.Millisecond)
		_, bytes := bounds.Kept()
		close(stop)
		factory.Shutdown()
		_, left := bounds.Kept()
		require.Zero(t, left)
		return bytes
	}
	require.Greater(t, kept(100)-kept(0), int64(100*(termBytes+len("zone"))))
}

// living returns how many bytes live on the heap.
func living() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
