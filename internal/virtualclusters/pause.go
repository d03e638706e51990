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
	"github.com/superpool/superpool/internal/slice"
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

// paused returns condition Paused, nil for none, and after how long it may be another, 0 for never. It is True after a
// live read found nothing held, and super clusters were heard once in this process: what is stored may be lost, or of
// another day. Afterwards the cache is read, which shows what was granted just before the pause.
func (o *Owner) paused(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (*metav1.Condition, time.Duration, error) {
	condition := &metav1.Condition{Type: tenancyv1alpha1.ConditionPaused, Status: metav1.ConditionFalse, ObservedGeneration: vc.Generation}
	switch {
	case !vc.Spec.Paused:
		o.idle.Delete(vc.UID)
		return nil, 0, nil
	case o.Runs == nil:
		condition.Reason, condition.Message = tenancyv1alpha1.ReasonNoPool, "Without a pool nobody deletes the tenant's pods: delete them, and scale its control plane down, by hand"
		return condition, 0, nil
	}
	why, err := o.holds(ctx, vc)
	if err != nil {
		return nil, 0, err
	}
	if why == "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, tenancyv1alpha1.ReasonGivenBack, "The tenant holds no room for pods"
		return condition, conflictRetryAfter, nil
	}
	condition.Reason, condition.Message = tenancyv1alpha1.ReasonGivingBack, tenancy.Cut(why, tenancy.MaxConditionMessage)
	return condition, pauseRetryAfter, nil
}

// holds says what a tenant that is to be paused holds of the pool, "" for nothing.
func (o *Owner) holds(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (why string, err error) {
	key := tenancy.ClusterKey(vc)
	holding, err := holdingIn(ctx, o.Client, key)
	if err == nil && len(holding) == 0 && !IsPaused(vc) {
		holding, err = holdingIn(ctx, o.Reader, key)
	}
	if err != nil {
		return "", err
	}
	if len(holding) > 0 {
		named := strings.Join(holding[:min(len(holding), maxHolding)], ", ")
		if others := len(holding) - maxHolding; others > 0 {
			named += fmt.Sprintf(" and %d others", others)
		}
		return fmt.Sprintf("Waiting for namespaces %s: kubectl -n %s get nsp; Events about their quotas say which pods cannot be deleted", named, key), nil
	}
	if _, known := o.idle.Load(vc.UID); known {
		return "", nil
	}
	switch running, complete := o.Runs(ctx, key); {
	case !complete && IsPaused(vc):
		return "", nil // what was said stands until they are heard
	case !complete:
		return "Waiting for super clusters that were not measured since vc-scheduler began to lead", nil
	case len(running) > 0:
		return "Pods of the tenant run, or may, in " + strings.Join(running, ", ") + ", and no NamespacePlacement says so", nil
	}
	o.idle.Store(vc.UID, true)
	return "", nil
}

// holdingIn returns the namespaces that hold room for pods, or may yet get it, sorted, each with where. What claims use
// stays.
func holdingIn(ctx context.Context, reader client.Reader, root string) (holding []string, err error) {
	var list schedulerv1alpha1.NamespacePlacementList
	if err := reader.List(ctx, &list, client.InNamespace(root), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the placements in %s: %w", root, err)
	}
	for i := range list.Items {
		np := &list.Items[i]
		switch clusters := clustersOf(np); {
		case len(clusters) > 0:
			holding = append(holding, fmt.Sprintf("%s (%s)", np.Name, strings.Join(clusters, ", ")))
		case np.DeletionTimestamp == nil && !np.Spec.Paused:
			holding = append(holding, np.Name+" (not paused yet)")
		}
	}
	slices.Sort(holding)
	return holding, nil
}

// clustersOf returns the super clusters where room for pods of a namespace is reserved.
func clustersOf(np *schedulerv1alpha1.NamespacePlacement) (clusters []string) {
	for i := range np.Status.Placements {
		if p := &np.Status.Placements[i]; !slice.Of(p.Reserved).OfPods().IsZero() {
			clusters = append(clusters, p.Cluster)
		}
	}
	return clusters
}
