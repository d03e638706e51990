package scheduling

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// storageClass makes a StorageClass as syncers of super clusters that offer it do.
func (w *world) storageClass(t *testing.T, name string, mode storagev1.VolumeBindingMode, offering ...string) {
	t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Provisioner: "example.com/disk", VolumeBindingMode: ptr.To(mode),
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "rack", Values: []string{"7"}}}}},
	}
	for _, id := range offering {
		class.Annotations["offered-by.tenancy.x-k8s.io/"+id] = "x"
	}
	require.NoError(t, w.tenant.Create(t.Context(), class))
	t.Cleanup(func() { require.NoError(t, w.tenant.Delete(context.WithoutCancel(t.Context()), class)) })
}

// claim makes a claim of 1Gi.
func (w *world) claim(t *testing.T, namespace, name, class string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, StorageClassName: ptr.To(class),
			Resources: corev1.VolumeResourceRequirements{Requests: builders.Resources("storage", "1Gi")},
		},
	}
	for _, f := range change {
		f(claim)
	}
	require.NoError(t, w.tenant.Create(t.Context(), claim))
	return claim
}

// sized lets a claim request so much.
func sized(storage string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Resources.Requests = builders.Resources("storage", storage)
	}
}

// using lets a pod use claims.
func using(claims ...string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for _, name := range claims {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}})
		}
	}
}

// wantHome waits until a claim has a home.
func (w *world) wantHome(t *testing.T, claim *corev1.PersistentVolumeClaim) string {
	t.Helper()
	require.Eventually(t, func() bool {
		return w.tenant.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) == nil && claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster] != ""
	}, patience, tick, "claim %s has no home", claim.Name)
	return claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster]
}

// allowClaims lets the tenant's policy allow claims, and show classes of super clusters, until the test ends.
func (w *world) allowClaims(t *testing.T, classes ...string) {
	t.Helper()
	w.follow(t, "volumes", func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.Volumes = append(spec.Pods.Volumes, "persistentVolumeClaim")
		spec.Pods.StorageClasses = classes
	})
}

// follow lets the tenant follow a policy until the test ends: the shipped one, changed.
func (w *world) follow(t *testing.T, name string, change func(*tenancyv1alpha1.TenantPolicySpec)) {
	t.Helper()
	made := &tenancyv1alpha1.TenantPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *policy.Default().Spec().DeepCopy()}
	change(&made.Spec)
	require.NoError(t, w.meta.Create(t.Context(), made))
	names := func(policy string) {
		await.Change(t, w.meta, builders.VirtualCluster("tenant"), func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.PolicyName = policy })
	}
	names(made.Name)
	t.Cleanup(func() {
		names("")
		require.NoError(t, w.meta.Delete(context.WithoutCancel(t.Context()), made))
	})
}

// TestVolumes: a claim gets the super cluster of its first pod, all later pods follow, and a pod of two homes is told
// both.
func TestVolumes(t *testing.T) {
	w := shared
	w.allowClaims(t)
	w.run(t)
	const namespace = "volumes"
	w.storageClass(t, "both", storagev1.VolumeBindingWaitForFirstConsumer, "r1", "r2")
	w.storageClass(t, "second", storagev1.VolumeBindingWaitForFirstConsumer, "r2")
	w.storageClass(t, "nobody", storagev1.VolumeBindingWaitForFirstConsumer)
	w.namespace(t, namespace, `{"cpu":"300m","memory":"300Mi"}`)
	w.quota(t, namespace, "600m", "600Mi")
	w.wantShown(t, namespace, `{"r1":1,"r2":1}`)
	says := func(message string) func(*corev1.Pod) bool {
		return func(pod *corev1.Pod) bool {
			_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
			return scheduled != nil && scheduled.Message == message
		}
	}

	// A pod waits for its claim, and gives it its home.
	first := w.pod(t, namespace, "first", using("shared"))
	w.wantPod(t, first, "the claim that it waits for", says("0/2 super clusters are available: claim shared does not exist"))
	claim := w.claim(t, namespace, "shared", "both")
	home := w.wantHome(t, claim)
	w.wantPod(t, first, "the home of its claim", in(home))
	follower := w.pod(t, namespace, "follower", using("shared"))
	w.wantPod(t, follower, "the home of its claim", in(home))

	// A class decides, where one super cluster offers it.
	second := w.claim(t, namespace, "second", "second")
	w.wantPod(t, w.pod(t, namespace, "second", using("second")), "who offers the class", in("r2"))
	require.Equal(t, "r2", w.wantHome(t, second))
	w.claim(t, namespace, "nobody", "nobody")
	w.wantPod(t, w.pod(t, namespace, "nobody", using("nobody")), "that nobody offers the class", says("0/2 super clusters are available: no super cluster offers StorageClass nobody of claim nobody"))

	// Two homes.
	other := w.claim(t, namespace, "other", "both")
	await.Change(t, w.tenant, other, func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: map[string]string{"r1": "r2", "r2": "r1"}[home]}
	})
	torn := w.pod(t, namespace, "torn", using("shared", "other"))
	w.wantPod(t, torn, "both homes", says("0/2 super clusters are available: the pod's claims are in several super clusters: claim shared is in "+home+
		", claim other is in "+other.Annotations[schedulerv1alpha1.AnnotationSuperCluster]))
}

// TestDevices: a pod that claims devices is told that it cannot, where its tenant looks.
func TestDevices(t *testing.T) {
	w := shared
	w.run(t)
	const namespace = "devices"
	w.namespace(t, namespace, `{"cpu":"300m","memory":"300Mi"}`)
	w.quota(t, namespace, "300m", "300Mi")
	pod := w.pod(t, namespace, "p", func(pod *corev1.Pod) {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpus")}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	})
	w.wantPod(t, pod, "that it cannot claim devices", func(pod *corev1.Pod) bool {
		_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
		return scheduled != nil && scheduled.Status == corev1.ConditionFalse &&
			scheduled.Message == `TenantPolicy default forbids: spec.resourceClaims[0]: the devices of super clusters cannot be claimed, as by "gpu"`
	})
	w.wantEvent(t, "Pod", namespace+"/p", "PolicyForbids")
}

// TestVolumesAtOnce: claims of a class that does not wait for pods get their homes from vc-scheduler, one here, one
// there, and one that nobody can provision says so.
func TestVolumesAtOnce(t *testing.T) {
	w := shared
	w.allowClaims(t)
	w.run(t)
	const namespace = "volumes-at-once"
	w.storageClass(t, "at-once", storagev1.VolumeBindingImmediate, "r1", "r2")
	w.storageClass(t, "at-once-nobody", storagev1.VolumeBindingImmediate)
	w.namespace(t, namespace, `{"cpu":"300m","memory":"300Mi"}`)
	early := w.claim(t, namespace, "early", "at-once")
	nobody := w.claim(t, namespace, "nobody", "at-once-nobody")
	require.Eventually(t, func() bool {
		var events corev1.EventList
		told := map[string]bool{}
		if err := w.tenant.List(t.Context(), &events, client.InNamespace(namespace)); err != nil {
			return false
		}
		for i := range events.Items {
			told[events.Items[i].InvolvedObject.Name+" "+events.Items[i].Reason] = true
		}
		return told["nobody StorageClassNotOffered"] && told["early NoSuperCluster"]
	}, patience, tick, "claims say why they wait")
	w.quota(t, namespace, "600m", "600Mi")
	w.wantShown(t, namespace, `{"r1":1,"r2":1}`)
	first := w.wantHome(t, early)
	late := w.claim(t, namespace, "late", "at-once")
	second := w.wantHome(t, late)
	require.NotEqual(t, first, second, "they are spread")
	require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(nobody), nobody))
	require.Empty(t, nobody.Annotations[schedulerv1alpha1.AnnotationSuperCluster])

	// The API server binds no claims here: a pod waits until one is bound.
	pod := w.pod(t, namespace, "waits", using("early"))
	w.wantPod(t, pod, "that its claim is not bound", func(pod *corev1.Pod) bool {
		_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
		return scheduled != nil && scheduled.Message == "0/2 super clusters are available: pod has unbound immediate PersistentVolumeClaims"
	})
}

// TestClaimsThatAreLeftBehind: claims whose home their namespace has left, and for which nothing is there, get the
// super cluster of their pod, whether or not something may have been made.
func TestClaimsThatAreLeftBehind(t *testing.T) {
	w := shared
	w.allowClaims(t)
	w.run(t)
	const namespace = "left-behind"
	w.storageClass(t, "left-behind", storagev1.VolumeBindingWaitForFirstConsumer, "r1", "r2")
	w.namespace(t, namespace, `{"cpu":"300m","memory":"300Mi"}`)
	w.quota(t, namespace, "300m", "300Mi")
	w.wantShown(t, namespace, `{"r1":1}`, `{"r2":1}`)
	here, left := "r1", "r2"
	if w.shown(t, namespace) == `{"r2":1}` {
		here, left = left, here
	}
	at := func(claim *corev1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, schedulerv1alpha1.AnnotationSuperCluster, left)
	}
	chosen := w.claim(t, namespace, "chosen", "left-behind", at)
	begun := w.claim(t, namespace, "begun", "left-behind", at, func(claim *corev1.PersistentVolumeClaim) {
		claim.Finalizers = append(claim.Finalizers, tenancyv1alpha1.FinalizerPrefixClaim+left)
	})
	w.wantPod(t, w.pod(t, namespace, "pod", using("chosen", "begun")), "the super cluster of its namespace", in(here))
	for _, claim := range []*corev1.PersistentVolumeClaim{chosen, begun} {
		home := w.wantHome(t, claim)
		require.Equal(t, here, home)
		require.NotContains(t, claim.Finalizers, tenancyv1alpha1.FinalizerPrefixClaim+left)
		w.wantEvent(t, "PersistentVolumeClaim", claim.Name, tenancy.ReasonSuperClusterNotPlaced)
	}
}
