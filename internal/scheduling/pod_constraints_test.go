package scheduling

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/slice"
)

// nodesWith is the change of a virtual Node with three nodes of 4 cpus for each set of labels, "key=value" in pairs.
func nodesWith(sets ...map[string]string) func(*corev1.Node) {
	var nodes []nodegroups.Node
	for _, labels := range sets {
		for range 3 {
			nodes = append(nodes, nodegroups.Node{Labels: labels, Allocatable: slice.Amounts{corev1.ResourceCPU: 4000}})
		}
	}
	return func(node *corev1.Node) {
		node.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeGroups: nodegroups.Encode(nodegroups.Of(nodes))}
	}
}

func zone(name string) map[string]string { return map[string]string{corev1.LabelTopologyZone: name} }

func selecting(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{key: value} }
}

// zones makes three super clusters: r1 has nodes in zone a, r2 in b and c, and r3 in c.
func zones(t *testing.T) *tenantControlPlane {
	t.Helper()
	c := newTenant(t)
	c.cluster("r1", nodesWith(zone("a")))
	c.cluster("r2", nodesWith(zone("b"), zone("c")))
	c.cluster("r3", nodesWith(zone("c")))
	for _, name := range []string{"r1", "r2", "r3"} {
		c.place("web", name, "8")
	}
	return c
}

// TestPodGoesWhereItCanRun: a pod is never sent to a super cluster without a node for it.
func TestPodGoesWhereItCanRun(t *testing.T) {
	c := zones(t)
	c.create("web", "a", "100m", selecting(corev1.LabelTopologyZone, "a"))
	c.wantIn("web", "a", "r1")
	c.create("web", "b", "100m", selecting(corev1.LabelTopologyZone, "b"))
	c.wantIn("web", "b", "r2")
	c.create("web", "pinned", "100m", selecting(corev1.LabelHostname, "r3.node-17"))
	c.wantIn("web", "pinned", "r3")
	c.create("web", "d", "100m", selecting(corev1.LabelTopologyZone, "d"))
	c.wantRefused("web", "d", "0/3 super clusters are available: 3 have no node with topology.kubernetes.io/zone=d")
	c.cluster("r3", nodesWith(zone("c"), zone("d")))
	c.wantIn("web", "d", "r3")
}
