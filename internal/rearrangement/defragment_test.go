package rearrangement

import (
	"testing"

	"github.com/stretchr/testify/require"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
)

func TestDefragment(t *testing.T) {
	t.Parallel()
	never := namespace("a", "web", 1, 3, "r1", 1, "r2", 1, "r3", 1)
	never.Spec.MovableFor = schedulerv1alpha1.MovableForNobody
	for name, tc := range map[string]struct {
		used map[string]map[string]string
		nps  []*np
		most int32
		want []string
		// free is what is free then.
		free map[string]int64
	}{
		"spread": {
			nps: []*np{namespace("a", "busy", 4, 1, "r2", 1), namespace("a", "web", 1, 3, "r1", 1, "r2", 1, "r3", 1)}, most: 10,
			want: []string{"a/web: 2 slices from r1, r3 to r2"}, free: map[string]int64{"r1": 8, "r2": 1, "r3": 8},
		},
		"of several tenants": {
			nps: []*np{namespace("a", "web", 1, 3, "r1", 3), namespace("b", "web", 1, 2, "r2", 2), namespace("c", "web", 1, 1, "r3", 1)}, most: 10,
			want: []string{"b/web: 2 slices from r2 to r1", "c/web: 1 slice from r3 to r1"}, free: map[string]int64{"r1": 2, "r2": 8, "r3": 8},
		},
		"no more than are asked for": {
			nps: []*np{namespace("a", "busy", 4, 1, "r2", 1), namespace("a", "web", 1, 3, "r1", 1, "r2", 1, "r3", 1)}, most: 1,
			want: []string{"a/web: 1 slice from r1 to r2"}, free: map[string]int64{"r1": 8, "r2": 2, "r3": 7},
		},
		"pods use them": {
			used: map[string]map[string]string{"web": {"r1": "500m"}}, most: 10,
			nps:  []*np{namespace("a", "busy", 4, 1, "r2", 1), namespace("a", "web", 1, 3, "r1", 1, "r2", 1, "r3", 1)},
			want: []string{"a/web: 1 slice from r3 to r2"}, free: map[string]int64{"r1": 7, "r2": 2, "r3": 8},
		},
		"nobody may move them":   {nps: []*np{never}, most: 10, free: map[string]int64{"r1": 7, "r2": 7, "r3": 7}},
		"a piece is not divided": {nps: []*np{namespace("a", "busy", 7, 1, "r2", 1), namespace("a", "web", 1, 2, "r1", 2)}, most: 10, free: map[string]int64{"r1": 6, "r2": 1, "r3": 8}},
		"nothing is placed":      {most: 10, free: map[string]int64{"r1": 8, "r2": 8, "r3": 8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := poolOf(t, nil, tc.used, tc.nps...)
			found, err := pool.Defragment(schedulertest.Context(t), tc.most)
			require.NoError(t, err)
			require.Equal(t, tc.want, texts(found.Moves))
			free := map[string]int64{}
			for cluster, amounts := range found.After {
				free[cluster] = amounts["cpu"] / 1000
			}
			require.Equal(t, tc.free, free)
		})
	}
}
