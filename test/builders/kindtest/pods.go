package kindtest

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

// Condition returns a condition of a pod.
func Condition(kind corev1.PodConditionType, status corev1.ConditionStatus, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status, Message: message}
}

// PodWith returns a pod without a name that has a node, a status and readiness gates.
func PodWith(nodeName string, status corev1.PodStatus, gates ...corev1.PodConditionType) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: nodeName}, Status: status}
	for _, gate := range gates {
		pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
	}
	return pod
}

// PodNamed makes a pod the pod p of a namespace, with one container.
func PodNamed(namespace string, uid types.UID, pod *corev1.Pod) *corev1.Pod {
	pod.Namespace, pod.Name, pod.UID = namespace, "p", uid
	pod.Spec.Containers = []corev1.Container{{}}
	return pod
}

// SuperPodAt returns a super pod of the tenant's namespace with an address, which is so many minutes old.
func SuperPodAt(namespace, name, address string, minutes int, labels map[string]string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ClusterKey + "-" + namespace, Name: name, Labels: map[string]string{"not": "told"}, CreationTimestamp: metav1.Unix(1_000_000-int64(minutes)*60, 0),
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for key, value := range labels {
		pod.Labels[tenancy.LabelKey(key)] = value
	}
	if address != "" {
		pod.Status.PodIPs = []corev1.PodIP{{IP: address}}
	}
	owner := OwnerOf(types.UID(name + "-uid"))
	owner.Namespace = namespace
	tenancy.SetOwner(pod, owner)
	return pod
}

// ProofPod returns the pod p of the tenant.
func ProofPod(uid types.UID, changes ...func(pod *corev1.Pod)) *corev1.Pod {
	pod := StepPod(uid, changes...)
	pod.Namespace = "web"
	return pod
}

// ProofSuperPod returns the super pod p of the tenant's pod with a UID.
func ProofSuperPod(uid types.UID, changes ...func(pod *corev1.Pod)) *corev1.Pod {
	pod := StepPod("super-uid", append(changes, OwnedBy(OwnerOf(uid)))...)
	pod.Namespace = ClusterKey + "-web"
	return pod
}

// TenantPod returns the pod web/web-1 of the tenant, changed; nil: as it is.
func TenantPod(change func(pod *corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web-1", UID: "pod-uid"},
		Spec:       corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "main", Image: "image:1"}}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

// FieldEnv returns a variable that shows a field of the pod.
func FieldEnv(path string) corev1.EnvVar {
	return corev1.EnvVar{Name: "V", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

// Containers returns containers with these names.
func Containers(names ...string) []corev1.Container {
	return List(len(names), func(i int) corev1.Container { return corev1.Container{Name: names[i]} })
}

// Ephemeral returns ephemeral containers with these names.
func Ephemeral(names ...string) []corev1.EphemeralContainer {
	return List(len(names), func(i int) corev1.EphemeralContainer {
		return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: names[i]}}
	})
}

// StepPod returns a pod with a UID, changed in that order.
func StepPod(uid types.UID, changes ...func(pod *corev1.Pod)) *corev1.Pod {
	pod := builders.Pod("", "p").UID(string(uid)).Obj()
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// OnNode gives a pod a node.
func OnNode(name string) func(pod *corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = name }
}

// Bound is OnNode with what a Binding of a syncer leaves.
func Bound(name string) func(pod *corev1.Pod) {
	return func(pod *corev1.Pod) {
		BoundByTenant(name)(pod)
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, tenancyv1alpha1.AnnotationBoundBy, "r1")
	}
}

// BoundByTenant is OnNode with what any other Binding leaves.
func BoundByTenant(name string) func(pod *corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.NodeName = name
		pod.Status.Conditions = append(pod.Status.Conditions, Condition(corev1.PodScheduled, corev1.ConditionTrue, ""))
	}
}

// Terminating lets a pod be deleted, with so many seconds of grace.
func Terminating(grace int64) func(pod *corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = ptr.To(metav1.Unix(1_000_000, 0)), ptr.To(grace)
	}
}

// InPhase gives a pod a phase.
func InPhase(phase corev1.PodPhase) func(pod *corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

// OwnedBy lets a super pod of the tenant's namespace web be made for an object of the tenant.
func OwnedBy(owner tenancy.Owner) func(pod *corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Namespace = ClusterKey + "-web"
		tenancy.SetOwner(pod, owner)
	}
}

// Running fills p with a pod that runs on n1, as both sides know it, and returns the tenant's, the super pod and the
// key. change is made to the tenant's pod before it is translated.
func (p *Pool) Running(t *testing.T, change func(pod *corev1.Pod)) (pod, superPod *corev1.Pod, key engine.Key) {
	t.Helper()
	pod = TenantPod(func(pod *corev1.Pod) {
		pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
		pod.Spec.NodeName = "r1.n1"
		if change != nil {
			change(pod)
		}
	})
	superPod = &corev1.Pod{}
	podspec.SuperPod(pod, superPod, OwnerOf(pod.UID), nil, &podspec.PodEnvironment{})
	superPod.UID, superPod.Spec.NodeName = "super-uid", "n1"
	superPod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
	p.Tenant.Client = NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build()
	require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	p.TenantCache[kind.Pod], p.SuperCache[kind.Pod] = []client.Object{pod}, []client.Object{superPod}
	return pod, superPod, engine.Key{Tenant: ClusterKey, Kind: kind.Pod, Namespace: pod.Namespace, Name: pod.Name}
}

// Shown lets the cache of the tenant show what was written to a pod.
func (p *Pool) Shown(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	stored := &corev1.Pod{}
	require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), stored))
	pod.ResourceVersion, pod.Status, pod.Spec.NodeName = stored.ResourceVersion, stored.Status, stored.Spec.NodeName
}

// WithToken projects a token into a pod.
func WithToken(pod *corev1.Pod) {
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}},
	}}}}}
}
