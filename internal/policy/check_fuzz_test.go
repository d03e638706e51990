package policy_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/randfill"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
)

// TestCheckAnything gives Check objects that no API server would let pass: it neither panics nor changes them, and says
// the same twice.
func TestCheckAnything(t *testing.T) {
	t.Parallel()
	var quantities []resource.Quantity
	for _, text := range []string{"0", "1", "-1", "1e1000000", "1e-1000000", "9223372036854775807", "0.0000000001"} {
		quantities = append(quantities, resource.MustParse(text))
	}
	filler := randfill.NewWithSeed(1).NilChance(0.3).NumElements(0, 4).MaxDepth(12).Funcs(func(quantity *resource.Quantity, c randfill.Continue) {
		*quantity = quantities[c.Intn(len(quantities))].DeepCopy()
	})
	for _, rules := range []*policy.Policy{
		policy.Default(),
		policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { *spec = tenancyv1alpha1.TenantPolicySpec{} }),
		policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Pods.SecurityLevel = tenancyv1alpha1.PodSecurityRestricted
		}),
		policyWith(t, claiming("")),
	} {
		for range 100 {
			for _, object := range []client.Object{&corev1.Pod{}, &corev1.Service{}, &discoveryv1.EndpointSlice{}, &corev1.PersistentVolumeClaim{}, &networkingv1.Ingress{}} {
				filler.Fill(object)
				before, ok := object.DeepCopyObject().(client.Object)
				require.True(t, ok)
				started := time.Now()
				first := policy.Check(rules, object, plenty())
				require.Less(t, time.Since(started), 20*time.Second, "no quantity is written out")
				require.LessOrEqual(t, len(first), 33)
				require.Equal(t, first, policy.Check(rules, before, plenty()))
				require.True(t, reflect.DeepEqual(before, object), "cmp would write monstrous quantities out")
			}
		}
	}
}
