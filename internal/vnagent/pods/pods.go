// Package pods says whose pod a pod of the super cluster is. The marks of synced pods are the only authority: no name and no prefix
// of one is.
package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

var (
	// ErrNotFound says that the tenant has no such pod. It is the same whether there is none or it is another's.
	ErrNotFound = errors.New("pod not found")
	// ErrBusy says that the tenant has asked for too many pods that nobody has seen.
	ErrBusy = errors.New("too many requests for pods that are not known")
)

const (
	byTenant = "tenant"
	byPod    = "pod"
	// liveTimeout bounds the read after a miss.
	liveTimeout = 5 * time.Second
	// liveRate and liveBurst bound the reads that one tenant's misses cause in a second.
	liveRate, liveBurst = 20, 100
)

// Pod is a pod of a tenant.
type Pod struct {
	// Super is the pod in the super cluster. It is shared and must not be changed.
	Super *corev1.Pod
	// Owner holds the tenant's namespace and the UID of the tenant's pod; both have the same name.
	Owner tenancy.Owner
}

// Index finds the pods of tenants, on one node or in the whole super cluster. It is safe for concurrent use.
type Index struct {
	client   kubernetes.Interface
	node     string
	informer cache.SharedIndexInformer

	mu sync.Mutex
	// live holds the reads that each tenant may still cause: tenants that ask for what is not there hold up no others.
	live map[string]flowcontrol.RateLimiter
}

// New returns an index of the synced pods on node, or on all nodes if it is "". It knows nothing before Run. client should not bound its
// requests: the index does, for each tenant.
func New(client kubernetes.Interface, node string) (*Index, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTransform(stripManagedFields),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = tenancyv1alpha1.LabelCluster
			if node != "" {
				options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
			}
		}))
	informer := factory.Core().V1().Pods().Informer()
	err := informer.AddIndexers(cache.Indexers{byTenant: keyOfTenant, byPod: keyOfPod})
	if err != nil {
		return nil, fmt.Errorf("indexing pods: %w", err)
	}
	return &Index{client: client, node: node, informer: informer, live: map[string]flowcontrol.RateLimiter{}}, nil
}

// Run watches until ctx ends.
func (i *Index) Run(ctx context.Context) { i.informer.RunWithContext(ctx) }

// Ready says whether the first list is complete.
func (i *Index) Ready() bool { return i.informer.HasSynced() }

// stripManagedFields drops what nobody reads. The object is the informer's own until it is stored.
func stripManagedFields(object any) (any, error) {
	if pod, isPod := object.(*corev1.Pod); isPod {
		pod.ManagedFields = nil
	}
	return object, nil
}

func keyOfTenant(object any) ([]string, error) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return nil, nil
	}
	owner, complete := tenancy.OwnerOf(pod)
	if !complete {
		return nil, nil
	}
	return []string{owner.ClusterKey}, nil
}

func keyOfPod(object any) ([]string, error) {
	pod, isPod := object.(*corev1.Pod)
	if !isPod {
		return nil, nil
	}
	owner, complete := tenancy.OwnerOf(pod)
	if !complete {
		return nil, nil
	}
	return []string{podKey(owner.ClusterKey, owner.Namespace, pod.Name)}, nil
}

func podKey(clusterKey, namespace, name string) string {
	return clusterKey + "/" + namespace + "/" + name
}

// Get returns the pod that the tenant knows as namespace/name, or ErrNotFound. What the watch has not brought yet is read once,
// from where a syncer would have put it, and its marks are checked the same; ErrBusy says that this was done too often. Any other error is one
// of the super cluster.
func (i *Index) Get(ctx context.Context, clusterKey, namespace, name string) (Pod, error) {
	// ByIndex fails only on an index that does not exist.
	objects, err := i.informer.GetIndexer().ByIndex(byPod, podKey(clusterKey, namespace, name))
	if err != nil {
		return Pod{}, fmt.Errorf("looking for a pod: %w", err)
	}
	superNamespace := tenancy.SuperNamespace(clusterKey, namespace)
	switch len(objects) {
	case 0:
		return i.read(ctx, clusterKey, namespace, name, superNamespace)
	case 1:
		return i.own(objects[0].(*corev1.Pod), clusterKey, namespace)
	}
	// Marks that two pods have were copied by somebody: the syncer's is the one where it puts it.
	for _, object := range objects {
		if pod := object.(*corev1.Pod); pod.Namespace == superNamespace {
			return i.own(pod, clusterKey, namespace)
		}
	}
	return Pod{}, ErrNotFound
}

// mayRead says whether the tenant may cause one read more now.
func (i *Index) mayRead(clusterKey string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	limiter, exists := i.live[clusterKey]
	if !exists {
		limiter = flowcontrol.NewTokenBucketRateLimiter(liveRate, liveBurst)
		i.live[clusterKey] = limiter
	}
	return limiter.TryAccept()
}

func (i *Index) read(ctx context.Context, clusterKey, namespace, name, superNamespace string) (Pod, error) {
	if !i.mayRead(clusterKey) {
		return Pod{}, ErrBusy
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	pod, err := i.client.CoreV1().Pods(superNamespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Pod{}, ErrNotFound
	}
	if err != nil {
		return Pod{}, fmt.Errorf("reading a pod: %w", err)
	}
	return i.own(pod, clusterKey, namespace)
}

// own checks the marks and the node.
func (i *Index) own(pod *corev1.Pod, clusterKey, namespace string) (Pod, error) {
	owner, complete := tenancy.OwnerOf(pod)
	if !complete || owner.ClusterKey != clusterKey || owner.Namespace != namespace || (i.node != "" && pod.Spec.NodeName != i.node) {
		return Pod{}, ErrNotFound
	}
	return Pod{Super: pod, Owner: owner}, nil
}

// List returns the tenant's pods, ordered by the tenant's namespace and name. Before the first list is complete it returns an error: none
// at all would be a wrong answer.
func (i *Index) List(clusterKey string) ([]Pod, error) {
	if !i.Ready() {
		return nil, errors.New("pods are not listed yet")
	}
	objects, err := i.informer.GetIndexer().ByIndex(byTenant, clusterKey)
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	var pods []Pod
	for _, object := range objects {
		pod := object.(*corev1.Pod)
		if owner, complete := tenancy.OwnerOf(pod); complete && owner.ClusterKey == clusterKey {
			pods = append(pods, Pod{Super: pod, Owner: owner})
		}
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Owner.Namespace, b.Owner.Namespace), cmp.Compare(a.Super.Name, b.Super.Name), cmp.Compare(a.Super.Namespace, b.Super.Namespace))
	})
	return pods, nil
}
