package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

// leave lets all leave that is reserved in a super cluster which is to be left, and what left for that stay again where
// the reason has ended.
func (h holdings) leave(now time.Time, leave map[string]schedulerv1alpha1.LeavingReason) {
	for cluster, reason := range leave {
		p, holds := h[cluster]
		switch {
		case !holds || p.reserved.IsZero():
		case reason != "":
			p.leaveWhole(now, reason)
		case p.leavesCluster():
			p.leaving, p.terms = nil, nil
		}
	}
}

// leaveWhole lets all leave for a reason. It begins anew where more leaves than before: the syncer may still write a
// quota for it.
func (p *holding) leaveWhole(now time.Time, reason schedulerv1alpha1.LeavingReason) {
	whole := p.reserved.Fits(p.leaving)
	if whole && p.terms.Reason == reason {
		return
	}
	since := metav1.Time{Time: now}.Rfc3339Copy()
	if whole {
		since = p.terms.Since
	}
	p.leaving, p.terms = p.reserved, &schedulerv1alpha1.Leaving{Reason: reason, Since: since}
}

// leavesCluster reports whether what is leaving does so because of its super cluster.
func (p *holding) leavesCluster() bool {
	return !p.leaving.IsZero() && (p.terms.Reason == schedulerv1alpha1.LeavingDrained || p.terms.Reason == schedulerv1alpha1.LeavingLost)
}

// releasable returns of used the super clusters from which a part that leaves may be released. While anything is
// missing the part is held, so that a namespace has either room elsewhere or what it had, also when the cause ends half
// way. What leaves because the quota was lowered is not missing, and in a super cluster that is gone there is nothing
// to hold.
func (h holdings) releasable(quota slice.Amounts, used map[string]Use) map[string]Use {
	if quota.Fits(h.staying()) {
		return used
	}
	released := maps.Clone(used)
	for cluster, p := range h {
		if !p.leaving.IsZero() && !p.isShrinking() && !used[cluster].Gone {
			delete(released, cluster)
		}
	}
	return released
}

// leavingClusters says for people which super clusters are left, and why, "" for none: ": super clusters r1, r2 are
// drained".
func leavingClusters(placements []schedulerv1alpha1.ClusterPlacement) string {
	var parts []string
	for _, cause := range []struct {
		reason schedulerv1alpha1.LeavingReason
		word   string
	}{
		{schedulerv1alpha1.LeavingDrained, "drained"},
		{schedulerv1alpha1.LeavingLost, "lost"},
	} {
		var clusters []string
		for i := range placements {
			if p := &placements[i]; p.Leaving != nil && p.Leaving.Reason == cause.reason {
				clusters = append(clusters, p.Cluster)
			}
		}
		switch len(clusters) {
		case 0:
		case 1:
			parts = append(parts, fmt.Sprintf("super cluster %s is %s", clusters[0], cause.word))
		default:
			slices.Sort(clusters)
			parts = append(parts, fmt.Sprintf("super clusters %s are %s", strings.Join(clusters, ", "), cause.word))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
