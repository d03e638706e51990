package tenants

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	nameAuditName = "policy-names"
	// nameAuditPeriod is how often an Event says again which names of a policy mean nothing.
	nameAuditPeriod = 10 * time.Minute
	// reasonUnknownNames: a TenantPolicy names profiles that no scheduler of the pool has, or resources that no quota
	// can name. They allow, bound and guarantee nothing; all else of the policy holds. The message says which, and what
	// there is.
	reasonUnknownNames = "UnknownNames"
)

// NameAudit tells, as an Event on a TenantPolicy, which of its names mean nothing to the programs of the pool and are
// not refused by its CustomResourceDefinition, which does not know profiles. It runs on the leader only. All fields are
// required.
type NameAudit struct {
	// Reader reads TenantPolicies, usually from a cache.
	Reader client.Reader
	// Recorder records Events.
	Recorder record.EventRecorder
	// NamespaceProfiles and PodProfiles are the names of the profiles that the schedulers have.
	NamespaceProfiles, PodProfiles sets.Set[string]
}

// SetupWithManager adds the audit to mgr.
func (a *NameAudit) SetupWithManager(mgr ctrl.Manager) error {
	if err := ctrl.NewControllerManagedBy(mgr).Named(nameAuditName).For(&tenancyv1alpha1.TenantPolicy{}).Complete(a); err != nil {
		return fmt.Errorf("building the audit of names: %w", err)
	}
	return nil
}

// Reconcile looks at one policy.
func (a *NameAudit) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	policy := &tenancyv1alpha1.TenantPolicy{}
	if err := a.Reader.Get(ctx, request.NamespacedName, policy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	unknown := a.unknown(&policy.Spec)
	if len(unknown) == 0 {
		return reconcile.Result{}, nil
	}
	message := tenancy.Cut(strings.Join(unknown, "; ")+": all else holds", tenancy.MaxEventNote)
	a.Recorder.Event(policy, corev1.EventTypeWarning, reasonUnknownNames, message)
	return reconcile.Result{RequeueAfter: nameAuditPeriod}, nil
}

// unknown returns what is wrong with each field that has names which mean nothing.
func (a *NameAudit) unknown(spec *tenancyv1alpha1.TenantPolicySpec) (wrong []string) {
	for _, of := range [...]struct {
		field, scheduler string
		listed           []string
		profiles         sets.Set[string]
	}{
		{"scheduling.namespaceSchedulers", "namespace scheduler", spec.Scheduling.NamespaceSchedulers, a.NamespaceProfiles},
		{"scheduling.podSchedulers", "pod scheduler", spec.Scheduling.PodSchedulers, a.PodProfiles},
	} {
		if unknown := sets.New(of.listed...).Difference(of.profiles); len(unknown) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %q is no profile of the %s, use %q", of.field, sets.List(unknown), of.scheduler, sets.List(of.profiles)))
		}
	}
	for _, of := range [...]struct {
		field string
		list  corev1.ResourceList
		means func(corev1.ResourceName) bool
		use   string
	}{
		{"limits.reserved", spec.Limits.Reserved, slice.IsResource, "cpu, memory, pods or example.com/gpu"},
		{"scheduling.guaranteed", spec.Scheduling.Guaranteed, slice.IsResource, "cpu, memory, pods or example.com/gpu"},
		{"pods.defaultRequests", spec.Pods.DefaultRequests, isOfContainers, "cpu, memory or example.com/gpu"},
		{"pods.defaultLimits", spec.Pods.DefaultLimits, isOfContainers, "cpu, memory or example.com/gpu"},
	} {
		if unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(of.list)), of.means); len(unknown) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %q is no resource there, use names as %s", of.field, unknown, of.use))
		}
	}
	return wrong
}

// isOfContainers returns whether containers can request a resource.
func isOfContainers(name corev1.ResourceName) bool {
	return slice.IsResource(name) && name != corev1.ResourcePods && name != corev1.ResourceStorage
}
