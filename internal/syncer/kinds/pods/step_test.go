package pods_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kinds/pods"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// toldBoundByTenant is BoundByTenant with the annotation of vc-scheduler.
func toldBoundByTenant(name string) func(pod *corev1.Pod) {
	return func(pod *corev1.Pod) {
		kindtest.BoundByTenant(name)(pod)
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, tenancyv1alpha1.AnnotationBoundBy, tenancyv1alpha1.BoundByTenant)
	}
}

// collected is what the pod collector of a super cluster leaves in the status.
func collected(pod *corev1.Pod) {
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC"})
}

func withFinalizer(pod *corev1.Pod) { pod.Finalizers = []string{"batch.kubernetes.io/job-tracking"} }

func gated(pod *corev1.Pod) { pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}} }

// stepFacts are those of a namespace that is ready.
func stepFacts() pods.Facts {
	return pods.Facts{SuperCluster: "r1", Owner: kindtest.OwnerOf(""), Namespace: pods.NamespaceReady, ServiceAccount: true, MaxGrace: 600}
}

func givenUp(facts *pods.Facts) { facts.GivenUp = true }

func leaves(facts *pods.Facts) { facts.Leaves = true }

// TestNextStep goes through the table of states.
func TestNextStep(t *testing.T) {
	t.Parallel()
	ours, others := kindtest.OwnedBy(kindtest.OwnerOf("uid")), kindtest.OwnedBy(kindtest.OwnerOf("other"))
	running, failed := kindtest.InPhase(corev1.PodRunning), kindtest.InPhase(corev1.PodFailed)
	for _, tc := range []struct {
		name          string
		tenant, super *corev1.Pod
		facts         func(facts *pods.Facts)
		want          pods.Step
	}{
		{name: "nobody has it", want: pods.StepForget},

		{name: "pending", tenant: kindtest.StepPod("uid"), want: pods.StepCreate},
		{name: "pending, a namespace that is not known", tenant: kindtest.StepPod("uid"), want: pods.StepNone, facts: func(facts *pods.Facts) {
			facts.Namespace = pods.NamespaceUnknown
		}},
		{name: "pending, not placed here", tenant: kindtest.StepPod("uid"), want: pods.StepWarnNotPlaced, facts: func(facts *pods.Facts) {
			facts.Namespace = pods.NamespaceNotPlaced
		}},
		{name: "pending, a namespace that is not ready", tenant: kindtest.StepPod("uid"), want: pods.StepNone, facts: func(facts *pods.Facts) {
			facts.Namespace = pods.NamespaceNotReady
		}},
		{
			name: "pending, without a service account, ever", tenant: kindtest.StepPod("uid"), want: pods.StepWaitForServiceAccount,
			facts: func(facts *pods.Facts) { facts.ServiceAccount, facts.Waited = false, time.Hour },
		},
		{name: "pending, without a claim, ever", tenant: kindtest.StepPod("uid"), want: pods.StepWaitForClaim, facts: func(facts *pods.Facts) {
			facts.MissingClaim, facts.Waited = "claim data, which does not exist", time.Hour
		}},
		{name: "pending, without a ConfigMap", tenant: kindtest.StepPod("uid"), want: pods.StepWaitForConfig, facts: func(facts *pods.Facts) {
			facts.MissingConfig, facts.Waited = "configmap settings", 11*time.Second
		}},
		{name: "pending, without a ConfigMap for long", tenant: kindtest.StepPod("uid"), want: pods.StepCreate, facts: func(facts *pods.Facts) {
			facts.MissingConfig, facts.Waited = "configmap settings", 12*time.Second
		}},
		{name: "pending, given up", tenant: kindtest.StepPod("uid"), want: pods.StepTakeBack, facts: givenUp},
		{name: "pending, its namespace leaves", tenant: kindtest.StepPod("uid"), want: pods.StepTakeBack, facts: leaves},
		{name: "no node yet, its namespace leaves", tenant: kindtest.StepPod("uid"), super: kindtest.StepPod("s", ours), want: pods.StepGiveUp, facts: leaves},
		{name: "runs, its namespace leaves", tenant: kindtest.StepPod("uid"), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1")), want: pods.StepDownAndBind, facts: leaves},
		{name: "pending, given up, not ready", tenant: kindtest.StepPod("uid"), want: pods.StepTakeBack, facts: func(facts *pods.Facts) {
			facts.GivenUp, facts.Namespace = true, pods.NamespaceNotReady
		}},
		{name: "pending, the choice was taken back", tenant: kindtest.StepPod("uid"), want: pods.StepNone, facts: func(facts *pods.Facts) { facts.TakenBack = true }},
		{name: "no node yet, given up", tenant: kindtest.StepPod("uid"), super: kindtest.StepPod("s", ours), want: pods.StepGiveUp, facts: givenUp},
		{
			name: "no node yet, given up, held by a finalizer", want: pods.StepDownAndUp, facts: givenUp,
			tenant: kindtest.StepPod("uid"), super: kindtest.StepPod("s", ours, kindtest.Terminating(0)),
		},
		{name: "given up, a node was chosen", tenant: kindtest.StepPod("uid"), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1")), want: pods.StepDownAndBind, facts: givenUp},
		{name: "given up, bound", tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1")), super: kindtest.StepPod("s", ours), want: pods.StepDown, facts: givenUp},
		{name: "given up, lost", tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), running), want: pods.StepRemoveLost, facts: givenUp},
		{name: "given up, finished", tenant: kindtest.StepPod("uid", failed), want: pods.StepNone, facts: givenUp},
		{name: "given up, deleted", tenant: kindtest.StepPod("uid", kindtest.Terminating(30)), super: kindtest.StepPod("s", ours), want: pods.StepDeleteSuperAndUp, facts: givenUp},
		{name: "pending with a gate", tenant: kindtest.StepPod("uid", gated), want: pods.StepNone},
		{name: "failed before it was bound", tenant: kindtest.StepPod("uid", failed), want: pods.StepNone},
		{name: "pinned to a node here", tenant: kindtest.StepPod("uid", kindtest.OnNode("r1.n1")), want: pods.StepCreate},
		{name: "pinned to a node here, not placed here", tenant: kindtest.StepPod("uid", kindtest.OnNode("r1.n1")), want: pods.StepWarnNotPlaced, facts: func(facts *pods.Facts) {
			facts.Namespace = pods.NamespaceNotPlaced
		}},
		{name: "pinned, and its super pod has no node", tenant: kindtest.StepPod("uid", kindtest.OnNode("r1.n1")), super: kindtest.StepPod("super-uid", ours), want: pods.StepDownAndUp},
		{name: "pinned, and its super pod is there", tenant: kindtest.StepPod("uid", kindtest.OnNode("r1.n1")), super: kindtest.StepPod("super-uid", ours, kindtest.OnNode("n1")), want: pods.StepDownAndUp},
		{name: "pinned, and its super pod is elsewhere", tenant: kindtest.StepPod("uid", kindtest.OnNode("r1.n1")), super: kindtest.StepPod("super-uid", ours, kindtest.OnNode("n2")), want: pods.StepDeleteElsewhere},
		{name: "bound here by the tenant", tenant: kindtest.StepPod("uid", kindtest.BoundByTenant("r1.n1")), want: pods.StepCreate},
		{name: "bound here by the tenant, and told so", tenant: kindtest.StepPod("uid", toldBoundByTenant("r1.n1")), want: pods.StepCreate},
		{name: "bound here by the tenant, its super pod has no node", tenant: kindtest.StepPod("uid", kindtest.BoundByTenant("r1.n1")), super: kindtest.StepPod("s", ours), want: pods.StepDownAndUp},
		{name: "bound here by the tenant, its super pod is there", tenant: kindtest.StepPod("uid", kindtest.BoundByTenant("r1.n1")), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1")), want: pods.StepDownAndUp},
		{name: "bound here by the tenant, its super pod is elsewhere", tenant: kindtest.StepPod("uid", kindtest.BoundByTenant("r1.n1")), super: kindtest.StepPod("s", ours, kindtest.OnNode("n2")), want: pods.StepDeleteElsewhere},
		{name: "bound elsewhere by the tenant", tenant: kindtest.StepPod("uid", kindtest.BoundByTenant("r2.n1")), want: pods.StepNone},
		{name: "bound elsewhere by the tenant, and it is here", tenant: kindtest.StepPod("uid", kindtest.BoundByTenant("r2.n1")), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1")), want: pods.StepDeleteElsewhere},
		{name: "bound here by the tenant, ran, and is lost", tenant: kindtest.StepPod("uid", toldBoundByTenant("r1.n1"), running), want: pods.StepRemoveLost},
		{name: "pinned and deleted before it ran", tenant: kindtest.StepPod("uid", kindtest.OnNode("r1.n1"), kindtest.Terminating(30)), want: pods.StepRemoveTenant},
		{name: "a nodeName of another one without a Binding", tenant: kindtest.StepPod("uid", kindtest.OnNode("r2.n1")), want: pods.StepWarnNodeName},
		{name: "a nodeName of nobody without a Binding", tenant: kindtest.StepPod("uid", kindtest.OnNode("n1")), want: pods.StepWarnNodeName},
		{
			name: "pinned, and not scheduled before", want: pods.StepCreate,
			tenant: kindtest.StepPod("uid", kindtest.OnNode("r1.n1"), func(pod *corev1.Pod) {
				pod.Status.Conditions = []corev1.PodCondition{kindtest.Condition(corev1.PodScheduled, corev1.ConditionFalse, "")}
			}),
		},
		{name: "lost", tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), running), want: pods.StepRemoveLost},
		{name: "lost when it had finished", tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), failed), want: pods.StepNone},
		{name: "bound elsewhere", tenant: kindtest.StepPod("uid", kindtest.Bound("r2.n1"), running), want: pods.StepNone},

		{name: "deleted before it was bound", tenant: kindtest.StepPod("uid", kindtest.Terminating(30)), want: pods.StepRemoveTenant},
		{name: "deleted with a gate", tenant: kindtest.StepPod("uid", gated, kindtest.Terminating(30)), want: pods.StepRemoveTenant},
		{name: "deleted, and its containers have ended", tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), kindtest.Terminating(30)), want: pods.StepRemoveTenant},
		{name: "collected with its node", tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), failed, collected), want: pods.StepRemoveLost},
		{name: "collected elsewhere", tenant: kindtest.StepPod("uid", kindtest.Bound("r2.n1"), failed, collected), want: pods.StepNone},
		{name: "evicted by a kubelet", tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), failed, func(pod *corev1.Pod) {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet"})
		}), want: pods.StepNone},
		{name: "deleted and finished", tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), failed, kindtest.Terminating(30)), want: pods.StepRemoveTenant},
		{
			name: "deleted, waits for finalizers", want: pods.StepNone,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), failed, withFinalizer, kindtest.Terminating(0)),
		},
		{
			name: "deleted, a finalizer waits for its end", want: pods.StepRemoveTenant,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), running, withFinalizer, kindtest.Terminating(0)),
		},
		{
			name: "deleted before it was bound, waits for finalizers", want: pods.StepNone,
			tenant: kindtest.StepPod("uid", withFinalizer, kindtest.Terminating(0)),
		},
		{
			name: "deleted, and the API server was interrupted before it was gone", want: pods.StepRemoveTenant,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), running, kindtest.Terminating(0)),
		},
		{name: "deleted elsewhere", tenant: kindtest.StepPod("uid", kindtest.Bound("r2.n1"), running, kindtest.Terminating(30)), want: pods.StepNone},

		{name: "a pod without an owner has its name", tenant: kindtest.StepPod("uid"), super: kindtest.StepPod("s"), want: pods.StepWarnConflict},
		{name: "a pod without an owner", super: kindtest.StepPod("s"), want: pods.StepNone},
		{name: "orphaned", super: kindtest.StepPod("s", ours), want: pods.StepDeleteOrphan},
		{name: "orphaned on a node", super: kindtest.StepPod("s", ours, kindtest.OnNode("n1"), running), want: pods.StepDeleteOrphan},
		{name: "orphaned and being deleted", super: kindtest.StepPod("s", ours, kindtest.Terminating(30)), want: pods.StepNone},
		{name: "replaced", tenant: kindtest.StepPod("uid"), super: kindtest.StepPod("s", others), want: pods.StepDeleteOrphan},
		{name: "replaced and being deleted", tenant: kindtest.StepPod("uid"), super: kindtest.StepPod("s", others, kindtest.Terminating(30)), want: pods.StepWaitForPredecessor},
		{name: "replaced and being deleted, for another super cluster", tenant: kindtest.StepPod("uid", kindtest.OnNode("r2.n1")), super: kindtest.StepPod("s", others, kindtest.Terminating(30)), want: pods.StepNone},
		{name: "replaced, the new one deleted", tenant: kindtest.StepPod("uid", kindtest.Terminating(30)), super: kindtest.StepPod("s", others), want: pods.StepDeleteOrphan},

		{
			name: "bound elsewhere, here too", want: pods.StepDeleteElsewhere,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r2.n1")), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1")),
		},
		{
			name: "bound elsewhere, here too, deleted", want: pods.StepDeleteElsewhere,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r2.n1"), kindtest.Terminating(30)), super: kindtest.StepPod("s", ours),
		},
		{name: "deleted while pending", tenant: kindtest.StepPod("uid", kindtest.Terminating(30)), super: kindtest.StepPod("s", ours), want: pods.StepDeleteSuperAndUp},
		{
			name: "deleted while it runs", want: pods.StepDeleteSuperAndUp,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), kindtest.Terminating(30)), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1"), running),
		},
		{
			name: "deleted before its Binding", want: pods.StepDeleteSuperAndUp,
			tenant: kindtest.StepPod("uid", kindtest.Terminating(30)), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1")),
		},
		{
			name: "deleted on both sides", want: pods.StepDeleteSuperAndUp,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), kindtest.Terminating(30)), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1"), kindtest.Terminating(30)),
		},
		{
			name: "deleted, and created again on another node", want: pods.StepDeleteSuper,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), kindtest.Terminating(30)), super: kindtest.StepPod("s", ours, kindtest.OnNode("n2")),
		},
		{
			name: "deleted, and created again", want: pods.StepDeleteSuper,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1"), kindtest.Terminating(30)), super: kindtest.StepPod("s", ours),
		},
		{name: "no node yet", tenant: kindtest.StepPod("uid"), super: kindtest.StepPod("s", ours), want: pods.StepDownAndUp},
		{name: "a node was chosen", tenant: kindtest.StepPod("uid"), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1")), want: pods.StepDownAndBind},
		{
			name: "a node was chosen for a pod that the super cluster deletes", want: pods.StepDownAndBind,
			tenant: kindtest.StepPod("uid"), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1"), kindtest.Terminating(30)),
		},
		{name: "created again, no node yet", tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1")), super: kindtest.StepPod("s", ours), want: pods.StepDown},
		{
			name: "created again on another node", want: pods.StepRemoveMoved,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1")), super: kindtest.StepPod("s", ours, kindtest.OnNode("n2")),
		},
		{
			name: "runs", want: pods.StepDownAndUp,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1")), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1"), running),
		},
		{
			name: "evicted", want: pods.StepUpAndEvict,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1")), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1"), running, kindtest.Terminating(30)),
		},
		{
			name: "evicted when it had finished", want: pods.StepDownAndUp,
			tenant: kindtest.StepPod("uid", kindtest.Bound("r1.n1")), super: kindtest.StepPod("s", ours, kindtest.OnNode("n1"), failed, kindtest.Terminating(30)),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			facts := stepFacts()
			if tc.facts != nil {
				tc.facts(&facts)
			}
			require.Equal(t, tc.want.String(), pods.NextStep(tc.tenant, tc.super, &facts).String())
		})
	}
	for name, owner := range kindtest.ForeignOwners("uid") {
		t.Run("a pod of "+name+" has its name", func(t *testing.T) {
			t.Parallel()
			facts := stepFacts()
			require.Equal(t, pods.StepWarnConflict, pods.NextStep(kindtest.StepPod("uid"), kindtest.StepPod("s", kindtest.OwnedBy(owner)), &facts))
			require.Equal(t, pods.StepNone, pods.NextStep(nil, kindtest.StepPod("s", kindtest.OwnedBy(owner)), &facts))
		})
	}
}

// combinations returns a pod for each combination of changes, one of each group.
func combinations(uid types.UID, groups ...[]func(pod *corev1.Pod)) []*corev1.Pod {
	pods := []*corev1.Pod{kindtest.StepPod(uid)}
	for _, group := range groups {
		var next []*corev1.Pod
		for _, pod := range pods {
			for _, change := range group {
				changed := pod.DeepCopy()
				if change != nil {
					change(changed)
				}
				next = append(next, changed)
			}
		}
		pods = next
	}
	return pods
}

// everyTenantPod returns nil and the tenant's pod in every state that NextStep may look at.
func everyTenantPod() []*corev1.Pod {
	return append(combinations("uid",
		[]func(pod *corev1.Pod){nil, kindtest.Terminating(30), kindtest.Terminating(0)},
		[]func(pod *corev1.Pod){
			nil, kindtest.Bound("r1.n1"), kindtest.Bound("r1.n2"), kindtest.Bound("r2.n1"), kindtest.Bound("n1"), kindtest.BoundByTenant("r1.n1"), kindtest.BoundByTenant("r2.n1"), kindtest.OnNode("r1.n1"), kindtest.OnNode("r2.n1"), kindtest.OnNode(".n1"), kindtest.OnNode("r1."),
		},
		[]func(pod *corev1.Pod){nil, kindtest.InPhase(corev1.PodRunning), kindtest.InPhase(corev1.PodSucceeded)},
		[]func(pod *corev1.Pod){nil, withFinalizer},
		[]func(pod *corev1.Pod){nil, gated},
	), nil)
}

// everySuperPod returns nil and the super pod in every state that NextStep may look at.
func everySuperPod() []*corev1.Pod {
	owners := []func(pod *corev1.Pod){nil, kindtest.OwnedBy(kindtest.OwnerOf("uid")), kindtest.OwnedBy(kindtest.OwnerOf("other")), kindtest.OwnedBy(kindtest.OwnerOf("")), func(pod *corev1.Pod) {
		tenancy.SetOwner(pod, kindtest.OwnerOf("uid"))
		pod.Annotations = nil // an owner that somebody has tampered with
	}}
	for _, owner := range kindtest.ForeignOwners("uid") {
		owners = append(owners, kindtest.OwnedBy(owner))
	}
	return append(combinations("super-uid", owners,
		[]func(pod *corev1.Pod){nil, kindtest.Terminating(30)},
		[]func(pod *corev1.Pod){nil, kindtest.OnNode("n1"), kindtest.OnNode("n2")},
		[]func(pod *corev1.Pod){nil, kindtest.InPhase(corev1.PodRunning), kindtest.InPhase(corev1.PodFailed)},
	), nil)
}

func everyFacts() []*pods.Facts {
	var all []*pods.Facts
	for _, namespace := range []pods.NamespaceReadiness{pods.NamespaceUnknown, pods.NamespaceNotPlaced, pods.NamespaceNotReady, pods.NamespaceReady} {
		for _, account := range []bool{false, true} {
			for _, missing := range []string{"", "secret s"} {
				for _, waited := range []time.Duration{0, time.Hour} {
					facts := stepFacts()
					facts.Namespace, facts.ServiceAccount, facts.MissingConfig, facts.Waited = namespace, account, missing, waited
					all = append(all, &facts)
					claims := facts
					claims.MissingClaim = "claim data"
					all = append(all, &claims)
					given := facts
					given.GivenUp = true
					all = append(all, &given)
					left := facts
					left.Leaves = true
					all = append(all, &left)
				}
			}
		}
	}
	return all
}

// situation is what allowedSteps look at. It is computed from the pods only, and knows nothing of how NextStep comes to
// a step.
type situation struct {
	tenant, super *corev1.Pod
	facts         *pods.Facts
	// ours is whether the super pod carries this tenant and namespace, pair whether also this tenant pod.
	ours, pair bool
}

func situationOf(tenant, super *corev1.Pod, facts *pods.Facts) *situation {
	s := &situation{tenant: tenant, super: super, facts: facts}
	if super != nil {
		owner, owned := tenancy.GetOwner(super)
		expected := facts.Owner
		expected.UID = owner.UID
		s.ours = owned && owner == expected
		s.pair = s.ours && tenant != nil && owner.UID == tenant.UID
	}
	return s
}

// deletes returns whether the tenant deletes its pod.
func (s *situation) deletes() bool { return s.tenant != nil && s.tenant.DeletionTimestamp != nil }

// here returns whether the tenant's pod has a node of this super cluster.
func (s *situation) here() bool {
	return s.tenant != nil && strings.HasPrefix(s.tenant.Spec.NodeName, "r1.")
}

// pinned returns whether no syncer has bound the tenant's pod to its node, and it has not run.
func (s *situation) pinned() bool {
	return s.here() && len(s.tenant.Annotations) == 0 && (len(s.tenant.Status.Conditions) == 0 || s.tenant.Status.Phase == "")
}

// awaits returns whether the tenant wants a super pod that nobody has made.
func (s *situation) awaits() bool {
	return s.super == nil && s.tenant != nil && !s.deletes() && (s.tenant.Spec.NodeName == "" || s.pinned()) && len(s.tenant.Spec.SchedulingGates) == 0
}

// creates returns whether it may be made.
func (s *situation) creates() bool { return s.awaits() && s.facts.Namespace == pods.NamespaceReady }

// syncs returns whether a super pod and the tenant pod that it was made for are both wanted.
func (s *situation) syncs() bool { return s.pair && !s.deletes() }

// allowedSteps are all steps, with the situations in which one may do what it does.
var allowedSteps = map[pods.Step]func(s *situation) bool{
	pods.StepNone:                  func(*situation) bool { return true },
	pods.StepForget:                func(s *situation) bool { return s.tenant == nil && s.super == nil },
	pods.StepCreate:                (*situation).creates,
	pods.StepWaitForServiceAccount: (*situation).creates,
	pods.StepWaitForClaim:          (*situation).creates,
	pods.StepWaitForConfig:         (*situation).creates,
	pods.StepTakeBack:              (*situation).awaits,
	pods.StepWaitForPredecessor: func(s *situation) bool {
		return s.ours && !s.pair && s.super.DeletionTimestamp != nil && s.tenant != nil && !s.deletes()
	},
	pods.StepGiveUp: func(s *situation) bool {
		return s.syncs() && s.tenant.Spec.NodeName == "" && s.super.Spec.NodeName == "" && s.super.DeletionTimestamp == nil
	},
	pods.StepWarnNotPlaced: (*situation).awaits,
	pods.StepWarnNodeName:  func(s *situation) bool { return s.tenant != nil && s.super == nil && s.tenant.Spec.NodeName != "" },
	pods.StepWarnConflict:  func(s *situation) bool { return s.tenant != nil && s.super != nil && !s.ours },
	pods.StepDown:          (*situation).syncs,
	pods.StepDownAndUp:     (*situation).syncs,
	pods.StepDownAndBind: func(s *situation) bool {
		return s.syncs() && s.tenant.Spec.NodeName == "" && s.super.Spec.NodeName != ""
	},
	pods.StepUpAndEvict: func(s *situation) bool {
		return s.syncs() && s.super.DeletionTimestamp != nil && s.tenant.Spec.NodeName == "r1."+s.super.Spec.NodeName
	},
	pods.StepDeleteSuper:      func(s *situation) bool { return s.pair && s.deletes() },
	pods.StepDeleteSuperAndUp: func(s *situation) bool { return s.pair && s.deletes() },
	pods.StepDeleteElsewhere: func(s *situation) bool {
		elsewhere := s.tenant != nil && s.tenant.Spec.NodeName != "" && !s.here()
		return s.pair && (elsewhere || s.pinned() && s.super.Spec.NodeName != "" && s.tenant.Spec.NodeName != "r1."+s.super.Spec.NodeName)
	},
	pods.StepDeleteOrphan: func(s *situation) bool { return s.ours && !s.pair },
	pods.StepRemoveTenant: func(s *situation) bool { return s.super == nil && s.deletes() },
	pods.StepRemoveLost:   func(s *situation) bool { return s.super == nil && s.here() },
	pods.StepRemoveMoved: func(s *situation) bool {
		return s.syncs() && s.here() && s.super.Spec.NodeName != "" && s.tenant.Spec.NodeName != "r1."+s.super.Spec.NodeName
	},
}

// TestEveryStepIsAllowed looks at every combination of both pods and all facts: no step deletes what is not proven to
// be ours, and each step has a combination that leads to it.
func TestEveryStepIsAllowed(t *testing.T) {
	t.Parallel()
	seen := map[pods.Step]bool{}
	facts := everyFacts()
	for _, super := range everySuperPod() {
		for _, tenant := range everyTenantPod() {
			some := facts
			if super != nil {
				some = []*pods.Facts{facts[0], facts[len(facts)-1]} // they are about a pod without a super pod
			}
			for _, facts := range some {
				step := pods.NextStep(tenant, super, facts)
				seen[step] = true
				if allowed := allowedSteps[step]; allowed == nil || !allowed(situationOf(tenant, super, facts)) {
					t.Fatalf("%v\ntenant pod: %+v\nsuper pod: %+v\nfacts: %+v", step, tenant, super, facts)
				}
			}
		}
	}
	for step := range allowedSteps {
		require.True(t, seen[step], "no combination leads to %v", step)
	}
}

func TestStepString(t *testing.T) {
	t.Parallel()
	names := map[string]pods.Step{}
	for step := pods.StepNone; step <= pods.StepRemoveMoved; step++ {
		require.NotContains(t, names, step.String())
		require.NotEmpty(t, step.String())
		names[step.String()] = step
	}
	require.Equal(t, "unknown", pods.Step(-1).String())
	require.Equal(t, "unknown", (pods.StepRemoveMoved + 1).String())
}
