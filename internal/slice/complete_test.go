package slice_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

func TestComplete(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		hard      []string // pairs of a ResourceQuota
		named     string
		wantWhole string
		wantSize  string
	}{
		{
			name: "the demo", hard: []string{"cpu", "200m", "memory", "200Mi"}, named: "cpu=100m,memory=100Mi",
			wantWhole: "cpu=200m,memory=200Mi,pods=2", wantSize: "cpu=100m,memory=100Mi,pods=1",
		},
		{name: "cpu alone", hard: []string{"cpu", "4"}, wantWhole: "cpu=4,memory=8Gi,pods=40", wantSize: "cpu=2,memory=4Gi,pods=20"},
		{name: "memory alone", hard: []string{"memory", "2Gi"}, wantWhole: "cpu=1,memory=2Gi,pods=10", wantSize: "cpu=2,memory=4Gi,pods=20"},
		{name: "a partial slice, in proportion", hard: []string{"cpu", "5"}, wantWhole: "cpu=5,memory=10Gi,pods=50", wantSize: "cpu=2,memory=4Gi,pods=20"},
		{name: "at least one pod", hard: []string{"cpu", "1m"}, wantWhole: "cpu=1m,memory=2147483,pods=1", wantSize: "cpu=2,memory=4Gi,pods=20"},
		{name: "the larger one leads", hard: []string{"cpu", "2", "memory", "16Gi"}, wantWhole: "cpu=2,memory=16Gi,pods=80", wantSize: "cpu=2,memory=4Gi,pods=20"},
		{name: "a named size scales the rest", hard: []string{"cpu", "1"}, named: "cpu=500m", wantWhole: "cpu=1,memory=2Gi,pods=10", wantSize: "cpu=500m,memory=1Gi,pods=5"},
		{
			name: "by the largest ratio", hard: []string{"cpu", "1", "memory", "8Gi"}, named: "cpu=1,memory=8Gi",
			wantWhole: "cpu=1,memory=8Gi,pods=40", wantSize: "cpu=1,memory=8Gi,pods=40",
		},
		{
			name: "a size that the default does not have", hard: []string{"cpu", "2", "requests.nvidia.com/gpu", "4"}, named: "nvidia.com/gpu=2",
			wantWhole: "cpu=2,memory=8Gi,nvidia.com/gpu=4,pods=40", wantSize: "cpu=2,memory=4Gi,nvidia.com/gpu=2,pods=20",
		},
		{name: "a device only where the quota names it", hard: []string{"cpu", "2"}, named: "cpu=2,nvidia.com/gpu=1", wantWhole: "cpu=2,memory=4Gi,pods=20", wantSize: "cpu=2,memory=4Gi,nvidia.com/gpu=1,pods=20"},
		{name: "devices alone", hard: []string{"requests.nvidia.com/gpu", "2"}, wantWhole: "cpu=4,memory=8Gi,nvidia.com/gpu=2,pods=40", wantSize: "cpu=2,memory=4Gi,pods=20"},
		{
			name: "ephemeral storage that the slice names comes with it", hard: []string{"cpu", "4"}, named: "cpu=2,ephemeral-storage=10Gi",
			wantWhole: "cpu=4,ephemeral-storage=20Gi,memory=8Gi,pods=40", wantSize: "cpu=2,ephemeral-storage=10Gi,memory=4Gi,pods=20",
		},
		{
			name: "ephemeral storage that only the quota names", hard: []string{"requests.ephemeral-storage", "10Gi"},
			wantWhole: "cpu=2,ephemeral-storage=10Gi,memory=4Gi,pods=20", wantSize: "cpu=2,memory=4Gi,pods=20",
		},
		{name: "no memory", hard: []string{"cpu", "4", "memory", "0"}, wantWhole: "cpu=4,pods=40", wantSize: "cpu=2,memory=4Gi,pods=20"},
		{name: "nothing", hard: []string{"cpu", "0", "memory", "0"}, wantSize: "cpu=2,memory=4Gi,pods=20"},
		{name: "fewer pods", hard: []string{"cpu", "4", "pods", "3"}, wantWhole: "cpu=4,memory=8Gi,pods=3", wantSize: "cpu=2,memory=4Gi,pods=20"},
		{name: "more pods", hard: []string{"cpu", "4", "pods", "100"}, wantWhole: "cpu=4,memory=8Gi,pods=100", wantSize: "cpu=2,memory=4Gi,pods=50"},
		{name: "more pods, and a partial slice", hard: []string{"cpu", "4050m", "pods", "100"}, wantWhole: "cpu=4050m,memory=8697308774,pods=100", wantSize: "cpu=2,memory=4Gi,pods=50"},
		{name: "more pods than the size that is named", hard: []string{"cpu", "4", "pods", "100"}, named: "cpu=2,pods=10", wantWhole: "cpu=4,memory=8Gi,pods=100", wantSize: "cpu=2,memory=4Gi,pods=10"},
		{name: "no pods", hard: []string{"cpu", "4", "pods", "0"}, wantWhole: "cpu=4,memory=8Gi", wantSize: "cpu=2,memory=4Gi,pods=20"},
		{name: "pods alone ask for nothing", hard: []string{"pods", "100"}, wantSize: "cpu=2,memory=4Gi,pods=20"},
		{
			name: "storage is spread", hard: []string{"cpu", "4", "requests.storage", "10Gi"},
			wantWhole: "cpu=4,memory=8Gi,pods=40,storage=10Gi", wantSize: "cpu=2,memory=4Gi,pods=20",
		},
		{
			name: "storage in pieces that the tenant names", hard: []string{"cpu", "4", "requests.storage", "80Gi"}, named: "storage=20Gi",
			wantWhole: "cpu=4,memory=16Gi,pods=80,storage=80Gi", wantSize: "cpu=2,memory=4Gi,pods=20,storage=20Gi",
		},
		{
			name: "storage only where the quota names it", hard: []string{"cpu", "4"}, named: "cpu=2,storage=20Gi",
			wantWhole: "cpu=4,memory=8Gi,pods=40", wantSize: "cpu=2,memory=4Gi,pods=20,storage=20Gi",
		},
		{name: "storage and pods alone ask for nothing", hard: []string{"pods", "100", "requests.storage", "10Gi"}, named: "storage=1Gi", wantSize: "cpu=2,memory=4Gi,pods=20,storage=1Gi"},
		{name: "no storage", hard: []string{"cpu", "4", "requests.storage", "0"}, wantWhole: "cpu=4,memory=8Gi,pods=40", wantSize: "cpu=2,memory=4Gi,pods=20"},
		{name: "no quota", wantSize: "cpu=2,memory=4Gi,pods=20"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			quota, errs := slice.Quota([]corev1.ResourceQuota{*builders.Quota("web", "quota", tc.hard...)})
			require.Empty(t, errs)
			named := amounts(t, tc.named)
			if tc.named == "" {
				named = nil
			}
			whole, size := slice.Complete(quota, named, amounts(t, "cpu=2,memory=4Gi,pods=20"))
			require.Equal(t, tc.wantWhole, whole.String())
			require.Equal(t, tc.wantSize, size.String())
		})
	}
}

// TestCompleteProperties checks random quotas and sizes: what is named stays as it is, what comes with the slices makes
// no more slices, and where pods are not named each slice has at least one.
func TestCompleteProperties(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(9, 10))
	defaults := amounts(t, "cpu=2,memory=4Gi,pods=20")
	for range 4_000 {
		quota, named := pick(random, true), pick(random, false)
		before := quota.String() + named.String()
		whole, size := slice.Complete(quota, named, defaults)
		require.Equal(t, before, quota.String()+named.String(), "arguments stay as they are")
		require.Equal(t, size, size.Plus(nil).Minus(nil), "no size is zero")
		for name, amount := range named {
			require.Equal(t, amount, size[name])
		}
		compute := quota.Minus(slice.Amounts{corev1.ResourcePods: slice.MaxAmount})
		if compute.OfPods().IsZero() {
			require.Empty(t, whole, "by %s", quota)
			continue
		}
		for name, amount := range whole {
			require.Positive(t, amount)
			require.LessOrEqual(t, amount, slice.MaxAmount)
			if asked, isNamed := quota[name]; isNamed {
				require.Equal(t, asked, amount)
			}
		}
		_, isNamed := quota[corev1.ResourcePods]
		if isNamed && named[corev1.ResourcePods] > 0 {
			continue // the tenant cuts by pods
		}
		require.Equal(t, slice.Count(compute, size), slice.Count(whole, size), "%s by %s, completed to %s", quota, size, whole)
		requireCut(t, whole, size)
		if _, capped := map[int64]bool{slice.MaxAmount: true}[whole[corev1.ResourcePods]]; isNamed || capped {
			continue
		}
		for _, run := range slice.Cut(whole, size) {
			require.Positive(t, run.Size[corev1.ResourcePods], "%s by %s: %s", whole, size, run.Size)
		}
	}
}
