package preemption

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
)

const (
	guaranteeAuditName = "guarantee-audit"
	// guaranteeAuditPeriod is how often the guarantees of a policy are held against the pool.
	guaranteeAuditPeriod = 10 * time.Minute
	// reasonGuaranteesExceedPool: what is guaranteed to all tenants together is more than all super clusters have, less
	// headroom. Not all of them can get it: lower scheduling.guaranteed of TenantPolicies, or add super clusters.
	reasonGuaranteesExceedPool = "GuaranteesExceedPool"
)

// GuaranteeAudit tells, as an Event on a TenantPolicy that guarantees anything, when the guarantees of all tenants are
// more than the pool has. It runs on the leader only. All fields are required.
type GuaranteeAudit struct {
	// Reader reads TenantPolicies, VirtualClusters and virtual Nodes, usually from a cache.
	Reader client.Reader
	// Recorder records Events.
	Recorder record.EventRecorder
}

// SetupWithManager adds the audit to mgr, whose cache must serve virtual Nodes only.
func (r *GuaranteeAudit) SetupWithManager(mgr ctrl.Manager) error {
	if err := ctrl.NewControllerManagedBy(mgr).Named(guaranteeAuditName).For(&tenancyv1alpha1.TenantPolicy{}).Complete(r); err != nil {
		return fmt.Errorf("building the audit of guarantees: %w", err)
	}
	return nil
}

// Reconcile looks at one policy.
func (r *GuaranteeAudit) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	policies, tenants, nodes := &tenancyv1alpha1.TenantPolicyList{}, &tenancyv1alpha1.VirtualClusterList{}, &corev1.NodeList{}
	for _, list := range []client.ObjectList{policies, tenants, nodes} {
		if err := r.Reader.List(ctx, list); err != nil {
			return reconcile.Result{}, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	var audited *tenancyv1alpha1.TenantPolicy
	guaranteed := map[string]slice.Amounts{}
	for i := range policies.Items {
		p := &policies.Items[i]
		if guaranteed[p.Name] = slice.Of(p.Spec.Scheduling.Guaranteed); p.Name == request.Name {
			audited = p
		}
	}
	if audited == nil || guaranteed[audited.Name].IsZero() {
		return reconcile.Result{}, nil
	}
	sum, has := slice.Amounts{}, slice.Amounts{}
	for i := range tenants.Items {
		sum = sum.Plus(guaranteed[cmp.Or(tenants.Items[i].Spec.PolicyName, tenancyv1alpha1.DefaultPolicyName)])
	}
	for i := range nodes.Items {
		has = has.Plus(view.Allocatable(&nodes.Items[i]))
	}
	if beyond := sum.Minus(has); !beyond.IsZero() {
		r.Recorder.Eventf(audited, corev1.EventTypeWarning, reasonGuaranteesExceedPool,
			"%s is guaranteed to %d tenants together, which is %s more than all super clusters have: lower scheduling.guaranteed, or add super clusters",
			sum, len(tenants.Items), beyond)
	}
	return reconcile.Result{RequeueAfter: guaranteeAuditPeriod}, nil
}
