package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/test/builders"
)

// How much a tenant has, at most.
const (
	namespaces  = 4
	objects     = 5 // of each kind in a namespace
	replicas    = 5
	quotaSlices = 8
)

// actor does what tenants do, at random, without faults between it and its control plane.
type actor struct {
	client client.WithWatch
	random *rand.Rand
	// failed is called with errors that a tenant does not expect.
	failed func(error)
}

// act is something that an actor does in a namespace; how often is in relation to others.
type act struct {
	often int
	do    func(a *actor, ctx context.Context, namespace string) error
}

var acts = []act{
	{often: 6, do: (*actor).makeNamespace},
	{often: 1, do: (*actor).deleteNamespace},
	{often: 5, do: (*actor).resize},
	{often: 12, do: (*actor).writeConfigMap},
	{often: 8, do: (*actor).writeSecret},
	{often: 6, do: (*actor).writeService},
	{often: 3, do: (*actor).writeBalancer},
	{often: 4, do: (*actor).makeClaim},
	{often: 3, do: (*actor).writeAccount},
	{often: 2, do: (*actor).writeNetworkPolicy},
	{often: 10, do: (*actor).writeDeployment},
	{often: 8, do: (*actor).makePod},
	{often: 6, do: (*actor).deletePod},
	{often: 10, do: (*actor).deleteSomething},
}

// run acts until ctx ends.
func (a *actor) run(ctx context.Context, pause time.Duration) {
	total := 0
	for _, act := range acts {
		total += act.often
	}
	for sleep(ctx, between(a.random, pause/2, 2*pause)) == nil {
		draw, chosen := a.random.IntN(total), 0
		for draw >= acts[chosen].often {
			draw -= acts[chosen].often
			chosen++
		}
		err := acts[chosen].do(a, ctx, "n"+strconv.Itoa(a.random.IntN(namespaces)))
		if err != nil && ctx.Err() == nil && !expected(err) {
			a.failed(err)
		}
	}
}

// expected returns whether an error is one that random acts meet: what is not there, is there already, is being
// deleted, was changed meanwhile, or is more than the quota.
func expected(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

func (a *actor) name(prefix string) string { return prefix + strconv.Itoa(a.random.IntN(objects)) }

// write creates an object, or changes the one that is there.
func (a *actor) write(ctx context.Context, object client.Object, change func()) error {
	err := a.client.Get(ctx, client.ObjectKeyFromObject(object), object)
	switch {
	case apierrors.IsNotFound(err):
		change()
		return a.client.Create(ctx, object)
	case err != nil:
		return err
	}
	change()
	return a.client.Update(ctx, object)
}

func (a *actor) makeNamespace(ctx context.Context, namespace string) error {
	// An API server refuses pods until somebody counts the quota: so it is there first.
	if err := a.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Annotations: map[string]string{schedulerv1alpha1.AnnotationSlice: `{"cpu":"500m","memory":"512Mi"}`},
	}}); err != nil {
		return err
	}
	return a.client.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: hard(1 + a.random.IntN(quotaSlices))},
	})
}

func hard(slices int) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(500*slices), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(slices)<<29, resource.BinarySI),
	}
}

func (a *actor) deleteNamespace(ctx context.Context, namespace string) error {
	return a.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
}

func (a *actor) resize(ctx context.Context, namespace string) error {
	return resize(ctx, a.client, namespace, 1+a.random.IntN(quotaSlices))
}

func resize(ctx context.Context, tenant client.Client, namespace string, slices int) error {
	quota := &corev1.ResourceQuota{}
	if err := tenant.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "quota"}, quota); err != nil {
		return err
	}
	quota.Spec.Hard = hard(slices)
	return tenant.Update(ctx, quota)
}

func (a *actor) meta(namespace, prefix string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: a.name(prefix)}
}

func (a *actor) writeConfigMap(ctx context.Context, namespace string) error {
	object := &corev1.ConfigMap{ObjectMeta: a.meta(namespace, "c")}
	return a.write(ctx, object, func() {
		object.Data = map[string]string{"k" + strconv.Itoa(a.random.IntN(3)): strconv.FormatUint(a.random.Uint64(), 16)}
		object.Labels = map[string]string{"revision": strconv.Itoa(a.random.IntN(100))}
	})
}

func (a *actor) writeSecret(ctx context.Context, namespace string) error {
	object := &corev1.Secret{ObjectMeta: a.meta(namespace, "s")}
	return a.write(ctx, object, func() {
		object.Data = map[string][]byte{"k": strconv.AppendUint(nil, a.random.Uint64(), 16)}
	})
}

func (a *actor) writeService(ctx context.Context, namespace string) error {
	object := &corev1.Service{ObjectMeta: a.meta(namespace, "v")}
	return a.write(ctx, object, func() {
		object.Spec.Ports = []corev1.ServicePort{{Name: "p", Port: int32(1 + a.random.IntN(1000)), TargetPort: intstr.FromInt32(80)}} //nolint:gosec // it is small
		object.Spec.Selector = map[string]string{"app": a.name("d")}
	})
}

func (a *actor) writeBalancer(ctx context.Context, namespace string) error {
	object := &corev1.Service{ObjectMeta: a.meta(namespace, "l")}
	return a.write(ctx, object, func() {
		object.Spec.Type = corev1.ServiceTypeLoadBalancer
		object.Spec.Ports = []corev1.ServicePort{{Name: "p", Port: int32(1 + a.random.IntN(1000)), TargetPort: intstr.FromInt32(80)}} //nolint:gosec // it is small
		object.Spec.Selector = map[string]string{"app": a.name("d")}
	})
}

func (a *actor) makeClaim(ctx context.Context, namespace string) error {
	return a.client.Create(ctx, newClaim(namespace, a.name("k")))
}

func newClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(disks), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: builders.Resources("storage", "1Gi")},
		},
	}
}

func (a *actor) writeAccount(ctx context.Context, namespace string) error {
	object := &corev1.ServiceAccount{ObjectMeta: a.meta(namespace, "a")}
	return a.write(ctx, object, func() {
		object.ImagePullSecrets = []corev1.LocalObjectReference{{Name: a.name("s")}}
	})
}

func (a *actor) writeNetworkPolicy(ctx context.Context, namespace string) error {
	object := &networkingv1.NetworkPolicy{ObjectMeta: a.meta(namespace, "p")}
	return a.write(ctx, object, func() {
		object.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": a.name("d")}}
		object.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	})
}

// podSpec is one that asks for no DNS, of which a tenant here has none, and that ends at once.
func (a *actor) podSpec() corev1.PodSpec {
	spec := corev1.PodSpec{
		DNSPolicy: corev1.DNSDefault, ServiceAccountName: "default", AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers: []corev1.Container{{Name: "c", Image: "registry.invalid/pause:1", Resources: builders.Requests("cpu", "100m", "memory", "64Mi")}},
	}
	if a.random.IntN(3) == 0 {
		source := &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: a.name("c")}, Optional: ptr.To(true)}
		spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: source}}
	}
	return spec
}

func (a *actor) writeDeployment(ctx context.Context, namespace string) error {
	object := &appsv1.Deployment{ObjectMeta: a.meta(namespace, "d")}
	return a.write(ctx, object, func() {
		object.Spec.Replicas = ptr.To(int32(a.random.IntN(replicas + 1))) //nolint:gosec // it is small
		if object.UID != "" && a.random.IntN(3) > 0 {
			return // it is scaled
		}
		labels := map[string]string{"app": object.Name}
		object.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		object.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: a.podSpec()}
		object.Spec.Template.Annotations = map[string]string{"revision": strconv.Itoa(a.random.IntN(100))}
	})
}

func (a *actor) makePod(ctx context.Context, namespace string) error {
	pod := &corev1.Pod{ObjectMeta: a.meta(namespace, "b"), Spec: a.podSpec()}
	if a.random.IntN(2) == 0 {
		source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: a.name("k")}
		pod.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source}}}
	}
	return a.client.Create(ctx, pod)
}

// deletePod deletes any pod, sometimes by force: then it is gone in the tenant before it is in the super cluster.
func (a *actor) deletePod(ctx context.Context, namespace string) error {
	var list corev1.PodList
	if err := a.client.List(ctx, &list, client.InNamespace(namespace)); err != nil || len(list.Items) == 0 {
		return err
	}
	options := &client.DeleteOptions{}
	if a.random.IntN(3) == 0 {
		options.GracePeriodSeconds = ptr.To[int64](0)
	}
	return a.client.Delete(ctx, &list.Items[a.random.IntN(len(list.Items))], options)
}

func (a *actor) deleteSomething(ctx context.Context, namespace string) error {
	all := []client.Object{
		&corev1.ConfigMap{ObjectMeta: a.meta(namespace, "c")}, &corev1.Secret{ObjectMeta: a.meta(namespace, "s")},
		&corev1.Service{ObjectMeta: a.meta(namespace, "v")}, &corev1.ServiceAccount{ObjectMeta: a.meta(namespace, "a")},
		&corev1.Service{ObjectMeta: a.meta(namespace, "l")}, &corev1.PersistentVolumeClaim{ObjectMeta: a.meta(namespace, "k")},
		&networkingv1.NetworkPolicy{ObjectMeta: a.meta(namespace, "p")}, &appsv1.Deployment{ObjectMeta: a.meta(namespace, "d")},
	}
	return a.client.Delete(ctx, all[a.random.IntN(len(all))], client.PropagationPolicy(metav1.DeletePropagationBackground))
}

// renew makes a claim that is not there. Where one is being deleted the pods go that hold it, and an error says to try
// again.
func renew(ctx context.Context, tenant client.Client, namespace, name string) error {
	claim := newClaim(namespace, name)
	err := tenant.Create(ctx, claim)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := tenant.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil || claim.DeletionTimestamp == nil {
		return err
	}
	var pods corev1.PodList
	if err := tenant.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		uses := slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
			return volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == name
		})
		if !uses {
			continue
		}
		if err := tenant.Delete(ctx, pod); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return fmt.Errorf("claim %s/%s is being deleted", namespace, name)
}

// wake lets the tenant's own controller look at ReplicaSets that lack pods: after many that the quota has refused it
// waits up to a quarter of an hour.
func wake(ctx context.Context, tenant client.Client) error {
	var list appsv1.ReplicaSetList
	if err := tenant.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		set := &list.Items[i]
		if set.Status.Replicas >= *set.Spec.Replicas {
			continue
		}
		woken := set.DeepCopy()
		metav1.SetMetaDataAnnotation(&woken.ObjectMeta, "woken", time.Now().Format(time.RFC3339Nano))
		if err := tenant.Patch(ctx, woken, client.MergeFrom(set)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// finish makes room for all pods that a tenant has asked for, and the claims that they may name, so that all must run
// in the end.
func finish(ctx context.Context, tenant client.Client) error {
	var list corev1.NamespaceList
	if err := tenant.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		namespace := &list.Items[i]
		if namespace.DeletionTimestamp != nil || namespace.Annotations[schedulerv1alpha1.AnnotationSlice] == "" {
			continue
		}
		if err := resize(ctx, tenant, namespace.Name, objects*(replicas+2)); err != nil && !expected(err) {
			return fmt.Errorf("raising a quota: %w", err)
		}
		for i := range objects {
			if err := renew(ctx, tenant, namespace.Name, "k"+strconv.Itoa(i)); err != nil {
				return err
			}
		}
	}
	return nil
}
