package perf

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		values []float64
		part   float64
		want   float64
	}{
		{name: "one value", values: []float64{3}, part: 0.99, want: 3},
		{name: "median of an even number", values: []float64{4, 1, 3, 2}, part: 0.5, want: 2},
		{name: "median of an odd number", values: []float64{5, 1, 3}, part: 0.5, want: 3},
		{name: "p99 of few is the largest", values: []float64{1, 2, 3}, part: 0.99, want: 3},
		{name: "the smallest", values: []float64{2, 1}, part: 0, want: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.InDelta(t, tc.want, quantile(tc.values, tc.part), 1e-9)
		})
	}
	require.True(t, math.IsNaN(quantile(nil, 0.5)))
}

// TestTable: figures are medians, of the cases that have them, and ratios are to the direct case with a quota.
func TestTable(t *testing.T) {
	t.Parallel()
	report := &Report{Options: Options{Tenants: 1, Pods: 2, Rounds: 3, Nodes: 5, Rate: 20}}
	for _, total := range []float64{9, 4, 6} {
		report.add(inPool, &result{
			pods: 2, total: total, deletion: 1, ready: []float64{1, total}, up: []float64{0.5, 0.5},
			cpu: map[string]float64{"syncer": 0.004, "vc-scheduler": 0.002, "tenant kube-apiserver": 0.02}, cpuDeletion: map[string]float64{"syncer": 0.003},
		})
		report.add(directWithQuota, &result{pods: 2, total: total / 2, deletion: 2, ready: []float64{1, 1}, cpu: map[string]float64{"super etcd": 0.01}})
	}
	report.addPaced(inPool, &result{pods: 2, ready: []float64{0.03, 0.08}})
	last := report.bursts[inPool][2]
	last.requests, last.requestsDeletion = requests{"tenant POST pods": 2, "tenant GET leases": 0.001}, requests{"super DELETE pods": 3}
	last.rest = &idle{
		writes: map[string]float64{"syncer": 5}, cpu: map[string]float64{"syncer": 0.0005}, heap: map[string]float64{"syncer": 9000}, rss: map[string]float64{"syncer": 20000},
	}
	report.addFairness(inPool, &fairness{alone: 0.2, beside: 0.22})
	report.Options.Greedy, report.restarts = 300, &restarts{stopped: []float64{1}, killed: []float64{3, 1, 2}}
	table := report.Table()
	for _, want := range []string{
		"| burst, all Ready | 6.00 s | – | 3.00 s | 2.00 |",
		"| burst, Ready p99 | 6.00 s | – | 1.00 s | 6.00 |",
		"| p50 as a part of all | 0.17 | – | 0.33 | 0.50 |",
		"| 20 pods/s, Ready p99 | 80 ms | – | – | – |",
		"| CPU per pod, all programs | 13.0 ms | – | 5.0 ms | 2.60 |",
		"| same, less what the programs use at rest in that time | 11.5 ms | – | 5.0 ms | 2.30 |",
		"| of it, syncer + vc-scheduler | 3.0 ms | – | – | – |",
		"| of the deletion, syncer | 1.5 ms | – | – | – |",
		"- syncer at rest: 5.0 writes in 20 s (1 tenants with 5 Nodes each), 0.03 s of CPU time a minute; by each pod 9.0 kB of heap, 20.0 kB resident",
		"- pool: pods of regular tenants are Ready after 200 ms in the mean, beside one that creates 300 at once after 220 ms, 1.10 ×",
		"- syncer started again with 2 pods: a new pod is Ready 1.00 s after it was asked to end, 2.00 s after it was killed",
		"| super DELETE pods | 0.00 | 1.50 | 0 |",
		"| tenant POST pods | 1.00 | 0.00 | 0 |",
	} {
		require.Contains(t, table, want)
	}
	require.NotContains(t, table, "leases")
}
