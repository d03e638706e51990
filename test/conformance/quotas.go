package main

import (
	"context"
	"fmt"
	"io"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applyadmissionregistrationv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// labelFramework is on the namespaces that the tests' framework makes.
	labelFramework = "e2e-framework"
	// quotaName is the ResourceQuota that places such a namespace.
	quotaName = "conformance"
	// labelReady is put on namespaces that have all that keepQuotas gives.
	labelReady = "conformance-quota"
	// policyName is the ValidatingAdmissionPolicy that lets tests wait for it.
	policyName = "conformance-quotas-first"
)

// memory is what a test's pods may ask for together. They ask for little.
const memory = "512Mi"

// keepQuotas gives every namespace that is made a quota with so much CPU, and pods without requests some, until the returned function is
// called. Not all that tests make have labelFramework; of those that are there already, only these are tests'. There tests wait for it.
func keepQuotas(ctx context.Context, kubeconfig string, cpu resource.Quantity, out io.Writer) (stop func(), err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	tenant, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the tenant: %w", err)
	}
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
		if _, ofTest := namespace.Labels[labelFramework]; ofTest || !isInInitialList {
			if err := putQuota(ctx, tenant, namespace.Name, cpu); err != nil && ctx.Err() == nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				_, _ = fmt.Fprintf(out, "quota of namespace %s: %v\n", namespace.Name, err)
			}
		}
	}})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watching namespaces: %w", err)
	}
	factory.Start(ctx.Done())
	waiting, done := context.WithTimeout(ctx, 30*time.Second)
	defer done()
	if !cache.WaitForCacheSync(waiting.Done(), informer.HasSynced) {
		cancel()
		return nil, fmt.Errorf("the tenant at %s does not answer", config.Host)
	}
	return func() {
		cancel()
		factory.Shutdown()
	}, nil
}

// quotasFirst refuses a test's namespace its service account, which tests wait for before they begin, until labelReady is there. A
// pod that is made earlier has no requests, and would wait for ever. Controllers try again when the label comes. A policy that is left
// behind does nothing to namespaces that are not of tests.
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

// putQuota makes the default requests first: a quota refuses pods that ask for nothing.
func putQuota(ctx context.Context, tenant kubernetes.Interface, namespace string, cpu resource.Quantity) error {
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("8Mi")}
	_, err := tenant.CoreV1().LimitRanges(namespace).Create(ctx, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: quotaName},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: requests}}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the LimitRange: %w", err)
	}
	_, err = tenant.CoreV1().ResourceQuotas(namespace).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: quotaName},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourceRequestsCPU: cpu, corev1.ResourceRequestsMemory: resource.MustParse(memory),
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
