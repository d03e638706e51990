package podscheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders/schedulingtest"
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
	schedulertest.Bubble(t, func(t *testing.T) {
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
	})
}

// labelled gives a pod the label app.
func labelled(app string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, "app", app) }
}

func terms(app, key string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{LabelSelector: metav1.SetAsLabelSelector(map[string]string{"app": app}), TopologyKey: key}}
}

func beside(app, key string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(app, key)}}
	}
}

func awayFrom(app, key string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms(app, key)}}
	}
}

func spreading(app, key string, skew int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: metav1.SetAsLabelSelector(map[string]string{"app": app}),
		}}
	}
}

// createAll creates pods of an app one after another, each placed before the next, and returns how many are where.
func (c *tenantControlPlane) createAll(app string, count int, change ...func(*corev1.Pod)) map[string]int {
	c.t.Helper()
	placed := map[string]int{}
	for i := range count {
		name := fmt.Sprintf("%s-%d", app, i)
		c.create("web", name, "100m", append(change, labelled(app))...)
		require.Eventually(c.t, func() bool {
			return c.get("web", name).Annotations[schedulerv1alpha1.AnnotationSuperCluster] != ""
		}, patience, 2*time.Millisecond, "%s is placed", name)
		placed[c.get("web", name).Annotations[schedulerv1alpha1.AnnotationSuperCluster]]++
	}
	return placed
}

func TestPodAffinityIsToASuperCluster(t *testing.T) {
	for _, key := range []string{corev1.LabelHostname, corev1.LabelTopologyZone, tenancyv1alpha1.LabelSuperClusterID} {
		t.Run(key, func(t *testing.T) {
			schedulertest.Bubble(t, func(t *testing.T) {
				c := zones(t)
				c.create("web", "early", "100m", beside("db", key), labelled("web"))
				c.wantRefused("web", "early", "0/3 super clusters are available: 3 run no pod that the pod's affinity asks for")
				c.create("web", "db", "100m", labelled("db"), selecting(corev1.LabelTopologyZone, "b"))
				c.wantIn("web", "db", "r2")
				c.wantIn("web", "early", "r2")
			})
		})
	}
	t.Run("no node has the key", func(t *testing.T) {
		schedulertest.Bubble(t, func(t *testing.T) {
			c := zones(t)
			c.policy.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.NodeSelectorKeys = append(spec.Pods.NodeSelectorKeys, "rack")
			}))
			c.create("web", "self", "100m", beside("web", "rack"), labelled("web"))
			c.wantRefused("web", "self", "0/3 super clusters are available: 3 have no node with label rack")
		})
	})
}

func TestAntiAffinityCountsDomains(t *testing.T) {
	t.Run("nodes", func(t *testing.T) {
		schedulertest.Bubble(t, func(t *testing.T) {
			c := zones(t)
			require.Equal(t, map[string]int{"r1": 3, "r2": 6, "r3": 3}, c.createAll("web", 12, awayFrom("web", corev1.LabelHostname)))
			c.create("web", "last", "100m", awayFrom("web", corev1.LabelHostname), labelled("web"))
			c.wantRefused("web", "last", "0/3 super clusters are available: 3 have no node left that is apart from the pods which its anti-affinity avoids, by kubernetes.io/hostname")
			require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "web-0", metav1.DeleteOptions{}))
			require.Eventually(t, func() bool {
				return c.get("web", "last").Annotations[schedulerv1alpha1.AnnotationSuperCluster] != ""
			}, patience, 5*time.Millisecond)
		})
	})
	t.Run("zones", func(t *testing.T) {
		schedulertest.Bubble(t, func(t *testing.T) {
			c := zones(t)
			require.Equal(t, map[string]int{"r1": 1, "r2": 2, "r3": 1}, c.createAll("web", 4, awayFrom("web", corev1.LabelTopologyZone)))
			c.create("web", "last", "100m", awayFrom("web", corev1.LabelTopologyZone), labelled("web"))
			c.wantRefused("web", "last", "by topology.kubernetes.io/zone")
		})
	})
	t.Run("super clusters", func(t *testing.T) {
		schedulertest.Bubble(t, func(t *testing.T) {
			c := zones(t)
			require.Equal(t, map[string]int{"r1": 1, "r2": 1, "r3": 1}, c.createAll("web", 3, awayFrom("web", tenancyv1alpha1.LabelSuperClusterID)))
			c.create("web", "last", "100m", awayFrom("web", tenancyv1alpha1.LabelSuperClusterID), labelled("web"))
			c.wantRefused("web", "last", "3 have no node left that is apart from the pods which its anti-affinity avoids, by tenancy.x-k8s.io/superclusterid")
		})
	})
}

func TestSpreadOverZonesOfSeveralSuperClusters(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := zones(t)
		placed := c.createAll("web", 9, spreading("web", corev1.LabelTopologyZone, 1))
		require.Equal(t, 3, placed["r1"], "one in three is in zone a, which r1 alone has: %v", placed)
		require.GreaterOrEqual(t, placed["r2"], 3, "zone b is in r2 alone: %v", placed)
	})
}

func TestSpreadWaitsForAZone(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		c.cluster("r1", nodesWith(zone("a")))
		c.cluster("r2", nodesWith(zone("b")))
		c.place("web", "r1", "8")
		c.place("web", "r2", "8")
		spread := spreading("web", corev1.LabelTopologyZone, 1)
		require.Equal(t, map[string]int{"r1": 1, "r2": 1}, c.createAll("web", 2, spread))
		c.cluster("r1", nodesWith(zone("a")), func(n *corev1.Node) { n.Spec.Unschedulable = true })
		require.Eventually(t, func() bool {
			node := c.sched.Cache.Dump().Nodes["r1"]
			return node != nil && node.Node().Spec.Unschedulable
		}, patience, time.Millisecond, "kube-scheduler knows the cordon")
		c.create("web", "third", "100m", spread, labelled("web"))
		c.wantIn("web", "third", "r2")
		c.create("web", "fourth", "100m", spread, labelled("web"))
		c.wantRefused("web", "fourth", "0/2 super clusters are available: 1 cordoned, 1 has no node that keeps the pod's topology spread")
		require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "third", metav1.DeleteOptions{}))
		c.wantIn("web", "fourth", "r2")
	})
}

func TestPodsWithTooManyTermsAreRefused(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := zones(t)
		c.create("web", "many", "100m", func(pod *corev1.Pod) {
			for range 101 {
				pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
					MaxSkew: 1, TopologyKey: "key", WhenUnsatisfiable: corev1.ScheduleAnyway,
				})
			}
		})
		c.wantRefused("web", "many", "the pod has 101 terms of pod affinity, anti-affinity and topology spread: at most 100 are read")
	})
}

// refused returns why a pod is refused, "" while it is not.
func (c *tenantControlPlane) refused(name string) string {
	for _, condition := range c.get("web", name).Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
			return condition.Message
		}
	}
	return ""
}

// TestDevices: a pod that claims devices says why it waits, and is bound to no super cluster.
func TestDevices(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		c.cluster("r1")
		c.place("web", "r1", "8")
		c.create("web", "claims", "100m", func(pod *corev1.Pod) {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("a")}, {Name: "nic", ResourceClaimName: ptr.To("b")}}
		})
		c.wantRefused("web", "claims", `TenantPolicy default forbids: spec.resourceClaims[0]: the devices of super clusters cannot be claimed, as by "gpu"`)
	})
}

// TestHiddenLabels: what a tenant is told of labels and taints that its policy hides is the same whether nodes have
// them or not.
func TestHiddenLabels(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		publish := func(node nodegroups.Node) func(*corev1.Node) {
			node.Allocatable = slice.Amounts{corev1.ResourceCPU: 4000}
			return func(virtual *corev1.Node) {
				virtual.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeGroups: nodegroups.Encode(nodegroups.Of([]nodegroups.Node{node}))}
			}
		}
		c.cluster("r1", publish(nodegroups.Node{Labels: map[string]string{"team": "a", corev1.LabelTopologyZone: "a"}}))
		c.cluster("r2", publish(nodegroups.Node{
			Labels: zone("b"), Taints: []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}, {Key: "gpu", Effect: corev1.TaintEffectNoSchedule}},
		}))
		c.place("web", "r1", "8")
		c.place("web", "r2", "8")
		const forbids, allowed = "TenantPolicy default forbids: ", " is not allowed: pods.nodeSelectorKeys allows kubernetes.io/os, "
		for _, key := range []string{"team", "none"} {
			c.create("web", "selects-"+key, "100m", selecting(key, "a"))
			c.wantRefused("web", "selects-"+key, forbids+"spec.nodeSelector["+key+"]: node label "+key+" (is a)"+allowed)
			c.create("web", "prefers-"+key, "100m", preferring(key, "a"))
			c.wantRefused("web", "prefers-"+key, forbids+"node label "+key+" (In a)"+allowed)
			c.create("web", "beside-"+key, "100m", beside("web", key), labelled("web"))
			c.wantRefused("web", "beside-"+key, forbids+"node label "+key+" (Exists)"+allowed)
			c.create("web", "spreads-"+key, "100m", spreading("web", key, 1), labelled("web"))
			c.wantRefused("web", "spreads-"+key, forbids+"spec.topologySpreadConstraints[0].topologyKey: node label "+key+" (Exists)"+allowed)
		}
		for _, key := range []string{"dedicated", "none"} {
			c.create("web", "tolerates-"+key, "100m", tolerating(key, selecting(corev1.LabelTopologyZone, "b")))
		}
		const closed = "0/2 super clusters are available: 1 has no node for it whose taints it tolerates"
		c.create("web", "open", "100m", selecting(corev1.LabelTopologyZone, "b"))
		c.wantRefused("web", "open", closed+", 1 has no node with")
		for _, key := range []string{"dedicated", "none"} {
			c.wantRefused("web", "tolerates-"+key, closed+", 1 has no node with")
		}

		c.policy.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Pods.NodeSelectorKeys = append(spec.Pods.NodeSelectorKeys, "team")
			spec.Pods.Tolerations = append(spec.Pods.Tolerations, tenancyv1alpha1.TolerationRule{Key: "dedicated"})
		}))
		c.wantIn("web", "selects-team", "r1")
		c.wantRefused("web", "open", closed+" (dedicated), 1 has no node with")
	})
}

// TestTolerationsThatThePolicyLeavesOut: no super cluster is chosen for a taint that the super pod will not tolerate.
func TestTolerationsThatThePolicyLeavesOut(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		taint := func(key string) func(*corev1.Node) {
			return func(node *corev1.Node) {
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
			}
		}
		groups := func(taints ...corev1.Taint) func(*corev1.Node) {
			return func(node *corev1.Node) {
				node.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeGroups: nodegroups.Encode(nodegroups.Of([]nodegroups.Node{{
					Taints: taints, Allocatable: slice.Amounts{corev1.ResourceCPU: 4000},
				}}))}
			}
		}
		c.cluster("r1", taint("dedicated"))
		c.cluster("r2", func(node *corev1.Node) { node.Spec.Unschedulable = true })
		c.cluster("r3", groups(corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}))
		for _, name := range []string{"r1", "r2", "r3"} {
			c.place("web", name, "8")
		}
		everything := func(pod *corev1.Pod) {
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
		c.create("web", "dedicated", "100m", tolerating("dedicated", func(*corev1.Pod) {}))
		c.create("web", "everything", "100m", everything)
		const closed = "0/3 super clusters are available: 1 cordoned, 1 has no node for it whose taints it tolerates, 1 "
		c.wantRefused("web", "dedicated", closed)
		c.wantRefused("web", "everything", closed)

		c.policy.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Pods.Tolerations = append(spec.Pods.Tolerations, tenancyv1alpha1.TolerationRule{Key: "dedicated"})
		}))
		require.Eventually(t, func() bool {
			return c.get("web", "dedicated").Annotations[schedulerv1alpha1.AnnotationSuperCluster] != ""
		}, patience, 5*time.Millisecond, "a change of the policy tries it again")
		require.Contains(t, []string{"r1", "r3"}, c.get("web", "dedicated").Annotations[schedulerv1alpha1.AnnotationSuperCluster])
		c.cluster("r2")
		c.wantIn("web", "everything", "r2")
	})
}

// TestLabelsOfTheTenantsNodes: what a pod wants of labels that its tenant gives to its own Nodes is asked of those.
func TestLabelsOfTheTenantsNodes(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenantWith(t, func(c *tenantControlPlane) { c.tenantNodes = true })
		for _, name := range []string{"r1", "r2"} {
			c.cluster(name, nodesWith(zone("a"), map[string]string{"team": "operator"}))
			c.place("web", name, "8")
		}
		node := func(name string, labels map[string]string) *corev1.Node {
			labels[tenancyv1alpha1.LabelTenantNode] = "true"
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		}
		nodes := c.api.CoreV1().Nodes()
		for _, name := range []string{"r1.a", "r2.a"} {
			_, err := nodes.Create(c.ctx, node(name, map[string]string{}), metav1.CreateOptions{})
			require.NoError(t, err)
		}
		// It is one of super nodes, too, which the policy does not show.
		for _, key := range []string{"disk", "team"} {
			c.create("web", "on-"+key, "100m", selecting(key, "operator"))
			c.wantRefused("web", "on-"+key, "no Node of this control plane has label "+key+"=operator")
			_, condition := podutil.GetPodCondition(&c.get("web", "on-"+key).Status, corev1.PodScheduled)
			require.Equal(t, corev1.PodReasonUnschedulable, condition.Reason)
		}
		_, err := nodes.Update(c.ctx, node("r2.a", map[string]string{"disk": "operator"}), metav1.UpdateOptions{})
		require.NoError(t, err)
		c.wantIn("web", "on-disk", "r2")
		c.create("web", "elsewhere", "100m", requiring("disk", corev1.NodeSelectorOpDoesNotExist), selectingAlso(tenancyv1alpha1.LabelSuperClusterID, "r1"))
		c.wantIn("web", "elsewhere", "r1")
		c.create("web", "both", "100m", selecting("disk", "operator"), selectingAlso(corev1.LabelHostname, "r1.a"))
		c.wantRefused("web", "both", "0/2 super clusters are available: ")
		c.create("web", "preferring", "100m", preferring("disk", "operator"))
		c.wantIn("web", "preferring", "r2")
		c.create("web", "large", "5", selecting("disk", "operator"))
		c.wantRefused("web", "large", "no node large enough")
		c.cluster("r2", func(*corev1.Node) {})
		c.wantIn("web", "large", "r2")
	})
}

// selectingAlso adds to the node selector of a pod.
func selectingAlso(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
}
