package preemption

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

func TestGuaranteeAudit(t *testing.T) {
	t.Parallel()
	for cpu, want := range map[string]string{
		"0": "", "2": "",
		"3": "Warning GuaranteesExceedPool cpu=6 is guaranteed to 2 tenants together, which is cpu=2 more than all super clusters have",
	} {
		t.Run(cpu, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			require.NoError(t, tenancyv1alpha1.AddToScheme(scheme))
			require.NoError(t, clientgoscheme.AddToScheme(scheme))
			policy := &tenancyv1alpha1.TenantPolicy{ObjectMeta: metav1.ObjectMeta{Name: tenancyv1alpha1.DefaultPolicyName}}
			policy.Spec.Scheduling.Guaranteed = schedulingtest.Cores(cpu)
			events := record.NewFakeRecorder(1)
			r := &GuaranteeAudit{Recorder: events, Reader: builders.Client(scheme).WithObjects(
				policy, builders.VirtualCluster("a"), builders.VirtualCluster("b"), builders.VirtualNode("r1", "cpu", "4").Obj()).Build()}
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: policy.Name}})
			require.NoError(t, err)
			if want == "" {
				require.Empty(t, events.Events)
				return
			}
			require.Contains(t, <-events.Events, want)
		})
	}
}
