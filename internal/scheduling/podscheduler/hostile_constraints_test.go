package podscheduler

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/tenancy"
)

// invalidSelectors are label selectors over label foo that no API server of Kubernetes' takes, by what is wrong.
func invalidSelectors() map[string]*metav1.LabelSelector {
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	long := strings.Repeat("x", 10_000)
	return map[string]*metav1.LabelSelector{
		"no operator":         expression("foo", ""),
		"an unknown operator": expression("foo", "Foo", ""),
		"In nothing":          expression("foo", metav1.LabelSelectorOpIn),
		"Exists with a value": expression("foo", metav1.LabelSelectorOpExists, ""),
		"no key":              expression("", metav1.LabelSelectorOpExists),
		"an odd key":          expression("///", metav1.LabelSelectorOpExists),
		"a long value":        expression("foo", metav1.LabelSelectorOpIn, "", long),
		"an odd label":        {MatchLabels: map[string]string{"a b": ""}},
		"a long label":        {MatchLabels: map[string]string{"foo": long}},
	}
}

// hostileSpread is what an API server may say of the topology spread of a pod with label foo.
type hostileSpread struct {
	name       string
	constraint corev1.TopologySpreadConstraint
	// refused is whether the pod is to wait, nil for either.
	refused *bool
}

// hostileSpreads returns each odd value in constraints that may and may not be violated, by zone and by host name.
func hostileSpreads() (all []hostileSpread) {
	refused, free := ptr.To(true), ptr.To(false) // what may be violated holds no pod back, unless nothing can be made of it
	add := func(name string, required, preferred *bool, change func(*corev1.TopologySpreadConstraint)) {
		mayBeViolated := func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }
		for _, key := range []string{keyZone, corev1.LabelHostname} {
			all = append(all,
				hostileSpread{fmt.Sprintf("%s, required by %s", name, key), constraint(1, key, change), required},
				hostileSpread{fmt.Sprintf("%s, preferred by %s", name, key), constraint(1, key, mayBeViolated, change), preferred})
		}
	}
	for name, selector := range invalidSelectors() {
		add(name, refused, refused, func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = selector })
	}
	add("no selector", nil, free, func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = nil })
	add("an empty selector", nil, free, func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = &metav1.LabelSelector{} })
	for _, n := range []int32{math.MinInt32, -1, 0, math.MaxInt32} {
		skew := free
		if n < 1 {
			skew = nil // with enough pods around, kube-scheduler finds the score out of range
		}
		add(fmt.Sprint("maxSkew ", n), nil, skew, func(c *corev1.TopologySpreadConstraint) { c.MaxSkew = n })
		add(fmt.Sprint("minDomains ", n), nil, free, func(c *corev1.TopologySpreadConstraint) { c.MinDomains = ptr.To(n) })
	}
	for _, odd := range []string{"", "foo", "///"} {
		add(fmt.Sprintf("matchLabelKeys %q", odd), nil, free, func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{odd, odd} })
		add(fmt.Sprintf("topologyKey %q", odd), nil, free, func(c *corev1.TopologySpreadConstraint) { c.TopologyKey = odd })
		add(fmt.Sprintf("whenUnsatisfiable %q", odd), nil, free, func(c *corev1.TopologySpreadConstraint) {
			c.WhenUnsatisfiable = corev1.UnsatisfiableConstraintAction(odd)
		})
		add(fmt.Sprintf("policies %q", odd), nil, free, func(c *corev1.TopologySpreadConstraint) {
			c.NodeAffinityPolicy, c.NodeTaintsPolicy = ptr.To(corev1.NodeInclusionPolicy(odd)), ptr.To(corev1.NodeInclusionPolicy(odd))
		})
	}
	return all
}

// TestHostileConstraints: kube-scheduler lets a pod go or refuses it, whatever a tenant's API server says of its
// topology spread, and whatever happens around it.
func TestHostileConstraints(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		r1, r2 := stockNode("r1", keyZone, "z1"), stockNode("r2", keyZone, "z2")
		e := newEventBed(t, []*corev1.Node{r1, r2}, []*st.PodWrapper{stockPod("runs", "foo", "").Node("r1")})
		spreads := hostileSpreads()
		name := func(i int) string { return fmt.Sprint("pod-", i) }
		for i := range spreads {
			e.add(spreadPod(spreads[i].constraint, spreads[i].constraint).Name(name(i)))
		}
		isIn := func(name string) bool { return e.get("ns1", name).Labels[schedulerv1alpha1.LabelSuperCluster] != "" }
		for i := range spreads {
			require.Eventually(t, func() bool {
				_, waits := e.tries(name(i))
				return waits || isIn(name(i))
			}, patience, time.Millisecond, spreads[i].name)
			if refused := spreads[i].refused; refused != nil {
				require.Equal(t, *refused, !isIn(name(i)), spreads[i].name)
			}
		}
		// Those that wait are asked whether what happens helps them.
		e.add(stockPod("comes", "foo", "").Node("r2"))
		e.change("comes", func(pod *corev1.Pod) { delete(pod.Labels, "foo") })
		e.end("runs")
		e.node(stockNode("r2", keyZone, "z3"))
		e.add(stockPod("after"))
		require.Eventually(t, func() bool { return isIn("after") }, patience, time.Millisecond, "others are scheduled")
	})
}

// TestHostileBudgets: a PodDisruptionBudget with a selector that is none protects no pod from preemption, and numbers
// that are none harm nobody.
func TestHostileBudgets(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		gives := func(name string, priority int32, node string) *st.PodWrapper {
			return asks1(stockPod(name, name, "", "foo", "").Priority(priority).Node(node), "1")
		}
		e := newEventBed(t, []*corev1.Node{stockNode("r1"), stockNode("r2")}, []*st.PodWrapper{gives("p1", 50, "r1"), gives("p2", 1, "r2")})
		budgets := 0
		budget := func(selector *metav1.LabelSelector, allowed int32, change ...func(*policyv1.PodDisruptionBudget)) {
			b := &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: fmt.Sprint("b-", budgets)},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector, MinAvailable: ptr.To(intstr.FromString("-200%"))},
				Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
			}
			for _, f := range change {
				f(b)
			}
			_, err := e.api.PolicyV1().PodDisruptionBudgets("ns1").Create(e.ctx, b, metav1.CreateOptions{})
			require.NoError(t, err)
			budgets++
		}
		of := func(name string) *metav1.LabelSelector {
			return metav1.SetAsLabelSelector(map[string]string{name: ""})
		}
		budget(of("p2"), 0) // so p1 gives way, unless another budget protects it
		for _, allowed := range []int32{math.MinInt32, -1, 0} {
			for _, selector := range invalidSelectors() {
				budget(selector, allowed)
			}
			budget(nil, allowed)
			budget(&metav1.LabelSelector{}, allowed)
			budget(of("p1"), allowed, func(b *policyv1.PodDisruptionBudget) {
				b.Status.DisruptedPods = map[string]metav1.Time{"p1": {}, "": {Time: time.Unix(math.MinInt64, 0)}}
			})
		}
		budget(of("p1"), math.MinInt32) // the library counts down beyond the least number, which is the largest then
		budget(of("p1"), math.MaxInt32)
		known := e.sched.Profiles[corev1.DefaultSchedulerName].SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister()
		require.Eventually(t, func() bool {
			found, err := known.List(labels.Everything())
			return err == nil && len(found) == budgets
		}, patience, time.Millisecond, "kube-scheduler knows the budgets")
		e.add(asks1(stockPod("pod").Priority(100), "1"))
		e.wantIn("ns1", "pod", "r1")
		require.Equal(t, tenancy.NodeName("r2", "node"), e.get("ns1", "p2").Spec.NodeName, "p2 stays")
	})
}
