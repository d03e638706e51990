//go:build realnodes

package realnodes_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// zones are the bed's nodes, as a tenant names them, with their zones (hack/realnodes/lib/nodes.sh).
var zones = map[string]string{"r1.node-1": "a", "r1.node-2": "b", "r2.node-1": "b"}

// bedNodes are their names, sorted.
var bedNodes = []string{"r1.node-1", "r1.node-2", "r2.node-1"}

// TestTenantNodes looks at the Nodes of a tenant that has a namespace in every super cluster (spec.nodes Placed).
func TestTenantNodes(t *testing.T) {
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "shown", 2)
	eventually(t, "a slice is in each super cluster", placed(tenant, namespace, map[string]int{"r1": 1, "r2": 1}))
	for _, name := range bedNodes {
		// A Node that is new has a taint until it is Ready.
		eventually(t, "the tenant has node "+name, func(ctx context.Context) (bool, error) {
			node, err := tenant.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			return err == nil && len(node.Spec.Taints) == 0, ignoreDeleted(err)
		})
	}
	nodes, err := tenant.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	shown := map[string]string{}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		require.False(t, node.Spec.Unschedulable, node.Name)
		require.Empty(t, node.Spec.Taints, node.Name)
		require.Equal(t, node.Name, node.Labels[corev1.LabelHostname])
		require.Equal(t, "bed", node.Labels[corev1.LabelTopologyRegion])
		shown[node.Name] = node.Labels[corev1.LabelTopologyZone]
	}
	require.Equal(t, zones, shown)
}

// TestPodsThatNameANode pins pods in each way in which a PodSpec can.
func TestPodsThatNameANode(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "pinned", 8)
	term := func(term corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}},
		}}
	}
	requirement := func(key string, operator corev1.NodeSelectorOperator, values ...string) []corev1.NodeSelectorRequirement {
		return []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}
	}
	for _, tc := range []struct {
		name   string
		change func(*corev1.PodSpec)
		want   string
	}{
		{name: "node-name", want: "r1.node-2", change: func(spec *corev1.PodSpec) { spec.NodeName = "r1.node-2" }},
		{name: "host-name", want: "r2.node-1", change: func(spec *corev1.PodSpec) {
			spec.NodeSelector = map[string]string{corev1.LabelHostname: "r2.node-1"}
		}},
		{name: "match-fields", want: "r1.node-1", change: func(spec *corev1.PodSpec) {
			spec.Affinity = term(corev1.NodeSelectorTerm{MatchFields: requirement(metav1.ObjectNameField, corev1.NodeSelectorOpIn, "r1.node-1")})
		}},
		{name: "not-in", want: "r1.node-2", change: func(spec *corev1.PodSpec) {
			spec.Affinity = term(corev1.NodeSelectorTerm{MatchExpressions: requirement(corev1.LabelHostname, corev1.NodeSelectorOpNotIn, "r1.node-1", "r2.node-1")})
		}},
		{name: "zone", want: "r1.node-1", change: func(spec *corev1.PodSpec) {
			spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "a"}
		}},
		{name: "zone-and-cluster", want: "r1.node-2", change: func(spec *corev1.PodSpec) {
			spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "b", tenancyv1alpha1.LabelSuperClusterID: "r1"}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := newPod(t, tc.name, "exec sleep 3600")
			tc.change(&pod.Spec)
			pod = tenant.create(t, namespace, pod)
			require.Equal(t, tc.want, pod.Spec.NodeName)
			id, name, _ := strings.Cut(tc.want, ".")
			require.Equal(t, id, pod.Labels[schedulerv1alpha1.LabelSuperCluster])
			require.Equal(t, name, connect(t, id).run(t, certificateName(t, tenant.name)+"-"+namespace, "get", "pod", pod.Name, "-o", "jsonpath={.spec.nodeName}"))
			tenant.run(t, namespace, "delete", "pod", pod.Name)
		})
	}
	t.Run("a node that no super cluster has", func(t *testing.T) {
		pod := newPod(t, "nowhere", "exec sleep 3600")
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "r3.node-1"}
		_, err := tenant.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
		tenant.waits(t, namespace, pod.Name, "no node named r3.node-1")
	})
}

// TestApart gives pods a required anti-affinity by host name: three are on the three nodes, a fourth waits.
func TestApart(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "apart", 8)
	apart := func(name string) *corev1.Pod {
		pod := newPod(t, name, "exec sleep 3600")
		pod.Labels["app"] = "apart"
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "apart"}},
			}},
		}}
		return pod
	}
	var nodes []string
	for _, name := range []string{"p-1", "p-2", "p-3"} {
		nodes = append(nodes, tenant.create(t, namespace, apart(name)).Spec.NodeName)
	}
	slices.Sort(nodes)
	require.Equal(t, bedNodes, nodes)

	_, err := tenant.client.CoreV1().Pods(namespace).Create(t.Context(), apart("p-4"), metav1.CreateOptions{})
	require.NoError(t, err)
	tenant.waits(t, namespace, "p-4", "")
	tenant.run(t, namespace, "delete", "pod", "p-2")
	tenant.ready(t, namespace, "p-4")
}

// TestSpreadOverZones spreads six pods over the two zones with a skew of 1. Between the zones of r1 its scheduler keeps
// it. Zone b is in both super clusters, and neither scheduler knows both sides, so there the skew may be one more; but
// r2 does not get half of the pods, as it does without the constraint.
func TestSpreadOverZones(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "zones", 12)
	spread := func(name string) *corev1.Pod {
		pod := newPod(t, name, "exec sleep 3600")
		pod.Labels["app"] = "spread"
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "spread"}},
		}}
		return pod
	}
	onNode, inZone := map[string]int{}, map[string]int{}
	for i := range 6 {
		pod := tenant.create(t, namespace, spread(fmt.Sprint("p-", i)))
		onNode[pod.Spec.NodeName]++
		inZone[zones[pod.Spec.NodeName]]++
	}
	t.Logf("pods by node: %v", onNode)
	require.LessOrEqual(t, max(onNode["r1.node-1"], onNode["r1.node-2"])-min(onNode["r1.node-1"], onNode["r1.node-2"]), 1, onNode)
	require.LessOrEqual(t, inZone["b"]-inZone["a"], 2, onNode)
	require.LessOrEqual(t, onNode["r2.node-1"], 2, onNode)
}

// TestDaemonSet runs one pod on each node, and with a selector on those of one super cluster.
func TestDaemonSet(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "daemons", 12)
	for name, tc := range map[string]struct {
		selector map[string]string
		want     []string
	}{
		"everywhere": {want: bedNodes},
		"in-r1":      {selector: map[string]string{tenancyv1alpha1.LabelSuperClusterID: "r1"}, want: []string{"r1.node-1", "r1.node-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod(t, name, "exec sleep 3600")
			pod.Spec.NodeSelector = tc.selector
			_, err := tenant.client.AppsV1().DaemonSets(namespace).Create(t.Context(), &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: appsv1.DaemonSetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
				},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			tenant.run(t, namespace, "rollout", "status", "daemonset/"+name, "--timeout="+patience.String())
			pods, err := tenant.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
			require.NoError(t, err)
			var nodes []string
			for i := range pods.Items {
				nodes = append(nodes, pods.Items[i].Spec.NodeName)
			}
			slices.Sort(nodes)
			require.Equal(t, tc.want, nodes)
		})
	}
	quota, err := tenant.client.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "test", metav1.GetOptions{})
	require.NoError(t, err)
	used := quota.Status.Used[corev1.ResourceCPU]
	require.Equal(t, int64(5)*slice.Cpu().MilliValue(), used.MilliValue(), "they count as any pod")
}

// TestNodePort calls a Service from outside of the pool, at each node of both super clusters, at the one port that the
// tenant's API server gave it. Each node leads to the pods of both.
func TestNodePort(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	const caller = "198.51.100.3"
	answerFor(t, caller)
	namespace := tenant.namespace(t, "node-port", 4)
	want := sets.New[string]()
	for i, node := range []string{"r1.node-2", "r2.node-1"} {
		want.Insert(tenant.create(t, namespace, webPodOn(t, fmt.Sprint("web-", i), node)).Name)
	}
	for node, address := range tenant.publish(t, namespace, &corev1.Service{}) {
		t.Run(node, func(t *testing.T) {
			answered := sets.New[string]()
			eventually(t, "both pods answer at "+address, func(ctx context.Context) (bool, error) {
				if name, err := askFrom(ctx, caller, "http://"+address+"/hostname"); err == nil { // else the node does not know the port yet
					answered.Insert(name)
				}
				return answered.Equal(want), nil
			})
		})
	}
}

// TestSameZone calls a Service whose traffic stays in a zone, at each node. r1 has nodes in zones a and b, r2 one in b:
// the tenant's controller chooses among the zones of both, and nodes of both heed that.
func TestSameZone(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	const caller = "198.51.100.4"
	answerFor(t, caller)
	namespace := tenant.namespace(t, "same-zone", 6)
	want := map[string]sets.Set[string]{"a": sets.New[string](), "b": sets.New[string]()}
	for node, zone := range zones {
		want[zone].Insert(tenant.create(t, namespace, webPodOn(t, strings.ReplaceAll(node, ".", "-"), node)).Name)
	}
	near := &corev1.Service{Spec: corev1.ServiceSpec{TrafficDistribution: ptr.To(corev1.ServiceTrafficDistributionPreferClose)}}
	for node, address := range tenant.publish(t, namespace, near) {
		t.Run(node, func(t *testing.T) {
			answered := sets.New[string]()
			defer func() { t.Logf("%v answered last at %s", sets.List(answered), address) }()
			eventually(t, "the pods of the zone answer at "+address, func(ctx context.Context) (bool, error) {
				answered = sets.New[string]()
				for range 20 {
					if name, err := askFrom(ctx, caller, "http://"+address+"/hostname"); err == nil {
						answered.Insert(name)
					}
				}
				return answered.Equal(want[zones[node]]), nil
			})
		})
	}
}

// webPodOn returns a pod of the Service of publish on a node.
func webPodOn(t *testing.T, name, node string) *corev1.Pod {
	t.Helper()
	pod := newWebPod(t, name)
	pod.Labels["app"] = "web"
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	return pod
}

// publish makes a Service with a node port of the tenant's, and returns its address at each node. That is the node's in
// its super cluster: where vn-agent runs once in each, the tenant's Nodes have its address.
func (c *cluster) publish(t *testing.T, namespace string, service *corev1.Service) map[string]string {
	t.Helper()
	service.Name = "web"
	service.Spec.Type, service.Spec.Selector = corev1.ServiceTypeNodePort, map[string]string{"app": "web"}
	service.Spec.Ports = []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}
	service, err := c.client.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{})
	require.NoError(t, err)
	port := int(service.Spec.Ports[0].NodePort)
	require.Equal(t, nodePorts[c.name], port/500*500, "%d is not in the tenant's range", port)
	addresses := map[string]string{}
	for _, name := range bedNodes {
		superCluster, superNode, _ := strings.Cut(name, ".")
		node, err := connect(t, superCluster).client.CoreV1().Nodes().Get(t.Context(), superNode, metav1.GetOptions{})
		require.NoError(t, err)
		addresses[name] = net.JoinHostPort(node.Status.Addresses[0].Address, strconv.Itoa(port))
	}
	return addresses
}

// waits waits until the scheduler has refused a pod for a reason, and for another second in which it stays so.
func (c *cluster) waits(t *testing.T, namespace, name, reason string) {
	t.Helper()
	refused := func(ctx context.Context) (bool, error) {
		pod, err := c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && strings.Contains(condition.Message, reason)
		}), nil
	}
	eventually(t, "pod "+name+" is refused: "+reason, refused)
	require.Never(t, func() bool {
		still, err := refused(t.Context())
		return err != nil || !still
	}, time.Second, interval)
}
