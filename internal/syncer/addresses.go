package syncer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
)

// addresses holds the ClusterAddresses of the meta cluster, as an informer shows them. All methods may be called
// concurrently.
type addresses struct {
	// synced is that of the informer's handler.
	synced func() bool

	mu sync.RWMutex
	// byNamespace are not changed once they are here: a change replaces the slice.
	byNamespace map[string][]*tenancyv1alpha1.ClusterAddresses
}

// watchAddresses returns the addresses, and calls changed with namespace and name of each that changes.
func watchAddresses(ctx context.Context, informers cache.Informers, changed func(namespace, superCluster string)) (*addresses, error) {
	informer, err := informers.GetInformer(ctx, &tenancyv1alpha1.ClusterAddresses{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("making an informer of ClusterAddresses: %w", err)
	}
	a := &addresses{byNamespace: map[string][]*tenancyv1alpha1.ClusterAddresses{}}
	set := func(each *tenancyv1alpha1.ClusterAddresses) {
		a.set(each.Namespace, each.Name, each)
		changed(each.Namespace, each.Name)
	}
	remove := func(each *tenancyv1alpha1.ClusterAddresses) {
		a.set(each.Namespace, each.Name, nil)
		changed(each.Namespace, each.Name)
	}
	registration, err := informer.AddEventHandler(engage.Handler(ctx, "informer of ClusterAddresses", nil, engage.ObjectHandler(set, remove)))
	if err != nil {
		return nil, fmt.Errorf("watching ClusterAddresses: %w", err)
	}
	a.synced = registration.HasSynced
	return a, nil
}

// set replaces those of a super cluster in a namespace; nil removes them.
func (a *addresses) set(namespace, superCluster string, current *tenancyv1alpha1.ClusterAddresses) {
	a.mu.Lock()
	defer a.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(a.byNamespace[namespace]), func(each *tenancyv1alpha1.ClusterAddresses) bool { return each.Name == superCluster })
	if current != nil {
		others = append(others, current)
		slices.SortFunc(others, func(a, b *tenancyv1alpha1.ClusterAddresses) int { return strings.Compare(a.Name, b.Name) })
	}
	if len(others) == 0 {
		delete(a.byNamespace, namespace)
		return
	}
	a.byNamespace[namespace] = others
}

// in implements kind.Env.Told.
func (a *addresses) in(namespace string) []*tenancyv1alpha1.ClusterAddresses {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.byNamespace[namespace]
}

// filled returns whether all are there that the informer listed first; there are none without a pool (nil).
func (a *addresses) filled() bool { return a == nil || a.synced() }
