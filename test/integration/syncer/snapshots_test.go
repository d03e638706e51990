package syncer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// serveSnapshots makes an API server serve a kind of snapshot.storage.k8s.io, with as much of the schema of
// kubernetes-csi/external-snapshotter as matters.
func serveSnapshots(t *testing.T, c client.Client, kind, plural, scope string) {
	t.Helper()
	text := map[string]any{"type": "string"}
	time := map[string]any{"type": "string", "format": "date-time"}
	schema := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	version := map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": schema}}
	if kind == "VolumeSnapshot" {
		version["subresources"] = map[string]any{"status": map[string]any{}}
		schema = map[string]any{"type": "object", "required": []any{"spec"}, "properties": map[string]any{
			"spec": map[string]any{"type": "object", "required": []any{"source"}, "properties": map[string]any{
				"volumeSnapshotClassName": text,
				"source": map[string]any{
					"type": "object", "properties": map[string]any{"persistentVolumeClaimName": text, "volumeSnapshotContentName": text},
					"x-kubernetes-validations": []any{map[string]any{"rule": "has(self.volumeSnapshotContentName) != has(self.persistentVolumeClaimName)"}},
				},
			}},
			"status": map[string]any{"type": "object", "properties": map[string]any{
				"boundVolumeSnapshotContentName": text, "creationTime": time, "readyToUse": map[string]any{"type": "boolean"}, "volumeGroupSnapshotName": text,
				"restoreSize": map[string]any{"x-kubernetes-int-or-string": true, "anyOf": []any{map[string]any{"type": "integer"}, text}},
				"error":       map[string]any{"type": "object", "properties": map[string]any{"message": text, "time": time}},
			}},
		}}
		version["schema"] = map[string]any{"openAPIV3Schema": schema}
	}
	create(t, c, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + ".snapshot.storage.k8s.io", "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, a test"}},
		"spec": map[string]any{
			"group": "snapshot.storage.k8s.io", "scope": scope, "versions": []any{version},
			"names": map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
		},
	}})
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("snapshot.storage.k8s.io/v1")
	list.SetKind(kind + "List")
	eventually(t, func() error { return c.List(t.Context(), list) })
}

// snapshotOf returns a snapshot of class quick of a claim.
func snapshotOf(namespace, name, claim string) *unstructured.Unstructured {
	snapshot := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
		"spec": map[string]any{"volumeSnapshotClassName": "quick", "source": map[string]any{"persistentVolumeClaimName": claim}},
	}}
	snapshot.SetNamespace(namespace)
	snapshot.SetName(name)
	return snapshot
}

func anySnapshot() *unstructured.Unstructured { return snapshotOf("", "", "") }

// takes plays the snapshot controller of a super cluster, which writes the status of a snapshot.
func takes(t *testing.T, super client.Client, snapshot *unstructured.Unstructured, status map[string]any) {
	t.Helper()
	await.Change(t, super, snapshot, func(snapshot *unstructured.Unstructured) { snapshot.Object["status"] = status }, "status")
}

func hasStatus(field string, want any) func(*unstructured.Unstructured) bool {
	return func(snapshot *unstructured.Unstructured) bool {
		value, _, _ := unstructured.NestedFieldNoCopy(snapshot.Object, append([]string{"status"}, strings.Split(field, ".")...)...)
		return value == want
	}
}

// restored returns a claim that is to be restored from a snapshot.
func restored(namespace, name, snapshot, home string) *corev1.PersistentVolumeClaim {
	claim := newClaim(namespace, name, home)
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: snapshot}
	return claim
}

// TestSnapshots: a tenant's snapshot is taken where its claim is, tells its tenant what is true of it, and gives its
// data to a claim there. Another tenant has all the same names in the other super cluster. The test plays provisioners
// and snapshot controllers.
func TestSnapshots(t *testing.T) {
	w := newWorld(t, needs{r2: true, ownTenant: true})
	other := w.neighbour(t, "b")
	w.options = func(options *syncer.Options) { options.Unserved = time.Second }
	require.NoError(t, w.controlPlane.StartControllers(t.Context()))
	for _, each := range []*world{w, other} {
		each.allowSnapshots(t)
		storageClass(t, each.tenant)
		each.place(t, "web", "r1", "r2")
	}
	served := []*tenants.Tenant{w.engaged(w.tenantConfig), other.engaged(other.tenantConfig)}
	r1, r2 := w.startSyncerWith(t, w.superConfig, engaging(served)), w.startSyncerWith(t, w.super2Config, engaging(served))
	closes(t, r1.ready, "the tenants' caches are synced")
	closes(t, r2.ready, "the tenants' caches are synced")
	// The definitions come while syncers run.
	for _, c := range []client.Client{w.super, w.super2, w.tenant, other.tenant} {
		serveSnapshots(t, c, "VolumeSnapshot", "volumesnapshots", "Namespaced")
	}
	foreign := tenancy.SuperNamespace(other.key, "web")
	// look waits until the syncers of both super clusters have looked at everything of both tenants.
	look := func(t *testing.T) {
		t.Helper()
		patrols(t, r1.numbers)
		patrols(t, r2.numbers)
	}

	t.Run("it is taken where its claim is", func(t *testing.T) {
		create(t, w.tenant, snapshotOf("web", "s", "data"))
		w.warned(t, "web", "s", "FailedCreate") // there is no such claim
		create(t, w.tenant, newClaim("web", "data", "r1"))
		create(t, other.tenant, newClaim("web", "data", "r2"))
		create(t, other.tenant, snapshotOf("web", "s", "data"))
		superSnapshot := appears(t, w.super, w.superName("web"), "s", anySnapshot(), nil)
		require.Equal(t, snapshotOf("", "", "data").Object["spec"], superSnapshot.Object["spec"])
		appears(t, w.super2, foreign, "s", anySnapshot(), nil)
		provision(t, w.super, appears(t, w.super, w.superName("web"), "data", &corev1.PersistentVolumeClaim{}, nil), "pvc-1")
		appears(t, w.tenant, "web", "data", &corev1.PersistentVolumeClaim{}, isBound)
		look(t)
		lacks(t, w.super2, w.superName("web"), "s", anySnapshot())
		lacks(t, w.super, foreign, "s", anySnapshot())
	})
	t.Run("its status comes up without foreign names", func(t *testing.T) {
		snapshot := snapshotOf(w.superName("web"), "s", "")
		takes(t, w.super, snapshot, map[string]any{"readyToUse": false, "error": map[string]any{"message": "cannot snapshot " + w.superName("web") + "/data", "time": "2026-01-01T00:00:00Z"}})
		appears(t, w.tenant, "web", "s", anySnapshot(), hasStatus("error.message", "cannot snapshot web/data"))
		takes(t, w.super, snapshot, map[string]any{
			"boundVolumeSnapshotContentName": "snapcontent-1", "readyToUse": true, "restoreSize": "1Gi", "creationTime": "2026-01-01T00:00:01Z",
		})
		told := appears(t, w.tenant, "web", "s", anySnapshot(), hasStatus("readyToUse", true))
		require.Equal(t, map[string]any{"readyToUse": true, "restoreSize": "1Gi", "creationTime": "2026-01-01T00:00:01Z"}, told.Object["status"])
		require.Equal(t, "r1", told.GetAnnotations()[schedulerv1alpha1.AnnotationSuperCluster])
		lacksStatus := appears(t, other.tenant, "web", "s", anySnapshot(), nil)
		require.Empty(t, lacksStatus.Object["status"])
	})
	t.Run("a claim is restored where its snapshot is", func(t *testing.T) {
		create(t, w.tenant, restored("web", "copy", "s", ""))
		superClaim := appears(t, w.super, w.superName("web"), "copy", &corev1.PersistentVolumeClaim{}, nil)
		require.Equal(t, "s", superClaim.Spec.DataSource.Name)
		provision(t, w.super, superClaim, "pvc-2")
		claim := appears(t, w.tenant, "web", "copy", &corev1.PersistentVolumeClaim{}, isBound)
		require.Equal(t, "r1.pvc-2", claim.Spec.VolumeName)
		// Another home than that of its snapshot, and a snapshot that is not there yet.
		create(t, w.tenant, restored("web", "forged", "s", "r2"))
		w.warned(t, "web", "forged", "FailedCreate")
		patrols(t, r2.numbers)
		lacks(t, w.super2, w.superName("web"), "forged", &corev1.PersistentVolumeClaim{})
		create(t, w.tenant, restored("web", "early", "late", ""))
		create(t, w.tenant, snapshotOf("web", "late", "data"))
		appears(t, w.super, w.superName("web"), "early", &corev1.PersistentVolumeClaim{}, nil)
	})
	t.Run("what is refused", func(t *testing.T) { w.testSnapshotsRefused(t, look) })
	t.Run("it outlives its claim, and the placement of its namespace", func(t *testing.T) {
		for _, name := range []string{"copy", "early", "data"} {
			gone := newClaim("web", name, "")
			require.NoError(t, w.tenant.Delete(t.Context(), gone))
			letGo(t, w.super, newClaim(w.superName("web"), name, ""))
			vanishes(t, w.tenant, "web", name, gone)
		}
		create(t, w.tenant, newClaim("web", "data", "r2")) // of the same name, elsewhere
		appears(t, w.super2, w.superName("web"), "data", &corev1.PersistentVolumeClaim{}, nil)
		w.place(t, "web", "r2")
		w.place(t, "mark", "r1")
		appears(t, w.super, "", w.superName("mark"), &corev1.Namespace{}, nil)
		appears(t, w.super, w.superName("web"), "s", anySnapshot(), func(snapshot *unstructured.Unstructured) bool { return snapshot.GetDeletionTimestamp() == nil })
		appears(t, w.super, "", w.superName("web"), &corev1.Namespace{}, func(namespace *corev1.Namespace) bool { return namespace.DeletionTimestamp == nil })
		patrols(t, r2.numbers)
		lacks(t, w.super2, w.superName("web"), "s", anySnapshot())
		w.place(t, "web", "r1", "r2")
	})
	t.Run("it is not taken again once it is lost", func(t *testing.T) {
		require.NoError(t, w.super2.Delete(t.Context(), appears(t, w.super2, foreign, "s", anySnapshot(), nil))) // not taken yet
		again := appears(t, w.super2, foreign, "s", anySnapshot(), nil)
		takes(t, w.super2, again, map[string]any{"readyToUse": true, "creationTime": "2026-01-01T00:00:02Z"})
		appears(t, other.tenant, "web", "s", anySnapshot(), hasStatus("readyToUse", true))
		require.NoError(t, w.super2.Delete(t.Context(), again))
		other.warned(t, "web", "s", "SnapshotLost")
		lost := appears(t, other.tenant, "web", "s", anySnapshot(), hasStatus("readyToUse", false))
		require.Contains(t, lost.Object["status"].(map[string]any)["error"].(map[string]any)["message"], "no longer exists in super cluster r2")
		patrols(t, r2.numbers)
		lacks(t, w.super2, foreign, "s", anySnapshot())
	})
	t.Run("it is deleted while no syncer runs", func(t *testing.T) {
		takes(t, w.super, snapshotOf(w.superName("web"), "late", ""), map[string]any{"boundVolumeSnapshotContentName": "snapcontent-2", "readyToUse": true})
		late := appears(t, w.tenant, "web", "late", anySnapshot(), hasStatus("readyToUse", true))
		require.Equal(t, []string{"claim.tenancy.x-k8s.io/r1"}, late.GetFinalizers())
		r1.stop()
		require.NoError(t, w.tenant.Delete(t.Context(), snapshotOf("web", "s", "")))
		// The tenant lacks late, as after a restore of its control plane, and nobody has seen that being deleted.
		await.Change(t, w.tenant, late, func(late *unstructured.Unstructured) { late.SetFinalizers(nil) })
		require.NoError(t, w.tenant.Delete(t.Context(), late))
		again := w.startSyncerWith(t, w.superConfig, engaging(served))
		vanishes(t, w.super, w.superName("web"), "s", anySnapshot())
		vanishes(t, w.tenant, "web", "s", anySnapshot())
		closes(t, again.ready, "the tenants' caches are synced")
		kept := appears(t, w.super, w.superName("web"), "late", anySnapshot(), func(snapshot *unstructured.Unstructured) bool {
			return snapshot.GetLabels()["tenancy.x-k8s.io/kept"] == "true"
		})
		require.NoError(t, w.super.Delete(t.Context(), kept))
		vanishes(t, w.super, w.superName("web"), "late", anySnapshot())
		create(t, w.tenant, snapshotOf("web", "last", "data"))
		appears(t, w.super2, w.superName("web"), "last", anySnapshot(), nil)
		// The definition goes, and the other one with that.
		crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
		crd.SetName("volumesnapshots.snapshot.storage.k8s.io")
		require.NoError(t, w.tenant.Delete(t.Context(), crd))
		vanishes(t, w.super2, w.superName("web"), "last", anySnapshot())
		vanishes(t, w.tenant, "", crd.GetName(), crd)
	})
}

// TestSnapshotsAreCounted: the quota of a super namespace counts its snapshots, which a drain waits for.
func TestSnapshotsAreCounted(t *testing.T) {
	w := newWorld(t, needs{quotas: true, own: true})
	serveSnapshots(t, w.super, "VolumeSnapshot", "volumesnapshots", "Namespaced")
	require.NoError(t, w.r1.StartControllers(t.Context())) // they know the type when they see the quota
	w.runSyncer(t, w.superConfig)
	w.place(t, "web", "r1")
	counts := func(want int64) {
		t.Helper()
		appears(t, w.super, w.superName("web"), "superpool", &corev1.ResourceQuota{}, func(quota *corev1.ResourceQuota) bool {
			used, counted := quota.Status.Used[placement.SnapshotsInQuota]
			return counted && used.Value() == want
		})
	}
	counts(0)
	snapshot := snapshotOf(w.superName("web"), "s", "data")
	create(t, w.super, snapshot)
	counts(1)
	require.NoError(t, w.super.Delete(t.Context(), snapshot))
	counts(0)
}

// allowSnapshots is allowClaims, with snapshots of class quick, at most 4 of them.
func (w *world) allowSnapshots(t *testing.T) {
	t.Helper()
	w.follow(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.Volumes = append(spec.Pods.Volumes, "persistentVolumeClaim")
		spec.Pods.StorageClasses, spec.Offers.VolumeSnapshotClasses = []string{"fast"}, []string{"quick"}
		spec.Limits.PersistentVolumeClaims, spec.Limits.Storage = 10, builders.Resources("storage", "20Gi")["storage"]
		spec.Limits.Objects = append(spec.Limits.Objects, tenancyv1alpha1.ObjectLimit{Resource: "volumesnapshots", Count: 4, Bytes: builders.Resources("a", "1Mi")["a"]})
	})
}

// testSnapshotsRefused makes snapshots and claims that a tenant may not have. look waits until both syncers have looked
// at everything.
func (w *world) testSnapshotsRefused(t *testing.T, look func(t *testing.T)) {
	content := snapshotOf("web", "content", "")
	content.Object["spec"].(map[string]any)["source"] = map[string]any{"volumeSnapshotContentName": "snapcontent-of-another"}
	class := snapshotOf("web", "class", "data")
	class.Object["spec"].(map[string]any)["volumeSnapshotClassName"] = "slow"
	classless := snapshotOf("web", "classless", "data")
	delete(classless.Object["spec"].(map[string]any), "volumeSnapshotClassName")
	elsewhere := snapshotOf("web", "elsewhere", "data")
	elsewhere.SetAnnotations(map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r2"})
	for _, object := range []client.Object{content, class, classless, elsewhere, restored("web", "nothing", "none", "r1")} {
		create(t, w.tenant, object)
	}
	for name, reason := range map[string]string{
		"content": "PolicyForbids", "class": "PolicyForbids", "classless": "PolicyForbids", "elsewhere": "FailedCreate", "nothing": "FailedCreate",
	} {
		w.warned(t, "web", name, reason)
	}
	for _, name := range []string{"one", "two", "three"} { // beside s and late
		create(t, w.tenant, snapshotOf("web", name, "data"))
	}
	eventually(t, func() error { // either of the last two
		var events corev1.EventList
		if err := w.tenant.List(t.Context(), &events); err != nil {
			return err
		}
		for i := range events.Items {
			if events.Items[i].Reason == "TenantLimit" && strings.Contains(events.Items[i].Message, "4 volumesnapshots of at most 4 exist") {
				return nil
			}
		}
		return fmt.Errorf("no Event TenantLimit among %d", len(events.Items))
	})
	look(t)
	for _, super := range []client.Client{w.super, w.super2} {
		for _, name := range []string{"content", "class", "classless", "elsewhere"} {
			lacks(t, super, w.superName("web"), name, anySnapshot())
		}
	}
	for _, name := range []string{"one", "two", "three"} {
		require.NoError(t, w.tenant.Delete(t.Context(), snapshotOf("web", name, "")))
		vanishes(t, w.super, w.superName("web"), name, anySnapshot())
	}
}
