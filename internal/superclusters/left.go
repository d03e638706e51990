package superclusters

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/tenancy"
)

// Left returns the super clusters of the pool, in order, that hold super namespaces of a VirtualCluster, by its cluster
// key and UID, and those that do not say that they hold none. It reads them live. That a super cluster is in the pool
// is what its virtual Node says: one whose Cluster was deleted is not, and what it holds the operator has with it.
func (c *Controller) Left(ctx context.Context, key string, uid types.UID) ([]string, error) {
	var nodes corev1.NodeList
	if err := c.Reader.List(ctx, &nodes, client.HasLabels{schedulerv1alpha1.LabelVirtualNode}); err != nil {
		return nil, fmt.Errorf("listing virtual Nodes: %w", err)
	}
	var left []string
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if ready := findCondition(node, corev1.NodeReady); ready != nil && ready.Reason == schedulerv1alpha1.ReasonClusterRemoved {
			continue
		}
		holds, err := c.holds(ctx, node.Name, key, uid)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("A super cluster does not say what it holds of a tenant", "superCluster", node.Name, "err", err)
		}
		if holds.Len() > 0 || err != nil {
			left = append(left, node.Name)
		}
	}
	slices.Sort(left)
	return left, nil
}

// holds returns the namespaces of a VirtualCluster of which a super cluster holds super namespaces, those that are
// being deleted among them.
func (c *Controller) holds(ctx context.Context, superCluster, key string, uid types.UID) (sets.Set[string], error) {
	super, superUID := c.measures.client(superCluster)
	if super == nil {
		return nil, fmt.Errorf("super cluster %s does not answer", superCluster)
	}
	return holds(ctx, super, superUID, key, uid)
}

// Holds reads live of which namespaces of a VirtualCluster, by its cluster key and UID, a super cluster of the pool
// holds super namespaces. A process that has no connection to it that answers, as one that leads tenants alone has
// none, makes one for this question, and waits probeTimeout at most: callers ask only super clusters whose virtual Node
// is Ready.
func (c *Controller) Holds(ctx context.Context, superCluster, key string, uid types.UID) (sets.Set[string], error) {
	if super, superUID := c.measures.client(superCluster); super != nil {
		return holds(ctx, super, superUID, key, uid)
	}
	node := &corev1.Node{}
	if err := c.Reader.Get(ctx, types.NamespacedName{Name: superCluster}, node); err != nil {
		return nil, fmt.Errorf("reading virtual Node %s: %w", superCluster, err)
	}
	superUID := types.UID(node.Annotations[schedulerv1alpha1.AnnotationSuperClusterUID])
	if !isVirtual(node) || superUID == "" {
		return nil, fmt.Errorf("virtual Node %s names no super cluster", superCluster)
	}
	config, _, reason, err := c.readSecret(ctx, parseName(node.Annotations[AnnotationClusterRef]))
	switch {
	case err != nil:
		return nil, err
	case config == nil:
		return nil, &engage.Failure{Reason: reason}
	}
	super, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of super cluster %s: %w", superCluster, err)
	}
	return holds(ctx, super, superUID, key, uid)
}

// holds asks a super cluster. That it holds no more than it says is proven as an absence is.
func holds(ctx context.Context, super kubernetes.Interface, superUID types.UID, key string, uid types.UID) (sets.Set[string], error) {
	asking, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	held := sets.New[string]()
	is := func(ctx context.Context) (types.UID, error) {
		found, _, err := readUID(ctx, super)
		return found, err
	}
	_, _, err := proof.Absent(asking, "the super cluster", superUID, is, "it holds nothing else of tenant "+key, func(ctx context.Context) (bool, error) {
		list, err := super.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: tenancyv1alpha1.LabelCluster + "=" + key})
		if err != nil {
			return false, fmt.Errorf("listing the super namespaces of tenant %s: %w", key, err)
		}
		for i := range list.Items {
			if owner, ours := tenancy.GetOwner(&list.Items[i]); ours && owner.VirtualClusterUID == uid {
				held.Insert(owner.Namespace)
			}
		}
		return false, nil
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // it names what was read
	}
	return held, nil
}
