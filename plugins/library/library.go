// Package library has the plugins that profiles know from scheduler-plugins, with its names and args: no release of it
// that can be downloaded has plugins that compile with the Kubernetes release in go.mod.
package library

import (
	"context"
	"math/big"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// spread spreads scores over the whole range: the lowest becomes MinScore, the highest MaxScore, those between are
// rounded down. Scores that are all equal become MinScore.
type spread struct{}

// ScoreExtensions implements fwk.ScorePlugin.
func (s spread) ScoreExtensions() fwk.ScoreExtensions { return s }

// NormalizeScore implements fwk.ScoreExtensions.
func (spread) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	if len(scores) == 0 {
		return nil
	}
	lowest, highest := scores[0].Score, scores[0].Score
	for i := range scores {
		lowest, highest = min(lowest, scores[i].Score), max(highest, scores[i].Score)
	}
	span := big.NewInt(max(1, highest-lowest)) // 1 where all are equal
	for i := range scores {
		part := big.NewInt(scores[i].Score - lowest) // times 100 it may be more than an int64 holds
		part.Mul(part, big.NewInt(fwk.MaxScore-fwk.MinScore))
		scores[i].Score = fwk.MinScore + part.Quo(part, span).Int64()
	}
	return nil
}
