//go:build realnodes

package realnodes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
)

// TestIngress calls pods of both super clusters by the host of an Ingress, through the ingress controller of its
// namespace's home. Then the home is drained, and the controller of the other super cluster serves the host. It is not
// parallel: everything leaves r1, and the policy of all changes.
func TestIngress(t *testing.T) {
	const namespace, class, host = "entered", "public", "shop.example.com"
	meta, tenant := connect(t, "meta"), tenant1(t)
	afterwardsWhole(t)
	patchPolicy(t, `{"spec":{"traffic":{"ingressClass":"public","ingressHosts":["*.example.com"],"controllerNamespaces":["ingress-public"]}}}`,
		`{"spec":{"traffic":null}}`)
	controllers := map[string]*ingressController{}
	for _, id := range []string{"r1", "r2"} {
		controllers[id] = newIngressController(t, connect(t, id), class)
	}
	tenant.namespace(t, namespace, 4)
	eventually(t, "two slices are in each super cluster", placed(tenant, namespace, map[string]int{"r1": 2, "r2": 2}))
	eventually(t, "the tenant has the IngressClass", func(ctx context.Context) (bool, error) {
		_, err := tenant.client.NetworkingV1().IngressClasses().Get(ctx, class, metav1.GetOptions{})
		return err == nil, ignoreDeleted(err)
	})
	want := sets.New[string]()
	for i, node := range []string{"r1.node-2", "r2.node-1"} {
		pod := newWebPod(t, fmt.Sprint("web-", i))
		pod.Labels["app"] = "web"
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		want.Insert(tenant.create(t, namespace, pod).Name)
	}
	_, err := tenant.client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = tenant.client.NetworkingV1().Ingresses(namespace).Create(t.Context(), &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}},
		}}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	answered := sets.New[string]()
	served := func(by string, until func(name string) bool) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			ingress, err := tenant.client.NetworkingV1().Ingresses(namespace).Get(ctx, "shop", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			at := ingress.Status.LoadBalancer.Ingress
			if len(at) != 1 || at[0].IP != controllers[by].address {
				return false, nil
			}
			name, err := controllers[by].ask(ctx, host)
			return err == nil && until(name), nil
		}
	}
	eventually(t, "pods of both super clusters answer in r1", served("r1", func(name string) bool {
		return answered.Insert(name).Equal(want)
	}))

	meta.drain(t, "r1")
	eventually(t, "a pod answers in r2", served("r2", want.Has))
	eventually(t, "r1 has no Ingress for the host", func(ctx context.Context) (bool, error) {
		_, err := controllers["r1"].backend(ctx, host)
		return errors.Is(err, errNoRule), nil
	})
}

// ingressController is that of a super cluster: the test decides where a host leads, a pod there connects to it.
type ingressController struct {
	super   *cluster
	address string // of the pod
}

var errNoRule = errors.New("no Ingress has this host")

// newIngressController starts an ingress controller for a class until the end of the test. It tells Ingresses of the
// class its address.
func newIngressController(t *testing.T, super *cluster, class string) *ingressController {
	t.Helper()
	const namespace = "ingress-public"
	ctx := context.WithoutCancel(t.Context())
	for _, create := range []func() error{
		func() error {
			_, err := super.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := super.client.NetworkingV1().IngressClasses().Create(ctx, &networkingv1.IngressClass{
				ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/ingress"},
			}, metav1.CreateOptions{})
			return err
		},
	} {
		err := create()
		require.True(t, err == nil || apierrors.IsAlreadyExists(err), err)
	}
	super.afterwards(t, "delete", "ingressclass", class)
	super.afterwards(t, "delete", "namespace", namespace)
	pod := newPod(t, "controller", "exec /agnhost netexec --http-port=8080")
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	c := &ingressController{super: super, address: super.create(t, namespace, pod).Status.PodIP}

	working, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = wait.PollUntilContextCancel(working, interval, true, func(ctx context.Context) (bool, error) {
			ingresses, err := super.client.NetworkingV1().Ingresses(corev1.NamespaceAll).List(ctx, metav1.ListOptions{})
			for i := 0; err == nil && i < len(ingresses.Items); i++ {
				ingress := &ingresses.Items[i]
				if ptr.Deref(ingress.Spec.IngressClassName, "") != class || len(ingress.Status.LoadBalancer.Ingress) > 0 {
					continue
				}
				ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: c.address}}
				_, _ = super.client.NetworkingV1().Ingresses(ingress.Namespace).UpdateStatus(ctx, ingress, metav1.UpdateOptions{})
			}
			return false, nil
		})
	}()
	t.Cleanup(func() { stop(); <-done })
	return c
}

// backend returns the address of the Service that a host leads to.
func (c *ingressController) backend(ctx context.Context, host string) (*corev1.Service, error) {
	ingresses, err := c.super.client.NetworkingV1().Ingresses(corev1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err //nolint:wrapcheck // only looked at
	}
	for i := range ingresses.Items {
		ingress := &ingresses.Items[i]
		if rule := ingress.Spec.Rules[0]; rule.Host == host {
			return c.super.client.CoreV1().Services(ingress.Namespace).Get(ctx, rule.HTTP.Paths[0].Backend.Service.Name, metav1.GetOptions{}) //nolint:wrapcheck // only looked at
		}
	}
	return nil, errNoRule
}

// ask returns the name of the pod that answers for a host.
func (c *ingressController) ask(ctx context.Context, host string) (string, error) {
	service, err := c.backend(ctx, host)
	if err != nil {
		return "", err
	}
	query := url.Values{
		"host": {service.Spec.ClusterIP}, "port": {fmt.Sprint(service.Spec.Ports[0].Port)}, "request": {"hostname"}, "protocol": {"http"}, "tries": {"1"},
	}
	body, err := askHTTP(ctx, "http://"+c.address+":8080/dial?"+query.Encode())
	if err != nil {
		return "", err
	}
	var answer struct{ Responses, Errors []string }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Responses) == 0 {
		return "", fmt.Errorf("%s: %w", body, errors.Join(err, errors.New("no answer")))
	}
	return answer.Responses[0], nil
}
