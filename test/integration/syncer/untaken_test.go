package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/test/await"
)

// TestWrongChoice plays the schedulers of both sides. r1 finds no node for a pod, then r2 refuses it, then r1 runs it.
func TestWrongChoice(t *testing.T) {
	w := newWorld(t, needs{r2: true})
	w.options = func(options *syncer.Options) { options.PodPatience = time.Second }
	w.runSyncer(t, w.superConfig)
	w.runSyncer(t, w.super2Config)
	w.place(t, "web", "r1", "r2")
	w.follow(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.PriorityClasses = []tenancyv1alpha1.PriorityClassRule{{MinPriority: ptr.To[int32](1), SuperClusterClass: "pool"}}
	})
	class := func(to client.Client, name string) {
		create(t, to, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 7, PreemptionPolicy: ptr.To(corev1.PreemptNever)})
	}
	class(w.tenant, "high")
	class(w.super, "pool") // and not in r2, which refuses the pod for that

	pod := newPod("web", "p")
	pod.Spec.PriorityClassName = "high"
	create(t, w.tenant, pod)
	superPod := w.finds(t, "web", "p", nil)
	require.Equal(t, "pool", superPod.Spec.PriorityClassName)
	require.Equal(t, int32(7), *superPod.Spec.Priority)
	w.warned(t, "web", "p", "SuperClusterFailed")
	vanishes(t, w.super, w.superName("web"), "p", &corev1.Pod{})
	pod = w.takenBack(t, "web", "p", "r1", "no node takes the pod now")
	require.Equal(t, failedchoice.Unschedulable, failedchoice.Of(pod)["r1"].Reason)

	w.choose(t, pod, "r2")
	pod = w.takenBack(t, "web", "p", "r2", "no PriorityClass with name pool was found")
	require.Equal(t, failedchoice.Refused, failedchoice.Of(pod)["r2"].Reason)

	w.choose(t, pod, "r1")
	appears(t, w.super, w.superName("web"), "p", superPod, nil)
	create(t, w.super, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	require.NoError(t, w.super.SubResource("binding").Create(t.Context(), superPod, binding))
	appears(t, w.tenant, "web", "p", pod, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == "r1.n1" })
}

// finds plays a scheduler of r1 that finds no node for a pod, and returns its super pod.
func (w *world) finds(t *testing.T, namespace, name string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	superPod := appears(t, w.super, w.superName(namespace), name, &corev1.Pod{}, nil)
	await.Change(t, w.super, superPod, func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available",
		}}
		if change != nil {
			change(pod)
		}
	}, "status")
	return superPod
}

// takenBack waits until a pod says that a super cluster has failed, and why, and names none.
func (w *world) takenBack(t *testing.T, namespace, name, superCluster, why string) *corev1.Pod {
	t.Helper()
	return appears(t, w.tenant, namespace, name, &corev1.Pod{}, func(pod *corev1.Pod) bool {
		_, failed := failedchoice.Of(pod)[superCluster]
		return failed && pod.Labels[schedulerv1alpha1.LabelSuperCluster] == "" && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodScheduled && condition.Reason == "SuperClusterFailed" && strings.Contains(condition.Message, why)
		})
	})
}

// choose plays the pod scheduler.
func (w *world) choose(t *testing.T, pod *corev1.Pod, superCluster string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%[1]q:%[2]q},"annotations":{%[1]q:%[2]q}}}`, schedulerv1alpha1.LabelSuperCluster, superCluster)
	require.NoError(t, w.tenant.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// refuseClaims plays an operator whose super cluster admits no PersistentVolumeClaim, and waits until it does not. When
// the test ends it waits until they are admitted again.
func refuseClaims(t *testing.T, super client.Client) {
	t.Helper()
	admitted := func(ctx context.Context) error {
		return super.Create(ctx, newClaim("default", "probe", ""), client.DryRunAll)
	}
	refusal := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-claims"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumeclaims"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no disks here"}},
		},
	}
	create(t, super, refusal)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, super.Delete(ctx, refusal))
		require.NoError(t, until(ctx, admitted))
	})
	create(t, super, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "no-claims"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "no-claims", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	eventually(t, func() error {
		if admitted(t.Context()) == nil {
			return errors.New("claims are admitted")
		}
		return nil
	})
}

// TestWrongHome plays the schedulers of both sides: r1 refuses the claim of two pods, which then go to r2 with it. What
// is there stays, whatever r2 refuses from then on.
func TestWrongHome(t *testing.T) {
	w := newWorld(t, needs{r2: true})
	w.options = func(options *syncer.Options) { options.PodPatience = time.Second }
	w.allowClaims(t)
	for _, to := range []client.Client{w.tenant, w.super, w.super2} {
		storageClass(t, to)
	}
	refuseClaims(t, w.super)
	w.runSyncer(t, w.superConfig)
	w.runSyncer(t, w.super2Config)
	w.place(t, "web", "r1", "r2")

	using := func(name string) *corev1.Pod {
		pod := newPod("web", name)
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		create(t, w.tenant, pod)
		return pod
	}
	create(t, w.tenant, newClaim("web", "data", "r1"))
	using("p")
	using("other")
	claim := appears(t, w.tenant, "web", "data", &corev1.PersistentVolumeClaim{}, func(claim *corev1.PersistentVolumeClaim) bool {
		return failedchoice.Of(claim)["r1"].Reason == failedchoice.Refused && claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster] == "" &&
			!slices.Contains(claim.Finalizers, "claim.tenancy.x-k8s.io/r1")
	})
	w.warned(t, "web", "data", "SuperClusterFailed")
	pods := []*corev1.Pod{w.takenBack(t, "web", "p", "r1", "it lacks claim data"), w.takenBack(t, "web", "other", "r1", "it lacks claim data")}
	require.True(t, apierrors.IsNotFound(w.super.Get(t.Context(), client.ObjectKey{Namespace: w.superName("web"), Name: "data"}, claim.DeepCopy())))

	await.Change(t, w.tenant, claim, func(claim *corev1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, schedulerv1alpha1.AnnotationSuperCluster, "r2")
	})
	for _, pod := range pods {
		w.choose(t, pod, "r2")
	}
	superClaim := appears(t, w.super2, w.superName("web"), "data", &corev1.PersistentVolumeClaim{}, nil)
	for _, pod := range pods {
		appears(t, w.super2, w.superName("web"), pod.Name, &corev1.Pod{}, nil)
	}
	refuseClaims(t, w.super2)
	create(t, w.tenant, newClaim("web", "late", "r2"))
	appears(t, w.tenant, "web", "late", &corev1.PersistentVolumeClaim{}, func(claim *corev1.PersistentVolumeClaim) bool {
		return failedchoice.Of(claim)["r2"].Reason == failedchoice.Refused
	})
	provision(t, w.super2, superClaim, "pvc-1")
	appears(t, w.tenant, "", "r2.pvc-1", &corev1.PersistentVolume{}, nil)
	require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	require.Equal(t, "r2", claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster])
}
