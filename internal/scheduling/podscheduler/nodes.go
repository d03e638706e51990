package podscheduler

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/nodelabels"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/tenants"
)

const (
	// labelsInterval is at least how long pods that name labels of Nodes wait before they are tried again for a change
	// of labels: a tenant may change them all the time.
	labelsInterval = time.Second

	// nodesUnread is why a pod that names labels of Nodes waits before these are read.
	nodesUnread = "the pod names labels of Nodes, and the Nodes of this control plane are not read yet"
)

// judge says how the pods of a tenant are judged.
type judge struct {
	policy *policy.Ref
	// nodes are the tenant's Nodes, nil: what pods want of labels that the policy does not list is refused.
	nodes *tenantNodes
}

// judged is kubescheduler.Instance.Judged: a pod of the pod view without the tolerations that its super pod will not
// have, and with names of Nodes for the labels that the tenant has given them. The pod handed in is not changed.
func (j *judge) judged(pod *corev1.Pod) (*corev1.Pod, string) {
	judged := j.tolerating(pod)
	if !j.names(pod) {
		return judged, ""
	}
	nodes, synced := j.nodes.all()
	if !synced {
		return judged, nodesUnread
	}
	if judged == pod {
		judged = copyOf(pod)
	}
	judged.Spec.NodeSelector, judged.Spec.Affinity = maps.Clone(pod.Spec.NodeSelector), pod.Spec.Affinity.DeepCopy()
	return judged, nodelabels.Translate(&judged.Spec, j.policy.Get().IsTenants, nodes)
}

// tolerating returns a pod, itself or a copy, with those of its tolerations that its super pod will have.
func (j *judge) tolerating(pod *corev1.Pod) *corev1.Pod {
	tolerations := policy.TolerationsInView(j.policy.Get(), pod)
	if len(tolerations) == len(pod.Spec.Tolerations) {
		return pod
	}
	judged := copyOf(pod)
	judged.Spec.Tolerations = tolerations
	return judged
}

// hinted is kubescheduler.Instance.Hinted. It leaves out what is wanted of labels that the tenant has given its Nodes,
// instead of answering it.
func (j *judge) hinted(pod *corev1.Pod) *corev1.Pod {
	hinted := j.tolerating(pod)
	if j.names(pod) {
		if hinted == pod {
			hinted = copyOf(pod)
		}
		hinted.Spec.NodeSelector, hinted.Spec.Affinity = maps.Clone(pod.Spec.NodeSelector), pod.Spec.Affinity.DeepCopy()
		nodelabels.Without(&hinted.Spec, j.policy.Get().IsTenants)
	}
	return hinted
}

// names reports whether a pod names labels that are its tenant's own.
func (j *judge) names(pod *corev1.Pod) bool {
	return j.nodes != nil && nodelabels.Uses(&pod.Spec, j.policy.Get().IsTenants)
}

// retry tries the pods again that name labels of Nodes whenever such labels have changed, until ctx ends.
func (j *judge) retry(ctx context.Context, pods corev1listers.PodLister, queue *tenantQueue) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.nodes.changed:
		}
		activate(ctx, pods, queue, j.names)
		select {
		case <-ctx.Done():
			return
		case <-time.After(labelsInterval):
		}
	}
}

// copyOf returns a shallow copy of a pod, whose spec can be given other fields.
func copyOf(pod *corev1.Pod) *corev1.Pod {
	copied := *pod
	return &copied
}

// tenantNodes are the Nodes that syncers keep in a tenant, with the labels that the tenant may have given them. They
// are read beside the tenant's other objects. It is safe for concurrent use.
type tenantNodes struct {
	informer cache.SharedIndexInformer
	// changed has an element once labels have changed, or all are read.
	changed chan struct{}

	mu sync.Mutex
	// known are those of the informer, nil: it has others.
	known []nodelabels.Node
}

// nodesOfTenant returns the Nodes of a tenant, nil for one whose Nodes are there for pods that run alone: nothing is
// read of it.
func nodesOfTenant(tenant *tenants.Tenant, cfg *rest.Config) (*tenantNodes, error) {
	if tenant.Nodes != tenancyv1alpha1.NodesPlaced {
		return nil, nil
	}
	api, err := kubernetes.NewForConfig(rest.AddUserAgent(cfg, tenantevents.ControllerName))
	if err != nil {
		return nil, fmt.Errorf("building a client of Nodes: %w", err)
	}
	return newTenantNodes(api), nil
}

// newTenantNodes returns the Nodes that api serves. start reads them.
func newTenantNodes(api kubernetes.Interface) *tenantNodes {
	n := &tenantNodes{changed: make(chan struct{}, 1)}
	ours := func(options *metav1.ListOptions) { options.LabelSelector = tenancyv1alpha1.LabelTenantNode + "=true" }
	n.informer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			ours(&options)
			tenantclient.Paged(&options)
			return api.CoreV1().Nodes().List(ctx, options) //nolint:wrapcheck // the informer asks what kind of error it is
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			ours(&options)
			return api.CoreV1().Nodes().Watch(ctx, options) //nolint:wrapcheck // as above
		},
	}, &corev1.Node{}, 0, cache.Indexers{})
	return n
}

// trimNode is the transform of the informer.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: nodelabels.Of(node.Name, node.Labels).Labels,
	}}, nil
}

// start reads Nodes until ctx ends, and counts them towards bounds. A panic of a handler is passed to fail. The channel
// is closed when all has ended.
func (n *tenantNodes) start(ctx context.Context, bounds *tenantclient.Bounds, fail func(error)) <-chan struct{} {
	account := bounds.Account()
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { n.change() },
		UpdateFunc: func(before, after any) {
			old, wasNode := before.(*corev1.Node)
			node, isNode := after.(*corev1.Node)
			if !wasNode || !isNode || !maps.Equal(old.Labels, node.Labels) {
				n.change()
			}
		},
		DeleteFunc: func(any) { n.change() },
	}
	_, _ = account.Follow(n.informer, trimNode, engage.Handler(ctx, "informer of Nodes", fail, handler)) // it has not started
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		defer account.Close()
		n.informer.RunWithContext(ctx)
	}()
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), n.informer.HasSynced) {
			n.change() // there may be none
		}
	}()
	return stopped
}

// change notes that the informer has other Nodes.
func (n *tenantNodes) change() {
	n.mu.Lock()
	n.known = nil
	n.mu.Unlock()
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// all returns the Nodes, which must not be changed, and whether all are read.
func (n *tenantNodes) all() ([]nodelabels.Node, bool) {
	if !n.informer.HasSynced() {
		return nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = []nodelabels.Node{}
		for _, object := range n.informer.GetStore().List() {
			if node, ok := object.(*corev1.Node); ok {
				n.known = append(n.known, nodelabels.Of(node.Name, node.Labels))
			}
		}
	}
	return n.known, true
}
