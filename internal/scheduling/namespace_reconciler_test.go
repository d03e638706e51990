package scheduling

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
)

// TestAPodThatChoseJustBefore: a namespace loses its placement in r1 while a pod chooses r1. The pod is looked at when
// the cache has the loss, also when the tenant sees the new placements already.
func TestAPodThatChoseJustBefore(t *testing.T) {
	t.Parallel()
	late := builders.Pod("web", "late").Annotation(schedulerv1alpha1.AnnotationSuperCluster, "r1").Node("r1").Obj()
	b := newTenantBed(t, web(), late)
	b.quota("web", "1")
	b.settle()
	b.grant("web", "r1")
	b.settle()
	pods := dispatch.Request{Concern: dispatch.ConcernPod, Namespace: "web"}
	require.NotContains(t, b.done, pods)

	require.NoError(t, b.factory.Core().V1().Pods().Informer().GetIndexer().Add(late))
	np := b.stored()["web"]
	np.Status.Placements[0].Cluster = "r2"
	require.NoError(t, b.meta.Status().Update(t.Context(), np))
	b.tenantWrites("web", placement.Encode(np.Status.Placements))
	b.look()
	require.Contains(t, b.waiting, pods, "the pod is looked at")
	b.settle()
	repaired, err := b.api.CoreV1().Pods("web").Get(t.Context(), "late", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotContains(t, repaired.Annotations, schedulerv1alpha1.AnnotationSuperCluster)
	require.Contains(t, strings.Join(b.recorded(), ""), tenancy.ReasonSuperClusterNotPlaced)

	b.done = nil
	b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"}, dispatch.Request{Concern: dispatch.ConcernAnnotation, Namespace: "web"})
	b.settle()
	require.NotContains(t, b.done, pods, "nothing has changed since")
}

// TestAChoiceBeforeTheQuota: a tenant annotates a namespace and creates its quota, and the informer of quotas is ahead
// of that of namespaces. Nothing is placed before the annotation is seen.
func TestAChoiceBeforeTheQuota(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.settle()
	annotated := web()
	annotated.ResourceVersion = "2"
	annotated.Annotations = map[string]string{schedulerv1alpha1.AnnotationSlice: `{"cpu":"500m"}`}
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
	require.NoError(t, b.api.Tracker().Update(namespaces, annotated, ""))
	require.NoError(t, b.factory.Core().V1().ResourceQuotas().Informer().GetIndexer().Add(builders.Quota("web", "quota", "cpu", "1")))
	item := dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"}
	result, err := b.controller.reconcile.Reconcile(t.Context(), item)
	require.NoError(t, err)
	require.NotZero(t, result.RequeueAfter)
	require.Empty(t, b.stored())

	require.NoError(t, b.factory.Core().V1().Namespaces().Informer().GetIndexer().Update(annotated))
	_, err = b.controller.reconcile.Reconcile(t.Context(), item)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(builders.Resources("cpu", "500m"), b.stored()["web"].Spec.Slice))
}

// TestEventsThatComeBack: an Event is recorded again when something else was true in between, for a tenant believes the
// last one.
func TestEventsThatComeBack(t *testing.T) {
	t.Parallel()
	np := builders.Placement("tenant", "web").NamespaceUID("1").Obj()
	b := newTenantBed(t, web())
	b.look()
	require.NoError(t, b.meta.Create(t.Context(), np))
	for _, reason := range []string{
		schedulerv1alpha1.ReasonPlaced, schedulerv1alpha1.ReasonPlaced, schedulerv1alpha1.ReasonUnschedulable,
		schedulerv1alpha1.ReasonPlaced, schedulerv1alpha1.ReasonUnschedulable,
	} {
		status := metav1.ConditionFalse
		if reason == schedulerv1alpha1.ReasonPlaced {
			status = metav1.ConditionTrue
		}
		old := np.DeepCopy()
		meta.SetStatusCondition(&np.Status.Conditions, metav1.Condition{Type: schedulerv1alpha1.ConditionPlaced, Status: status, Reason: reason, Message: reason})
		require.NoError(t, b.meta.Status().Update(t.Context(), np))
		for _, item := range requestsFor(dispatch.PlacementChange{Old: old, Current: np}) {
			if item.Concern == dispatch.ConcernEvent {
				_, err := b.controller.reconcile.Reconcile(t.Context(), item)
				require.NoError(t, err)
			}
		}
	}
	require.Empty(t, cmp.Diff([]string{
		"Normal Placed Placed: ", "Warning NotPlaced Unschedulable", "Normal Placed Placed: ", "Warning NotPlaced Unschedulable",
	}, b.recorded()))

	b = newTenantBed(t, web())
	typo, mended := map[string]string{schedulerv1alpha1.AnnotationSlice: "2 cores"}, map[string]string(nil)
	for i, annotations := range []map[string]string{typo, typo, mended, typo} {
		changed := web()
		changed.Annotations = annotations
		require.NoError(t, b.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), changed, ""))
		b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"})
		b.settle()
		told := strings.Contains(strings.Join(b.recorded(), "\n"), schedulerv1alpha1.ReasonInvalidSlice)
		require.Equal(t, i == 0 || i == 3, told, "step %d", i)
	}
}

// TestUnknownProfile: a namespace that names a profile which is not there is placed by the one that placed it before,
// and is told.
func TestUnknownProfile(t *testing.T) {
	t.Parallel()
	config, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	names, err := placer.Profiles(config)
	require.NoError(t, err)
	config.Profiles[0].SchedulerName = "packing"
	_, err = placer.Profiles(config)
	require.ErrorContains(t, err, `no profile of the namespace scheduler is named "namespace-scheduler"`)
	names.Insert("packing")

	b := newTenantBed(t, web())
	b.profiles = names
	b.start()
	b.quota("web", "1")
	for i, step := range []struct {
		named, want string
		unknown     bool
	}{
		{named: "", want: ""},
		{named: "typo", want: "", unknown: true},
		{named: "packing", want: "packing"},
		{named: "typo", want: "packing", unknown: true},
		{named: "", want: ""},
	} {
		namespace := web()
		if step.named != "" {
			namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationScheduler: step.named}
		}
		require.NoError(t, b.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), namespace, ""))
		b.settle()
		require.Equal(t, step.want, b.stored()["web"].Spec.SchedulerName, "step %d", i)
		told := strings.Contains(strings.Join(b.recorded(), "\n"), schedulerv1alpha1.ReasonUnknownScheduler)
		require.Equal(t, step.unknown, told, "step %d", i)
	}
}

// TestQuotasThatPlaceNothing: a quota with scopes, or with limits alone, says once that nothing is placed for it, and
// what to set, unless another one asks for capacity.
func TestQuotasThatPlaceNothing(t *testing.T) {
	t.Parallel()
	const told = "Warning NotPlaced Nothing is placed for the ResourceQuota: %s. Set another one beside it, without scopes and with requests.cpu and requests.memory, for what the namespace is to have"
	scoped := func(quota *corev1.ResourceQuota) *corev1.ResourceQuota {
		quota.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}
		return quota
	}
	selected := func(quota *corev1.ResourceQuota) *corev1.ResourceQuota {
		quota.Spec.ScopeSelector = &corev1.ScopeSelector{}
		return quota
	}
	for name, tc := range map[string]struct {
		quotas []*corev1.ResourceQuota
		want   string // why, "" for no Event
	}{
		"scopes":                 {quotas: []*corev1.ResourceQuota{scoped(builders.Quota("web", "a", "cpu", "1"))}, want: "it has scopes, and bounds some of the pods only"},
		"a selector of scopes":   {quotas: []*corev1.ResourceQuota{selected(builders.Quota("web", "a", "cpu", "1"))}, want: "it has scopes, and bounds some of the pods only"},
		"limits":                 {quotas: []*corev1.ResourceQuota{builders.Quota("web", "a", "limits.cpu", "1", "limits.memory", "1Gi")}, want: "it names limits, and no requests"},
		"scopes beside another":  {quotas: []*corev1.ResourceQuota{scoped(builders.Quota("web", "a", "cpu", "1")), builders.Quota("web", "b", "cpu", "1")}},
		"objects that are bound": {quotas: []*corev1.ResourceQuota{builders.Quota("web", "a", "count/configmaps", "1")}},
		"no quota":               {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTenantBed(t, web())
			for _, quota := range tc.quotas {
				require.NoError(t, b.api.Tracker().Create(corev1.SchemeGroupVersion.WithResource("resourcequotas"), quota, "web"))
			}
			for range 2 {
				b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"})
				b.settle()
			}
			want := 0
			if tc.want != "" {
				want = 1
			}
			got := 0
			for _, line := range b.recorded() {
				if strings.Contains(line, "Nothing is placed for the ResourceQuota") {
					require.Contains(t, line, fmt.Sprintf(told, tc.want))
					got++
				}
			}
			require.Equal(t, want, got)
		})
	}
}
