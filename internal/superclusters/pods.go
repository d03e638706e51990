package superclusters

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/superclusters/warnings"
	"github.com/superpool/superpool/internal/tenancy"
)

// podsPeriod is how often the pods of a virtual Node are listed.
const podsPeriod = warnings.Period

// checkPods warns of pods of the meta cluster that are bound to the virtual Node of a Cluster: no kubelet runs them, so
// they hang (a DaemonSet that tolerates everything is the usual case, see docs/meta-cluster.md). It lists at most once
// in podsPeriod. A failed list is logged: nothing depends on it.
func (c *Controller) checkPods(ctx context.Context, cluster *metav1.PartialObjectMetadata, id string) {
	name := client.ObjectKeyFromObject(cluster)
	c.mu.Lock()
	last, exists := c.podsListed[name]
	due := !exists || time.Since(last) >= podsPeriod
	if due {
		c.podsListed[name] = time.Now()
	}
	c.mu.Unlock()
	if !due {
		return
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	// Resource version 0 is answered from the API server's cache, which has an index of pods by node; etcd has none.
	fromCache := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
	if err := c.Reader.List(ctx, list, fromCache, client.MatchingFields{"spec.nodeName": id}); err != nil {
		klog.FromContext(ctx).Error(err, "Listing the pods of a virtual node", "node", id)
		return
	}
	c.warnings.Set(cluster, "pods", podsOnVirtualNode(id, list.Items))
}

// podsOnVirtualNode returns what is wrong with pods on a virtual Node, the zero Reason for none.
func podsOnVirtualNode(id string, pods []metav1.PartialObjectMetadata) tenancy.Reason {
	if len(pods) == 0 {
		return tenancy.Reason{}
	}
	first := slices.MinFunc(pods, func(a, b metav1.PartialObjectMetadata) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return tenancy.Reason{Reason: ReasonPodsOnVirtualNode, Message: fmt.Sprintf(
		"%d pods of the meta cluster are bound to virtual Node %s, where no kubelet runs them; the first is %s/%s. Give its DaemonSet "+
			"a node affinity: key type, operator NotIn, value %s", len(pods), id, first.Namespace, first.Name, typeVirtualNode)}
}
