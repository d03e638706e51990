package placements

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
)

// Usage tells what tenant namespaces use in super clusters. A tenant has no say in it: it is measured where pods run.
// superclusters.Controller implements it. Implementations are safe for concurrent use, and answer from memory.
type Usage interface {
	// Usage returns what each of these super clusters says about a namespace, by the key of its NamespacePlacement. One
	// that cannot be measured is not in the answer; one that does not exist any more is, with nothing used.
	Usage(ctx context.Context, namespace types.NamespacedName, superClusters []string) map[string]placement.Use
	// Held returns what the namespace with that UID uses or may use, by super cluster. It returns false while there may
	// be more, in super clusters that vc-scheduler has yet to list after its start.
	Held(ctx context.Context, namespace types.NamespacedName, uid types.UID) (map[string]slice.Amounts, bool)
}

// ClustersOf returns the super clusters where np reserves anything, and those in granted.
func ClustersOf(np *schedulerv1alpha1.NamespacePlacement, granted map[string]slice.Amounts) []string {
	clusters := slices.Collect(maps.Keys(granted))
	for i := range np.Status.Placements {
		clusters = append(clusters, np.Status.Placements[i].Cluster)
	}
	return clusters
}
