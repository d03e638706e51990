// Package pods maps pods of the super cluster to their tenants. The ownership labels and annotations that a syncer
// writes are the only authority, in the namespace where it writes them: no name, and no prefix of one, is.
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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

var (
	// ErrNotFound means that the tenant has no such pod: the same where none exists and where it is another tenant's.
	ErrNotFound = errors.New("pod not found")
	// ErrBusy means that the tenant's requests for pods that are not in the cache came faster than liveRate.
	ErrBusy = errors.New("too many requests for pods that are not known")
)

const (
	// byTenant and byPod name the indexes of the informer: by cluster key, and by podKey.
	byTenant = "tenant"
	byPod    = "pod"
	// liveTimeout bounds the read from the API server after a cache miss.
	liveTimeout = 5 * time.Second
	// liveRate, in reads per second, and liveBurst bound the reads from the API server that one tenant's cache misses
	// cause.
	liveRate, liveBurst = 20, 100
)

// Pod is a pod of a tenant, as the super cluster runs it.
type Pod struct {
	// Super is the pod in the super cluster. It is shared with the informer's cache and must not be changed.
	Super *corev1.Pod
	// Owner holds the tenant's namespace and the UID of the tenant's pod. Both pods have the same name.
	Owner tenancy.Owner
}

// Index finds the pods of tenants in the whole super cluster, in an informer's cache and after a miss at the API
// server. It is safe for concurrent use.
type Index struct {
	client   kubernetes.Interface
	informer cache.SharedIndexInformer

	mu sync.Mutex
	// live holds a rate limiter per tenant: one that requests pods that do not exist slows no other.
	live map[string]flowcontrol.RateLimiter
}

// New returns an index of the synced pods. Its cache is empty until Run. client should have no rate limit: all tenants
// would share it, and the index has one per tenant. An error means a fault of the program.
func New(client kubernetes.Interface) (*Index, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTransform(stripManagedFields),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.LabelSelector = tenancyv1alpha1.LabelCluster
		}))
	informer := factory.Core().V1().Pods().Informer()
	err := informer.AddIndexers(cache.Indexers{
		byTenant: indexOwned(func(_ *corev1.Pod, owner tenancy.Owner) string { return owner.ClusterKey }),
		byPod: indexOwned(func(pod *corev1.Pod, owner tenancy.Owner) string {
			return podKey(owner.ClusterKey, owner.Namespace, pod.Name)
		}),
	})
	if err != nil {
		return nil, fmt.Errorf("indexing pods: %w", err)
	}
	return &Index{client: client, informer: informer, live: map[string]flowcontrol.RateLimiter{}}, nil
}

// Run lists and watches pods until ctx ends. It is called once.
func (i *Index) Run(ctx context.Context) { i.informer.RunWithContext(ctx) }

// Ready returns an error until the informer's cache has synced.
func (i *Index) Ready(context.Context) error {
	if !i.informer.HasSynced() {
		return errors.New("pods are not listed yet")
	}
	return nil
}

// stripManagedFields is the informer's transform, which may change the object: it is not stored yet. Nothing reads
// managed fields.
func stripManagedFields(object any) (any, error) {
	if pod, isPod := object.(*corev1.Pod); isPod {
		pod.ManagedFields = nil
	}
	return object, nil
}

// indexOwned returns an IndexFunc that indexes the pods with an owner under key.
func indexOwned(key func(pod *corev1.Pod, owner tenancy.Owner) string) cache.IndexFunc {
	return func(object any) ([]string, error) {
		pod, isPod := object.(*corev1.Pod)
		if !isPod {
			return nil, nil
		}
		owner, complete := tenancy.GetOwner(pod)
		if !complete {
			return nil, nil
		}
		return []string{key(pod, owner)}, nil
	}
}

func podKey(clusterKey, namespace, name string) string {
	return clusterKey + "/" + namespace + "/" + name
}

// Get returns the pod that the tenant knows as namespace/name, or ErrNotFound. After a cache miss it reads the pod once
// from the API server, in the namespace that a syncer would have created it in, and checks its ownership labels the
// same; ErrBusy means that the tenant has caused too many such reads. Any other error is the super cluster's.
func (i *Index) Get(ctx context.Context, clusterKey, namespace, name string) (Pod, error) {
	// ByIndex fails only on an index that does not exist.
	objects, err := i.informer.GetIndexer().ByIndex(byPod, podKey(clusterKey, namespace, name))
	if err != nil {
		return Pod{}, fmt.Errorf("looking for a pod: %w", err)
	}
	if len(objects) == 0 {
		return i.readLive(ctx, clusterKey, namespace, name)
	}
	return own(objects[0].(*corev1.Pod), clusterKey, namespace) // the only one: owners have a place
}

// mayRead takes a token of the tenant's rate limiter; false where none is left.
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

// readLive reads the pod from the API server.
func (i *Index) readLive(ctx context.Context, clusterKey, namespace, name string) (Pod, error) {
	if !i.mayRead(clusterKey) {
		return Pod{}, ErrBusy
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	pod, err := i.client.CoreV1().Pods(tenancy.SuperNamespace(clusterKey, namespace)).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Pod{}, ErrNotFound
	}
	if err != nil {
		return Pod{}, fmt.Errorf("reading a pod: %w", err)
	}
	return own(pod, clusterKey, namespace)
}

// own returns pod as the tenant's, or ErrNotFound where its ownership labels are another's.
func own(pod *corev1.Pod, clusterKey, namespace string) (Pod, error) {
	owner, complete := tenancy.GetOwner(pod)
	if !complete || owner.ClusterKey != clusterKey || owner.Namespace != namespace {
		return Pod{}, ErrNotFound
	}
	return Pod{Super: pod, Owner: owner}, nil
}

// List returns the tenant's pods, ordered by the tenant's namespace and name. Until the cache has synced it returns an
// error, because an incomplete list would look like deleted pods.
func (i *Index) List(ctx context.Context, clusterKey string) ([]Pod, error) {
	if err := i.Ready(ctx); err != nil {
		return nil, err
	}
	objects, err := i.informer.GetIndexer().ByIndex(byTenant, clusterKey)
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	var pods []Pod
	for _, object := range objects {
		pod := object.(*corev1.Pod)
		if owner, complete := tenancy.GetOwner(pod); complete && owner.ClusterKey == clusterKey {
			pods = append(pods, Pod{Super: pod, Owner: owner})
		}
	}
	sortPods(pods)
	return pods, nil
}

func sortPods(pods []Pod) {
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Owner.Namespace, b.Owner.Namespace), cmp.Compare(a.Super.Name, b.Super.Name), cmp.Compare(a.Super.Namespace, b.Super.Namespace))
	})
}
