//go:build realnodes

package realnodes_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

const (
	// bridge is the host's end of the bed's network (hack/realnodes/lib/network.sh).
	bridge = "superpool0"
	// outside is an address of documentation (RFC 5737) that the host answers for during the test: it belongs to
	// nobody of the pool. metadata is where clouds have their metadata services.
	outside  = "198.51.100.1"
	metadata = "169.254.169.254"
)

// TestNetwork connects from containers of one tenant to everything around them. Each end that is refused accepts the
// same connection of another client, and all of them accept it once the policy says Open. It is not parallel: others'
// policies change with it.
func TestNetwork(t *testing.T) {
	const namespace = "network"
	mine, others := tenant1(t), tenant2(t)
	server := func(name, node string) *corev1.Pod {
		pod := newPod(t, name, "exec /agnhost netexec --http-port=8080")
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		return pod
	}
	for _, tenant := range []*cluster{mine, others} {
		tenant.namespace(t, namespace, 4)
		eventually(t, "two slices are in each super cluster", placed(tenant, namespace, map[string]int{"r1": 2, "r2": 2}))
	}
	// Each slice holds one pod.
	const node, farNode = "r1.node-1", "r2.node-1"
	client, neighbour, far := mine.create(t, namespace, server("p-1", node)), mine.create(t, namespace, server("p-2", node)), mine.create(t, namespace, server("p-3", farNode))
	stranger, friend := others.create(t, namespace, server("p-1", node)), others.create(t, namespace, server("p-2", farNode))
	require.Equal(t, node, client.Spec.NodeName)
	web := func(pod *corev1.Pod) string { return net.JoinHostPort(pod.Status.PodIP, "8080") }
	super := connect(t, "r1")
	nodeIP := addressOfNode(t, super, "node-1")
	internet, cloud := listen(t, outside), listen(t, metadata)

	reach := func(t *testing.T, tenant *cluster, from *corev1.Pod, to string) error {
		t.Helper()
		output, err := tenant.try(t, namespace, "exec", from.Name, "--", "/agnhost", "connect", to, "--timeout=2s")
		if err != nil {
			return fmt.Errorf("from %s to %s: %w: %s", from.Name, to, err, output)
		}
		return nil
	}
	// The enforcer follows the policies within moments.
	reaches := func(t *testing.T, tenant *cluster, from *corev1.Pod, to string, want bool) {
		t.Helper()
		var last error
		require.Eventually(t, func() bool {
			last = reach(t, tenant, from, to)
			return (last == nil) == want
		}, 20*time.Second, interval, "%s reaches %s: want %v", from.Name, to, want)
		if !want {
			require.ErrorContains(t, last, "TIMEOUT", "no answer, as opposed to nobody who listens")
		}
	}
	allowed := map[string]string{
		"a pod of the tenant on the node":          web(neighbour),
		"a pod of the tenant in the other cluster": web(far),
		"its API server":                           "kubernetes.default.svc.cluster.local:443",
		"its DNS":                                  "kube-dns.kube-system.svc.cluster.local:53",
		"what is outside of the pool":              internet,
	}
	refused := map[string]string{
		"another tenant's pod on the node":           web(stranger),
		"the node's kubelet":                         net.JoinHostPort(nodeIP, "10250"),
		"the super cluster's API server":             hostOf(t, super),
		"another tenant's API server":                hostOf(t, others),
		"a metadata service":                         cloud,
		"another tenant's pod in the other cluster":  web(friend),
		"the kubelet of a node of the other cluster": net.JoinHostPort(addressOfNode(t, connect(t, "r2"), "node-1"), "10250"),
	}
	for name, to := range allowed {
		t.Run("reaches "+name, func(t *testing.T) { reaches(t, mine, client, to, true) })
	}
	t.Run("twin: the other tenant's pod answers its own", func(t *testing.T) {
		reaches(t, others, friend, web(stranger), true)
	})
	for name, to := range refused {
		t.Run("does not reach "+name, func(t *testing.T) { reaches(t, mine, client, to, false) })
	}
	t.Run("is not reached by another tenant's pod", func(t *testing.T) { reaches(t, others, stranger, web(client), false) })

	t.Run("the tenant's own policy closes more", func(t *testing.T) {
		_, err := mine.client.NetworkingV1().NetworkPolicies(namespace).Create(t.Context(), denyAll(), metav1.CreateOptions{})
		require.NoError(t, err)
		reaches(t, mine, client, web(neighbour), false)
		require.NoError(t, mine.client.NetworkingV1().NetworkPolicies(namespace).Delete(t.Context(), denyAll().Name, metav1.DeleteOptions{}))
		reaches(t, mine, client, web(neighbour), true)
	})

	t.Run("twin: Open", func(t *testing.T) {
		setNetworkMode(t, tenancyv1alpha1.NetworkOpen)
		for name, to := range refused {
			t.Run("reaches "+name, func(t *testing.T) { reaches(t, mine, client, to, true) })
		}
		setNetworkMode(t, tenancyv1alpha1.NetworkIsolated)
		reaches(t, mine, client, web(stranger), false)
	})
}

// end is a pod of a tenant in namespace pairs.
type end struct {
	tenant *cluster
	pod    *corev1.Pod
}

const pairsNamespace = "pairs"

// pairsPorts are those at which agnhost answers, by protocol.
var pairsPorts = map[string]string{"tcp": "8080", "udp": "8081"}

// TestPairs connects each pod of three tenants in two super clusters to each other one, by TCP and by UDP, while pods
// of each come and go: those of one tenant reach each other, and nobody else. It is not parallel: other tests open the
// network for a while.
func TestPairs(t *testing.T) {
	nodes := []string{"r1.node-1", "r2.node-1"}
	tenants := []*cluster{connect(t, imported), tenant2(t), connect(t, provisioned)}
	run := func(round int) (ends []end) {
		for _, tenant := range tenants {
			for i, node := range nodes {
				pod := newWebPod(t, fmt.Sprintf("p-%d-%d", round, i))
				pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
				ends = append(ends, end{tenant, tenant.create(t, pairsNamespace, pod)})
			}
		}
		return ends
	}
	for _, tenant := range tenants {
		tenant.namespace(t, pairsNamespace, 4)
		eventually(t, "two slices are in each super cluster", placed(tenant, pairsNamespace, map[string]int{"r1": 2, "r2": 2}))
	}
	for round := range 3 {
		ends := run(round)
		once, then := tryPairs(t, ends, patience), tryPairs(t, ends, 0)
		t.Logf("round %d: as it should be, after some time: %v, and then at each try: %v", round, once, then)
		for _, each := range ends {
			require.NoError(t, each.tenant.client.CoreV1().Pods(pairsNamespace).Delete(t.Context(), each.pod.Name, metav1.DeleteOptions{}))
		}
		tenants = append(tenants[1:], tenants[0])
	}
}

// tryPairs tries each pair by each protocol until it is as it should be, for patience, or once. It returns how many
// were.
func tryPairs(t *testing.T, ends []end, patience time.Duration) map[string]int {
	t.Helper()
	var mutex sync.Mutex
	table := map[string]int{}
	var group errgroup.Group
	group.SetLimit(4)
	for _, from := range ends {
		for _, to := range ends {
			for protocol := range pairsPorts {
				if from == to {
					continue
				}
				group.Go(func() error {
					want := from.tenant.name == to.tenant.name
					if err := tryPair(t, from, to, protocol, want, patience); err != nil {
						return err
					}
					mutex.Lock()
					defer mutex.Unlock()
					table[fmt.Sprintf("%s, want %v", protocol, want)]++
					return nil
				})
			}
		}
	}
	require.NoError(t, group.Wait())
	return table
}

// tryPair returns an error if there is an answer where none is wanted, or the other way round. What is neither an
// answer nor silence is no outcome.
func tryPair(t *testing.T, from, to end, protocol string, want bool, patience time.Duration) error {
	t.Helper()
	for until := time.Now().Add(patience); ; {
		output, err := from.tenant.try(t, pairsNamespace, "exec", from.pod.Name, "--", "/agnhost", "connect",
			net.JoinHostPort(to.pod.Status.PodIP, pairsPorts[protocol]), "--timeout=2s", "--protocol="+protocol)
		// What the program prints counts: a connection that is lost after it takes along the code that it ended with.
		silent := strings.Contains(output, "TIMEOUT")
		answers := err == nil && !silent
		if want && answers || !want && silent {
			return nil
		}
		if !time.Now().Before(until) {
			return fmt.Errorf("%s of %s to %s of %s by %s: answer %v, want %v: %s", from.pod.Spec.NodeName, from.tenant.name, to.pod.Spec.NodeName, to.tenant.name, protocol, answers, want, output)
		}
	}
}

// answerFor lets the host answer for an address until the end of the test.
func answerFor(t *testing.T, address string) {
	t.Helper()
	ip := func(ctx context.Context, verb string) ([]byte, error) {
		return exec.CommandContext(ctx, "ip", "address", verb, address+"/32", "dev", bridge).CombinedOutput()
	}
	// A test that was killed may have left it.
	_, _ = ip(t.Context(), "delete")
	output, err := ip(t.Context(), "add")
	require.NoError(t, err, "%s", output)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if output, err := ip(ctx, "delete"); err != nil {
			t.Errorf("removing %s: %v: %s", address, err, output)
		}
	})
}

// listen accepts connections at an address that the host answers for until the end of the test, and returns where.
func listen(t *testing.T, address string) string {
	t.Helper()
	answerFor(t, address)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_ = connection.Close()
		}
	}()
	return listener.Addr().String()
}

// addressOfNode returns the address of a node.
func addressOfNode(t *testing.T, of *cluster, name string) string {
	t.Helper()
	node, err := of.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	require.Fail(t, "the node has no address")
	return ""
}

// hostOf returns address and port of an API server.
func hostOf(t *testing.T, of *cluster) string {
	t.Helper()
	server, err := url.Parse(of.config.Host)
	require.NoError(t, err)
	return server.Host
}

// setNetworkMode changes the TenantPolicy of both tenants, for the test at most.
func setNetworkMode(t *testing.T, mode tenancyv1alpha1.NetworkMode) {
	t.Helper()
	patch := func(mode tenancyv1alpha1.NetworkMode) string {
		return fmt.Sprintf(`{"spec":{"network":{"mode":%q}}}`, mode)
	}
	patchPolicy(t, patch(mode), patch(tenancyv1alpha1.NetworkIsolated))
}

// patchPolicy changes the TenantPolicy of both tenants, and changes it back at the end of the test.
func patchPolicy(t *testing.T, change, back string) {
	t.Helper()
	client, err := dynamic.NewForConfig(connect(t, "meta").config)
	require.NoError(t, err)
	policies := client.Resource(tenancyv1alpha1.GroupVersion.WithResource("tenantpolicies"))
	patch := func(ctx context.Context, change string) error {
		_, err := policies.Patch(ctx, tenancyv1alpha1.DefaultPolicyName, types.MergePatchType, []byte(change), metav1.PatchOptions{})
		return err //nolint:wrapcheck // only compared
	}
	require.NoError(t, patch(t.Context(), change))
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := patch(ctx, back); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("restoring the TenantPolicy: %v", err)
		}
	})
}

// denyAll is the NetworkPolicy that allows nothing.
func denyAll() *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "deny-all"},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}},
	}
}
