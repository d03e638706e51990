package registry

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// TestPolicyOfATenant names a TenantPolicy before there is one, and changes and deletes it, as vc-scheduler's service
// account sees it.
func TestPolicyOfATenant(t *testing.T) {
	createSecret(t, "governed", "value", shared.tenant.KubeConfig)
	vc := builders.VirtualCluster("governed")
	vc.Spec.PolicyName = "gold"
	create(t, vc)
	awaitReady(t, "governed", tenancyv1alpha1.ReasonConnected)
	holds := func(name string, weight int32, found string) {
		t.Helper()
		eventually(t, func() string {
			if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(vc), vc); err != nil {
				return err.Error()
			}
			reason := ""
			if condition := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionPolicyFound); condition != nil {
				reason = condition.Reason
			}
			if gotName, gotWeight := shared.engaged.policy("governed"); gotName != name || gotWeight != weight || reason != found {
				return fmt.Sprintf("policy %s with weight %d holds, reason %q", gotName, gotWeight, reason)
			}
			return ""
		})
	}
	holds("default", 1, tenancyv1alpha1.ReasonPolicyNotFound)
	awaitEvent(t, virtualClusterKind(), "governed", tenancyv1alpha1.ReasonPolicyNotFound)

	gold := &tenancyv1alpha1.TenantPolicy{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: *policy.Default().Spec().DeepCopy()}
	gold.Spec.Scheduling.Weight = 3
	require.NoError(t, shared.client.Create(t.Context(), gold))
	holds("gold", 3, "")
	await.Change(t, shared.client, gold, func(gold *tenancyv1alpha1.TenantPolicy) { gold.Spec.Scheduling.Weight = 4 })
	holds("gold", 4, "")

	silver := &tenancyv1alpha1.TenantPolicy{ObjectMeta: metav1.ObjectMeta{Name: "silver"}, Spec: *policy.Default().Spec().DeepCopy()}
	silver.Spec.Scheduling.Weight = 2
	require.NoError(t, shared.client.Create(t.Context(), silver))
	await.Change(t, shared.client, vc, func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.PolicyName = "silver" })
	holds("silver", 2, "")
	require.NoError(t, shared.client.Delete(t.Context(), silver))
	holds("default", 1, tenancyv1alpha1.ReasonPolicyNotFound)
	running, started := shared.engaged.of("governed")
	require.Equal(t, []int{1, 1}, []int{running, started}, "no change restarts the connection")
}

// TestNamesThatMeanNothing: the API server refuses those that it can know, and vc-scheduler tells of the others.
func TestNamesThatMeanNothing(t *testing.T) {
	named := func(change func(*tenancyv1alpha1.TenantPolicySpec)) error {
		object := &tenancyv1alpha1.TenantPolicy{ObjectMeta: metav1.ObjectMeta{Name: "names"}, Spec: *policy.Default().Spec().DeepCopy()}
		change(&object.Spec)
		return shared.client.Create(t.Context(), object)
	}
	for name, change := range map[string]func(*tenancyv1alpha1.TenantPolicySpec){
		"volumes": func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Pods.Volumes = []string{"configmap"} },
		"limits.objects": func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{{Resource: "configMaps"}}
		},
		"metadata.byResource": func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Metadata.ByResource = []tenancyv1alpha1.ResourceMetadata{{Resource: "deployments"}}
		},
	} {
		require.ErrorContains(t, named(change), "Unsupported value", name)
	}
	require.NoError(t, named(func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Scheduling.PodSchedulers = []string{"packing", "packed"}
		spec.Limits.Reserved = corev1.ResourceList{"requests.cpu": resource.MustParse("4")}
	}))
	require.Equal(t, `scheduling.podSchedulers: ["packed"] is no profile of the pod scheduler, use ["packing"]; `+
		`limits.reserved: ["requests.cpu"] is no resource there, use names as cpu, memory, pods or example.com/gpu: all else holds`,
		awaitEvent(t, schema.GroupKind{Kind: "TenantPolicy"}, "names", "UnknownNames"))
}
