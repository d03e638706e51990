// Package provision keeps the control planes of tenants that name a ClusterVersion: it makes their certificates and
// applies what package controlplane says, one part after the other. It keeps no state: what a process that ended has
// begun, the next one finds in the objects.
package provision

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/provision/secrets"
	"github.com/superpool/superpool/internal/provision/stores"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/virtualclusters"
)

const (
	controllerName = "control-planes"
	// ConcurrentTenants is how many control planes are worked on at a time.
	ConcurrentTenants = 8
	// patrolPeriod is how often a control plane is looked at without an event.
	patrolPeriod  = 10 * time.Minute
	mendingPeriod = objects.MendingPeriod
	// storePeriod is how often a store that is not whole is asked again, and who else nobody tells of.
	storePeriod = stores.AskPeriod
)

// Reconciler reconciles VirtualClusters that name a ClusterVersion.
type Reconciler struct {
	// Client writes, and reads from a cache: VirtualClusters, ClusterVersions, and of other kinds vc-manager's objects.
	Client client.Client
	// Reader reads without a cache: Secrets, and what the cache does not have.
	Reader client.Reader
	Clock  clock.PassiveClock
	// Stores keeps the store of each control plane, with as many workers as ConcurrentTenants.
	Stores *stores.Stores
	// Validity is how long certificates are valid of VirtualClusters that do not say it.
	Validity time.Duration
	// BaseVersion names the ClusterVersion that those which are written as StatefulSets have images of
	// (controlplane.Unbundle), "" for none.
	BaseVersion string
	// AgentsNamespace is the namespace with what tenants and vn-agents know each other by (poolAuthority). "": the pool has
	// none.
	AgentsNamespace string
	// DialTenant connects to a tenant's API server, as the function of that name does, and LookUp asks DNS for the addresses
	// of a name.
	DialTenant func(config *rest.Config) (api kubernetes.Interface, done func(), err error)
	LookUp     func(ctx context.Context, name string) ([]netip.Addr, error)
	// Network is what the pods of control planes may reach. The API server of the meta cluster is read.
	Network controlplane.Network

	// exposing has an element for each reconcile that asks DNS or a tenant's API server, at most concurrentExposed.
	exposing chan struct{}
}

// objects writes vc-manager's objects.
func (r *Reconciler) objects() objects.Writer {
	return objects.Writer{Client: r.Client, Reader: r.Reader}
}

// SetupWithManager adds the reconciler, and that of external stores, to a manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.exposing = make(chan struct{}, concurrentExposed)
	if err := r.Stores.SetupWithManager(mgr); err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&tenancyv1alpha1.VirtualCluster{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, ownerSaid))).
		Watches(&tenancyv1alpha1.ClusterVersion{}, handler.EnqueueRequestsFromMapFunc(r.ofVersion)).
		Watches(&appsv1.StatefulSet{}, handler.EnqueueRequestsFromMapFunc(r.ofWorkload)).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(r.ofWorkload)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(r.ofWorkload)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.ofWorkload)).
		WithOptions(controller.Options{MaxConcurrentReconciles: ConcurrentTenants}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller of control planes: %w", err)
	}
	return nil
}

// ownerSaid passes on that vc-scheduler has made the root namespace, or says that the tenant is paused, and not what is
// said of a control plane: each reconcile may say something else.
var ownerSaid = predicate.Funcs{UpdateFunc: func(event event.UpdateEvent) bool {
	before, isBefore := event.ObjectOld.(*tenancyv1alpha1.VirtualCluster)
	after, isAfter := event.ObjectNew.(*tenancyv1alpha1.VirtualCluster)
	return isBefore && isAfter &&
		(before.Status.ClusterNamespace != after.Status.ClusterNamespace || virtualclusters.IsPaused(before) != virtualclusters.IsPaused(after))
}}

// ofVersion returns the VirtualClusters that name a ClusterVersion, or one that may have images of it.
func (r *Reconciler) ofVersion(ctx context.Context, version client.Object) []reconcile.Request {
	return r.those(ctx, func(vc *tenancyv1alpha1.VirtualCluster) bool {
		return vc.Spec.ClusterVersionName == version.GetName() || version.GetName() == r.BaseVersion
	})
}

// ofWorkload returns the VirtualCluster in whose root namespace a workload or Service of vc-manager is.
func (r *Reconciler) ofWorkload(ctx context.Context, workload client.Object) []reconcile.Request {
	if !controlplane.IsManaged(workload) {
		return nil
	}
	return r.those(ctx, func(vc *tenancyv1alpha1.VirtualCluster) bool {
		return vc.Status.ClusterNamespace == workload.GetNamespace()
	})
}

func (r *Reconciler) those(ctx context.Context, are func(*tenancyv1alpha1.VirtualCluster) bool) (requests []reconcile.Request) {
	var list tenancyv1alpha1.VirtualClusterList
	if err := r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Listing VirtualClusters")
		return nil
	}
	for i := range list.Items {
		if vc := &list.Items[i]; vc.Spec.ClusterVersionName != "" && are(vc) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(vc)})
		}
	}
	return requests
}

// Reconcile makes the next part of a control plane what it is to be, or scales it to nothing once its tenant is paused.
// Until then it runs: pods are deleted through it. What it waits for is an event, but for a store, DNS and the tenant's API
// server, which it asks again: a question takes seconds at most. patrolPeriod finds what somebody else has deleted.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	vc := &tenancyv1alpha1.VirtualCluster{}
	if err := r.Client.Get(ctx, request.NamespacedName, vc); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // it names what was read
	}
	if vc.DeletionTimestamp != nil || vc.Status.ClusterNamespace == "" {
		return reconcile.Result{}, nil // vc-scheduler makes the root namespace, and deletes it with all that is in it
	}
	report, again := newReport(vc.Spec.ClusterVersionName == ""), patrolPeriod
	err := r.step(ctx, vc, report, &again)
	return r.settle(ctx, vc, report, again, err)
}

// step does what is next for a tenant whose root namespace is its own. again is shortened to when it is looked at again.
func (r *Reconciler) step(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report, again *time.Duration) error {
	why, err := virtualclusters.CheckRoot(ctx, r.Reader, vc)
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	if why != (tenancy.Reason{}) {
		report.refuse(why)
		if report.imported && why.Reason == tenancyv1alpha1.ReasonKeyConflict {
			if pool := r.poolAuthority(ctx); !pool.isNone() { // else nobody needs anything of vc-manager
				report.set(tenancyv1alpha1.ConditionCertificatesValid, why)
			}
		}
		*again = mendingPeriod
		return nil
	}
	if report.imported {
		return r.identifyImported(ctx, vc, report, again)
	}
	plane, kept, err := r.certificates(ctx, vc, report, again)
	switch {
	case err != nil:
		return err
	case virtualclusters.IsPaused(vc):
		err = r.pause(ctx, vc, report)
	default:
		var record *stores.Record
		if record, err = r.renewExternal(ctx, plane, kept, report, again); err == nil {
			err = r.provision(ctx, plane, record, report, again)
		}
		err = errors.Join(err, r.expose(ctx, plane, report, again))
	}
	if err != nil || report.version == "" {
		return err
	}
	// Until it is whole, the one that was imported may be named again.
	return errors.Join(kept.rotate(ctx, vc, report, again), r.forget(ctx, vc))
}

// settle writes what a report says, and returns when a control plane is looked at again, with err or without.
func (r *Reconciler) settle(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report, again time.Duration, err error) (reconcile.Result, error) {
	var broken *objects.BrokenError
	var ungranted *secrets.UngrantedError
	switch {
	case err == nil:
	case errors.As(err, &ungranted): // nobody tells when it is granted
		again = r.waitFor(vc)
		if report.imported { // most need nothing of vc-manager
			return reconcile.Result{RequeueAfter: again}, nil
		}
		report.refuse(tenancy.Reason{Reason: tenancyv1alpha1.ReasonWaiting, Message: ungranted.Error()})
		err = nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: time.Second}, nil
	case errors.As(err, &broken): // somebody has to mend it, and nobody tells when
		report.fail(tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: err.Error()})
		err, again = nil, min(again, mendingPeriod)
	case objects.IsRefused(err):
		report.fail(tenancy.Reason{Reason: tenancyv1alpha1.ReasonFailed, Message: err.Error()})
	default: // it is tried again, and what is known of the parts stays said
		if report.imported {
			return reconcile.Result{}, err
		}
		report.keepExposed()
	}
	wrote, written := r.write(ctx, vc, report)
	if wrote { // a cache that is behind hides that somebody else, or this process, said something else: it is said again
		again = min(again, storePeriod)
	}
	if err == nil {
		err = written
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// waitFor returns after how long a VirtualCluster is looked at again that waits for vc-scheduler: as long as it has not been
// up to date, a second at least, so that a new one hardly waits, and mendingPeriod at most.
func (r *Reconciler) waitFor(vc *tenancyv1alpha1.VirtualCluster) time.Duration {
	since := vc.CreationTimestamp.Time
	if vc.Spec.ClusterVersionName != "" { // it may have been imported before
		said := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionUpToDate)
		if said == nil || said.Status != metav1.ConditionFalse || said.Reason != tenancyv1alpha1.ReasonWaiting {
			return time.Second
		}
		since = said.LastTransitionTime.Time
	}
	return min(max(time.Second, r.Clock.Since(since)), mendingPeriod)
}

// certificates makes the certificates of a control plane, whatever becomes of the rest of it: what runs needs them.
// again is shortened to when the next one is due. It returns the control plane, which has no version yet, and its Secrets. Nothing waits
// for the pool's authority.
func (r *Reconciler) certificates(
	ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report, again *time.Duration,
) (*controlplane.ControlPlane, *certificates, error) {
	plane := &controlplane.ControlPlane{Namespace: vc.Status.ClusterNamespace, Tenant: vc}
	if err := r.locate(ctx, plane, report); err != nil {
		return nil, nil, err
	}
	kept := r.keeping(ctx, plane.Namespace)
	ensured := kept.ensure(ctx, plane, controlplane.Validity(vc, r.Validity))
	isThere, err := kept.identify(ctx, controlplane.KubeletClient, r.identity(vc))
	plane.Agents, err = isThere, errors.Join(ensured, err)
	*again = kept.until(*again)
	if ensured == nil {
		report.ends = ptr.To(metav1.NewTime(kept.Ends()))
	}
	kept.sayRotating(vc, report)
	handed := r.handOut(ctx, vc)
	report.judge(errors.Join(err, kept.pool.err))
	if err != nil {
		return nil, nil, err // where there is no kubeconfig to hand out, it says why
	}
	return plane, kept, handed
}

// provision makes the next part. again is shortened to when a store that is not whole is asked again.
func (r *Reconciler) provision(ctx context.Context, plane *controlplane.ControlPlane, record *stores.Record, report *report, again *time.Duration) error {
	version, why, err := r.version(ctx, plane.Tenant, report)
	if err != nil {
		return err
	}
	if why != (tenancy.Reason{}) {
		report.refuse(why) // its creation, or a change of it, is an event
		return r.keep(ctx, plane, record, report, again)
	}
	plane.Version = version
	network, err := r.network(ctx)
	if err != nil {
		return err
	}
	plane.Network = network
	files, err := r.readFiles(ctx, plane)
	if err != nil {
		return err
	}
	store, err := r.Stores.Open(ctx, plane, record, files.lacks)
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	backups, err := store.Backups(ctx)
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	restoring, goesOn, err := store.Restore(ctx, backups)
	report.restoredFrom = ptr.To(store.Restored())
	if restoring.Reason == tenancyv1alpha1.ReasonProgressing {
		*again = min(*again, storePeriod) // nobody tells when pods are gone
	}
	if goesOn {
		err = errors.Join(err, r.upgrade(ctx, &wanted{plane, store, backups, files}, report, again, restoring.Reason == tenancyv1alpha1.ReasonProgressing))
	}
	if restoring != (tenancy.Reason{}) {
		report.refuse(restoring)
	}
	if !goesOn || err != nil {
		return err
	}
	return r.backUp(ctx, backups, report, again)
}

// backUp is KeepUp of backups, with what a report says of them. again is shortened to when the next one is due.
func (r *Reconciler) backUp(ctx context.Context, backups *stores.Backups, report *report, again *time.Duration) error {
	kept, err := backups.KeepUp(ctx)
	if kept == nil {
		report.without = append(report.without, tenancyv1alpha1.ConditionBackedUp)
		return err //nolint:wrapcheck // it says what it did
	}
	report.lastBackup, report.lastBackupName = kept.Newest, kept.Name
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	if kept.Again > 0 {
		*again = min(*again, kept.Again)
	}
	report.set(tenancyv1alpha1.ConditionBackedUp, kept.Why)
	return nil
}

// wanted is what a control plane is to become, with what there is for it.
type wanted struct {
	plane   *controlplane.ControlPlane
	store   *stores.Store
	backups *stores.Backups
	files   files
}

// keep keeps what there is of a control plane whose ClusterVersion is not there.
func (r *Reconciler) keep(ctx context.Context, plane *controlplane.ControlPlane, record *stores.Record, report *report, again *time.Duration) error {
	plane.Version = &tenancyv1alpha1.ClusterVersion{}
	store, err := r.Stores.Open(ctx, plane, record, "")
	if err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	if store.HasServed() {
		*again = min(*again, mendingPeriod)
	}
	return r.revive(ctx, store, report)
}

// upgrade makes the next part if a control plane may become what is wanted, or says why not. While it is restored it gets no
// other minor version.
func (r *Reconciler) upgrade(ctx context.Context, w *wanted, report *report, again *time.Duration, isRestored bool) error {
	if isRestored && w.store.ChangesMinor() {
		return r.revive(ctx, w.store, report)
	}
	why, err := w.store.Obstacle(ctx, w.backups)
	if err != nil {
		return errors.Join(err, r.revive(ctx, w.store, report))
	}
	if why != (tenancy.Reason{}) {
		report.refuse(why)
		*again = min(*again, mendingPeriod)
		return r.revive(ctx, w.store, report)
	}
	if err := w.files.add(ctx, r.keeper(w.plane.Namespace)); err != nil {
		return errors.Join(err, r.revive(ctx, w.store, report))
	}
	return r.make(ctx, w, report, again)
}

// make makes the next part, if the meta cluster takes it and those after it.
func (r *Reconciler) make(ctx context.Context, w *wanted, report *report, again *time.Duration) error {
	stages := r.stages(w.plane, w.store)
	refused, err := r.begin(ctx, w.plane, stages)
	for at, stage := range stages {
		if at > 0 {
			refused = r.refused(ctx, stages[at:])
		}
		if refused != "" {
			report.refuse(tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: refused + "; what runs goes on"})
			*again = min(*again, mendingPeriod)
		}
		if refused != "" || err != nil {
			return errors.Join(err, r.revive(ctx, w.store, report))
		}
		why, err := stage.make(ctx)
		if err != nil {
			return err
		}
		report.set(stage.condition, why)
		switch why.Reason {
		case "":
		case tenancyv1alpha1.ReasonStoreFull, tenancyv1alpha1.ReasonDefragmenting: // tenants decide how often: nothing waits for it
			*again = min(*again, mendingPeriod)
		default:
			report.set(tenancyv1alpha1.ConditionUpToDate, tenancy.Reason{Reason: why.Reason, Message: "Waiting for " + stage.name})
			*again = min(*again, stage.again)
			return nil
		}
	}
	if err := w.files.prune(ctx, r.keeper(w.plane.Namespace)); err != nil {
		return err
	}
	report.set(tenancyv1alpha1.ConditionUpToDate, tenancy.Reason{})
	report.version = w.plane.Version.Spec.KubernetesVersion
	return nil
}

// handOut copies the administrator's kubeconfig to where whoever made the VirtualCluster reads it.
func (r *Reconciler) handOut(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) error {
	own := &corev1.Secret{}
	if err := r.Reader.Get(ctx, types.NamespacedName{Namespace: vc.Status.ClusterNamespace, Name: tenancyv1alpha1.SecretAdminKubeconfig}, own); err != nil {
		return fmt.Errorf("getting the administrator's kubeconfig: %w", err)
	}
	out := r.keeper(vc.Namespace)
	data := map[string][]byte{tenancyv1alpha1.DefaultKubeconfigKey: own.Data[tenancyv1alpha1.DefaultKubeconfigKey]}
	if len(data[tenancyv1alpha1.DefaultKubeconfigKey]) == 0 {
		return nil // nobody knows yet where it leads
	}
	secret, err := out.Get(ctx, vc.Name+tenancyv1alpha1.SuffixKubeconfig)
	if err != nil {
		return err
	}
	return out.Keep(ctx, vc.Name+tenancyv1alpha1.SuffixKubeconfig, corev1.SecretTypeOpaque, secret, data, ownerOf(vc))
}

// ownerOf lets an object beside a VirtualCluster end with it.
func ownerOf(vc *tenancyv1alpha1.VirtualCluster) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: tenancyv1alpha1.GroupVersion.String(), Kind: "VirtualCluster", Name: vc.Name, UID: vc.UID}
}
