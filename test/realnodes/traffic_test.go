//go:build realnodes

package realnodes_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
)

// TestLoadBalancer calls a Service from outside of the pool, at the address of its load balancer, which leads to pods
// of both super clusters. Then the home of its namespace is drained, and the address is that of the other super
// cluster. It is not parallel: everything leaves r1, and the policy of all changes.
func TestLoadBalancer(t *testing.T) {
	const namespace, caller = "balanced", "198.51.100.2"
	answerFor(t, caller)
	meta, tenant := connect(t, "meta"), tenant1(t)
	afterwardsWhole(t)
	patchPolicy(t, `{"spec":{"limits":{"loadBalancers":5}}}`, `{"spec":{"limits":{"loadBalancers":0}}}`)
	addresses := map[string]string{"r1": "198.51.100.11", "r2": "198.51.100.12"}
	for id, address := range addresses {
		balance(t, connect(t, id), address)
	}
	tenant.namespace(t, namespace, 4)
	eventually(t, "two slices are in each super cluster", placed(tenant, namespace, map[string]int{"r1": 2, "r2": 2}))
	want := sets.New[string]()
	for i, node := range []string{"r1.node-2", "r2.node-1"} {
		pod := newWebPod(t, fmt.Sprint("web-", i))
		pod.Labels["app"] = "web"
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		want.Insert(tenant.create(t, namespace, pod).Name)
	}
	_, err := tenant.client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	told := func(address string) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			service, err := tenant.client.CoreV1().Services(namespace).Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			at := service.Status.LoadBalancer.Ingress
			return len(at) == 1 && at[0].IP == address, nil
		}
	}
	eventually(t, "the tenant is told the address in r1", told(addresses["r1"]))
	answered := sets.New[string]()
	eventually(t, "both pods answer there", func(ctx context.Context) (bool, error) {
		if name, err := askFrom(ctx, caller, "http://"+addresses["r1"]+"/hostname"); err == nil {
			answered.Insert(name)
		}
		return answered.Equal(want), nil
	})

	meta.drain(t, "r1")
	eventually(t, "the tenant is told the address in r2", told(addresses["r2"]))
	eventually(t, "a pod answers there", func(ctx context.Context) (bool, error) {
		name, err := askFrom(ctx, caller, "http://"+addresses["r2"]+"/hostname")
		return err == nil && want.Has(name), nil
	})
	eventually(t, "nothing answers at the old address", func(ctx context.Context) (bool, error) {
		_, err := askFrom(ctx, caller, "http://"+addresses["r1"]+"/hostname")
		return err != nil, nil
	})
}

// askHTTP returns the answer to a request on a connection of its own.
func askHTTP(ctx context.Context, url string) (string, error) {
	return askFrom(ctx, "", url)
}

// askFrom is askHTTP from an address of the host. Its usual one is also that of API servers of the pool, which tenants'
// pods let in only where it is that of their own.
func askFrom(ctx context.Context, address, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err //nolint:wrapcheck // only looked at
	}
	dialer := &net.Dialer{}
	if address != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(address)}
	}
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}}
	response, err := client.Do(request)
	if err != nil {
		return "", err //nolint:wrapcheck // only looked at
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// balance plays the controller of load balancers of a super cluster until the end of the test. It gives them one
// address, which the host leads to a node of it; kube-proxy there does the rest.
func balance(t *testing.T, super *cluster, address string) {
	t.Helper()
	node := addressOfNode(t, super, "node-1")
	route := func(ctx context.Context, arguments ...string) ([]byte, error) {
		return exec.CommandContext(ctx, "ip", append([]string{"route"}, arguments...)...).CombinedOutput()
	}
	output, err := route(t.Context(), "replace", address+"/32", "via", node)
	require.NoError(t, err, "%s", output)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if output, err := route(ctx, "delete", address+"/32"); err != nil {
			t.Errorf("removing the route to %s: %v: %s", address, err, output)
		}
	})
	working, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = wait.PollUntilContextCancel(working, interval, true, func(ctx context.Context) (bool, error) {
			services, err := super.client.CoreV1().Services(corev1.NamespaceAll).List(ctx, metav1.ListOptions{})
			for i := 0; err == nil && i < len(services.Items); i++ {
				service := &services.Items[i]
				if service.Spec.Type != corev1.ServiceTypeLoadBalancer || len(service.Status.LoadBalancer.Ingress) > 0 {
					continue
				}
				service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
				_, _ = super.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
			}
			return false, nil
		})
	}()
	t.Cleanup(func() { stop(); <-done })
}
