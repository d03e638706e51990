package syncer

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/proof"
)

// watchVirtualNode returns a function that returns the Node of a super cluster in the meta cluster as an informer shows
// it, nil while there is none. It calls changed each time that the spec is another, which is what people write. The
// informer belongs to informers, which should be restricted to that Node.
func watchVirtualNode(ctx context.Context, informers cache.Informers, id string, changed func()) (func() *corev1.Node, error) {
	informer, err := informers.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("making an informer of virtual Node %s: %w", id, err)
	}
	var current atomic.Pointer[corev1.Node]
	store := func(item any) {
		node, ok := item.(*corev1.Node)
		if !ok || node.Name != id {
			return
		}
		if before := current.Swap(node); before == nil || !equality.Semantic.DeepEqual(&before.Spec, &node.Spec) {
			changed()
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    store,
		UpdateFunc: func(_, after any) { store(after) },
		DeleteFunc: func(deleted any) {
			if node, ok := engage.Object[*corev1.Node](deleted); ok && node.Name == id {
				current.Store(nil)
			}
		},
	}); err != nil {
		return nil, fmt.Errorf("watching virtual Node %s: %w", id, err)
	}
	return current.Load, nil
}

// memberIn returns what implements kind.Env.Member: it asks the meta cluster.
func memberIn(meta *proof.ControlPlane) func(context.Context, string) (*corev1.Node, error) {
	return func(ctx context.Context, superCluster string) (*corev1.Node, error) {
		node := &corev1.Node{}
		_, lacks, err := meta.Lacks(ctx, types.NamespacedName{Name: superCluster}, node, func() bool {
			return node.Labels[schedulerv1alpha1.LabelVirtualNode] == superCluster
		})
		if err != nil || lacks {
			return nil, err //nolint:wrapcheck // it names what was read
		}
		return node, nil
	}
}
