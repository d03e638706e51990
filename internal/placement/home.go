package placement

import (
	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

// Home returns the super cluster that holds what of a namespace can be in one only and moves: its load balancers and
// Ingresses. It is current while anything of the namespace stays there. Else it is where most of the leading resource
// of its quota stays, the first by name among equals. While nothing stays anywhere, as in a drain before anything is
// placed elsewhere, it is current still, as long as the namespace has anything there. "" stands for none. placements
// are sorted by super cluster.
func Home(current string, spec *schedulerv1alpha1.NamespacePlacementSpec, placements []schedulerv1alpha1.ClusterPlacement) string {
	lead := slice.Lead(slice.Of(spec.Quota), slice.Of(spec.Slice))
	home, most, left := "", int64(0), ""
	for i := range placements {
		p := &placements[i]
		stays := StayingIn(p)
		switch {
		case p.Cluster == current && !stays.IsZero():
			return current
		case p.Cluster == current:
			left = current
		case !stays.IsZero() && (home == "" || stays[lead] > most):
			home, most = p.Cluster, stays[lead]
		}
	}
	if home == "" {
		return left
	}
	return home
}
