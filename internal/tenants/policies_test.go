package tenants

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/virtualclusters"
	"github.com/superpool/superpool/test/builders"
)

// weighing is a TenantPolicy with a weight, in its nth generation.
func weighing(name string, weight int32, generation int64) *tenancyv1alpha1.TenantPolicy {
	spec := policy.Default().Spec().DeepCopy()
	spec.Scheduling.Weight = weight
	return &tenancyv1alpha1.TenantPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: generation}, Spec: *spec}
}

// following is a VirtualCluster that names a TenantPolicy.
func following(name, policyName string) *tenancyv1alpha1.VirtualCluster {
	vc := builders.VirtualCluster(name)
	vc.Spec.PolicyName = policyName
	return vc
}

// changePolicy writes a TenantPolicy, nil for none, and reconciles whom its watch enqueues.
func (h *harness) changePolicy(object *tenancyv1alpha1.TenantPolicy, name string, want ...string) {
	h.t.Helper()
	existing := &tenancyv1alpha1.TenantPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(h.t, client.IgnoreNotFound(h.Client.Delete(h.t.Context(), existing.DeepCopy())))
	if object != nil {
		require.NoError(h.t, h.Client.Create(h.t.Context(), object))
	}
	var requests []reconcile.Request
	for _, vc := range want {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: vc}})
	}
	require.Empty(h.t, cmp.Diff(requests, h.ofPolicy(h.t.Context(), existing)))
	for _, request := range requests {
		h.reconcile(request.Name)
	}
	h.settle()
}

// policyFound returns status, reason and message of condition PolicyFound, "" if it is absent.
func (h *harness) policyFound(name string) string {
	h.t.Helper()
	var vc tenancyv1alpha1.VirtualCluster
	require.NoError(h.t, h.Client.Get(h.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &vc))
	condition := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionPolicyFound)
	if condition == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
}

// TestPolicyInForce changes the TenantPolicy of a tenant in all ways while its connection lasts.
func TestPolicyInForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, following("a", "gold"), secretWith("a", "t1"), builders.VirtualCluster("b"), secretWith("b", "t2"))
		held := map[string]*policy.Ref{}
		work := h.Engage
		h.Engage = func(ctx context.Context, tenant *Tenant, ready func()) error {
			h.mu.Lock()
			held[tenant.VirtualCluster.Name] = tenant.Policy
			h.mu.Unlock()
			return work(ctx, tenant, ready)
		}
		h.reconcile("a")
		h.reconcile("b")
		h.settle()
		require.Equal(t, "False PolicyNotFound: There is no TenantPolicy gold: the one that is shipped holds", h.policyFound("a"))
		require.Empty(t, h.policyFound("b"), "the shipped one is the one named default")
		require.Equal(t, "True/Connected", h.ready("a"))
		require.Same(t, policy.Default(), held["a"].Get())

		changed := func() <-chan struct{} {
			_, changed := held["a"].Watch()
			return changed
		}
		before := changed()
		h.changePolicy(weighing("gold", 3, 1), "gold", "a")
		<-before
		require.Empty(t, h.policyFound("a"))
		require.EqualValues(t, 3, held["a"].Get().Spec().Scheduling.Weight)
		require.Same(t, policy.Default(), held["b"].Get())

		before = changed()
		h.reconcile("a")
		select {
		case <-before:
			t.Fatal("nothing has changed")
		default:
		}
		h.changePolicy(weighing("gold", 4, 2), "gold", "a")
		<-before
		require.EqualValues(t, 4, held["a"].Get().Spec().Scheduling.Weight)

		wrong := weighing("gold", 5, 3)
		wrong.Spec.Network.PoolCIDRs = []string{"everything"}
		h.changePolicy(wrong, "gold", "a")
		require.Contains(t, h.policyFound("a"), "False PolicyInvalid: compiling TenantPolicy gold: reading spec.network.poolCIDRs: ")
		require.Contains(t, h.policyFound("a"), `no '/': the last valid one of that name holds`)
		require.EqualValues(t, 4, held["a"].Get().Spec().Scheduling.Weight)

		h.changePolicy(weighing("default", 9, 1), "default", "b")
		require.EqualValues(t, 9, held["b"].Get().Spec().Scheduling.Weight)
		vc := &tenancyv1alpha1.VirtualCluster{}
		require.NoError(t, h.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, vc))
		vc.Spec.PolicyName = ""
		require.NoError(t, h.Client.Update(t.Context(), vc))
		h.reconcile("a")
		require.Empty(t, h.policyFound("a"))
		require.Same(t, held["b"].Get(), held["a"].Get(), "it is compiled once for all tenants")

		h.changePolicy(nil, "default", "a", "b")
		require.Same(t, policy.Default(), held["a"].Get())
		require.ElementsMatch(t, []string{"start a t1", "start b t2"}, h.logged(), "no connection was restarted")
		var warned []string
		for range len(h.events.Events) {
			if event := <-h.events.Events; event[:7] == "Warning" {
				warned = append(warned, event[:22])
			}
		}
		require.Equal(t, []string{"Warning PolicyNotFound", "Warning PolicyInvalid "}, warned)
	})
}

// TestPolicyOfATenantWithoutConnection: what is wrong with its policy is told, and the right one waits for it.
func TestPolicyOfATenantWithoutConnection(t *testing.T) {
	t.Parallel()
	wrong := weighing("gold", 1, 1)
	wrong.Spec.Pods.SecurityLevel = "lenient"
	h := newHarness(t, following("a", "gold"), wrong)
	h.reconcile("a")
	require.Equal(t, "False/SecretNotFound", h.ready("a"))
	require.Equal(t, `False PolicyInvalid: compiling TenantPolicy gold: reading spec.pods.securityLevel: must be one of privileged, baseline, restricted: the one that is shipped holds`, h.policyFound("a"))

	h.Lifecycle = virtualclusters.Reader{Reader: h.Client}
	before := h.policyFound("a")
	require.NoError(t, h.Client.Delete(t.Context(), wrong))
	h.reconcile("a")
	require.Equal(t, before, h.policyFound("a"), "a program that does not own VirtualClusters writes no condition")
}

// TestPolicyIsCompiledOnce lets many tenants follow one TenantPolicy that changes.
func TestPolicyIsCompiledOnce(t *testing.T) {
	t.Parallel()
	const tenants = 50
	objects := []client.Object{weighing("gold", 2, 1)}
	for i := range tenants {
		objects = append(objects, following(fmt.Sprint("t", i), "gold"))
	}
	h := newHarness(t, objects...)
	inForce := map[*policy.Policy]bool{}
	for generation := range int64(3) {
		gold := weighing("gold", int32(generation)+2, generation+1)
		stored := &tenancyv1alpha1.TenantPolicy{}
		require.NoError(t, h.Client.Get(t.Context(), client.ObjectKeyFromObject(gold), stored))
		gold.ResourceVersion = stored.ResourceVersion
		require.NoError(t, h.Client.Update(t.Context(), gold))
		require.Len(t, h.ofPolicy(t.Context(), gold), tenants)
		for i := range tenants {
			name := fmt.Sprint("t", i)
			h.reconcile(name)
			inForce[h.policies.ref(types.NamespacedName{Namespace: "default", Name: name}).Get()] = true
		}
		require.Len(t, inForce, int(generation)+1)
	}
	require.NoError(t, h.Client.Delete(t.Context(), objects[0]))
	h.reconcile("t0")
	require.Empty(t, h.policies.compiled, "none is kept that nobody can have")
	gone := types.NamespacedName{Namespace: "default", Name: "gone"}
	h.policies.ref(gone)
	h.reconcile(gone.Name)
	require.NotContains(t, h.policies.refs, gone)
}
