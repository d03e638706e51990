package placer

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/test/builders"
)

func labelled(pairs ...string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		for i := 0; i < len(pairs); i += 2 {
			node.Labels[pairs[i]] = pairs[i+1]
		}
	}
}

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
}

// choosing is a namespace that wants so many slices of 100m, holds some, and chooses.
func choosing(t *testing.T, slices int, choice string, held ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
	t.Helper()
	np := wanting("tenant", fmt.Sprintf("%dm", 100*slices), held...)
	chosen, err := clusterchoice.Parse(choice)
	require.NoError(t, err)
	np.Spec.ClusterChoice = chosen
	return np
}

func holds(cluster string, slices int32) schedulerv1alpha1.ClusterPlacement {
	return builders.HeldSlices(cluster, slices, "cpu", fmt.Sprintf("%dm", 100*slices))
}

// TestChoice places one namespace in a pool of two regions: eu has r1 and r2, us has r3 with a taint, and r4 has none.
func TestChoice(t *testing.T) {
	nodes := []*corev1.Node{
		virtualNode("r1", "1", "8Gi", labelled("kubernetes.io/hostname", "r1", "region", "eu", "zone", "eu-1")),
		virtualNode("r2", "1", "8Gi", labelled("kubernetes.io/hostname", "r2", "region", "eu", "zone", "eu-2")),
		virtualNode("r3", "1", "8Gi", labelled("kubernetes.io/hostname", "r3", "region", "us", "zone", "us-1"), tainted("gpu", corev1.TaintEffectNoSchedule)),
		virtualNode("r4", "1", "8Gi", labelled("kubernetes.io/hostname", "r4")),
	}
	const (
		required   = `{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[%s]}]}}}`
		preferred  = `{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchExpressions":[{"key":"zone","operator":"In","values":["eu-2"]}]}}]}}`
		tolerating = `{"tolerations":[{"key":"gpu","operator":"Exists","effect":"NoSchedule"}]}`
		spread     = `{"topologySpreadConstraints":[{"maxSkew":%d,"topologyKey":"%s","whenUnsatisfiable":"%s","nodeTaintsPolicy":"Honor"}]}`
	)
	for name, tc := range map[string]struct {
		np       *schedulerv1alpha1.NamespacePlacement
		operator map[string]string
		want     string
	}{
		"no choice":           {np: choosing(t, 4, `{}`), want: `{"r1":2,"r2":1,"r4":1}`},
		"a label":             {np: choosing(t, 4, `{"nodeSelector":{"region":"eu"}}`), want: `{"r1":2,"r2":2}`},
		"a label of none":     {np: choosing(t, 4, `{"nodeSelector":{"region":"asia"}}`), want: "0/4 super clusters are available: 3 do not match the namespace's node selector, 1 tainted by the operator (gpu)"},
		"a label without key": {np: choosing(t, 2, fmt.Sprintf(required, `{"key":"region","operator":"DoesNotExist"}`)), want: `{"r4":2}`},
		"a label, and too much": {
			np: choosing(t, 12, `{"nodeSelector":{"zone":"eu-1"}}`),
			// What others have free does not count.
			want: "0/4 super clusters are available: 2 do not match the namespace's node selector, 1 has too little free for the namespace: 1200m cpu, 1 tainted by the operator (gpu)",
		},
		"a label and an affinity": {
			np: func() *schedulerv1alpha1.NamespacePlacement {
				np := choosing(t, 2, fmt.Sprintf(required, `{"key":"zone","operator":"NotIn","values":["eu-1"]}`))
				np.Spec.ClusterChoice.NodeSelector = map[string]string{"region": "eu"}
				return np
			}(),
			want: `{"r2":2}`,
		},
		"what is preferred outweighs where it is": {np: choosing(t, 4, preferred, holds("r1", 2)), want: `{"r1":2,"r2":2}`},
		"what is preferred and full is no must":   {np: choosing(t, 14, preferred, holds("r2", 9)), want: `{"r1":2,"r2":10,"r4":2}`},
		"a taint":                                 {np: choosing(t, 4, tolerating), want: `{"r1":1,"r2":1,"r3":1,"r4":1}`},

		"what is placed does not move": {np: choosing(t, 3, `{"nodeSelector":{"region":"eu"}}`, holds("r4", 2)), want: `{"r1":1,"r4":2}`},
		"spread over zones":            {np: choosing(t, 5, fmt.Sprintf(spread, 1, "zone", "DoNotSchedule")), want: `{"r1":3,"r2":2}`},
		"spread counts what is placed": {np: choosing(t, 8, fmt.Sprintf(spread, 1, "zone", "DoNotSchedule"), holds("r1", 4)), want: `{"r1":4,"r2":4}`},
		"spread that does not come out": {
			np:   choosing(t, 3, `{"nodeSelector":{"zone":"eu-1"},"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule","nodeAffinityPolicy":"Ignore"}]}`),
			want: "0/4 super clusters are available: 2 do not match the namespace's node selector, 1 does not fit the namespace's topology spread, 1 tainted by the operator (gpu)",
		},
		"spread over a label that is nowhere": {
			np:   choosing(t, 1, fmt.Sprintf(spread, 1, "rack", "DoNotSchedule")),
			want: "0/4 super clusters are available: 3 lack a label of the namespace's topology spread, 1 tainted by the operator (gpu)",
		},
		"spread levels what is placed":       {np: choosing(t, 7, fmt.Sprintf(spread, 1, "zone", "DoNotSchedule"), holds("r1", 4)), want: `{"r1":4,"r2":3}`},
		"spread that is no must":             {np: choosing(t, 6, fmt.Sprintf(spread, 1, "zone", "ScheduleAnyway"), holds("r1", 4)), want: `{"r1":4,"r2":2}`},
		"spread over super clusters":         {np: choosing(t, 6, fmt.Sprintf(spread, 1, "kubernetes.io/hostname", "DoNotSchedule"), holds("r1", 2), holds("r2", 2)), want: `{"r1":2,"r2":2,"r4":2}`},
		"spread over what the label selects": {np: choosing(t, 4, `{"nodeSelector":{"region":"eu"},"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"DoNotSchedule"}]}`), want: `{"r1":2,"r2":2}`},

		"the operator's label":                  {np: choosing(t, 4, `{}`), operator: map[string]string{"zone": "eu-2"}, want: `{"r2":4}`},
		"the operator's and the tenant's":       {np: choosing(t, 2, `{"nodeSelector":{"zone":"eu-2"}}`), operator: map[string]string{"region": "eu"}, want: `{"r2":2}`},
		"the operator's and another of tenants": {np: choosing(t, 2, `{"nodeSelector":{"region":"us"}}`), operator: map[string]string{"region": "eu"}, want: "0/4 super clusters are available: 2 do not match the namespace's node selector, 2 not for this tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.np.Spec.NodeSelector = tc.operator
			got := rehearse(t, &Rehearsal{Nodes: nodes, Placements: []*schedulerv1alpha1.NamespacePlacement{tc.np}})
			require.Empty(t, cmp.Diff(map[string]string{"tenant": tc.want}, got))
		})
	}
}

// TestSpreadAndPack has the same pools and namespaces with each profile.
func TestSpreadAndPack(t *testing.T) {
	pool := func(cpus ...string) (nodes []*corev1.Node) {
		for i, cpu := range cpus {
			nodes = append(nodes, virtualNode(fmt.Sprintf("r%d", i+1), cpu, "80Gi"))
		}
		return nodes
	}
	other := func(cluster string, slices int32) *schedulerv1alpha1.NamespacePlacement {
		return wanting("other", fmt.Sprintf("%dm", 100*slices), holds(cluster, slices))
	}
	for name, tc := range map[string]struct {
		nodes []*corev1.Node
		other *schedulerv1alpha1.NamespacePlacement
		held  []schedulerv1alpha1.ClusterPlacement
		// slices is what the namespace wants.
		slices                  int
		byDefault, spread, pack string
	}{
		"an empty pool":                  {nodes: pool("1", "1", "1"), slices: 6, byDefault: `{"r1":2,"r2":2,"r3":2}`, spread: `{"r1":2,"r2":2,"r3":2}`, pack: `{"r1":6}`},
		"growth":                         {nodes: pool("1", "1", "1"), held: []schedulerv1alpha1.ClusterPlacement{holds("r2", 2)}, slices: 6, byDefault: `{"r2":6}`, spread: `{"r1":2,"r2":2,"r3":2}`, pack: `{"r2":6}`},
		"one that is partly full":        {nodes: pool("1", "1", "1"), other: other("r2", 5), slices: 4, byDefault: `{"r1":2,"r2":1,"r3":1}`, spread: `{"r1":2,"r2":1,"r3":1}`, pack: `{"r2":4}`},
		"the full one has not enough":    {nodes: pool("1", "1", "1"), other: other("r2", 8), slices: 4, byDefault: `{"r1":2,"r2":1,"r3":1}`, spread: `{"r1":2,"r2":1,"r3":1}`, pack: `{"r1":4}`},
		"the largest first":              {nodes: pool("300m", "500m", "300m"), slices: 7, byDefault: `{"r1":2,"r2":3,"r3":2}`, spread: `{"r1":2,"r2":3,"r3":2}`, pack: `{"r1":2,"r2":5}`},
		"growth over what is used first": {nodes: pool("300m", "500m", "300m"), held: []schedulerv1alpha1.ClusterPlacement{holds("r3", 1)}, slices: 5, byDefault: `{"r1":1,"r2":1,"r3":3}`, spread: `{"r1":2,"r2":2,"r3":1}`, pack: `{"r1":2,"r3":3}`},
		"a full pool":                    {nodes: pool("200m", "200m"), slices: 4, byDefault: `{"r1":2,"r2":2}`, spread: `{"r1":2,"r2":2}`, pack: `{"r1":2,"r2":2}`},
	} {
		for profile, want := range map[string]string{"": tc.byDefault, "spread": tc.spread, "pack": tc.pack} {
			t.Run(name+" "+profile, func(t *testing.T) {
				t.Parallel()
				np := wanting("tenant", fmt.Sprintf("%dm", 100*tc.slices), tc.held...)
				np.Spec.SchedulerName = profile
				placements := []*schedulerv1alpha1.NamespacePlacement{np}
				if tc.other != nil {
					placements = append(placements, tc.other)
				}
				got := rehearse(t, &Rehearsal{Nodes: tc.nodes, Placements: placements})
				require.Empty(t, cmp.Diff(want, got["tenant"]))
			})
		}
	}
}

// TestTheDemoComesOutEveryTime: what the demo shows does not depend on luck.
func TestTheDemoComesOutEveryTime(t *testing.T) {
	t.Parallel()
	for range 100 {
		got := rehearse(t, &Rehearsal{
			Nodes:      []*corev1.Node{virtualNode("r1", "4", "8Gi"), virtualNode("r2", "4", "8Gi")},
			Placements: []*schedulerv1alpha1.NamespacePlacement{wanting("tenant", "200m")},
		})
		require.Equal(t, map[string]string{"tenant": `{"r1":1,"r2":1}`}, got)
	}
}
