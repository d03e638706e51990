package scheduling

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestPlacementsRestored reconciles the annotation of a namespace as the informer has it. A tenant gets an Event only
// when it was the tenant who changed it.
func TestPlacementsRestored(t *testing.T) {
	t.Parallel()
	const placed, earlier, other = `{"r1":1}`, `{"r2":1}`, `{"r2":2}`
	broken := errors.New("connection reset by peer")
	for name, tc := range map[string]struct {
		published, publishing *string
		got                   string
		// err is the answer to the write, and landed whether it happened all the same.
		err           error
		landed        bool
		wantErr       bool
		wantEvent     bool
		wantRequested bool
		wantPublished *string
		wantWrites    int
	}{
		"first":                        {publishing: ptr.To(placed), wantPublished: ptr.To(placed), wantWrites: 1},
		"as it was written":            {published: ptr.To(placed), got: placed, wantPublished: ptr.To(placed)},
		"placements have changed":      {published: ptr.To(earlier), publishing: ptr.To(placed), got: earlier, wantPublished: ptr.To(placed), wantWrites: 1},
		"written, and not recorded":    {published: ptr.To(earlier), publishing: ptr.To(placed), got: placed, wantPublished: ptr.To(placed)},
		"the tenant wrote something":   {published: ptr.To(placed), got: other, wantEvent: true, wantPublished: ptr.To(placed), wantWrites: 1},
		"the tenant requests another":  {published: ptr.To(placed), got: earlier, wantPublished: ptr.To(placed), wantRequested: true},
		"the tenant removed it":        {published: ptr.To(placed), wantPublished: ptr.To(placed), wantRequested: true},
		"our own write is not yet met": {published: ptr.To(placed), got: other, err: apierrors.NewConflict(corev1.Resource("namespaces"), "web", nil), wantPublished: ptr.To(placed), wantWrites: 1},
		"it may not be written":        {published: ptr.To(placed), got: other, err: apierrors.NewForbidden(corev1.Resource("namespaces"), "web", nil), wantErr: true, wantPublished: ptr.To(placed), wantWrites: 1},
		"the connection broke":         {published: ptr.To(placed), got: other, err: broken, wantErr: true, wantPublished: ptr.To(placed), wantWrites: 1},
		"the connection broke after the write": {
			published: ptr.To(placed), got: other, err: broken, landed: true, wantEvent: true, wantPublished: ptr.To(placed), wantWrites: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := web()
			if tc.got != "" {
				namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationPlacements: tc.got}
			}
			api := builders.Clientset(namespace)
			writes := 0
			api.PrependReactor("patch", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				writes++
				if tc.landed {
					written := namespace.DeepCopy()
					metav1.SetMetaDataAnnotation(&written.ObjectMeta, schedulerv1alpha1.AnnotationPlacements, placed)
					require.NoError(t, api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), written, ""))
				}
				return tc.err != nil, nil, tc.err
			})
			np := builders.Placement("tenant", "web").NamespaceUID("1").Slice("cpu", "1").Quota("cpu", "1").Held("r1", 1, "cpu", "1").Obj()
			np.Status.Published, np.Status.Publishing = tc.published, tc.publishing
			meta := schedulingtest.NewStoredPlacements(t, np)
			factory := informers.NewSharedInformerFactory(api, 0)
			require.NoError(t, factory.Core().V1().Namespaces().Informer().GetIndexer().Add(namespace))
			recorder := events.NewFakeRecorder(2)
			reconciler := reconcilers{dispatch.ConcernAnnotation: &namespaces.AnnotationReconciler{
				Key: "tenant", Store: placements.NewStore(meta, meta), API: api, Namespaces: factory.Core().V1().Namespaces().Lister(),
				Events: tenantevents.NamespaceEvents{Quotas: factory.Core().V1().ResourceQuotas().Lister(), Recorder: recorder},
				Clock:  clock.RealClock{}, Restores: namespaces.NewRestoreLimiter(),
			}}
			_, err := reconciler.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernAnnotation, Namespace: "web"})
			require.Equal(t, tc.wantErr, err != nil, "%v", err)
			require.Equal(t, tc.wantEvent, len(recorder.Events) == 1)
			require.Equal(t, tc.wantWrites, writes)
			require.NoError(t, meta.Get(t.Context(), schedulingtest.WebKey, np))
			require.Empty(t, cmp.Diff(tc.wantPublished, np.Status.Published))
			require.Nil(t, np.Status.Publishing)
			require.Equal(t, tc.wantRequested, np.Status.Requested != nil)
		})
	}
}

// TestAnInformerThatIsBehind shows the annotation as it was before vc-scheduler's last write, which is recorded:
// that is no request of the tenant.
func TestAnInformerThatIsBehind(t *testing.T) {
	t.Parallel()
	namespace := web()
	namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationPlacements: `{"r1":1}`}
	api := builders.Clientset(namespace)
	np := builders.Placement("tenant", "web").NamespaceUID("1").Slice("cpu", "1").Quota("cpu", "1").Held("r1", 1, "cpu", "1").Obj()
	np.Status.Published = ptr.To(`{"r1":1}`)
	meta := schedulingtest.NewStoredPlacements(t, np)
	factory := informers.NewSharedInformerFactory(api, 0)
	for name, annotations := range map[string]map[string]string{"none": nil, "another": {schedulerv1alpha1.AnnotationPlacements: `{"r2":1}`}} {
		before := web()
		before.Annotations = annotations
		require.NoError(t, factory.Core().V1().Namespaces().Informer().GetIndexer().Add(before))
		recorder := events.NewFakeRecorder(2)
		reconciler := reconcilers{dispatch.ConcernAnnotation: &namespaces.AnnotationReconciler{
			Key: "tenant", Store: placements.NewStore(meta, meta), API: api, Namespaces: factory.Core().V1().Namespaces().Lister(),
			Events: tenantevents.NamespaceEvents{Quotas: factory.Core().V1().ResourceQuotas().Lister(), Recorder: recorder},
			Clock:  clock.RealClock{}, Restores: namespaces.NewRestoreLimiter(),
		}}
		_, err := reconciler.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernAnnotation, Namespace: "web"})
		require.NoError(t, err)
		require.Empty(t, recorder.Events, name)
		require.Empty(t, meta.Writes, name)
	}
}

// TestATenantThatKeepsChangingItsPlacements writes the annotations of its namespaces again after each reconcile. What
// vc-scheduler reads and writes for that is bounded per tenant, and nothing that the tenant wrote stays for good.
func TestATenantThatKeepsChangingItsPlacements(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.quota("web", "1")
	b.settle()
	b.grant("web", "r1")
	b.settle()
	b.recorded()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	annotations := b.controller.reconcile[dispatch.ConcernAnnotation].(*namespaces.AnnotationReconciler)
	annotations.Clock = clock
	writes := len(b.meta.Writes)
	restored := 0
	item := dispatch.Request{Concern: dispatch.ConcernAnnotation, Namespace: "web"}
	for second := range 60 {
		for n := range 5 {
			b.tenantWrites("web", fmt.Sprintf(`{"r9":%d}`, 10*second+n+2))
			b.look()
			result, err := b.controller.reconcile.Reconcile(t.Context(), item)
			require.NoError(t, err)
			if result.RequeueAfter == 0 {
				restored++
				continue
			}
			require.Equal(t, namespaces.RestoreDelay, result.RequeueAfter)
		}
		clock.SetTime(clock.Now().Add(time.Second))
	}
	require.Equal(t, namespaces.RestoreBurst+59*namespaces.RestoresPerSecond, restored)
	require.Equal(t, restored, len(b.meta.Writes)-writes)
	require.Len(t, b.recorded(), restored, "an Event for each")

	clock.SetTime(clock.Now().Add(namespaces.RestoreDelay))
	b.settle()
	b.wantPublished("web")
}

// TestPlacementsRestoredFromACacheThatIsBehind: a new process reads an older NamespacePlacement than the one whose
// placements the former process wrote. That annotation is not the tenant's.
func TestPlacementsRestoredFromACacheThatIsBehind(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.quota("web", "1")
	b.settle()
	b.grant("web", "r1")
	b.settle()
	old := schedulingtest.Freeze(t, b.meta)
	b.quota("web", "2")
	b.settle()
	b.grant("web", "r2")
	b.settle()
	b.recorded()
	b.start()
	b.look()
	behind := *b.controller.reconcile[dispatch.ConcernAnnotation].(*namespaces.AnnotationReconciler)
	behind.Store = placements.NewStore(old, b.meta)
	_, err := behind.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernAnnotation, Namespace: "web"})
	require.NoError(t, err)
	require.Empty(t, b.recorded())
	b.wantPublished("web")
}

// TestEveryWriteLost loses each write of a namespace's life, with the process, and starts another. Nothing that
// vc-scheduler wrote is taken for the tenant's, and nothing that the tenant writes while no process runs stays.
func TestEveryWriteLost(t *testing.T) {
	t.Parallel()
	life := func(b *tenantBed) {
		b.quota("web", "1")
		b.settle()
		b.grant("web", "r1")
		b.settle()
		b.quota("web", "2")
		b.settle()
		b.grant("web", "r2")
		b.settle()
	}
	whole := newTenantBed(t, web())
	life(whole)
	whole.wantPublished("web")
	require.Equal(t, `{"r1":1,"r2":1}`, whole.due("web"))
	require.Contains(t, strings.Join(whole.meta.Writes, " "), "status annotation status", "the order of writes")

	for name, meanwhile := range map[string]struct {
		do        func(b *tenantBed)
		wantEvent bool
	}{
		"nothing else happens": {do: func(*tenantBed) {}},
		"the new process places more before it looks": {do: func(b *tenantBed) {
			if b.stored()["web"] != nil {
				b.grant("web", "r3")
			}
		}},
		"the tenant writes": {do: func(b *tenantBed) { b.tenantWrites("web", `{"r9":9}`) }, wantEvent: true},
		"the tenant and the new process write": {do: func(b *tenantBed) {
			b.tenantWrites("web", "nonsense")
			if b.stored()["web"] != nil {
				b.grant("web", "r3")
			}
		}, wantEvent: true},
	} {
		for n := range whole.meta.Writes {
			for _, happens := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d-%s/happens=%v", name, n, whole.meta.Writes[n], happens), func(t *testing.T) {
					t.Parallel()
					b := newTenantBed(t, web())
					b.loseWrite, b.happens = n, happens
					life(b)
					require.True(t, b.down, "the write was lost")
					b.loseWrite, b.down = -1, false
					meanwhile.do(b)
					np := b.stored()["web"]
					// What stands there before vc-scheduler has recorded its first annotation may be its own.
					mayBeOwn := np != nil && np.Status.Published == nil && np.Status.Publishing != nil
					b.start()
					b.settle()
					b.wantPublished("web")
					restored := strings.Contains(strings.Join(b.recorded(), "\n"), tenantevents.ReasonPlacementsRestored)
					require.Equal(t, meanwhile.wantEvent && !mayBeOwn, restored)
					b.start()
					b.settle()
					require.Empty(t, b.recorded(), "a restart alone says nothing")
				})
			}
		}
	}
}

// TestTheTenantWritesWhileNobodyLooks changes the annotation between two processes.
func TestTheTenantWritesWhileNobodyLooks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ annotation, why string }{
		"changes it": {`{"r2":7}`, "the placements add up to 7 slices, and the quota makes 1"},
		"breaks it":  {"r2", "placements are not a JSON object such as {\"r1\":1,\"r2\":1}: invalid character 'r' looking for beginning of value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTenantBed(t, web())
			b.quota("web", "1")
			b.settle()
			b.grant("web", "r1")
			b.settle()
			b.recorded()
			b.tenantWrites("web", tc.annotation)
			b.start()
			b.settle()
			b.wantPublished("web")
			require.Equal(t, []string{"Warning PlacementsRestored Annotation scheduler.tenancy.x-k8s.io/placements was changed and restored: " + tc.why}, b.recorded())
		})
	}
}

// TestWritesLostAlone: the process goes on after a write whose answer was lost.
func TestWritesLostAlone(t *testing.T) {
	t.Parallel()
	for _, happens := range []bool{false, true} {
		for n := range 8 {
			t.Run(fmt.Sprintf("%d/happens=%v", n, happens), func(t *testing.T) {
				t.Parallel()
				b := newTenantBed(t, web())
				b.meta.Fail = func(i int) (bool, error) {
					if i == n {
						return happens, context.DeadlineExceeded
					}
					return true, nil
				}
				b.quota("web", "1")
				b.settle()
				b.grant("web", "r1")
				b.settle()
				b.wantPublished("web")
				require.Equal(t, `{"r1":1}`, b.due("web"))
				require.Equal(t, []string{`Normal Placed The whole quota is reserved: {"r1":1}`}, b.recorded())
			})
		}
	}
}
