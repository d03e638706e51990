package syncer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/offer"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// offerCase is a kind of objects that super clusters offer.
type offerCase struct {
	kind string
	// object returns one of a name as a super cluster has it. Two variants differ in what tenants see.
	object func(name, variant string) client.Object
	// seen returns what a tenant sees of the variant; "" stands for a fault.
	seen func(object client.Object) string
	// drifts changes what the tenant has; nil if API servers let nobody change it.
	drifts func(tenantObject client.Object)
	// one is whether r1 alone serves the kind.
	one bool
	// defaultKey is the annotation that marks a default; "" for none.
	defaultKey string
}

func offerCases() []offerCase {
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "infra"}, Annotations: map[string]string{"internal": "1"}}
	}
	return []offerCase{
		{
			kind: "StorageClass", defaultKey: "storageclass.kubernetes.io/is-default-class",
			object: func(name, variant string) client.Object {
				return &storagev1.StorageClass{
					ObjectMeta: named(name), Provisioner: "csi.example.com", ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain),
					VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), AllowVolumeExpansion: ptr.To(variant == "b"),
					Parameters: map[string]string{"csi.storage.k8s.io/provisioner-secret-name": "root-of-storage"}, MountOptions: []string{"ro"},
					AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "rack", Values: []string{"7"}}}}},
				}
			},
			seen: seenOfStorageClass,
			drifts: func(object client.Object) {
				class := object.(*storagev1.StorageClass)
				class.AllowVolumeExpansion, class.MountOptions = ptr.To(!*class.AllowVolumeExpansion), []string{"rw"}
			},
		},
		{
			kind: "RuntimeClass",
			object: func(name, variant string) client.Object {
				return &nodev1.RuntimeClass{
					ObjectMeta: named(name), Handler: "kata-" + variant, Overhead: &nodev1.Overhead{PodFixed: builders.Resources("cpu", "100m")},
					Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"rack": "7"}},
				}
			},
			seen: func(object client.Object) string {
				class := object.(*nodev1.RuntimeClass)
				if class.Scheduling != nil || class.Overhead == nil || class.Overhead.PodFixed.Cpu().String() != "100m" {
					return ""
				}
				return strings.TrimPrefix(class.Handler, "kata-")
			},
			drifts: func(object client.Object) { object.(*nodev1.RuntimeClass).Overhead = nil },
		},
		{
			kind: "PriorityClass",
			object: func(name, variant string) client.Object {
				return &schedulingv1.PriorityClass{
					ObjectMeta: named(name), Value: map[string]int32{"a": 100, "b": 200}[variant], PreemptionPolicy: ptr.To(corev1.PreemptNever), Description: "for " + variant,
				}
			},
			seen:   seenOfPriorityClass,
			drifts: func(object client.Object) { object.(*schedulingv1.PriorityClass).Description = "mine" },
		},
		{
			kind: "IngressClass", defaultKey: networkingv1.AnnotationIsDefaultIngressClass,
			object: func(name, variant string) client.Object {
				return &networkingv1.IngressClass{ObjectMeta: named(name), Spec: networkingv1.IngressClassSpec{
					Controller: "example.com/" + variant, Parameters: &networkingv1.IngressClassParametersReference{Kind: "Settings", Name: "secret", Scope: ptr.To("Cluster")},
				}}
			},
			seen: func(object client.Object) string {
				class := object.(*networkingv1.IngressClass)
				if class.Spec.Parameters != nil {
					return ""
				}
				return strings.TrimPrefix(class.Spec.Controller, "example.com/")
			},
			drifts: func(object client.Object) {
				object.(*networkingv1.IngressClass).Spec.Parameters = &networkingv1.IngressClassParametersReference{Kind: "Settings", Name: "mine", Scope: ptr.To("Cluster")}
			},
		},
		{
			kind: "DeviceClass",
			object: func(name, variant string) client.Object {
				return &resourcev1.DeviceClass{ObjectMeta: named(name), Spec: resourcev1.DeviceClassSpec{
					Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", variant)}}},
					Config: []resourcev1.DeviceClassConfiguration{{DeviceConfiguration: resourcev1.DeviceConfiguration{
						Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: "gpu.example.com", Parameters: runtime.RawExtension{Raw: []byte(`{"token":"x"}`)}},
					}}},
				}}
			},
			seen: func(object client.Object) string {
				class := object.(*resourcev1.DeviceClass)
				if len(class.Spec.Config) > 0 || len(class.Spec.Selectors) != 1 {
					return ""
				}
				return strings.Trim(strings.TrimPrefix(class.Spec.Selectors[0].CEL.Expression, "device.driver == "), `"`)
			},
			drifts: func(object client.Object) { object.(*resourcev1.DeviceClass).Spec.Selectors = nil },
		},
		{
			kind: "VolumeSnapshotClass", one: true, defaultKey: "snapshot.storage.kubernetes.io/is-default-class",
			object: func(name, variant string) client.Object {
				object := &unstructured.Unstructured{Object: map[string]any{"driver": "csi.example.com/" + variant, "deletionPolicy": "Delete", "parameters": map[string]any{"secret": "x"}}}
				object.SetAPIVersion("snapshot.storage.k8s.io/v1")
				object.SetKind("VolumeSnapshotClass")
				object.SetName(name)
				return object
			},
			seen: func(object client.Object) string {
				class := object.(*unstructured.Unstructured)
				driver, _, _ := unstructured.NestedString(class.Object, "driver")
				if class.Object["parameters"] != nil || class.Object["deletionPolicy"] != "Delete" {
					return ""
				}
				return strings.TrimPrefix(driver, "csi.example.com/")
			},
			drifts: func(object client.Object) {
				object.(*unstructured.Unstructured).Object["parameters"] = map[string]any{"mine": "1"}
			},
		},
	}
}

func seenOfStorageClass(object client.Object) string {
	class := object.(*storagev1.StorageClass)
	if class.Provisioner != "csi.example.com" || *class.ReclaimPolicy != corev1.PersistentVolumeReclaimRetain ||
		*class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer || len(class.Parameters)+len(class.MountOptions)+len(class.AllowedTopologies) > 0 {
		return ""
	}
	return map[bool]string{true: "b", false: "a"}[*class.AllowVolumeExpansion]
}

func seenOfPriorityClass(object client.Object) string {
	class := object.(*schedulingv1.PriorityClass)
	if *class.PreemptionPolicy != corev1.PreemptNever || class.GlobalDefault || class.Description != "for a" && class.Description != "for b" {
		return ""
	}
	return map[int32]string{100: "a", 200: "b"}[class.Value]
}

// snapshotCRD makes an API server serve VolumeSnapshotClasses.
func snapshotCRD(t *testing.T, c client.Client) {
	t.Helper()
	serveSnapshots(t, c, "VolumeSnapshotClass", "volumesnapshotclasses", "Cluster")
}

// offers returns a change of a policy that lists these names of all kinds.
func offers(names ...string) func(*tenancyv1alpha1.TenantPolicySpec) {
	return func(spec *tenancyv1alpha1.TenantPolicySpec) {
		for _, list := range []*[]string{
			&spec.Pods.StorageClasses, &spec.Pods.RuntimeClasses, &spec.Offers.PriorityClasses, &spec.Traffic.IngressClasses, &spec.Offers.DeviceClasses, &spec.Offers.VolumeSnapshotClasses,
		} {
			*list = names
		}
	}
}

// TestOffers: what two super clusters offer to two tenants, of which one may have nothing of it.
func TestOffers(t *testing.T) {
	w := newWorld(t, needs{r2: true})
	other := w.neighbour(t, "b")
	snapshotCRD(t, w.super)
	snapshotCRD(t, w.tenant)
	w.follow(t, offers("fast", "own", "late"))
	w.transparent = []string{"net.example.com/"}
	w.place(t, "web", "r1", "r2")
	other.place(t, "web", "r1", "r2")
	served := []*tenants.Tenant{w.engaged(w.tenantConfig), other.engaged(other.tenantConfig)}
	r1, r2 := w.startSyncerWith(t, w.superConfig, engaging(served)), w.startSyncerWith(t, w.super2Config, engaging(served))
	closes(t, r1.ready, "the tenants' caches are synced")
	closes(t, r2.ready, "the tenants' caches are synced")

	for _, tc := range offerCases() {
		t.Run(tc.kind, func(t *testing.T) {
			create(t, w.super, tc.object("hidden", "a"))
			w.testOffer(t, &tc)
			if !tc.one {
				w.testOffersOfTwo(t, &tc)
			}
			w.testOwn(t, &tc)
			require.NoError(t, w.super.Delete(t.Context(), tc.object("hidden", "a")))
			require.Empty(t, w.tenantHas(t, &tc), "what the policy does not list")
			if !tc.one {
				require.Empty(t, other.tenantHas(t, &tc))
			}
		})
	}
	t.Run("pods of an offered PriorityClass", w.testOfferedPriority)
	t.Run("metadata comes up, and marked objects stay", w.testMetadataUp)
	t.Run("a syncer that starts finds what has changed", func(t *testing.T) { w.testOffersRestart(t, r1) })
}

// has waits until the tenant has a variant of an object that exactly these super clusters are noted for.
func (w *world) has(t *testing.T, tc *offerCase, name, variant string, by ...string) client.Object {
	t.Helper()
	return appears(t, w.tenant, "", name, tc.object(name, ""), func(object client.Object) bool {
		return tc.seen(object) == variant && slices.Equal(offer.By(object), by) && object.GetLabels()["team"] == "" && object.GetAnnotations()["internal"] == ""
	})
}

// change updates an object of a control plane.
func change(t *testing.T, c client.Client, object client.Object, change func(client.Object)) {
	t.Helper()
	await.Change(t, c, object, change)
}

// tenantHas returns the names of the objects of a kind that the tenant has, of those that the test makes.
func (w *world) tenantHas(t *testing.T, tc *offerCase) []string {
	t.Helper()
	var found []string
	for _, name := range []string{"hidden", "fast", "own", "late"} {
		object := tc.object(name, "a")
		err := w.tenant.Get(t.Context(), client.ObjectKeyFromObject(object), object)
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
			found = append(found, name)
		}
	}
	return found
}

// testOffer lets r1 alone offer something.
func (w *world) testOffer(t *testing.T, tc *offerCase) {
	create(t, w.super, tc.object("fast", "a"))
	object := w.has(t, tc, "fast", "a", "r1")
	uid := object.GetUID()

	change(t, w.tenant, object, tc.drifts)
	w.has(t, tc, "fast", "a", "r1")
	change(t, w.tenant, object, func(object client.Object) {
		annotations := object.GetAnnotations()
		annotations["mine"] = "1"
		object.SetAnnotations(annotations)
		object.SetLabels(map[string]string{"mine": "1"})
	})
	appears(t, w.tenant, "", "fast", object, func(object client.Object) bool { return object.GetLabels()[tenancyv1alpha1.LabelOffered] == "true" })
	object = w.has(t, tc, "fast", "a", "r1")
	require.Equal(t, []string{"1", "1"}, []string{object.GetLabels()["mine"], object.GetAnnotations()["mine"]}, "what is the tenant's stays")
	require.Equal(t, uid, object.GetUID())
	require.NoError(t, w.tenant.Delete(t.Context(), object))
	appears(t, w.tenant, "", "fast", object, func(object client.Object) bool { return object.GetUID() != uid })

	if tc.defaultKey != "" {
		mark := func(value string) {
			change(t, w.super, tc.object("fast", ""), func(object client.Object) { object.SetAnnotations(map[string]string{tc.defaultKey: value}) })
		}
		isDefault := func(want string) {
			appears(t, w.tenant, "", "fast", tc.object("fast", ""), func(object client.Object) bool { return object.GetAnnotations()[tc.defaultKey] == want })
		}
		choose := func(value string) {
			change(t, w.tenant, tc.object("fast", ""), func(object client.Object) {
				annotations := object.GetAnnotations()
				annotations[tc.defaultKey] = value
				object.SetAnnotations(annotations)
			})
		}
		mark("true")
		isDefault("true")
		choose("false")
		isDefault("true")
		mark("false")
		isDefault("")
		choose("true") // no super cluster marks it: the tenant's mark stays when something else is put back
		change(t, w.tenant, object, tc.drifts)
		w.has(t, tc, "fast", "a", "r1")
		isDefault("true")
	}
	// It is made again, as another one.
	require.NoError(t, w.super.Delete(t.Context(), tc.object("fast", "")))
	create(t, w.super, tc.object("fast", "b"))
	w.has(t, tc, "fast", "b", "r1")
	require.NoError(t, w.super.Delete(t.Context(), tc.object("fast", "")))
	vanishes(t, w.tenant, "", "fast", tc.object("fast", ""))
}

// testOffersOfTwo lets r1 and r2 offer the same, and then something else.
func (w *world) testOffersOfTwo(t *testing.T, tc *offerCase) {
	create(t, w.super, tc.object("fast", "a"))
	w.has(t, tc, "fast", "a", "r1")
	create(t, w.super2, tc.object("fast", "a"))
	object := w.has(t, tc, "fast", "a", "r1", "r2")
	change(t, w.tenant, object, func(object client.Object) { object.SetAnnotations(nil) })
	w.has(t, tc, "fast", "a", "r1", "r2")
	require.NoError(t, w.super.Delete(t.Context(), tc.object("fast", "")))
	w.has(t, tc, "fast", "a", "r2")

	create(t, w.super, tc.object("fast", "b"))
	eventually(t, func() error {
		var events corev1.EventList
		require.NoError(t, w.meta.List(t.Context(), &events))
		for i := range events.Items {
			event := &events.Items[i]
			if event.Reason == "OffersDiffer" && event.InvolvedObject.Name == "r1" && strings.Contains(event.Message, tc.kind+" fast of super cluster r1 differs from that of super cluster r2") {
				return nil
			}
		}
		return fmt.Errorf("no Event says that the super clusters differ")
	})
	w.has(t, tc, "fast", "a", "r2")
	require.NoError(t, w.super2.Delete(t.Context(), tc.object("fast", "")))
	w.has(t, tc, "fast", "b", "r1")
	create(t, w.super2, tc.object("fast", "b"))
	w.has(t, tc, "fast", "b", "r1", "r2")
	for _, super := range []client.Client{w.super, w.super2} {
		require.NoError(t, super.Delete(t.Context(), tc.object("fast", "")))
	}
	vanishes(t, w.tenant, "", "fast", tc.object("fast", ""))
}

// testOwn lets the tenant make an object of a name that a super cluster offers: it stays until the tenant deletes it.
func (w *world) testOwn(t *testing.T, tc *offerCase) {
	own := tc.object("own", "b")
	create(t, w.tenant, own)
	create(t, w.super, tc.object("own", "a"))
	w.warned(t, "", "own", "NotOffered")
	live := tc.object("own", "b")
	require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(own), live))
	require.Empty(t, cmp.Diff(own, live))
	require.NoError(t, w.tenant.Delete(t.Context(), own))
	w.has(t, tc, "own", "a", "r1")
	require.NoError(t, w.super.Delete(t.Context(), tc.object("own", "")))
	vanishes(t, w.tenant, "", "own", tc.object("own", ""))
}

// testOffersRestart changes both sides while the syncer of r1 does not run; then the policy, and the placement.
func (w *world) testOffersRestart(t *testing.T, r1 *running) {
	tc := &offerCases()[0]
	for _, name := range []string{"fast", "late"} {
		create(t, w.super, tc.object(name, "a"))
		w.has(t, tc, name, "a", "r1")
	}
	r1.stop()
	require.NoError(t, w.super.Delete(t.Context(), tc.object("fast", "")))
	change(t, w.tenant, tc.object("late", ""), tc.drifts)
	_, stop := w.runSyncer(t, w.superConfig)
	defer stop()
	vanishes(t, w.tenant, "", "fast", tc.object("fast", ""))
	w.has(t, tc, "late", "a", "r1")

	w.follow(t, offers("fast"))
	vanishes(t, w.tenant, "", "late", tc.object("late", ""))
	w.follow(t, offers("late"))
	w.has(t, tc, "late", "a", "r1")
	w.place(t, "web", "r2")
	release(t, w.super, w.superName("web"), "")
	vanishes(t, w.tenant, "", "late", tc.object("late", ""))
	w.place(t, "web", "r1", "r2")
	w.has(t, tc, "late", "a", "r1")
}

// testOfferedPriority lets pods name a PriorityClass that r1 offers, and one that is the tenant's own.
func (w *world) testOfferedPriority(t *testing.T) {
	tc := &offerCases()[2]
	require.Equal(t, "PriorityClass", tc.kind)
	create(t, w.super, tc.object("fast", "a"))
	w.has(t, tc, "fast", "a", "r1")
	create(t, w.tenant, tc.object("own", "b"))
	create(t, w.super, tc.object("own", "a"))
	w.warned(t, "", "own", "NotOffered")
	for class, want := range map[string]int32{"fast": 100, "own": 0} {
		pod := newPod("web", "of-"+class)
		pod.Spec.PriorityClassName = class
		create(t, w.tenant, pod)
		superPod := appears(t, w.super, w.superName("web"), "of-"+class, &corev1.Pod{}, nil)
		require.Equal(t, want, *superPod.Spec.Priority, class)
		require.NoError(t, w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	require.NoError(t, w.tenant.Delete(t.Context(), tc.object("own", "")))
	for _, name := range []string{"fast", "own"} {
		require.NoError(t, w.super.Delete(t.Context(), tc.object(name, "")))
		vanishes(t, w.tenant, "", name, tc.object(name, ""))
	}
}

// testMetadataUp plays a CNI plugin of r1 that writes about a pod. Objects that the tenant marks are not in r1.
func (w *world) testMetadataUp(t *testing.T) {
	pod := newPod("web", "described")
	pod.Annotations = map[string]string{"net.example.com/wish": "fast"}
	create(t, w.tenant, pod)
	superPod := appears(t, w.super, w.superName("web"), "described", &corev1.Pod{}, nil)
	change(t, w.super, superPod, func(object client.Object) {
		annotations := object.GetAnnotations()
		annotations["net.example.com/status"], annotations["internal"] = "10.1.2.3", "1"
		object.SetAnnotations(annotations)
		labels := object.GetLabels()
		labels["net.example.com/zone"] = "z1"
		object.SetLabels(labels)
	})
	tenantPod := appears(t, w.tenant, "web", "described", &corev1.Pod{}, func(pod *corev1.Pod) bool {
		return pod.Annotations["net.example.com/status"] == "10.1.2.3" && pod.Labels["net.example.com/zone"] == "z1"
	})
	require.Equal(t, "fast", tenantPod.Annotations["net.example.com/wish"])
	require.NotContains(t, tenantPod.Annotations, "internal")
	change(t, w.tenant, tenantPod, func(object client.Object) {
		labels := object.GetLabels()
		labels["net.example.com/zone"] = "z9"
		object.SetLabels(labels)
	})
	appears(t, w.tenant, "web", "described", tenantPod, func(pod *corev1.Pod) bool { return pod.Labels["net.example.com/zone"] == "z1" })
	change(t, w.super, superPod, func(object client.Object) {
		annotations := object.GetAnnotations()
		delete(annotations, "net.example.com/status")
		object.SetAnnotations(annotations)
	})
	appears(t, w.tenant, "web", "described", tenantPod, func(pod *corev1.Pod) bool {
		_, there := pod.Annotations["net.example.com/status"]
		return !there && pod.Labels["net.example.com/zone"] == "z1"
	})
	require.NoError(t, w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))

	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "settings"}}
	create(t, w.tenant, settings)
	appears(t, w.super, w.superName("web"), "settings", &corev1.ConfigMap{}, nil)
	change(t, w.tenant, settings, func(object client.Object) {
		object.SetLabels(map[string]string{tenancyv1alpha1.LabelIgnoreSync: "true"})
	})
	vanishes(t, w.super, w.superName("web"), "settings", &corev1.ConfigMap{})
	change(t, w.tenant, settings, func(object client.Object) { object.SetLabels(nil) })
	appears(t, w.super, w.superName("web"), "settings", &corev1.ConfigMap{}, nil)
}
