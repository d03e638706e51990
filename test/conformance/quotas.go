package main

import (
	"context"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
)

// memory is what a test's pods may ask for together. They ask for little.
const memory = "512Mi"

// keepQuotas gives every namespace that is made a quota with so much CPU, and pods without requests some, until the returned function is
// called. Not all that tests make have labelFramework; of those that are there already, only these are tests'.
func keepQuotas(ctx context.Context, kubeconfig string, cpu resource.Quantity, out io.Writer) (stop func(), err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	tenant, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the tenant: %w", err)
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
	return nil
}
