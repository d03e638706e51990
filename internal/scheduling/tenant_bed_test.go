package scheduling

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/podscheduler"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// tenantBed runs a tenant's reconcilers one request at a time, on API servers in memory. It stands in for informers and
// queue: settle shows the reconcilers what is stored, and hands them what changed, until nothing does.
type tenantBed struct {
	*testing.T
	meta     *schedulingtest.StoredPlacements
	api      *fake.Clientset
	usage    *schedulingtest.Measured
	clock    *testingclock.FakePassiveClock
	recorder *events.FakeRecorder
	profiles sets.Set[string]
	policy   *policy.Ref

	// The process: a restart makes them anew.
	store      *placements.Store
	factory    informers.SharedInformerFactory
	controller *tenantController
	seen       map[string]*schedulerv1alpha1.NamespacePlacement
	waiting    sets.Set[dispatch.Request]
	done       []dispatch.Request

	// otherControlPlane is whether another control plane than the tenant's answers.
	otherControlPlane bool

	// loseWrite is the number of the write that is the process' last, -1 for none, and happens whether that write takes
	// place.
	loseWrite int
	happens   bool
	down      bool
}

func newTenantBed(t *testing.T, objects ...runtime.Object) *tenantBed {
	t.Helper()
	b := &tenantBed{T: t, meta: schedulingtest.NewStoredPlacements(t), api: builders.Clientset(objects...), usage: &schedulingtest.Measured{}, clock: testingclock.NewFakePassiveClock(time.Now()), recorder: events.NewFakeRecorder(1000), policy: &policy.Ref{}, loseWrite: -1}
	b.meta.Fail = b.written
	b.api.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		n := len(b.meta.Writes)
		b.meta.Writes = append(b.meta.Writes, "annotation")
		happens, err := b.written(n)
		if err != nil && happens {
			// The reaction that follows would answer well: the write takes place here.
			b.tenantWrites("web", b.due("web"))
		}
		return err != nil, nil, err
	})
	b.api.PrependReactor("get", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if get, ok := action.(clienttesting.GetAction); ok && get.GetName() == metav1.NamespaceSystem && !b.down {
			return true, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: b.answers()}}, nil
		}
		return b.down, nil, schedulingtest.ErrDown
	})
	b.start()
	return b
}

func (b *tenantBed) written(n int) (bool, error) {
	if b.down {
		return false, schedulingtest.ErrDown
	}
	if n == b.loseWrite {
		b.down = true
		return b.happens, schedulingtest.ErrDown
	}
	return true, nil
}

// answers is the UID of the control plane that answers.
func (b *tenantBed) answers() types.UID {
	if b.otherControlPlane {
		return "another"
	}
	return "control-plane"
}

// start starts the process.
func (b *tenantBed) start() {
	b.down = false
	b.factory = informers.NewSharedInformerFactory(b.api, 0)
	b.store = placements.NewStore(b.meta, b.meta)
	tenantsOf := &Tenants{Client: b.meta, Store: b.store, Usage: b.usage, Dispatcher: dispatch.New(false), Profiles: b.profiles, DefaultSlice: slice.Of(schedulingtest.Cores("1"))}
	b.controller = newTenantController(tenantsOf, &tenants.Tenant{Key: "tenant", Policy: b.policy}, b.api, b.factory, view.NewNodeSource(), podscheduler.NewChoices(), b.recorder, func(error) {})
	namespaces := b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler)
	namespaces.Clock = b.clock
	namespaces.Recognized = func(context.Context) (types.UID, error) { return "control-plane", nil }
	b.seen, b.waiting = b.stored(), sets.New[dispatch.Request]()
	b.controller.limits.Bind(func(namespace string) {
		b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: namespace})
	})
	for _, namespace := range b.namespaces() {
		b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: namespace.Name}, dispatch.Request{Concern: dispatch.ConcernAnnotation, Namespace: namespace.Name})
	}
	for name := range b.seen {
		b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: name})
	}
}

// setPolicy puts the shipped policy with changes in force, as tenantController.followPolicy does.
func (b *tenantBed) setPolicy(change func(*tenancyv1alpha1.TenantPolicySpec)) {
	b.policy.Set(schedulingtest.PolicyWith(b.T, change))
	for _, namespace := range b.controller.limits.All() {
		b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: namespace})
	}
}

func (b *tenantBed) namespaces() []corev1.Namespace {
	list, err := b.api.CoreV1().Namespaces().List(b.Context(), metav1.ListOptions{})
	require.NoError(b, err)
	return list.Items
}

func (b *tenantBed) stored() map[string]*schedulerv1alpha1.NamespacePlacement {
	list := &schedulerv1alpha1.NamespacePlacementList{}
	require.NoError(b, b.meta.List(b.Context(), list, client.InNamespace("tenant")))
	stored := map[string]*schedulerv1alpha1.NamespacePlacement{}
	for i := range list.Items {
		stored[list.Items[i].Name] = &list.Items[i]
	}
	return stored
}

// look fills the listers and requests what an event of an informer would.
func (b *tenantBed) look() {
	core := b.factory.Core().V1()
	for _, namespace := range b.namespaces() {
		known, exists, err := core.Namespaces().Informer().GetIndexer().GetByKey(namespace.Name)
		require.NoError(b, err)
		if !exists || !equality.Semantic.DeepEqual(known, &namespace) {
			b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: namespace.Name}, dispatch.Request{Concern: dispatch.ConcernAnnotation, Namespace: namespace.Name})
		}
		require.NoError(b, core.Namespaces().Informer().GetIndexer().Add(&namespace))
	}
	quotas, err := b.api.CoreV1().ResourceQuotas("").List(b.Context(), metav1.ListOptions{})
	require.NoError(b, err)
	for i := range quotas.Items {
		quota := &quotas.Items[i]
		known, exists, err := core.ResourceQuotas().Informer().GetIndexer().GetByKey(quota.Namespace + "/" + quota.Name)
		require.NoError(b, err)
		if !exists || !equality.Semantic.DeepEqual(known, quota) {
			b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: quota.Namespace})
		}
		require.NoError(b, core.ResourceQuotas().Informer().GetIndexer().Add(quota))
	}
	stored := b.stored()
	for name, np := range stored {
		if old := b.seen[name]; old == nil || old.ResourceVersion != np.ResourceVersion {
			b.waiting.Insert(requestsFor(dispatch.PlacementChange{Old: old, Current: np})...)
		}
	}
	for name, np := range b.seen {
		if stored[name] == nil {
			b.waiting.Insert(requestsFor(dispatch.PlacementChange{Old: np})...)
		}
	}
	b.seen = stored
}

// settle runs requests until there are none, or the process is down. It returns how many ran.
func (b *tenantBed) settle() int {
	b.Helper()
	for ran := range 200 {
		b.look()
		item, any := b.waiting.PopAny()
		if !any || b.down {
			return ran
		}
		b.done = append(b.done, item)
		result, err := b.controller.reconcile.Reconcile(b.Context(), item)
		if b.down {
			return ran
		}
		require.NoError(b, err, "%v", item)
		if result.RequeueAfter > 0 {
			b.clock.SetTime(b.clock.Now().Add(result.RequeueAfter))
			b.waiting.Insert(item)
		}
	}
	require.Fail(b, "the reconcilers come to no end", "%v", b.done[len(b.done)-10:])
	return 0
}

// grant is what the namespace scheduler does.
func (b *tenantBed) grant(name, cluster string) {
	_, err := placements.NewStore(b.meta, b.meta).Change(b.Context(), client.ObjectKey{Namespace: "tenant", Name: name}, func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Status, _, _ = placement.Next(np, placement.Facts{Granted: map[string]slice.Amounts{cluster: slice.Of(schedulingtest.Cores("1"))}})
		return nil
	})
	if !b.down {
		require.NoError(b, err)
	}
}

// tenantWrites sets the annotation of a namespace, "" removes it.
func (b *tenantBed) tenantWrites(name, annotation string) {
	object, err := b.api.Tracker().Get(corev1.SchemeGroupVersion.WithResource("namespaces"), "", name)
	require.NoError(b, err)
	namespace := object.(*corev1.Namespace).DeepCopy()
	if annotation == "" {
		delete(namespace.Annotations, schedulerv1alpha1.AnnotationPlacements)
	} else {
		metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, schedulerv1alpha1.AnnotationPlacements, annotation)
	}
	require.NoError(b, b.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), namespace, ""))
}

// quota sets the quota of a namespace to so many CPUs, "" for no quota.
func (b *tenantBed) quota(name, hard string) {
	resource := corev1.SchemeGroupVersion.WithResource("resourcequotas")
	if hard == "" {
		if b.api.Tracker().Delete(resource, name, "quota") == nil {
			require.NoError(b, b.factory.Core().V1().ResourceQuotas().Informer().GetIndexer().Delete(builders.Quota(name, "quota")))
		}
		return
	}
	quota := builders.Quota(name, "quota", "cpu", hard)
	if err := b.api.Tracker().Update(resource, quota, name); err != nil {
		require.NoError(b, b.api.Tracker().Create(resource, quota, name))
	}
}

// due returns the annotation that the stored placements call for.
func (b *tenantBed) due(name string) string {
	if np := b.stored()[name]; np != nil {
		return placement.Encode(np.Status.Placements)
	}
	return ""
}

// wantPublished checks that the tenant sees its placements, and that this is recorded.
func (b *tenantBed) wantPublished(name string) {
	b.Helper()
	for _, namespace := range b.namespaces() {
		if namespace.Name == name {
			require.Equal(b, b.due(name), namespaces.AnnotationOf(&namespace))
		}
	}
	if np := b.stored()[name]; np != nil && np.Status.Published != nil {
		require.Equal(b, b.due(name), *np.Status.Published)
		require.Nil(b, np.Status.Publishing)
	}
}

// recorded returns the Events since it was called last.
func (b *tenantBed) recorded() (lines []string) {
	for len(b.recorder.Events) > 0 {
		lines = append(lines, <-b.recorder.Events)
	}
	return lines
}

func web() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}}
}

// regarding is a recorder that notes what Events are about.
type regarding struct{ objects []string }

func (r *regarding) Eventf(object, related runtime.Object, _, reason, _, _ string, _ ...any) {
	text := fmt.Sprintf("%T %s %s", object, object.(metav1.Object).GetName(), reason)
	if related != nil {
		of := related.(*corev1.ObjectReference)
		text += fmt.Sprintf(" %s %s", of.Kind, of.Name)
	}
	r.objects = append(r.objects, text)
}
