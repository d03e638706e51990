package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	applyadmissionregistrationv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

const (
	// labelFramework is the label of namespaces that the tests' framework creates.
	labelFramework = "e2e-framework"
	// quotaName is the name of the ResourceQuota, by which vc-scheduler places the namespace.
	quotaName = "conformance"
	// labelReady is the label that putQuota adds to a namespace with a quota.
	labelReady = "conformance-quota"
	// policyName is the name of the ValidatingAdmissionPolicy of quotasFirst, and of its binding.
	policyName = "conformance-quotas-first"
)

const (
	// quotaPatience bounds the attempts to create a quota while the API server is down, quotaPause is the time between
	// two.
	quotaPatience = time.Minute
	quotaPause    = 500 * time.Millisecond
)

// memory is what the pods of a namespace may request together: those of tests request little.
const memory = "1Gi"

// spread keeps two slices of a namespace out of one super cluster while others have fewer: they wait for room there.
// Tests pin pods to any node, and would wait in vain for one where their namespace has nothing.
const spread = `{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"DoNotSchedule"}]}`

// room is what each namespace of a test has in the pool. Its quota names ephemeral storage and pods alone: CPU and
// memory come with the slices. A quota that names them refuses pods without requests, and those that a LimitRange gives
// them are not what tests expect.
type room struct {
	cpu, storage, pods resource.Quantity
	// slices is into how many equal slices it is cut. The pool spreads them over as many super clusters.
	slices int64
}

// slice returns the namespace's annotation with the size of its slices, rounded up.
func (r *room) slice() string {
	piece := func(of int64) int64 { return (of + r.slices - 1) / r.slices }
	all := resource.MustParse(memory)
	return fmt.Sprintf(`{"cpu":%q,"memory":%q,"ephemeral-storage":%q}`, resource.NewMilliQuantity(piece(r.cpu.MilliValue()), resource.DecimalSI),
		resource.NewQuantity(piece(all.Value()), resource.BinarySI), resource.NewQuantity(piece(r.storage.Value()), resource.BinarySI))
}

// addFlags adds its flags, with their defaults.
func (r *room) addFlags(flags *flag.FlagSet) {
	for _, each := range []struct {
		to                    *resource.Quantity
		name, amount, meaning string
	}{
		{&r.cpu, "cpu", "500m", "CPU that comes with the quota of a namespace; the pool reserves all of it until the namespace is deleted"},
		{&r.storage, "storage", "40Gi", "requests.ephemeral-storage of that quota"},
		{&r.pods, "pods", "20", "pods of that quota; a test of the garbage collector makes 100"},
	} {
		*each.to = resource.MustParse(each.amount)
		flags.Func(each.name, fmt.Sprintf("%s (default %s)", each.meaning, each.amount), func(text string) (err error) {
			*each.to, err = resource.ParseQuantity(text)
			return err //nolint:wrapcheck // the flag's name is said with it
		})
	}
	flags.Int64Var(&r.slices, "slices", 2, "equal slices of that quota: as many super clusters have room for a test's pods")
}

// setQuotas starts keepQuotas, which the returned function stops, if enabled; else it deletes the policy of
// quotasFirst.
func setQuotas(ctx context.Context, host string, tenant kubernetes.Interface, enabled bool, each *room, out io.Writer) (stop func(), err error) {
	if !enabled {
		return func() {}, dropQuotasFirst(ctx, tenant)
	}
	if each.slices < 1 {
		return nil, fmt.Errorf("--slices: %d is less than 1", each.slices)
	}
	return keepQuotas(ctx, host, tenant, each, out)
}

// keepQuotas creates a quota in every namespace that is created until the
// returned function is called, and in existing ones with labelFramework. Tests create namespaces without that label
// too, but only those with it are held back by quotasFirst.
func keepQuotas(ctx context.Context, host string, tenant kubernetes.Interface, each *room, out io.Writer) (stop func(), err error) {
	if err := quotasFirst(ctx, tenant); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactory(tenant, 0)
	informer := factory.Core().V1().Namespaces().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{AddFunc: func(item any, isInInitialList bool) {
		namespace, ok := item.(*corev1.Namespace)
		if !ok || namespace.DeletionTimestamp != nil {
			return
		}
		if _, framework := namespace.Labels[labelFramework]; framework || !isInInitialList {
			if err := putQuotaPatiently(ctx, tenant, namespace.Name, each); err != nil && ctx.Err() == nil && !isGone(err) {
				_, _ = fmt.Fprintf(out, "quota of namespace %s: %v\n", namespace.Name, err)
			}
		}
	}})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watching namespaces: %w", err)
	}
	factory.StartWithContext(ctx)
	waiting, done := context.WithTimeout(ctx, 30*time.Second)
	defer done()
	if !cache.WaitForCacheSync(waiting.Done(), informer.HasSynced) {
		cancel()
		return nil, fmt.Errorf("the tenant at %s does not answer", host)
	}
	return func() {
		cancel()
		factory.Shutdown()
	}, nil
}

// quotasFirst applies a ValidatingAdmissionPolicy that denies the creation of the default ServiceAccount in namespaces
// with labelFramework until they have labelReady. Tests wait for that ServiceAccount before they begin; a pod that is
// created before would be refused for a while. The service account controller
// retries with backoff. A policy that a run leaves behind affects no other namespaces.
func quotasFirst(ctx context.Context, tenant kubernetes.Interface) error {
	options := metav1.ApplyOptions{FieldManager: "conformance", Force: true}
	policies := tenant.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Apply(ctx, applyadmissionregistrationv1.ValidatingAdmissionPolicy(policyName).
		WithSpec(applyadmissionregistrationv1.ValidatingAdmissionPolicySpec().
			WithMatchConstraints(applyadmissionregistrationv1.MatchResources().
				WithNamespaceSelector(applymetav1.LabelSelector().WithMatchExpressions(
					applymetav1.LabelSelectorRequirement().WithKey(labelFramework).WithOperator(metav1.LabelSelectorOpExists),
					applymetav1.LabelSelectorRequirement().WithKey(labelReady).WithOperator(metav1.LabelSelectorOpDoesNotExist))).
				WithResourceRules(applyadmissionregistrationv1.NamedRuleWithOperations().
					WithAPIGroups("").WithAPIVersions("v1").WithResources("serviceaccounts").WithResourceNames("default").WithOperations(admissionregistrationv1.Create))).
			WithValidations(applyadmissionregistrationv1.Validation().WithExpression("false").WithMessage("the namespace has no quota yet").WithReason(metav1.StatusReasonForbidden))), options)
	if err != nil {
		return fmt.Errorf("applying policy %s: %w", policyName, err)
	}
	_, err = policies.ValidatingAdmissionPolicyBindings().Apply(ctx, applyadmissionregistrationv1.ValidatingAdmissionPolicyBinding(policyName).
		WithSpec(applyadmissionregistrationv1.ValidatingAdmissionPolicyBindingSpec().WithPolicyName(policyName).WithValidationActions(admissionregistrationv1.Deny)), options)
	if err != nil {
		return fmt.Errorf("applying the binding of policy %s: %w", policyName, err)
	}
	return nil
}

// dropQuotasFirst deletes the policy that quotasFirst applied in a previous run: without keepQuotas no test would
// begin.
func dropQuotasFirst(ctx context.Context, tenant kubernetes.Interface) error {
	policies := tenant.AdmissionregistrationV1()
	for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{
		policies.ValidatingAdmissionPolicyBindings().Delete, policies.ValidatingAdmissionPolicies().Delete,
	} {
		if err := remove(ctx, policyName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting policy %s: %w", policyName, err)
		}
	}
	return nil
}

// isGone reports whether err means that the namespace is deleted or terminating.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// putQuotaPatiently retries putQuota for up to quotaPatience, because the API server may be restarting and nothing else
// creates the quota. It returns the last error; it does not retry errors that stay.
func putQuotaPatiently(ctx context.Context, tenant kubernetes.Interface, namespace string, each *room) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, quotaPause, quotaPatience, true, func(ctx context.Context) (bool, error) {
		last = putQuota(ctx, tenant, namespace, each)
		if isGone(last) || apierrors.IsInvalid(last) || apierrors.IsForbidden(last) {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil {
		return last
	}
	return nil
}

// putQuota creates the size of slices, spread, the ResourceQuota and labelReady, in this order: a quota is placed in
// slices of the size that there is.
func putQuota(ctx context.Context, tenant kubernetes.Interface, namespace string, each *room) error {
	sized := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:%q}}}`,
		schedulerv1alpha1.AnnotationSlice, each.slice(), schedulerv1alpha1.AnnotationClusterChoice, spread)
	if _, err := tenant.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, sized, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("annotating the namespace: %w", err)
	}
	_, err := tenant.CoreV1().ResourceQuotas(namespace).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: quotaName},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourceRequestsEphemeralStorage: each.storage, corev1.ResourcePods: each.pods,
		}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the ResourceQuota: %w", err)
	}
	ready := fmt.Appendf(nil, `{"metadata":{"labels":{%q:""}}}`, labelReady)
	if _, err := tenant.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, ready, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("labelling the namespace: %w", err)
	}
	return nil
}
