package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubeconfig"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	controllerName     = "tenants"
	concurrentTenants  = 8
	defaultDomain      = "cluster.local"
	legacyAdminKey     = tenancyv1alpha1.SecretAdminKubeconfig
	conflictRetryAfter = 30 * time.Second
)

// Registry runs Engage for every VirtualCluster whose control plane answers. It is a controller on VirtualClusters.
//
// An instance of work is known by the VirtualCluster's UID, its kubeconfig and the fields that Tenant carries. When one of them
// changes, the old instance is cancelled and its end awaited before the new one starts. A tenant in trouble holds up no other.
type Registry struct {
	// Client reads VirtualClusters (a cache will do) and, with ReportStatus, writes.
	Client client.Client
	// Reader reads Secrets, Namespaces and what must be up to date. Nil: the manager's uncached reader, so that no process holds all Secrets.
	Reader client.Reader
	// Recorder records Events on VirtualClusters, with ReportStatus.
	Recorder record.EventRecorder
	// Engage is the work of one tenant.
	Engage Engage
	// ReportStatus makes this registry the one that owns the VirtualClusters' status, root namespace and finalizer. Without it,
	// the registry only reads, and waits until another has set status.clusterNamespace.
	ReportStatus bool

	probe     func(context.Context, *rest.Config) (types.UID, error)
	instances kubeconfig.Instances[*connection]
}

// problem is why a tenant cannot be engaged, in the words of the Ready condition.
type problem struct {
	reason  string
	message string
}

func (r *Registry) setDefaults() {
	if r.Reader == nil {
		r.Reader = r.Client
	}
	if r.probe == nil {
		r.probe = probe
	}
}

// SetupWithManager adds the registry to mgr. When mgr stops, all instances are cancelled and awaited.
func (r *Registry) SetupWithManager(mgr ctrl.Manager) error {
	if r.Reader == nil {
		r.Reader = mgr.GetAPIReader()
	}
	r.setDefaults()
	if err := mgr.Add(&r.instances); err != nil {
		return fmt.Errorf("adding the tenants' instances to the manager: %w", err)
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&tenancyv1alpha1.VirtualCluster{}).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.ofSecret)).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(ofRootNamespace)).
		WatchesRawSource(source.Func(r.bindQueue)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentTenants}).
		WithLogConstructor(func(request *reconcile.Request) logr.Logger {
			logger := klog.LoggerWithValues(mgr.GetLogger(), "controller", controllerName)
			if request != nil {
				logger = klog.LoggerWithValues(logger, "tenant", klog.KRef(request.Namespace, request.Name))
			}
			return logger
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the tenants controller: %w", err)
	}
	return nil
}

// bindQueue lets instances ask for a reconciliation of their VirtualCluster.
func (r *Registry) bindQueue(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.instances.OnChange(func(name types.NamespacedName) {
		queue.Add(reconcile.Request{NamespacedName: name})
	})
	return nil
}

// Reconcile brings the instance, the root namespace and the status of one VirtualCluster up to date. It never waits for a tenant.
func (r *Registry) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	vc := &tenancyv1alpha1.VirtualCluster{}
	if err := r.Client.Get(ctx, request.NamespacedName, vc); err != nil {
		if apierrors.IsNotFound(err) {
			r.instances.Stop(request.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("getting the VirtualCluster: %w", err)
	}
	vc = vc.DeepCopy()
	result, err := r.reconcile(ctx, vc)
	if apierrors.IsConflict(err) {
		klog.FromContext(ctx).V(4).Info("Trying again, another wrote the VirtualCluster", "err", err)
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	return result, err
}

func (r *Registry) reconcile(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(vc)
	if !vc.DeletionTimestamp.IsZero() {
		if !r.instances.Stop(name) {
			return reconcile.Result{}, nil // the end of the instance brings us back
		}
		return r.cleanUp(ctx, vc)
	}
	trouble, err := r.ensureRoot(ctx, vc)
	if err != nil {
		return reconcile.Result{}, err
	}
	var tenant *Tenant
	var identity string
	if trouble == nil {
		tenant, identity, trouble, err = r.resolve(ctx, vc)
		if err != nil {
			return reconcile.Result{}, err
		}
	}
	if trouble != nil {
		r.instances.Stop(name)
		return r.report(ctx, vc, *trouble)
	}
	conn, running := r.instances.Ensure(name, identity, func() *connection { return r.connect(tenant) })
	if !running {
		return reconcile.Result{}, nil // the end of the older instance brings us back
	}
	return r.report(ctx, vc, conn.current())
}

// resolve returns the tenant that a VirtualCluster describes and the identity of its instance, or why there is none.
func (r *Registry) resolve(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (*Tenant, string, *problem, error) {
	data, trouble, err := r.readSecret(ctx, vc)
	if err != nil || trouble != nil {
		return nil, "", trouble, err
	}
	config, err := kubeconfig.Parse(data)
	if err != nil {
		secret, _ := secretOf(vc)
		return nil, "", &problem{tenancyv1alpha1.ReasonInvalidKubeconfig, fmt.Sprintf("Secret %s: %v", secret, err)}, nil
	}
	if !r.ReportStatus && vc.Status.ControlPlaneUID == "" {
		klog.FromContext(ctx).Info("Waiting until vc-scheduler has connected to the control plane and written status.controlPlaneUID")
		return nil, "", &problem{tenancyv1alpha1.ReasonConnecting, "Waiting for the first connection to the control plane"}, nil
	}
	ranges, err := serviceCIDRs(vc)
	if err != nil {
		return nil, "", nil, err
	}
	tenant := &Tenant{
		Key:                     tenancy.ClusterKey(vc),
		VirtualCluster:          client.ObjectKeyFromObject(vc),
		UID:                     vc.UID,
		ClusterDomain:           vc.Spec.ClusterDomain,
		ServiceCIDRs:            ranges,
		OpaqueMetaPrefixes:      slices.Clone(vc.Spec.OpaqueMetaPrefixes),
		TransparentMetaPrefixes: slices.Clone(vc.Spec.TransparentMetaPrefixes),
		Config:                  config,
	}
	if tenant.ClusterDomain == "" {
		tenant.ClusterDomain = defaultDomain
	}
	fields, err := json.Marshal([]any{tenant.Key, tenant.ClusterDomain, tenant.ServiceCIDRs, tenant.OpaqueMetaPrefixes, tenant.TransparentMetaPrefixes})
	if err != nil {
		return nil, "", nil, fmt.Errorf("encoding the identity of an instance: %w", err)
	}
	return tenant, kubeconfig.Fingerprint([]byte(vc.UID), data, fields), nil, nil
}

// readSecret returns the kubeconfig of a VirtualCluster.
func (r *Registry) readSecret(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) ([]byte, *problem, error) {
	name, keys := secretOf(vc)
	if name.Namespace == "" {
		return nil, &problem{tenancyv1alpha1.ReasonConnecting, "Waiting for the root namespace"}, nil
	}
	secret := &corev1.Secret{}
	if err := r.Reader.Get(ctx, name, secret); err != nil {
		if !apierrors.IsNotFound(err) {
			return nil, nil, fmt.Errorf("getting Secret %s: %w", name, err)
		}
		message := fmt.Sprintf("Secret %s does not exist: it must hold the tenant's kubeconfig in key %q", name, keys[0])
		return nil, &problem{tenancyv1alpha1.ReasonSecretNotFound, message}, nil
	}
	for _, key := range keys {
		if data, exists := secret.Data[key]; exists {
			return data, nil, nil
		}
	}
	message := fmt.Sprintf("Secret %s has no key %q, which must hold the tenant's kubeconfig: its keys are %q",
		name, keys[0], slices.Sorted(maps.Keys(secret.Data)))
	return nil, &problem{tenancyv1alpha1.ReasonSecretNotFound, message}, nil
}

// secretOf returns where a VirtualCluster's kubeconfig lies: the Secret, without a namespace when that is not known yet, and the data
// keys to try.
func secretOf(vc *tenancyv1alpha1.VirtualCluster) (types.NamespacedName, []string) {
	if ref := vc.Spec.KubeconfigSecretRef; ref != nil {
		key := ref.Key
		if key == "" {
			key = tenancyv1alpha1.DefaultKubeconfigKey
		}
		return types.NamespacedName{Namespace: vc.Namespace, Name: ref.Name}, []string{key}
	}
	return types.NamespacedName{Namespace: vc.Status.ClusterNamespace, Name: tenancyv1alpha1.SecretAdminKubeconfig},
		[]string{tenancyv1alpha1.DefaultKubeconfigKey, legacyAdminKey}
}

// ofSecret returns the VirtualClusters whose kubeconfig lies in a Secret.
func (r *Registry) ofSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	var list tenancyv1alpha1.VirtualClusterList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		if !errors.Is(err, context.Canceled) {
			klog.FromContext(ctx).Error(err, "Finding the VirtualClusters of a Secret", "secret", klog.KObj(secret))
		}
		return nil
	}
	name := client.ObjectKeyFromObject(secret)
	var requests []reconcile.Request
	for i := range list.Items {
		if wanted, _ := secretOf(&list.Items[i]); wanted == name {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}
