package tenants

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/builders"
)

// TestNameAudit: what a policy names and nobody knows is told again and again, once for all of it.
func TestNameAudit(t *testing.T) {
	t.Parallel()
	one := func(names ...corev1.ResourceName) corev1.ResourceList {
		list := corev1.ResourceList{}
		for _, name := range names {
			list[name] = resource.MustParse("1")
		}
		return list
	}
	for name, tc := range map[string]struct {
		change func(*tenancyv1alpha1.TenantPolicySpec)
		// want is the message, "" for none.
		want string
	}{
		"nothing named": {change: func(*tenancyv1alpha1.TenantPolicySpec) {}},
		"all known": {change: func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Scheduling.NamespaceSchedulers, spec.Scheduling.PodSchedulers = []string{"spread"}, []string{"default-scheduler", "packing"}
			spec.Limits.Reserved = one("cpu", "memory", "ephemeral-storage", "pods", "storage", "hugepages-2Mi", "nvidia.com/gpu")
			spec.Scheduling.Guaranteed = spec.Limits.Reserved
		}},
		"profiles of pods": {
			change: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Scheduling.PodSchedulers = []string{"pack", "packing", "fast"}
			},
			want: `scheduling.podSchedulers: ["fast" "pack"] is no profile of the pod scheduler, use ["default-scheduler" "packing"]: all else holds`,
		},
		"profiles of the other scheduler": {
			change: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Scheduling.NamespaceSchedulers, spec.Scheduling.PodSchedulers = []string{"packing"}, []string{"spread"}
			},
			want: `scheduling.namespaceSchedulers: ["packing"] is no profile of the namespace scheduler, use ["spread"]; ` +
				`scheduling.podSchedulers: ["spread"] is no profile of the pod scheduler, use ["default-scheduler" "packing"]: all else holds`,
		},
		"resources": {
			change: func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Limits.Reserved, spec.Scheduling.Guaranteed = one("requests.cpu", "memory", "cpus"), one("limits.memory")
				spec.Pods.DefaultRequests, spec.Pods.DefaultLimits = one("cpu", "mem", "pods"), one("gpu", "storage")
			},
			want: `limits.reserved: ["cpus" "requests.cpu"] is no resource there, use names as cpu, memory, pods or example.com/gpu; ` +
				`scheduling.guaranteed: ["limits.memory"] is no resource there, use names as cpu, memory, pods or example.com/gpu; ` +
				`pods.defaultRequests: ["mem" "pods"] is no resource there, use names as cpu, memory or example.com/gpu; ` +
				`pods.defaultLimits: ["gpu" "storage"] is no resource there, use names as cpu, memory or example.com/gpu: all else holds`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			require.NoError(t, tenancyv1alpha1.AddToScheme(scheme))
			policy := weighing("gold", 1, 1)
			tc.change(&policy.Spec)
			events := record.NewFakeRecorder(10)
			audit := &NameAudit{
				Reader: builders.Client(scheme).WithObjects(policy).Build(), Recorder: events,
				NamespaceProfiles: sets.New("spread"), PodProfiles: sets.New("packing", "default-scheduler"),
			}
			result, err := audit.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "gold"}})
			require.NoError(t, err)
			if tc.want == "" {
				require.Empty(t, events.Events)
				require.Zero(t, result.RequeueAfter)
				return
			}
			require.Len(t, events.Events, 1)
			require.Empty(t, cmp.Diff("Warning UnknownNames "+tc.want, <-events.Events))
			require.Equal(t, nameAuditPeriod, result.RequeueAfter)
		})
	}
}

// TestNameAuditOfAPolicyThatIsGone: nothing is said of it.
func TestNameAuditOfAPolicyThatIsGone(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, tenancyv1alpha1.AddToScheme(scheme))
	audit := &NameAudit{Reader: builders.Client(scheme).Build()}
	result, err := audit.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "gold"}})
	require.NoError(t, err)
	require.Zero(t, result)
}
