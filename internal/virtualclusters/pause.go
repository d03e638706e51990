package virtualclusters

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// pauseRetryAfter is after how long it is looked again whether a tenant that is to be paused holds nothing.
	pauseRetryAfter = 2 * time.Second
	// maxHolding is how many namespaces condition Paused names.
	maxHolding = 3
)

// IsPaused reports whether a tenant is paused and holds nothing of the pool any more: there is no work for it, and its
// control plane may be gone.
func IsPaused(vc *tenancyv1alpha1.VirtualCluster) bool {
	return vc.Spec.Paused && meta.IsStatusConditionTrue(vc.Status.Conditions, tenancyv1alpha1.ConditionPaused)
}

// paused returns condition Paused, nil for none, and after how long it may be another, 0 for never. That nothing is held
// is believed of a live read first; later a cache will do, which finds what was granted at the very moment.
func (o *Owner) paused(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (*metav1.Condition, time.Duration, error) {
	condition := &metav1.Condition{Type: tenancyv1alpha1.ConditionPaused, Status: metav1.ConditionFalse, ObservedGeneration: vc.Generation}
	switch {
	case !vc.Spec.Paused:
		return nil, 0, nil
	case !o.Pauses:
		condition.Reason, condition.Message = tenancyv1alpha1.ReasonNoPool, "Without a pool nobody evicts pods: delete them, and scale the control plane down by hand"
		return condition, 0, nil
	}
	holding, err := holdingIn(ctx, o.Client, tenancy.ClusterKey(vc))
	if err == nil && len(holding) == 0 && !IsPaused(vc) {
		holding, err = holdingIn(ctx, o.Reader, tenancy.ClusterKey(vc))
	}
	if err != nil {
		return nil, 0, err
	}
	if len(holding) == 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, tenancyv1alpha1.ReasonGivenBack, "The tenant holds nothing of the pool"
		return condition, conflictRetryAfter, nil
	}
	named := strings.Join(holding[:min(len(holding), maxHolding)], ", ")
	if others := len(holding) - maxHolding; others > 0 {
		named += fmt.Sprintf(" and %d others", others)
	}
	condition.Reason, condition.Message = tenancyv1alpha1.ReasonEvicting, fmt.Sprintf(
		"Waiting for namespaces %s: kubectl -n %s get nsp; Events about their quotas say which pods cannot be deleted", named, tenancy.ClusterKey(vc))
	return condition, pauseRetryAfter, nil
}

// holdingIn returns the namespaces that hold something of the pool, or may yet get it, sorted, each with where.
func holdingIn(ctx context.Context, reader client.Reader, root string) (holding []string, err error) {
	var list schedulerv1alpha1.NamespacePlacementList
	if err := reader.List(ctx, &list, client.InNamespace(root), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the placements in %s: %w", root, err)
	}
	for i := range list.Items {
		np := &list.Items[i]
		if np.DeletionTimestamp == nil && !np.Spec.Paused || len(np.Status.Placements) > 0 {
			holding = append(holding, fmt.Sprintf("%s (%s)", np.Name, clustersOf(np)))
		}
	}
	slices.Sort(holding)
	return holding, nil
}

// clustersOf returns the super clusters where something of a namespace is reserved, for people.
func clustersOf(np *schedulerv1alpha1.NamespacePlacement) string {
	clusters := make([]string, 0, len(np.Status.Placements))
	for i := range np.Status.Placements {
		clusters = append(clusters, np.Status.Placements[i].Cluster)
	}
	if len(clusters) == 0 {
		return "not paused yet"
	}
	return strings.Join(clusters, ", ")
}
