// Package scheduling tests vc-scheduler, the whole program, on real API servers: a meta cluster, a tenant control
// plane, and two super clusters, where the tests write what syncers would.
package scheduling

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/vc-scheduler/app"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/modcache"
)

const (
	patience = 40 * time.Second
	tick     = 20 * time.Millisecond
)

// world is the set of API servers that all tests of this package share, and the vc-scheduler that works on them. Tests
// use namespaces of their own, and leave the pool as empty as they found it: what one leaves takes room from the
// others.
type world struct {
	meta, tenant client.Client
	// metaWatch and tenantWatch are meta and tenant, and watch.
	metaWatch, tenantWatch client.WithWatch
	supers                 map[string]client.Client // by super cluster id
	metaPlane              *controlplane.ControlPlane
	options                *app.Options
	name, key              string // of the tenant
	// program is what runs on these API servers. Copies of a world, with other options or of another tenant, share it.
	program *program
}

// program is the vc-scheduler of this process, at most one at a time: without an election two would both place.
type program struct {
	// last is the one that was started last, nil if none was.
	last *instance
	// left are the namespaces that are gone, and for which something may be reserved yet.
	left []leftover
}

// leftover is a namespace that a test had.
type leftover struct {
	world     *world
	namespace string
}

// instance is a vc-scheduler that was started.
type instance struct {
	options *app.Options
	cancel  context.CancelFunc
	ended   chan struct{} // closed after err is set
	err     error
}

// start runs vc-scheduler after the one before has ended. It returns the error that that one ended with.
func (p *program) start(ctx context.Context, options *app.Options) error {
	err := p.stop()
	p.last = nil // its error is told once
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	started := &instance{options: options, cancel: cancel, ended: make(chan struct{})}
	p.last = started
	go func() {
		defer close(started.ended)
		started.err = app.Run(ctx, options)
	}()
	return nil
}

// stop ends vc-scheduler if it runs. It returns the error that the last one ended with.
func (p *program) stop() error {
	if p.last == nil {
		return nil
	}
	return p.last.stop()
}

func (i *instance) stop() error {
	i.cancel()
	<-i.ended
	return i.err
}

// runs returns whether one runs.
func (p *program) runs() bool {
	if p.last == nil {
		return false
	}
	select {
	case <-p.last.ended:
		return false
	default:
		return true
	}
}

// shared is set once by TestMain, before any test runs.
var shared *world

func TestMain(m *testing.M) {
	// A process sets up its logs once; tests run several commands.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	ctrl.SetLogger(klog.Background())
	if isProgram, err := runProgram(); isProgram {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Before the program of the world logs.
	if err := logsapi.ValidateAndApply(logsapi.NewLoggingConfiguration(), utilfeature.DefaultFeatureGate); err != nil {
		fmt.Fprintln(os.Stderr, "setting up the log:", err)
		os.Exit(1)
	}
	w, stop, err := newWorld(context.Background())
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the test's control planes:", err)
	} else {
		shared = w
		code = m.Run()
		if err := w.program.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "vc-scheduler, which the tests share:", err)
			code = 1
		}
	}
	stop()
	os.Exit(code)
}

func newWorld(ctx context.Context) (*world, func(), error) {
	crds, err := controlplane.MetaCRDs(ctx)
	if err != nil {
		return nil, func() {}, err
	}
	// No kube-controller-manager fills the status of quotas here, makes service accounts, or takes taints off Nodes.
	without := []string{"ResourceQuota", "ServiceAccount", "TaintNodesByCondition"}
	schedulerPlugins, err := modcache.Dir(ctx, "sigs.k8s.io/scheduler-plugins")
	if err != nil {
		return nil, func() {}, err
	}
	super := controlplane.Options{Role: controlplane.Super, DisableAdmission: without}
	older := super
	older.Emulates = fmt.Sprintf("1.%d", skew.Ours()-skew.Minors)
	started, stop, err := controlplane.Start(controlplane.Options{Role: controlplane.Meta, CRDs: crds, DisableAdmission: without},
		controlplane.Options{Role: controlplane.Tenant, CRDs: []string{podGroupCRD(schedulerPlugins)}, DisableAdmission: without}, super, older)
	if err != nil {
		return nil, stop, err
	}
	w := &world{name: "tenant", supers: map[string]client.Client{}, program: &program{}}
	return w, stop, w.populate(ctx, started[0], started[1], map[string]*controlplane.ControlPlane{"r1": started[2], "r2": started[3]})
}

func (w *world) populate(ctx context.Context, meta, tenant *controlplane.ControlPlane, supers map[string]*controlplane.ControlPlane) error {
	var err error
	if w.metaWatch, err = client.NewWithWatch(meta.Config, client.Options{Scheme: controlplane.Scheme()}); err != nil {
		return err
	}
	w.meta, w.metaPlane = w.metaWatch, meta
	if w.tenantWatch, err = client.NewWithWatch(tenant.Config, client.Options{Scheme: controlplane.Scheme()}); err != nil {
		return err
	}
	w.tenant = w.tenantWatch
	dir, err := os.MkdirTemp("", "superpool")
	if err != nil {
		return err
	}
	w.options = app.NewOptions()
	w.options.Kubeconfig = filepath.Join(dir, "meta.kubeconfig")
	w.options.ClusterSelector = labels.FormatLabels(inPool())
	w.options.Election.Elect = false
	w.options.ProbePeriod = time.Second
	w.options.QuotaGrace = time.Second // it only delays: TestAQuotaThatIsReplaced, which asks about it, sets another
	w.options.MetricsBindAddress, w.options.HealthProbeBindAddress = "0", "0"
	account, err := controlplane.Account(ctx, meta, "base/vc-scheduler-rbac.yaml", "vc-manager", "vc-scheduler")
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.options.Kubeconfig, account.KubeConfig, 0o600); err != nil {
		return err
	}
	for id, super := range supers {
		if err := w.superCluster(ctx, id, super); err != nil {
			return err
		}
	}
	ofTenant, err := controlplane.Account(ctx, tenant, "tenant/rbac.yaml", "superpool-system", "superpool")
	if err != nil {
		return err
	}
	if err := w.meta.Create(ctx, builders.KubeconfigSecret("tenant", ofTenant.KubeConfig)); err != nil {
		return err
	}
	return w.meta.Create(ctx, builders.VirtualCluster("tenant"))
}

// inPool returns the labels by which w selects the Clusters of super clusters.
func inPool() map[string]string { return map[string]string{"pool": "superpool"} }

// superCluster makes a super cluster of one node with 100 cores, and registers it.
func (w *world) superCluster(ctx context.Context, id string, super *controlplane.ControlPlane) error {
	c, err := client.New(super.Config, client.Options{Scheme: controlplane.Scheme()})
	if err != nil {
		return err
	}
	w.supers[id] = c
	if err := controlplane.Create(ctx, c, builders.SuperClusterInfo(id)); err != nil {
		return err
	}
	if err := controlplane.CreateNode(ctx, c, builders.Node("n1", "cpu", "100", "memory", "100Gi", "pods", "1000").Obj()); err != nil {
		return err
	}
	cluster := builders.Cluster(id)
	cluster.SetLabels(inPool())
	return controlplane.Create(ctx, w.meta, builders.KubeconfigSecret(id+"-kubeconfig", super.KubeConfig), cluster)
}

// with returns the world with other flags of vc-scheduler.
func (w *world) with(change func(*app.Options)) *world {
	other, options := *w, *w.options
	change(&options)
	other.options = &options
	return &other
}

// run returns once vc-scheduler runs with w's options and has read what the tests have set before. Tests share the one
// that runs with the options of shared, which goes on after them, unless they fail; one with other options ends with
// its test. stop ends either: where a test is about a restart, the next run starts another.
func (w *world) run(t *testing.T) (stop func()) {
	t.Helper()
	if !w.program.runs() || w.program.last.options != w.options {
		require.NoError(t, w.program.start(context.WithoutCancel(t.Context()), w.options))
	}
	running := w.program.last
	stop = func() { require.NoError(t, running.stop()) }
	t.Cleanup(func() {
		defer func() { // settle may end the test
			if w.options != shared.options || t.Failed() {
				stop()
			}
		}()
		w.settle(t)
	})
	require.Eventually(t, func() bool { return w.superClustersReady(t) && w.engaged(t) }, patience, tick, "the tenant becomes ready")
	w.settle(t)
	return stop
}

// engaged returns whether the tenant is connected with what its VirtualCluster asks for, its TenantPolicy included.
func (w *world) engaged(t *testing.T) bool {
	vc := &tenancyv1alpha1.VirtualCluster{}
	if err := w.meta.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: w.name}, vc); err != nil {
		return false
	}
	w.key = vc.Status.ClusterNamespace
	ready := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == vc.Generation &&
		meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionPolicyFound) == nil
}

// superClustersReady returns whether all virtual Nodes offer room.
func (w *world) superClustersReady(t *testing.T) bool {
	ctx := context.WithoutCancel(t.Context())
	for id := range w.supers {
		node := &corev1.Node{}
		if err := w.meta.Get(ctx, types.NamespacedName{Name: id}, node); err != nil || node.Status.Allocatable.Cpu().IsZero() || !isReady(node) {
			return false
		}
		for i := range node.Status.Conditions {
			if node.Status.Conditions[i].Type == schedulerv1alpha1.NodeDrained {
				return false
			}
		}
	}
	return true
}

// settle waits until vc-scheduler, if it runs, has released what tests had that have ended, and has seen the end of
// their drains.
func (w *world) settle(t *testing.T) {
	t.Helper()
	if !w.program.runs() || t.Failed() {
		return
	}
	all := w.program.left
	w.program.left = nil // one that is not released fails this test, not all that follow
	for _, left := range all {
		left.world.released(t, left.namespace) // all get their answers at once
	}
	for _, left := range all {
		require.Eventually(t, func() bool { return left.world.released(t, left.namespace) }, patience, tick,
			"the NamespacePlacement of %s is gone", left.namespace)
		left.world.inSuperClusters(t, left.namespace, func(super client.Client, name string) {
			require.NoError(t, super.DeleteAllOf(context.WithoutCancel(t.Context()), &corev1.ResourceQuota{}, client.InNamespace(name)))
			endNamespace(t, super, name)
		})
	}
	require.Eventually(t, func() bool { return w.superClustersReady(t) }, patience, tick, "all super clusters offer room again")
}

// clear deletes a namespace with its pods, those in super clusters included.
func (w *world) clear(t *testing.T, namespace string) {
	t.Helper()
	w.inSuperClusters(t, namespace, func(super client.Client, name string) { empty(t, super, name) })
	empty(t, w.tenant, namespace, &corev1.ResourceQuota{}, &policyv1.PodDisruptionBudget{})
	endNamespace(t, w.tenant, namespace)
	w.program.left = append(w.program.left, leftover{w, namespace})
}

// released returns whether nothing is reserved for a namespace that is gone. Where something is, it answers for the
// syncers.
func (w *world) released(t *testing.T, namespace string) bool {
	t.Helper()
	np := w.placement(t, namespace)
	if np == nil {
		return true
	}
	for i := range np.Status.Placements {
		if cluster := np.Status.Placements[i].Cluster; w.supers[cluster] != nil {
			w.answer(t, cluster, w.superNamespaceOf(t, cluster, namespace, np.Spec.NamespaceUID), "0", "0")
		}
	}
	return false
}

// inSuperClusters calls a function for each super cluster that has a super namespace of a namespace, with its name.
func (w *world) inSuperClusters(t *testing.T, namespace string, do func(super client.Client, name string)) {
	t.Helper()
	name := tenancy.SuperNamespace(w.key, namespace)
	for _, super := range w.supers {
		err := super.Get(context.WithoutCancel(t.Context()), types.NamespacedName{Name: name}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			continue
		}
		require.NoError(t, err)
		do(super, name)
	}
}

// endNamespace deletes a namespace, unless a test has done so.
func endNamespace(t *testing.T, c client.Client, name string) {
	t.Helper()
	err := c.Delete(context.WithoutCancel(t.Context()), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if apierrors.IsNotFound(err) {
		return
	}
	require.NoError(t, err)
	finalize(t, c, name)
}

// finalize ends a namespace that is being deleted, as the namespace controller does.
func finalize(t *testing.T, c client.Client, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	await.Change(t, c, namespace, func(namespace *corev1.Namespace) { namespace.Spec.Finalizers = nil }, "finalize")
}

// empty deletes the pods and the claims of a namespace, and all objects of further kinds. It plays those who take
// finalizers off.
func empty(t *testing.T, c client.Client, namespace string, further ...client.Object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, kind := range append(further, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}) {
		require.NoError(t, c.DeleteAllOf(ctx, kind, client.InNamespace(namespace), client.GracePeriodSeconds(0)))
	}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.PersistentVolumeClaimList{}} {
		require.NoError(t, c.List(ctx, list, client.InNamespace(namespace)))
		require.NoError(t, meta.EachListItem(list, func(item runtime.Object) error {
			return client.IgnoreNotFound(c.Patch(ctx, item.(client.Object), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		}))
	}
}

// namespace makes a tenant namespace until the test ends, with a slice annotation unless slice is "", and further ones.
func (w *world) namespace(t *testing.T, name, slice string, annotations ...string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if slice != "" {
		annotations = append(annotations, schedulerv1alpha1.AnnotationSlice, slice)
	}
	for pair := range slices.Chunk(annotations, 2) {
		metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, pair[0], pair[1])
	}
	require.NoError(t, w.tenant.Create(t.Context(), namespace))
	t.Cleanup(func() { w.clear(t, name) })
}

// quota sets the namespace's ResourceQuota.
func (w *world) quota(t *testing.T, namespace, cpu, memory string) {
	t.Helper()
	w.setQuota(t, builders.Quota(namespace, "quota", "cpu", cpu, "memory", memory))
}

// setQuota makes a ResourceQuota of the tenant, or changes what it has.
func (w *world) setQuota(t *testing.T, quota *corev1.ResourceQuota) {
	t.Helper()
	hard := quota.Spec.Hard
	err := w.tenant.Create(t.Context(), quota)
	if apierrors.IsAlreadyExists(err) {
		await.Change(t, w.tenant, quota, func(quota *corev1.ResourceQuota) { quota.Spec.Hard = hard })
		return
	}
	require.NoError(t, err)
}

// annotate sets an annotation of a tenant namespace.
func (w *world) annotate(t *testing.T, name, key, value string) {
	t.Helper()
	w.patchAnnotation(t, name, key, strconv.Quote(value))
}

// unannotate removes an annotation of a namespace.
func (w *world) unannotate(t *testing.T, name, key string) {
	t.Helper()
	w.patchAnnotation(t, name, key, "null")
}

func (w *world) patchAnnotation(t *testing.T, name, key, value string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, value)
	require.NoError(t, w.tenant.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, patch)))
}

func (w *world) shown(t *testing.T, name string) string {
	t.Helper()
	namespace := &corev1.Namespace{}
	require.NoError(t, w.tenant.Get(t.Context(), types.NamespacedName{Name: name}, namespace))
	return namespace.Annotations[schedulerv1alpha1.AnnotationPlacements]
}

// wantShown waits until a namespace shows one of the placements given.
func (w *world) wantShown(t *testing.T, name string, want ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Contains(want, w.shown(t, name)) }, patience, tick, "placements of %s: want %s", name, want)
}

// wantEvent waits for an Event about an object of the tenant control plane.
func (w *world) wantEvent(t *testing.T, kind, name, reason string) {
	t.Helper()
	require.Eventually(t, func() bool { return w.hasEvent(t, kind, name, reason) }, patience, tick, "an Event %s on %s %s", reason, kind, name)
}

// hasEvent says whether there is an Event about an object of the tenant control plane. name is namespace/name for one
// whose namespace matters: the Event lies there too.
func (w *world) hasEvent(t *testing.T, kind, name, reason string) bool {
	t.Helper()
	events := &corev1.EventList{}
	require.NoError(t, w.tenant.List(t.Context(), events))
	for i := range events.Items {
		event := &events.Items[i]
		of := event.InvolvedObject.Name
		if strings.Contains(name, "/") {
			of = event.Namespace + "/" + of
		}
		if event.InvolvedObject.Kind == kind && of == name && event.Reason == reason {
			return true
		}
	}
	return false
}

func (w *world) pod(t *testing.T, namespace, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := builders.Pod(namespace, name, "cpu", "100m", "memory", "100Mi").Obj()
	for _, f := range change {
		f(pod)
	}
	require.NoError(t, w.tenant.Create(t.Context(), pod))
	return pod
}

// wantPod waits until a pod looks as wanted.
func (w *world) wantPod(t *testing.T, pod *corev1.Pod, what string, good func(*corev1.Pod) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
		return good(pod)
	}, patience, tick, "pod %s: want %s", pod.Name, what)
}

func in(superCluster string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		return pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] == superCluster && pod.Labels[schedulerv1alpha1.LabelSuperCluster] == superCluster
	}
}
