package syncer_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenants"
)

// TestTwoSuperClusters lets two tenants have pods in two super clusters each, which come and go: the policies of each
// super cluster let in the tenant's own pods of the other one by their addresses, and close all else there.
func TestTwoSuperClusters(t *testing.T) {
	mine := newWorld(t, needs{r2: true})
	theirs := mine.neighbour(t, "b")
	for id, ranges := range map[string]string{"r1": "10.231.0.0/16", "r2": "10.232.0.0/16"} {
		mine.superNode(t, mine.of(id), "n1", func(node *corev1.Node) { node.Spec.PodCIDR, node.Spec.PodCIDRs = ranges, []string{ranges} })
	}
	tr := &traffic{whole: t, mine: mine, theirs: theirs}
	start := func(id string) *running {
		r := mine.startSyncerWith(t, tr.config(id), engaging([]*tenants.Tenant{mine.engaged(mine.tenantConfig), theirs.engaged(theirs.tenantConfig)}))
		closes(t, r.ready, "the tenants' caches are synced")
		return r
	}
	start("r1")
	ofR2 := start("r2")
	for _, w := range []*world{mine, theirs} {
		w.place(t, "web", "r1", "r2")
		w.place(t, "db", "r1", "r2")
	}
	front := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "db", Name: "front"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "web"}}, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "front"}},
		}}}},
	}}
	create(t, mine.tenant, front)
	mine.runAt(t, "r1", "web", "a1", "front", "10.231.0.1")
	mine.runAt(t, "r2", "web", "a2", "front", "10.232.0.1")
	mine.runAt(t, "r2", "web", "a3", "back", "10.232.0.2")
	theirs.runAt(t, "r1", "web", "b1", "front", "10.231.0.7")
	theirs.runAt(t, "r2", "web", "b2", "front", "10.232.0.7")

	mine.reaches(t, "r1", "web", "superpool-isolation", "10.232.0.0/16", "10.232.0.1", "10.232.0.2")
	mine.reaches(t, "r2", "web", "superpool-isolation", "10.231.0.0/16", "10.231.0.1")
	theirs.reaches(t, "r1", "db", "superpool-isolation", "10.232.0.0/16", "10.232.0.7")
	theirs.reaches(t, "r2", "db", "superpool-isolation", "10.231.0.0/16", "10.231.0.7")
	mine.reaches(t, "r1", "db", "front", "10.232.0.0/16")
	namespace := &corev1.Namespace{}
	require.NoError(t, mine.tenant.Get(t.Context(), types.NamespacedName{Name: "web"}, namespace))
	namespace.Labels["name"] = "web"
	require.NoError(t, mine.tenant.Update(t.Context(), namespace))
	mine.reaches(t, "r1", "db", "front", "10.232.0.0/16", "10.232.0.1")

	// An EndpointSlice names pods of both tenants in the other super cluster.
	slice := newSlice("web", "front", "r2.n1", "r2.n1")
	slice.Endpoints[0].Addresses, slice.Endpoints[1].Addresses = []string{"10.232.0.1"}, []string{"10.232.0.7"}
	create(t, mine.tenant, newService("web", "front", "None"))
	create(t, mine.tenant, slice)
	names := func(want ...string) func(*discoveryv1.EndpointSlice) bool {
		return func(slice *discoveryv1.EndpointSlice) bool {
			var got []string
			for _, endpoint := range slice.Endpoints {
				got = append(got, endpoint.Addresses...)
			}
			return slices.Equal(want, got)
		}
	}
	appears(t, mine.super, mine.superName("web"), slice.Name, &discoveryv1.EndpointSlice{}, names("10.232.0.1"))

	// A pod goes, and its address is another tenant's next.
	require.NoError(t, mine.super2.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: mine.superName("web"), Name: "a2"}}, client.GracePeriodSeconds(0)))
	mine.reaches(t, "r1", "web", "superpool-isolation", "10.232.0.0/16", "10.232.0.2")
	mine.reaches(t, "r1", "db", "front", "10.232.0.0/16")
	appears(t, mine.super, mine.superName("web"), slice.Name, &discoveryv1.EndpointSlice{}, names())
	theirs.runAt(t, "r2", "db", "b3", "front", "10.232.0.1")
	theirs.reaches(t, "r1", "web", "superpool-isolation", "10.232.0.0/16", "10.232.0.1", "10.232.0.7")
	mine.reaches(t, "r1", "web", "superpool-isolation", "10.232.0.0/16", "10.232.0.2")

	// What was told stands while a syncer is away, and changes meanwhile are told when it is back.
	ofR2.stop()
	require.NoError(t, mine.super2.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: mine.superName("web"), Name: "a3"}}, client.GracePeriodSeconds(0)))
	start("r2")
	mine.reaches(t, "r1", "web", "superpool-isolation", "10.232.0.0/16")
	lacks := &tenancyv1alpha1.ClusterAddresses{}
	vanishes(t, mine.meta, mine.key, "r2", lacks)
}

// config is the client configuration of a syncer of a super cluster.
func (tr *traffic) config(id string) *rest.Config {
	if id == "r2" {
		return tr.mine.super2Config
	}
	return tr.mine.superConfig
}

// runAt makes a pod of the tenant that was given a super cluster, and plays scheduler and kubelet there: it runs at an
// address.
func (w *world) runAt(t *testing.T, id, namespace, name, app, address string) {
	t.Helper()
	pod := newPod(namespace, name)
	pod.Labels["app"], pod.Labels[schedulerv1alpha1.LabelSuperCluster] = app, id
	create(t, w.tenant, pod)
	super := appears(t, w.of(id), w.superName(namespace), name, &corev1.Pod{}, nil)
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: super.Namespace, Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	require.NoError(t, w.of(id).SubResource("binding").Create(t.Context(), super, binding))
	w.setStatus(t, w.of(id), super.Namespace, name, func(pod *corev1.Pod) {
		pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
	})
}

// reaches waits until the policies of a super namespace whose names begin so let in, of a closed range of another super
// cluster, these addresses alone.
func (w *world) reaches(t *testing.T, id, namespace, prefix, closed string, want ...string) {
	t.Helper()
	slices.Sort(want)
	outer := netip.MustParsePrefix(closed)
	eventually(t, func() error {
		var policies networkingv1.NetworkPolicyList
		if err := w.of(id).List(t.Context(), &policies, client.InNamespace(w.superName(namespace))); err != nil {
			return err
		}
		looked := 0
		var wrong error
		for i := range policies.Items {
			policy := &policies.Items[i]
			for _, from := range peersOf(policy, prefix) {
				looked++
				var got []string
				for _, peer := range from {
					if peer.IPBlock == nil {
						continue
					}
					block := netip.MustParsePrefix(peer.IPBlock.CIDR)
					if !block.Overlaps(outer) {
						continue
					}
					if block.Bits() < outer.Bits() {
						if !slices.Contains(peer.IPBlock.Except, closed) {
							wrong = errors.Join(wrong, fmt.Errorf("%s of %s is open: %v", closed, policy.Name, peer.IPBlock))
						}
						continue
					}
					for address := block.Addr(); block.Contains(address); address = address.Next() {
						got = append(got, address.String())
					}
				}
				slices.Sort(got)
				if !slices.Equal(want, got) {
					wrong = errors.Join(wrong, fmt.Errorf("%s in %s lets in %v of %s, and not %v", policy.Name, id, got, closed, want))
				}
			}
		}
		if looked == 0 && (len(want) > 0 || prefix == "superpool-isolation") {
			return fmt.Errorf("no policy %s has a rule", prefix)
		}
		return wrong
	})
}

// peersOf returns the peers of each rule of a policy whose name begins so that has any; all of them but the ones with
// ports, which are for servers.
func peersOf(policy *networkingv1.NetworkPolicy, prefix string) (found [][]networkingv1.NetworkPolicyPeer) {
	if len(policy.Name) < len(prefix) || policy.Name[:len(prefix)] != prefix {
		return nil
	}
	for _, rule := range policy.Spec.Ingress {
		found = append(found, rule.From)
	}
	for _, rule := range policy.Spec.Egress {
		if len(rule.Ports) == 0 {
			found = append(found, rule.To)
		}
	}
	return found
}
