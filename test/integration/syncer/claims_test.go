package syncer_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// newClaim returns a claim of class fast, with a home unless that is "".
func newClaim(namespace, name, home string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "db"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("fast"),
			Resources: corev1.VolumeResourceRequirements{Requests: builders.Resources("storage", "1Gi")},
		},
	}
	if home != "" {
		claim.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: home}
	}
	return claim
}

// allowClaims puts a policy in force with claims of class fast.
func (w *world) allowClaims(t *testing.T) {
	t.Helper()
	w.follow(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.Volumes = append(spec.Pods.Volumes, "persistentVolumeClaim", "ephemeral")
		spec.Pods.StorageClasses = []string{"fast"}
		spec.Limits.PersistentVolumeClaims, spec.Limits.Storage = 10, builders.Resources("storage", "20Gi")["storage"]
	})
}

// storageClass makes class fast, which its consumers let be provisioned and which can grow.
func storageClass(t *testing.T, to client.Client) {
	t.Helper()
	create(t, to, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "example.com/disk", AllowVolumeExpansion: ptr.To(true),
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
}

// provision plays a provisioner and the volume controller of a super cluster: it makes a volume for a claim and binds
// the two.
func provision(t *testing.T, super client.Client, claim *corev1.PersistentVolumeClaim, volume string) {
	t.Helper()
	create(t, super, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: "fast",
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data/" + volume}},
		},
	})
	await.Change(t, super, claim, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = volume })
	await.Change(t, super, claim, func(claim *corev1.PersistentVolumeClaim) {
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests}
	}, "status")
}

func isBound(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Status.Phase == corev1.ClaimBound
}

// letGo plays the controllers that take finalizers off an object which is being deleted, and waits until it is gone.
func letGo(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	eventually(t, func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return client.IgnoreNotFound(err)
		}
		if object.GetDeletionTimestamp() == nil {
			return fmt.Errorf("%T %s is not being deleted", object, object.GetName())
		}
		object.SetFinalizers(nil)
		return fmt.Errorf("%T %s is still there: %w", object, object.GetName(), c.Update(t.Context(), object))
	})
}

// TestClaims lets a claim live: its tenant has a real kube-controller-manager, whose volume controller binds it, and
// the test plays provisioners and the schedulers.
func TestClaims(t *testing.T) {
	w := newWorld(t, needs{r2: true, ownTenant: true})
	require.NoError(t, w.controlPlane.StartControllers(t.Context()))
	w.allowClaims(t)
	storageClass(t, w.tenant)
	storageClass(t, w.super)
	_, stop := w.runSyncer(t, w.superConfig)
	numbers2, _ := w.runSyncer(t, w.super2Config)
	w.place(t, "web", "r1", "r2")

	// A pod and its claim, which the pod scheduler gave a home. The pod waits for the claim, not the claim for the pod.
	pod := newPod("web", "p")
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/data"}}
	create(t, w.tenant, pod)
	w.warned(t, "web", "p", "FailedCreate")
	create(t, w.tenant, newClaim("web", "data", "r1"))
	superClaim := appears(t, w.super, w.superName("web"), "data", &corev1.PersistentVolumeClaim{}, nil)
	require.Empty(t, cmp.Diff(newClaim("web", "data", "").Spec.Resources, superClaim.Spec.Resources))
	require.Equal(t, "fast", *superClaim.Spec.StorageClassName)
	require.Equal(t, "db", superClaim.Labels["app"])
	superPod := appears(t, w.super, w.superName("web"), "p", &corev1.Pod{}, nil)
	require.Equal(t, "data", superPod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
	require.Equal(t, "/data", superPod.Spec.Containers[0].VolumeMounts[0].MountPath)

	// The super cluster provisions, and the tenant's own controller binds.
	provision(t, w.super, superClaim, "pvc-1")
	claim := appears(t, w.tenant, "web", "data", &corev1.PersistentVolumeClaim{}, isBound)
	require.Equal(t, "r1.pvc-1", claim.Spec.VolumeName)
	require.Empty(t, cmp.Diff(builders.Resources("storage", "1Gi"), claim.Status.Capacity))
	volume := appears(t, w.tenant, "", "r1.pvc-1", &corev1.PersistentVolume{}, func(volume *corev1.PersistentVolume) bool { return volume.Status.Phase == corev1.VolumeBound })
	require.Equal(t, []string{"r1"}, volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values)

	// Another home than that of its volume changes nothing.
	await.Change(t, w.tenant, claim, func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster] = "r2"
	})

	// It grows.
	await.Change(t, w.tenant, claim, func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Resources.Requests = builders.Resources("storage", "2Gi")
	})
	appears(t, w.super, w.superName("web"), "data", superClaim, func(claim *corev1.PersistentVolumeClaim) bool {
		return claim.Spec.Resources.Requests.Storage().String() == "2Gi"
	})
	await.Change(t, w.super, superClaim, func(claim *corev1.PersistentVolumeClaim) {
		claim.Status.Capacity = builders.Resources("storage", "2Gi")
	}, "status")
	appears(t, w.tenant, "web", "data", claim, func(claim *corev1.PersistentVolumeClaim) bool {
		return claim.Status.Capacity.Storage().String() == "2Gi"
	})
	appears(t, w.tenant, "", "r1.pvc-1", volume, func(volume *corev1.PersistentVolume) bool { return volume.Spec.Capacity.Storage().String() == "2Gi" })
	patrols(t, numbers2)
	lacks(t, w.super2, w.superName("web"), "data", &corev1.PersistentVolumeClaim{})

	// The tenant tampers with the volume.
	await.Change(t, w.tenant, volume, func(volume *corev1.PersistentVolume) { volume.Labels["tenancy.x-k8s.io/superclusterid"] = "r2" })
	appears(t, w.tenant, "", "r1.pvc-1", volume, func(volume *corev1.PersistentVolume) bool {
		return volume.Labels["tenancy.x-k8s.io/superclusterid"] == "r1"
	})

	// It is deleted while no syncer runs: its pod first, then itself, then what the super cluster has.
	stop()
	require.NoError(t, w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	require.NoError(t, w.tenant.Delete(t.Context(), claim))
	appears(t, w.tenant, "web", "data", claim, func(claim *corev1.PersistentVolumeClaim) bool {
		return slices.Equal(claim.Finalizers, []string{"claim.tenancy.x-k8s.io/r1"}) // it waits for what the super cluster has
	})
	w.runSyncer(t, w.superConfig)
	letGo(t, w.super, superClaim)
	vanishes(t, w.tenant, "web", "data", claim)
	vanishes(t, w.super, w.superName("web"), "p", superPod)
	vanishes(t, w.tenant, "", "r1.pvc-1", volume)
}

// lacks checks that there is no such object. It waits for nobody: that those have looked who could make it is for the
// caller to know (patrols).
func lacks(t *testing.T, c client.Client, namespace, name string, object client.Object) {
	t.Helper()
	require.NoError(t, client.IgnoreNotFound(c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object)))
	require.Empty(t, object.GetUID(), "it is there")
}

// TestClaimsOfWorkloads: the tenant's own controllers make the claims of a StatefulSet and of a generic ephemeral
// volume, whose pods refer to them in the super cluster. Two tenants, and somebody who is none, have claims of one
// name.
func TestClaimsOfWorkloads(t *testing.T) {
	w := newWorld(t, needs{ownTenant: true})
	other := w.neighbour(t, "b")
	require.NoError(t, w.controlPlane.StartControllers(t.Context()))
	for _, each := range []*world{w, other} {
		each.allowClaims(t)
		storageClass(t, each.tenant)
		each.place(t, "web", "r1")
	}
	r := w.startSyncerWith(t, w.superConfig, engaging([]*tenants.Tenant{w.engaged(w.tenantConfig), other.engaged(other.tenantConfig)}))
	closes(t, r.ready, "the tenants' caches are synced")
	// The claims of others have volumes before the tenant has a claim.
	create(t, other.tenant, newClaim("web", "data-db-0", "r1"))
	theirs := appears(t, w.super, tenancy.SuperNamespace(other.key, "web"), "data-db-0", &corev1.PersistentVolumeClaim{}, nil)
	provision(t, w.super, theirs, "pvc-theirs")
	create(t, w.super, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nobody-vc-web"}})
	nobodys := newClaim("nobody-vc-web", "data-db-0", "")
	create(t, w.super, nobodys)
	provision(t, w.super, nobodys, "pvc-nobodys")
	appears(t, other.tenant, "", "r1.pvc-theirs", &corev1.PersistentVolume{}, nil)

	template := newPod("web", "").Spec
	template.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: newClaim("", "", "").Spec},
	}}}}
	template.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/tmp"}, {Name: "data", MountPath: "/data"}}
	labels := map[string]string{"app": "db"}
	claims := newClaim("", "data", "")
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: "db", Replicas: ptr.To[int32](1),
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*claims},
		},
	}
	create(t, w.tenant, set)
	for i, name := range []string{"data-db-0", "db-0-scratch"} { // plays the pod scheduler
		claim := appears(t, w.tenant, "web", name, &corev1.PersistentVolumeClaim{}, nil)
		chosen := []byte(`{"metadata":{"annotations":{"` + schedulerv1alpha1.AnnotationSuperCluster + `":"r1"}}}`)
		require.NoError(t, w.tenant.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, chosen)))
		superClaim := appears(t, w.super, w.superName("web"), name, &corev1.PersistentVolumeClaim{}, nil)
		provision(t, w.super, superClaim, fmt.Sprintf("pvc-%d", i))
		appears(t, w.tenant, "web", name, claim, isBound)
	}
	pod := appears(t, w.tenant, "web", "db-0", &corev1.Pod{}, nil)
	w.choose(t, pod, "r1")
	superPod := appears(t, w.super, w.superName("web"), "db-0", &corev1.Pod{}, nil)
	refersTo := map[string]string{}
	for _, volume := range superPod.Spec.Volumes {
		require.Nil(t, volume.Ephemeral)
		refersTo[volume.Name] = volume.PersistentVolumeClaim.ClaimName
	}
	require.Equal(t, map[string]string{"data": "data-db-0", "scratch": "db-0-scratch"}, refersTo)
	patrols(t, r.numbers)
	require.Equal(t, []string{"r1.pvc-0", "r1.pvc-1"}, volumesOf(t, w.tenant))
	require.Equal(t, []string{"r1.pvc-theirs"}, volumesOf(t, other.tenant))
	for _, claim := range []*corev1.PersistentVolumeClaim{theirs, nobodys} {
		now := &corev1.PersistentVolumeClaim{}
		require.NoError(t, w.super.Get(t.Context(), client.ObjectKeyFromObject(claim), now))
		require.Empty(t, cmp.Diff(claim, now), "nobody has written it")
	}

	// Scaled to none: the data stay, what was ephemeral goes with its pod.
	require.NoError(t, w.tenant.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))))
	vanishes(t, w.tenant, "web", "db-0", pod)
	letGo(t, w.super, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.superName("web"), Name: "db-0-scratch"}})
	vanishes(t, w.tenant, "web", "db-0-scratch", &corev1.PersistentVolumeClaim{})
	vanishes(t, w.tenant, "", "r1.pvc-1", &corev1.PersistentVolume{})
	appears(t, w.tenant, "web", "data-db-0", &corev1.PersistentVolumeClaim{}, isBound)
	appears(t, w.super, w.superName("web"), "data-db-0", &corev1.PersistentVolumeClaim{}, func(claim *corev1.PersistentVolumeClaim) bool { return claim.DeletionTimestamp == nil })
}

// volumesOf returns the names of all PersistentVolumes, in order.
func volumesOf(t *testing.T, c client.Client) []string {
	t.Helper()
	var list corev1.PersistentVolumeList
	require.NoError(t, c.List(t.Context(), &list))
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// TestClaimsThatAreRefused: what a tenant writes reaches no volume of others, and costs no more than it may.
func TestClaimsThatAreRefused(t *testing.T) {
	w := newWorld(t, needs{})
	w.allowClaims(t)
	w.runSyncer(t, w.superConfig)
	w.place(t, "web", "r1")
	named := newClaim("web", "named", "r1")
	named.Spec.VolumeName = "pvc-of-another"
	source := newClaim("web", "source", "r1")
	source.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
	classless := newClaim("web", "classless", "r1")
	classless.Spec.StorageClassName = ptr.To("")
	large := newClaim("web", "large", "r1")
	large.Spec.Resources.Requests = builders.Resources("storage", "1Ti")
	selects := newClaim("web", "selects", "r1")
	selects.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	elsewhere := newClaim("web", "elsewhere", "r2")
	for _, claim := range []*corev1.PersistentVolumeClaim{named, source, classless, large, selects, elsewhere, newClaim("web", "none", "")} {
		create(t, w.tenant, claim)
	}
	for _, name := range []string{"source", "classless", "large", "selects"} {
		w.warned(t, "web", name, "PolicyForbids")
	}
	create(t, w.tenant, newClaim("web", "good", "r1"))
	appears(t, w.super, w.superName("web"), "good", &corev1.PersistentVolumeClaim{}, nil)
	var claims corev1.PersistentVolumeClaimList
	require.NoError(t, w.super.List(t.Context(), &claims))
	require.Len(t, claims.Items, 1)

	// A volume that the tenant forges as ours, for a claim that is not there, goes.
	create(t, w.tenant, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "r1.forged", Labels: map[string]string{"tenancy.x-k8s.io/virtualvolume": "true", "tenancy.x-k8s.io/superclusterid": "r1"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: builders.Resources("storage", "1Gi"), AccessModes: named.Spec.AccessModes,
			ClaimRef:               &corev1.ObjectReference{Namespace: "web", Name: "named", UID: named.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}},
		},
	})
	letGo(t, w.tenant, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "r1.forged"}})
}

// TestClaimsStay: a super namespace with claims outlives the placement of its namespace, and goes with the last. One
// without a volume does not stay, and may have another home.
func TestClaimsStay(t *testing.T) {
	w := newWorld(t, needs{})
	w.allowClaims(t)
	w.runSyncer(t, w.superConfig)
	w.place(t, "web", "r1")
	claim := newClaim("web", "data", "r1")
	create(t, w.tenant, claim)
	superClaim := appears(t, w.super, w.superName("web"), "data", &corev1.PersistentVolumeClaim{}, nil)
	provision(t, w.super, superClaim, "pvc-stays")
	appears(t, w.tenant, "", "r1.pvc-stays", &corev1.PersistentVolume{}, nil)
	empty := newClaim("web", "empty", "r1")
	create(t, w.tenant, empty)
	superEmpty := appears(t, w.super, w.superName("web"), "empty", &corev1.PersistentVolumeClaim{}, nil)
	w.place(t, "web", "r2")
	w.place(t, "other", "r1")
	letGo(t, w.super, superEmpty)
	appears(t, w.tenant, "web", "empty", empty, func(claim *corev1.PersistentVolumeClaim) bool {
		return claim.Annotations[schedulerv1alpha1.AnnotationSuperCluster] == "" && !slices.Contains(claim.Finalizers, "claim.tenancy.x-k8s.io/r1")
	})
	appears(t, w.super, "", w.superName("other"), &corev1.Namespace{}, nil)
	appears(t, w.super, "", w.superName("web"), &corev1.Namespace{}, func(namespace *corev1.Namespace) bool { return namespace.DeletionTimestamp == nil })
	require.NoError(t, w.super.Get(t.Context(), client.ObjectKeyFromObject(superClaim), superClaim))
	require.Nil(t, superClaim.DeletionTimestamp)

	require.NoError(t, w.tenant.Delete(t.Context(), claim))
	eventually(t, func() error { // plays the controller that protects claims of pods
		if err := w.tenant.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			return client.IgnoreNotFound(err)
		}
		claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(name string) bool { return name == "kubernetes.io/pvc-protection" })
		return w.tenant.Update(t.Context(), claim)
	})
	letGo(t, w.super, superClaim)
	vanishes(t, w.tenant, "web", "data", claim)
	release(t, w.super, w.superName("web"), "")
}

// TestClaimsOfARestoredTenant: claims that a tenant's backup does not have keep their data, and the operator decides.
func TestClaimsOfARestoredTenant(t *testing.T) {
	w := newWorld(t, needs{ownTenant: true})
	w.allowClaims(t)
	w.place(t, "web", "r1")
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, w.controlPlane.Backup(t.Context(), backup))
	w.write(t, 300)

	seen := &sessions{}
	r := w.startSyncerWith(t, w.superConfig, w.following(t, seen))
	closes(t, r.ready, "the tenant's caches are synced")
	later := w.place(t, "later", "r1")
	create(t, w.tenant, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "later", Name: "config"}})
	superClaims := map[string]*corev1.PersistentVolumeClaim{}
	for i, namespace := range []string{"web", "later"} {
		create(t, w.tenant, newClaim(namespace, "data", "r1"))
		superClaims[namespace] = appears(t, w.super, w.superName(namespace), "data", &corev1.PersistentVolumeClaim{}, nil)
		provision(t, w.super, superClaims[namespace], fmt.Sprintf("pvc-%d", i))
		appears(t, w.tenant, "", fmt.Sprintf("r1.pvc-%d", i), &corev1.PersistentVolume{}, nil)
		create(t, w.tenant, newClaim(namespace, "empty", "r1"))
		appears(t, w.super, w.superName(namespace), "empty", &corev1.PersistentVolumeClaim{}, nil)
	}
	superConfig := appears(t, w.super, w.superName("later"), "config", &corev1.ConfigMap{}, nil)

	require.NoError(t, w.controlPlane.Restore(t.Context(), backup))
	require.NoError(t, w.meta.Delete(t.Context(), later)) // plays vc-scheduler
	for _, namespace := range []string{"web", "later"} {
		letGo(t, w.super, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.superName(namespace), Name: "empty"}})
		appears(t, w.super, w.superName(namespace), "data", superClaims[namespace], func(claim *corev1.PersistentVolumeClaim) bool {
			return claim.Labels["tenancy.x-k8s.io/kept"] == "true"
		})
	}
	vanishes(t, w.super, w.superName("later"), "config", superConfig)
	appears(t, w.super, w.superName("later"), "superpool", &corev1.ResourceQuota{}, func(quota *corev1.ResourceQuota) bool {
		return quota.Spec.Hard.Pods().IsZero()
	})
	for _, namespace := range []string{"web", "later"} {
		require.NoError(t, w.super.Get(t.Context(), client.ObjectKeyFromObject(superClaims[namespace]), superClaims[namespace]))
		require.Nil(t, superClaims[namespace].DeletionTimestamp)
	}
	// Another namespace of that name waits for the operator.
	w.place(t, "later", "r1")
	w.warned(t, "", "later", "ClaimsKept")

	// The operator releases the data: the super namespace follows, and that of the new namespace is made.
	superNamespace := appears(t, w.super, "", w.superName("later"), &corev1.Namespace{}, nil)
	require.Nil(t, superNamespace.DeletionTimestamp)
	for _, namespace := range []string{"web", "later"} {
		require.NoError(t, w.super.Delete(t.Context(), superClaims[namespace]))
		letGo(t, w.super, superClaims[namespace])
	}
	release(t, w.super, w.superName("later"), superNamespace.UID)
	appears(t, w.super, "", w.superName("later"), &corev1.Namespace{}, func(namespace *corev1.Namespace) bool { return namespace.UID != superNamespace.UID })
}

// TestStorageThatIsReserved: the quota of the super cluster has what the namespace holds there of storage, at most what
// the policy allows, and a claim that grows beyond it is told so.
func TestStorageThatIsReserved(t *testing.T) {
	w := newWorld(t, needs{quotas: true, ownTenant: true})
	require.NoError(t, w.controlPlane.StartControllers(t.Context()))
	w.allowClaims(t)
	storageClass(t, w.tenant)
	storageClass(t, w.super)
	numbers, _ := w.runSyncer(t, w.superConfig)
	np := w.placeWith(t, "web", []string{"cpu", "1", "memory", "1Gi", "pods", "20", "storage", "5Gi"}, "r1")
	holds := func(want string, reserved bool) {
		t.Helper()
		appears(t, w.super, w.superName("web"), "superpool", &corev1.ResourceQuota{}, func(quota *corev1.ResourceQuota) bool {
			is := quota.Spec.Hard[corev1.ResourceRequestsStorage]
			return is.String() == want && reserved == (quota.Annotations[schedulerv1alpha1.AnnotationHoldsStorage] == "true")
		})
	}
	holds("20Gi", false) // its quota does not name storage
	name := func(storage string) {
		t.Helper()
		await.Change(t, w.meta, np, func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Spec.Quota = builders.Resources("cpu", "1", "memory", "1Gi", "pods", "20")
			if storage != "" {
				np.Spec.Quota["storage"] = builders.Resources("storage", storage)["storage"]
			}
		})
	}
	name("10Gi")
	holds("5Gi", true)
	w.playQuotaController(t, w.superName("web"))
	claim := newClaim("web", "data", "r1")
	create(t, w.tenant, claim)
	provision(t, w.super, appears(t, w.super, w.superName("web"), "data", &corev1.PersistentVolumeClaim{}, nil), "pvc-1")
	large := newClaim("web", "large", "r1")
	large.Spec.Resources.Requests = builders.Resources("storage", "5Gi")
	create(t, w.tenant, large)
	w.warned(t, "web", "large", "FailedCreate")
	patrols(t, numbers)
	lacks(t, w.super, w.superName("web"), "large", &corev1.PersistentVolumeClaim{})
	appears(t, w.tenant, "web", "data", claim, isBound)
	await.Change(t, w.tenant, claim, func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Resources.Requests = builders.Resources("storage", "6Gi")
	})
	w.warned(t, "web", "data", "FailedUpdate")
	name("")
	holds("20Gi", false)
}
