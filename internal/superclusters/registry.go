// Package superclusters keeps the live connections to super clusters: it watches Clusters of Cluster API and the Secrets that hold
// their kubeconfigs, adds up what each super cluster can hold, and keeps one virtual Node per super cluster in the meta cluster.
package superclusters

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubeconfig"
)

const (
	controllerName     = "superclusters"
	concurrentClusters = 4
	// kubeconfigSuffix ends the name of Cluster API's kubeconfig Secrets.
	kubeconfigSuffix = "-kubeconfig"
	// demoKubeconfigKey is the data key in a Secret that has the Cluster's own name.
	demoKubeconfigKey = "admin-kubeconfig"

	retireRetryAfter = 10 * time.Second
	// eventPeriod is how often the Event of a lasting trouble is recorded again.
	eventPeriod = 10 * time.Minute
)

// Registry keeps a connection to every super cluster and one virtual Node for each. It is a controller on Clusters.
//
// Troubles are Warning Events on the Cluster, and the Ready condition of its virtual Node if it has one. A super cluster in trouble
// holds up no other.
type Registry struct {
	// Client reads Clusters (a cache will do) and writes Nodes and Leases.
	Client client.Client
	// Reader reads Secrets, Nodes, Leases and NamespacePlacements. Nil: the manager's uncached reader.
	Reader client.Reader
	// Recorder records Events on Clusters.
	Recorder record.EventRecorder

	kind      atomic.Pointer[schema.GroupVersionKind] // of Cluster, once the meta cluster serves it
	instances kubeconfig.Instances[*connection]
	claims    claims
	writer    writer

	mu       sync.Mutex
	headroom map[types.NamespacedName]Headroom // the last good ones
	reported map[string]report                 // by Cluster and subject
}

type report struct {
	reason, message string
	at              time.Time
}

func (r *Registry) setDefaults() {
	if r.Reader == nil {
		r.Reader = r.Client
	}
	r.writer = writer{client: r.Client, reader: r.Reader}
	r.headroom = map[types.NamespacedName]Headroom{}
	r.reported = map[string]report{}
}

// SetupWithManager adds the registry to mgr. When mgr stops, all connections are cancelled and awaited. The meta cluster need not
// serve Clusters yet: the registry waits for it.
func (r *Registry) SetupWithManager(mgr ctrl.Manager) error {
	if r.Reader == nil {
		r.Reader = mgr.GetAPIReader()
	}
	r.setDefaults()
	bound := make(chan struct{})
	watch := &clusterWatch{registry: r, mapper: mgr.GetRESTMapper(), cache: mgr.GetCache(), bound: bound}
	if err := errors.Join(mgr.Add(&r.instances), mgr.Add(watch)); err != nil {
		return fmt.Errorf("adding the super clusters to the manager: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.ofSecret)).
		WatchesRawSource(source.Func(func(_ context.Context, queue reconcileQueue) error {
			r.instances.OnChange(func(name types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: name}) })
			close(bound)
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentClusters}).
		WithLogConstructor(func(request *reconcile.Request) logr.Logger {
			logger := klog.LoggerWithValues(mgr.GetLogger(), "controller", controllerName)
			if request != nil {
				logger = klog.LoggerWithValues(logger, "cluster", klog.KRef(request.Namespace, request.Name))
			}
			return logger
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the super clusters controller: %w", err)
	}
	return nil
}

// Reconcile brings the connection and the Events of one Cluster up to date. It never waits for a super cluster.
func (r *Registry) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	kind := r.kind.Load()
	if kind == nil {
		return reconcile.Result{}, nil
	}
	logger := klog.FromContext(ctx)
	name := request.NamespacedName
	cluster := &metav1.PartialObjectMetadata{}
	cluster.SetGroupVersionKind(*kind)
	if err := r.Client.Get(ctx, name, cluster); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("getting Cluster %s: %w", name, err)
		}
		if !r.instances.Stop(name) {
			return reconcile.Result{}, nil // the end of the connection brings us back
		}
		r.forget(name)
		return r.retire(ctx, name, "")
	}
	cluster = cluster.DeepCopy()
	cluster.SetGroupVersionKind(*kind)
	result, err := r.reconcile(ctx, cluster)
	if apierrors.IsConflict(err) {
		logger.V(4).Info("Trying again, another wrote the virtual node", "err", err)
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return result, err
}

func (r *Registry) reconcile(ctx context.Context, cluster *metav1.PartialObjectMetadata) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(cluster)
	headroom := r.readHeadroom(cluster)
	data, wrong, err := r.readSecret(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	var config *rest.Config
	if wrong == nil {
		if config, err = kubeconfig.Parse(data); err != nil {
			wrong = &trouble{ReasonInvalidKubeconfig, err}
		}
	}
	if wrong != nil {
		if !r.instances.Stop(name) {
			return reconcile.Result{}, nil // the end of the connection brings us back
		}
		r.claims.tried(name, "")
		return r.tell(ctx, cluster, state{reason: wrong.reason, message: wrong.Error()})
	}
	identity := kubeconfig.Fingerprint([]byte(cluster.UID), data)
	conn, running := r.instances.Ensure(name, identity, func() *connection { return r.connect(name, config, headroom) })
	if !running {
		return reconcile.Result{}, nil // the end of the older connection brings us back
	}
	conn.setHeadroom(headroom)
	return r.tell(ctx, cluster, conn.current())
}

// tell shows a connection's state: as an Event, and on the virtual Nodes that the connection does not serve itself.
func (r *Registry) tell(ctx context.Context, cluster *metav1.PartialObjectMetadata, now state) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(cluster)
	r.event(cluster, "connection", now.reason, now.message)
	result := reconcile.Result{}
	if now.reason != "" {
		result.RequeueAfter = eventPeriod
	}
	if now.id != "" {
		retired, err := r.retire(ctx, name, now.id)
		if retired.RequeueAfter > 0 {
			result = retired
		}
		return result, err
	}
	if now.reason == "" {
		return result, nil
	}
	nodes, err := r.writer.of(ctx, name)
	if err != nil {
		return result, err
	}
	for i := range nodes {
		if err := r.writer.unknown(ctx, &nodes[i], nodeReason(now.reason), now.message); err != nil {
			return result, err
		}
	}
	return result, nil
}

// retire takes away the virtual Nodes of a Cluster, but for the one named keep.
func (r *Registry) retire(ctx context.Context, cluster types.NamespacedName, keep string) (reconcile.Result, error) {
	nodes, err := r.writer.of(ctx, cluster)
	if err != nil {
		return reconcile.Result{}, err
	}
	result := reconcile.Result{}
	for i := range nodes {
		if nodes[i].Name == keep {
			continue
		}
		gone, err := r.writer.retire(ctx, &nodes[i])
		if apierrors.IsConflict(err) {
			err, gone = nil, false
		}
		if err != nil {
			return reconcile.Result{}, err
		}
		if !gone {
			result.RequeueAfter = retireRetryAfter
		}
	}
	return result, nil
}

// readHeadroom returns the headroom of a Cluster, the last good one when the annotation cannot be read.
func (r *Registry) readHeadroom(cluster *metav1.PartialObjectMetadata) Headroom {
	name := client.ObjectKeyFromObject(cluster)
	headroom, err := ParseHeadroom(cluster.Annotations[schedulerv1alpha1.AnnotationHeadroom])
	if err != nil {
		r.event(cluster, "headroom", ReasonInvalidHeadroom, fmt.Sprintf("Annotation %s: %v", schedulerv1alpha1.AnnotationHeadroom, err))
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.headroom[name]
	}
	r.event(cluster, "headroom", "", "")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headroom[name] = headroom
	return headroom
}

// readSecret returns the kubeconfig of a Cluster, from either of the two Secrets that may hold it.
func (r *Registry) readSecret(ctx context.Context, cluster types.NamespacedName) ([]byte, *trouble, error) {
	places := []struct{ secret, key string }{
		{cluster.Name + kubeconfigSuffix, tenancyv1alpha1.DefaultKubeconfigKey},
		{cluster.Name, demoKubeconfigKey},
	}
	var found []string
	for _, place := range places {
		secret := &corev1.Secret{}
		err := r.Reader.Get(ctx, types.NamespacedName{Namespace: cluster.Namespace, Name: place.secret}, secret)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("getting Secret %s/%s: %w", cluster.Namespace, place.secret, err)
		}
		if data, exists := secret.Data[place.key]; exists {
			return data, nil, nil
		}
		found = append(found, fmt.Sprintf("Secret %s has only the keys %q", place.secret, slices.Sorted(maps.Keys(secret.Data))))
	}
	err := fmt.Errorf("the kubeconfig is neither in Secret %s, key %s, nor in Secret %s, key %s, of namespace %s",
		places[0].secret, places[0].key, places[1].secret, places[1].key, cluster.Namespace)
	if len(found) > 0 {
		err = fmt.Errorf("%w: %s", err, strings.Join(found, "; "))
	}
	return nil, &trouble{ReasonSecretNotFound, err}, nil
}

// event records a trouble of a Cluster when it is new, and again from time to time. An empty reason ends it.
func (r *Registry) event(cluster *metav1.PartialObjectMetadata, subject, reason, message string) {
	key := client.ObjectKeyFromObject(cluster).String() + " " + subject
	now := time.Now()
	r.mu.Lock()
	last, exists := r.reported[key]
	fresh := reason != "" && (!exists || last.reason != reason || last.message != message || now.Sub(last.at) >= eventPeriod)
	switch {
	case reason == "":
		delete(r.reported, key)
	case fresh:
		r.reported[key] = report{reason, message, now}
	}
	r.mu.Unlock()
	if fresh {
		r.Recorder.Event(cluster, corev1.EventTypeWarning, reason, message)
	}
}

func (r *Registry) forget(cluster types.NamespacedName) {
	r.claims.forget(cluster)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.headroom, cluster)
	maps.DeleteFunc(r.reported, func(key string, _ report) bool { return strings.HasPrefix(key, cluster.String()+" ") })
}

// clusters returns the existing Clusters.
func (r *Registry) clusters(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	kind := r.kind.Load()
	if kind == nil {
		return nil, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := r.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing Clusters: %w", err)
	}
	return list.Items, nil
}

// ofSecret returns the existing Clusters whose kubeconfig may lie in a Secret. Most Secrets of a meta cluster belong to no Cluster, and a name
// that stands for none costs live reads.
func (r *Registry) ofSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	kind := r.kind.Load()
	if kind == nil {
		return nil // the event of each Cluster is still to come
	}
	names := []string{secret.GetName()}
	if name, ok := strings.CutSuffix(secret.GetName(), kubeconfigSuffix); ok && name != "" {
		names = append(names, name)
	}
	var requests []reconcile.Request
	for _, name := range names {
		cluster := &metav1.PartialObjectMetadata{}
		cluster.SetGroupVersionKind(*kind)
		key := types.NamespacedName{Namespace: secret.GetNamespace(), Name: name}
		if err := r.Client.Get(ctx, key, cluster); !apierrors.IsNotFound(err) {
			requests = append(requests, reconcile.Request{NamespacedName: key}) // where it cannot be read, Reconcile says so
		}
	}
	return requests
}

// parseName reads the form <namespace>/<name>.
func parseName(text string) types.NamespacedName {
	namespace, name, _ := strings.Cut(text, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}
