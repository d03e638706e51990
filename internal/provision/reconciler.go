// Package provision keeps the control planes of tenants that name a ClusterVersion: it makes their certificates and
// applies what package controlplane says, one part after the other. It keeps no state: what a process that ended has
// begun, the next one finds in the objects.
package provision

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
	"github.com/superpool/superpool/internal/etcd"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/provision/secrets"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/virtualclusters"
)

const (
	controllerName = "control-planes"
	// concurrentTenants is how many control planes are worked on at a time.
	concurrentTenants = 8
	// concurrentDefragmented is how many members of etcd are defragmented at a time: each takes a worker for half a minute at
	// most, and tenants decide how often.
	concurrentDefragmented = 2
	// patrolPeriod is how often a control plane is looked at without an event.
	patrolPeriod  = 10 * time.Minute
	mendingPeriod = objects.MendingPeriod
)

// Reconciler reconciles VirtualClusters that name a ClusterVersion.
type Reconciler struct {
	// Client writes, and reads from a cache: VirtualClusters, ClusterVersions, and of other kinds vc-manager's objects.
	Client client.Client
	// Reader reads without a cache: Secrets, and what the cache does not have.
	Reader client.Reader
	Clock  clock.PassiveClock
	// DialEtcd connects to the store whose pods, by name, are at these addresses, as the function of that name does.
	DialEtcd func(addresses map[string]etcd.Address, config *tls.Config) (EtcdClient, error)
	// DialShared connects to the external store at these URLs, as the function of that name does.
	DialShared func(endpoints []string, config *tls.Config) (SharedEtcd, error)
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

	// exposing has an element for each reconcile that asks DNS or a tenant's API server, at most concurrentExposed, and
	// defragmenting one for each that waits for a member of etcd, at most concurrentDefragmented.
	// joining has one for each that asks an external store, at most concurrentJoined.
	exposing, defragmenting, joining chan struct{}
}

// objects writes vc-manager's objects.
func (r *Reconciler) objects() objects.Writer {
	return objects.Writer{Client: r.Client, Reader: r.Reader}
}

// SetupWithManager adds the reconciler to a manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.exposing, r.defragmenting, r.joining = make(chan struct{}, concurrentExposed), make(chan struct{}, concurrentDefragmented), make(chan struct{}, concurrentJoined)
	if err := r.setupExternal(mgr); err != nil {
		return err
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(controllerName).
		For(&tenancyv1alpha1.VirtualCluster{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, ownerSaid))).
		Watches(&tenancyv1alpha1.ClusterVersion{}, handler.EnqueueRequestsFromMapFunc(r.ofVersion)).
		Watches(&appsv1.StatefulSet{}, handler.EnqueueRequestsFromMapFunc(r.ofWorkload)).
		Watches(&appsv1.Deployment{}, handler.EnqueueRequestsFromMapFunc(r.ofWorkload)).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(r.ofWorkload)).
		Watches(&corev1.Service{}, handler.EnqueueRequestsFromMapFunc(r.ofWorkload)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentTenants}).
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
		if err = r.renewExternal(ctx, plane, kept, report, again); err == nil {
			err = r.provision(ctx, plane, report, again)
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
	ensured := kept.ensure(ctx, plane, r.validity(vc))
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
func (r *Reconciler) provision(ctx context.Context, plane *controlplane.ControlPlane, report *report, again *time.Duration) error {
	version, why, err := r.version(ctx, plane.Tenant, report)
	if err != nil {
		return err
	}
	if why != (tenancy.Reason{}) {
		report.refuse(why) // its creation, or a change of it, is an event
		return r.keep(ctx, plane, report, again)
	}
	plane.Version = version
	network, err := r.network(ctx)
	if err != nil {
		return err
	}
	plane.Network = network
	store, err := r.openStore(ctx, plane)
	if err != nil {
		return err
	}
	if store.files, err = r.readFiles(ctx, plane); err != nil {
		return err
	}
	backups, err := r.openBackups(ctx, plane)
	if err != nil {
		return err
	}
	if store.state.New && len(backups.restores) > 0 {
		return objects.Broken("ConfigMap and StatefulSet etcd and the API servers are gone, and there are Jobs etcd-restore-N: name the store, by the N of a claim data-N-etcd-0: "+
			"kubectl -n %[1]s create configmap etcd --from-literal=generation=N && kubectl -n %[1]s label configmap etcd app.kubernetes.io/managed-by=vc-manager", plane.Namespace)
	}
	restoring, goesOn, err := store.restore(ctx, backups)
	report.restoredFrom = ptr.To(store.state.Restored)
	if restoring.Reason == tenancyv1alpha1.ReasonProgressing {
		*again = min(*again, storePeriod) // nobody tells when pods are gone
	}
	if goesOn {
		err = errors.Join(err, r.upgrade(ctx, store, backups, report, again, restoring.Reason == tenancyv1alpha1.ReasonProgressing))
	}
	if restoring != (tenancy.Reason{}) {
		report.refuse(restoring)
	}
	if !goesOn || err != nil {
		return err
	}
	return backups.keepUp(ctx, store, report, again)
}

// keep keeps what there is of a control plane whose ClusterVersion is not there.
func (r *Reconciler) keep(ctx context.Context, plane *controlplane.ControlPlane, report *report, again *time.Duration) error {
	plane.Version = &tenancyv1alpha1.ClusterVersion{}
	store, err := r.openStore(ctx, plane)
	if err != nil {
		return err
	}
	if store.hasServed() {
		*again = min(*again, mendingPeriod)
	}
	return r.revive(ctx, store, report)
}

// upgrade makes the next part if a control plane may become what is wanted, or says why not. While it is restored it gets no
// other minor version.
func (r *Reconciler) upgrade(ctx context.Context, store *store, backups *backups, report *report, again *time.Duration, isRestored bool) error {
	if isRestored && changesMinor(store.version(), store.plane.Version.Spec.KubernetesVersion) {
		return r.revive(ctx, store, report)
	}
	why, err := store.obstacle(ctx, backups)
	if err != nil {
		return errors.Join(err, r.revive(ctx, store, report))
	}
	if why != (tenancy.Reason{}) {
		report.refuse(why)
		*again = min(*again, mendingPeriod)
		return r.revive(ctx, store, report)
	}
	if err := store.addFiles(ctx); err != nil {
		return errors.Join(err, r.revive(ctx, store, report))
	}
	return r.make(ctx, store, report, again)
}

// obstacle returns why a control plane cannot become what is wanted now, the zero Reason when it can.
func (s *store) obstacle(ctx context.Context, backups *backups) (why tenancy.Reason, err error) {
	if why = preflight(s); why == (tenancy.Reason{}) {
		why, err = s.movable(ctx)
	}
	if why == (tenancy.Reason{}) && err == nil {
		why, err = backups.beforeUpgrade(ctx, s)
	}
	return why, err
}

// make makes the next part, if the meta cluster takes it and those after it.
func (r *Reconciler) make(ctx context.Context, store *store, report *report, again *time.Duration) error {
	stages := r.stages(store.plane, store, store.wanted())
	refused, err := r.begin(ctx, store.plane, stages)
	for at, stage := range stages {
		if at > 0 {
			refused = r.refused(ctx, stages[at:])
		}
		if refused != "" {
			report.refuse(tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: refused + "; what runs goes on"})
			*again = min(*again, mendingPeriod)
		}
		if refused != "" || err != nil {
			return errors.Join(err, r.revive(ctx, store, report))
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
	if err := store.pruneFiles(ctx); err != nil {
		return err
	}
	report.set(tenancyv1alpha1.ConditionUpToDate, tenancy.Reason{})
	report.version = store.plane.Version.Spec.KubernetesVersion
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

// report is what vc-manager says of a control plane. What it does not say stays said as it is.
type report struct {
	// imported is whether there are no parts: what it does not say is not so, and its certificates are one at most.
	imported   bool
	conditions []metav1.Condition
	// version is that of all its parts, "" while some have another one.
	version string
	// endpoint is the URL of the API servers, "" while it is not known.
	endpoint string
	// ends is when the first of its certificates ends, nil where that is not known.
	ends *metav1.Time
	// lastBackup is when the newest backup was whole, nil where that is not known.
	lastBackup *metav1.Time
	// restoredFrom is the backup that its store was restored from, nil where that is not known.
	restoredFrom *string
	// without are conditions that it has not.
	without []string
	// knowsVersion is whether its ClusterVersion was read: else condition Translated stays as it is.
	knowsVersion bool
}

// conditionTypes are those that vc-manager writes.
var conditionTypes = []string{
	tenancyv1alpha1.ConditionCertificatesValid, tenancyv1alpha1.ConditionEtcdReady, tenancyv1alpha1.ConditionAPIServerReady,
	tenancyv1alpha1.ConditionControllerManagerReady, tenancyv1alpha1.ConditionExposed, tenancyv1alpha1.ConditionUpToDate,
}

// newReport returns a report that knows nothing of any part: it was not looked at, as one before is not whole.
func newReport(imported bool) *report {
	p := &report{imported: imported}
	if imported {
		return p
	}
	for _, condition := range conditionTypes {
		p.conditions = append(p.conditions, metav1.Condition{
			Type: condition, Status: metav1.ConditionUnknown, Reason: tenancyv1alpha1.ReasonWaiting, Message: "Another part is not whole",
		})
	}
	return p
}

// set sets a condition: True with the zero Reason, else False.
func (p *report) set(condition string, why tenancy.Reason) {
	said := metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: tenancyv1alpha1.ReasonWhole}
	if why != (tenancy.Reason{}) {
		said.Status, said.Reason, said.Message = metav1.ConditionFalse, why.Reason, tenancy.Cut(why.Message, tenancy.MaxConditionMessage)
	}
	p.put(said)
}

func (p *report) put(said metav1.Condition) {
	p.leave(said.Type)
	p.conditions = append(p.conditions, said)
}

// leave lets a condition be as it is.
func (p *report) leave(condition string) {
	p.conditions = slices.DeleteFunc(p.conditions, func(said metav1.Condition) bool { return said.Type == condition })
}

// keepExposed leaves all conditions as they are but Exposed, where it is known.
func (p *report) keepExposed() {
	p.knowsVersion = false
	p.conditions = slices.DeleteFunc(p.conditions, func(said metav1.Condition) bool {
		return said.Type != tenancyv1alpha1.ConditionExposed || isUnlooked(&said)
	})
}

// says reports whether a report says something of a condition.
func (p *report) says(condition string) bool {
	return slices.ContainsFunc(p.conditions, func(said metav1.Condition) bool { return said.Type == condition })
}

// judge says whether the certificates are valid, from what became of them: Unknown where the meta cluster may answer
// otherwise the next time.
func (p *report) judge(err error) {
	const condition = tenancyv1alpha1.ConditionCertificatesValid
	broken, ungranted := (*objects.BrokenError)(nil), (*secrets.UngrantedError)(nil)
	switch {
	case err == nil:
		p.set(condition, tenancy.Reason{})
	case errors.As(err, &broken):
		p.set(condition, tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: err.Error()})
	case errors.As(err, &ungranted): // refuse leaves it as it is
	case objects.IsRefused(err):
		p.set(condition, tenancy.Reason{Reason: tenancyv1alpha1.ReasonFailed, Message: err.Error()})
	default:
		p.put(metav1.Condition{Type: condition, Status: metav1.ConditionUnknown, Reason: tenancyv1alpha1.ReasonFailed, Message: tenancy.Cut(err.Error(), tenancy.MaxConditionMessage)})
	}
}

// fail says why the parts are not as they are to be.
func (p *report) fail(why tenancy.Reason) {
	if !p.imported {
		p.set(tenancyv1alpha1.ConditionUpToDate, why)
	}
}

// refuse says why nothing is changed, and nothing of the parts: they are as they were.
func (p *report) refuse(why tenancy.Reason) {
	p.fail(why)
	p.conditions = slices.DeleteFunc(p.conditions, func(said metav1.Condition) bool { return isUnlooked(&said) })
}

// isUnlooked reports whether a condition is of a part that was not looked at.
func isUnlooked(said *metav1.Condition) bool {
	return said.Status == metav1.ConditionUnknown && said.Reason == tenancyv1alpha1.ReasonWaiting
}

// write writes what a report says if it is something else, and reports whether it did, but for condition Exposed, which a
// tenant can change as often as it is asked.
func (r *Reconciler) write(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report) (bool, error) {
	before := vc.DeepCopy()
	report.tell(vc)
	if equality.Semantic.DeepEqual(before.Status, vc.Status) {
		return false, nil
	}
	if err := r.Client.Status().Patch(ctx, vc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return false, fmt.Errorf("writing the status of VirtualCluster %s: %w", client.ObjectKeyFromObject(vc), err)
	}
	now := vc.DeepCopy() // as it is stored: a CRD that is older keeps less
	meta.RemoveStatusCondition(&before.Status.Conditions, tenancyv1alpha1.ConditionExposed)
	meta.RemoveStatusCondition(&now.Status.Conditions, tenancyv1alpha1.ConditionExposed)
	return !equality.Semantic.DeepEqual(before.Status, now.Status), nil
}

// tell changes a status to what a report says.
func (p *report) tell(vc *tenancyv1alpha1.VirtualCluster) {
	status := &vc.Status
	for _, condition := range append([]string{tenancyv1alpha1.ConditionTranslated}, conditionTypes...) {
		if !p.says(condition) && (p.imported || p.knowsVersion && condition == tenancyv1alpha1.ConditionTranslated) {
			meta.RemoveStatusCondition(&status.Conditions, condition)
		}
	}
	for _, condition := range p.without {
		meta.RemoveStatusCondition(&status.Conditions, condition)
	}
	if p.imported {
		meta.RemoveStatusCondition(&status.Conditions, tenancyv1alpha1.ConditionBackedUp)
		meta.RemoveStatusCondition(&status.Conditions, tenancyv1alpha1.ConditionRotated)
		status.Version, status.Endpoint, status.CertificatesExpire, status.LastBackup, status.RestoredFrom = "", "", nil, nil, ""
	}
	status.Version, status.Endpoint = cmp.Or(p.version, status.Version), cmp.Or(p.endpoint, status.Endpoint)
	status.CertificatesExpire, status.LastBackup = cmp.Or(p.ends, status.CertificatesExpire), cmp.Or(p.lastBackup, status.LastBackup)
	status.RestoredFrom = ptr.Deref(p.restoredFrom, status.RestoredFrom)
	for _, condition := range p.conditions {
		condition.ObservedGeneration = vc.Generation
		meta.SetStatusCondition(&status.Conditions, condition)
	}
}
