package volumes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/volumes"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestSuperSnapshot: what of a tenant's snapshot goes down.
func TestSuperSnapshot(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		tenant, want map[string]any
	}{
		{
			name:   "of a claim",
			tenant: map[string]any{"volumeSnapshotClassName": "quick", "source": map[string]any{"persistentVolumeClaimName": "data", "other": "x"}, "other": "x"},
			want:   map[string]any{"volumeSnapshotClassName": "quick", "source": map[string]any{"persistentVolumeClaimName": "data"}},
		},
		{
			name:   "of a content, for the policy to refuse",
			tenant: map[string]any{"source": map[string]any{"volumeSnapshotContentName": "c"}},
			want:   map[string]any{"source": map[string]any{"volumeSnapshotContentName": "c"}},
		},
		{name: "of another form", tenant: map[string]any{"source": "x", "volumeSnapshotClassName": int64(1)}, want: map[string]any{"source": map[string]any{}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			created := kindtest.Snapshot(nil, nil)
			volumes.SuperSnapshot(kindtest.Snapshot(tc.tenant, nil), created)
			require.Empty(t, cmp.Diff(tc.want, created.Object["spec"]))
		})
	}
	existing := kindtest.Snapshot(map[string]any{"volumeSnapshotClassName": "the default"}, nil)
	existing.SetUID("uid")
	want := existing.DeepCopy()
	volumes.SuperSnapshot(kindtest.Snapshot(map[string]any{"volumeSnapshotClassName": "other"}, nil), existing)
	require.Empty(t, cmp.Diff(want, existing), "what exists cannot change")
}

// TestTenantSnapshotStatus: what a tenant is told.
func TestTenantSnapshotStatus(t *testing.T) {
	t.Parallel()
	before := map[string]any{"readyToUse": false}
	for _, tc := range []struct {
		name        string
		super, want map[string]any
	}{
		{name: "nothing yet", want: before},
		{
			name:  "ready",
			super: map[string]any{"boundVolumeSnapshotContentName": "snapcontent-1", "readyToUse": true, "restoreSize": "1Gi", "creationTime": "now", "volumeGroupSnapshotName": "g"},
			want:  map[string]any{"readyToUse": true, "restoreSize": "1Gi", "creationTime": "now"},
		},
		{
			name:  "an error",
			super: map[string]any{"error": map[string]any{"message": "no " + strings.Repeat("x", 10000), "time": "now"}},
			want:  map[string]any{"error": map[string]any{"message": tenancy.Cut("yes"+strings.Repeat("x", 10000), tenancy.MaxEventNote), "time": "now"}},
		},
		{name: "of another form", super: map[string]any{"readyToUse": "x", "restoreSize": map[string]any{}, "error": "x"}, want: before},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tenant := kindtest.Snapshot(nil, before)
			volumes.TenantSnapshotStatus(kindtest.Snapshot(nil, tc.super), tenant, func(message string) string { return strings.Replace(message, "no ", "yes", 1) })
			require.Empty(t, cmp.Diff(tc.want, tenant.Object["status"]))
		})
	}
}

// TestAWitnessOfSnapshots: a super snapshot that was taken goes with a deletion that was seen, and is kept without one.
func TestAWitnessOfSnapshots(t *testing.T) {
	t.Parallel()
	const witness, others = "claim.tenancy.x-k8s.io/r1", "snapshot.storage.kubernetes.io/others"
	taken := map[string]any{"boundVolumeSnapshotContentName": "snapcontent-1"}
	now := metav1.Now()
	for _, tc := range []struct {
		name string
		// uid is that of the tenant's snapshot, "" for none, and finalizers are its, deleted whether it is being
		// deleted.
		uid        types.UID
		finalizers []string
		deleted    bool
		change     func(tenant *unstructured.Unstructured)
		// refused is whether the tenant's policy allows no snapshots.
		refused bool
		// super is the status of the super snapshot of UID uid, foreign whether it has another owner, and none whether
		// there is none.
		super         map[string]any
		foreign, none bool
		// want is "stays", "goes" or "kept", and wantFinalizers are those of the tenant's then.
		want           string
		wantFinalizers []string
	}{
		{name: "it gets a witness", uid: "uid", super: taken, want: "stays", wantFinalizers: []string{witness}},
		{name: "it is deleted", uid: "uid", finalizers: []string{witness}, deleted: true, super: taken, want: "goes", wantFinalizers: []string{witness}},
		{name: "it is deleted, and used", uid: "uid", finalizers: []string{witness, others}, deleted: true, super: taken, want: "stays", wantFinalizers: []string{witness, others}},
		{name: "it is missing", super: taken, want: "kept"},
		{name: "it is missing, and told its tenant that it was ready", super: map[string]any{"readyToUse": true}, want: "kept"},
		{name: "it is missing, and was not taken", super: map[string]any{"readyToUse": false}, want: "goes"},
		{name: "it was replaced", uid: "other", super: taken, want: "kept"},
		{name: "it was replaced before it was taken", uid: "other", want: "goes"},
		{name: "it was replaced by one that is deleted", uid: "other", finalizers: []string{others, witness}, deleted: true, super: taken, want: "stays", wantFinalizers: []string{others}},
		{name: "the name is another's", uid: "uid", super: taken, foreign: true, want: "stays"},
		{name: "it is deleted, and the name is another's", uid: "uid", finalizers: []string{others, witness}, deleted: true, super: taken, foreign: true, want: "stays", wantFinalizers: []string{others}},
		{name: "nothing is there any more", uid: "uid", finalizers: []string{others, witness}, deleted: true, none: true, wantFinalizers: []string{others}},
		{
			name: "it waits here", uid: "uid", finalizers: []string{witness}, none: true, wantFinalizers: []string{witness},
			change: func(tenant *unstructured.Unstructured) {
				tenant.SetAnnotations(map[string]string{"scheduler.tenancy.x-k8s.io/superCluster": "r1"})
			},
		},
		{
			name: "it waits here, and the policy allows none any more", uid: "uid", finalizers: []string{witness}, none: true, refused: true,
			change: func(tenant *unstructured.Unstructured) {
				tenant.SetAnnotations(map[string]string{"scheduler.tenancy.x-k8s.io/superCluster": "r1"})
			},
		},
		{
			name: "it gets none where the policy allows none", uid: "uid", none: true, refused: true,
			change: func(tenant *unstructured.Unstructured) {
				tenant.SetAnnotations(map[string]string{"scheduler.tenancy.x-k8s.io/superCluster": "r1"})
			},
		},
		{name: "it has no home: the tenant wrote the finalizer itself", uid: "uid", finalizers: []string{witness}, none: true},
		{
			name: "its home is elsewhere", uid: "uid", finalizers: []string{others, witness}, none: true, wantFinalizers: []string{others},
			change: func(tenant *unstructured.Unstructured) {
				tenant.SetAnnotations(map[string]string{"scheduler.tenancy.x-k8s.io/superCluster": "r2"})
			},
		},
		{
			name: "it is to be nowhere: the tenant says so itself", uid: "uid", finalizers: []string{witness}, super: taken, want: "goes", wantFinalizers: []string{witness},
			change: func(tenant *unstructured.Unstructured) {
				tenant.SetLabels(map[string]string{"tenancy.x-k8s.io/ignore-sync": "true"})
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.Governed(t, interceptor.Funcs{})
			if !tc.refused {
				p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Offers.VolumeSnapshotClasses = []string{"quick"} }))
			}
			spec := map[string]any{"volumeSnapshotClassName": "quick", "source": map[string]any{"persistentVolumeClaimName": "data"}}
			if tc.uid != "" {
				tenantSnapshot := kindtest.Snapshot(spec, nil)
				tenantSnapshot.SetNamespace("web")
				tenantSnapshot.SetName("s")
				tenantSnapshot.SetUID(tc.uid)
				tenantSnapshot.SetFinalizers(tc.finalizers)
				if tc.deleted {
					tenantSnapshot.SetDeletionTimestamp(&now)
				}
				if tc.change != nil {
					tc.change(tenantSnapshot)
				}
				p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(tenantSnapshot).Build(), kindtest.TenantUID)
				p.TenantCache[kind.Snapshot] = []client.Object{snapshotIn(t, p, p.Tenant.Client, "web")}
			}
			super := kindtest.Snapshot(spec, tc.super)
			super.SetNamespace(kindtest.ClusterKey + "-web")
			super.SetName("s")
			builders.Owned(super, kindtest.OwnerOf("uid"))
			if tc.foreign {
				tenancy.SetOwner(super, kindtest.ForeignOwners("uid")["another namespace"])
			}
			if !tc.none {
				require.NoError(t, p.SuperClient.Create(t.Context(), super))
				p.SuperCache[kind.Snapshot] = []client.Object{snapshotIn(t, p, p.SuperClient, kindtest.ClusterKey+"-web")}
			}
			_, err := p.Kind(kind.Snapshot).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Snapshot, Namespace: "web", Name: "s"}, 0)
			require.NoError(t, err)
			if left := snapshotIn(t, p, p.Tenant.Client, "web"); left != nil || len(tc.wantFinalizers) > 0 {
				require.NotNil(t, left)
				require.ElementsMatch(t, tc.wantFinalizers, left.GetFinalizers())
				p.TenantCache[kind.Snapshot] = []client.Object{left}
			}
			if tc.none {
				require.Equal(t, slices.Contains(tc.wantFinalizers, witness), p.HasData())
			}
			left := snapshotIn(t, p, p.SuperClient, kindtest.ClusterKey+"-web")
			require.Equal(t, tc.want == "stays" || tc.want == "kept", left != nil)
			if left != nil {
				require.Equal(t, tc.want == "kept", left.GetLabels()["tenancy.x-k8s.io/kept"] == "true")
			}
		})
	}
}

// TestSnapshotsHaveASize: those of a namespace hold ten times limits.storage at most, whatever became of their claims.
func TestSnapshotsHaveASize(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name       string
		restorable any
		want       string
	}{
		{name: "there is room", restorable: "60Gi"},
		{name: "a size that is a number", restorable: int64(60 << 30)},
		{name: "there is none", restorable: "70Gi", want: "would hold 110Gi with this one, and may hold 10 times 10Gi, limits.storage of TenantPolicy"},
		{name: "the other one is being taken of the same claim", want: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.Governed(t, interceptor.Funcs{})
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Offers.VolumeSnapshotClasses, spec.Limits.Storage = []string{"quick"}, resource.MustParse("10Gi")
			}))
			claim := func(namespace string) *corev1.PersistentVolumeClaim {
				claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data", UID: "claim"}}
				claim.Spec.Resources.Requests = builders.Resources("storage", "40Gi")
				claim.Annotations = map[string]string{"scheduler.tenancy.x-k8s.io/superCluster": "r1"}
				return claim
			}
			p.TenantCache[kind.Claim] = []client.Object{claim("web")}
			p.SuperCache[kind.Claim] = []client.Object{builders.Owned(claim(kindtest.ClusterKey+"-web"), kindtest.OwnerOf("claim"))}

			spec := map[string]any{"volumeSnapshotClassName": "quick", "source": map[string]any{"persistentVolumeClaimName": "data"}}
			old := kindtest.Snapshot(spec, nil)
			if tc.restorable != nil {
				old = kindtest.Snapshot(spec, map[string]any{"restoreSize": tc.restorable})
			}
			old.SetNamespace(kindtest.ClusterKey + "-web")
			old.SetName("old")
			p.SuperCache[kind.Snapshot] = []client.Object{builders.Owned(old, kindtest.OwnerOf("old"))}
			added := kindtest.Snapshot(spec, nil)
			added.SetNamespace("web")
			added.SetName("s")
			added.SetUID("uid")
			added.SetAnnotations(map[string]string{"scheduler.tenancy.x-k8s.io/superCluster": "r1"})
			p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(added).Build(), kindtest.TenantUID)
			p.TenantCache[kind.Snapshot] = []client.Object{snapshotIn(t, p, p.Tenant.Client, "web")}
			_, err := p.Kind(kind.Snapshot).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Snapshot, Namespace: "web", Name: "s"}, 0)
			require.NoError(t, err)
			told := strings.Join(p.Told(), "\n")
			require.Equal(t, tc.want == "", snapshotIn(t, p, p.SuperClient, kindtest.ClusterKey+"-web") != nil, told)
			require.Contains(t, told, tc.want)
		})
	}
}

// snapshotIn returns snapshot s in a namespace of a control plane, nil if there is none.
func snapshotIn(t *testing.T, p *kindtest.Pool, reader client.Reader, namespace string) *unstructured.Unstructured {
	t.Helper()
	found := kindtest.Snapshot(nil, nil)
	err := reader.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "s"}, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return found
}
