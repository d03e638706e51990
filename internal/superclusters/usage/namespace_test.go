package usage

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

var webKey = types.NamespacedName{Namespace: "tenant", Name: "web"}

// answers lets quota answer a decision.
func answers(decision string, quota *corev1.ResourceQuota) *corev1.ResourceQuota {
	quota.Annotations[schedulerv1alpha1.AnnotationDecision] = decision
	return quota
}

// holdsStorage says that the storage in quota is reserved.
func holdsStorage(quota *corev1.ResourceQuota) *corev1.ResourceQuota {
	metav1.SetMetaDataAnnotation(&quota.ObjectMeta, schedulerv1alpha1.AnnotationHoldsStorage, "true")
	return quota
}

// TestLedgerCountsStorage follows the claims of a namespace with storage in its quota, and of one without.
func TestLedgerCountsStorage(t *testing.T) {
	t.Parallel()
	ledger, freed := NewLedger(), 0
	ledger.Freed = func(types.NamespacedName) { freed++ }
	dbKey := types.NamespacedName{Namespace: webKey.Namespace, Name: "db"}
	want := func(mayUse, beyond, committed string, told int) {
		t.Helper()
		use, capacity := ledger.Use(webKey), ledger.Capacity()
		require.Equal(t, []string{mayUse, beyond, committed}, []string{use.MayUse().String(), capacity.Beyond.String(), capacity.Committed.String()})
		require.Equal(t, told, freed)
	}
	ledger.SetReserved(webKey, slice.Amounts{"storage": 5 << 30})
	want("", "", "storage=5Gi", 0)
	ledger.SetQuota(builders.OwnedQuota(webKey, "u1", "requests.storage", "100Gi"))
	want("", "", "storage=5Gi", 1) // the policy's limit is nobody's reservation
	ledger.SetQuota(holdsStorage(builders.OwnedQuota(webKey, "u1", "requests.storage", "5Gi")))
	want("storage=5Gi", "", "storage=5Gi", 1)
	ledger.SetClaim(builders.OwnedClaim(webKey, "a", "3Gi"))
	want("storage=5Gi", "", "storage=5Gi", 1)
	require.True(t, ledger.SetClaim(builders.OwnedClaim(webKey, "a", "6Gi")), "it has grown beyond what is reserved")
	want("storage=6Gi", "storage=1Gi", "storage=6Gi", 1)
	require.True(t, ledger.HasOnlyVolumes(webKey))
	require.True(t, ledger.SetClaim(builders.OwnedClaim(webKey, "a", "2Gi")))
	want("storage=5Gi", "", "storage=5Gi", 2)
	require.True(t, ledger.SetClaim(builders.OwnedClaim(dbKey, "b", "1Gi")), "what nobody has reserved is off the capacity")
	want("storage=5Gi", "storage=1Gi", "storage=6Gi", 2)
	use := ledger.Use(dbKey)
	require.True(t, use.IsNothing(), "volumes hold no NamespacePlacement")
	ledger.SetQuota(builders.OwnedQuota(webKey, "u1"))
	want("storage=2Gi", "storage=1Gi", "storage=6Gi", 3)
	ledger.DeleteClaim("a")
	ledger.DeleteClaim("b")
	want("", "", "storage=5Gi", 5)
	ledger.SetReserved(webKey, nil)
	want("", "", "", 5)
}

// TestLedgerCountsClaims: who has volumes, who is told that there are fewer, and when a virtual Node has to say so.
func TestLedgerCountsClaims(t *testing.T) {
	t.Parallel()
	ledger, freed := NewLedger(), 0
	ledger.Freed = func(namespace types.NamespacedName) { require.Equal(t, webKey, namespace); freed++ }
	want := func(changes, changed bool, claims int64, onlyVolumes bool, told int) {
		t.Helper()
		require.Equal(t, changes, changed)
		require.Equal(t, claims, ledger.Use(webKey).Claims)
		require.Equal(t, onlyVolumes, ledger.HasOnlyVolumes(webKey))
		require.Equal(t, told, freed)
	}
	foreign := builders.OwnedClaim(webKey, "foreign")
	foreign.Labels, foreign.Annotations = nil, nil
	want(false, ledger.SetClaim(foreign), 0, false, 0)
	want(true, ledger.SetClaim(builders.OwnedClaim(webKey, "a")), 1, true, 0)
	want(false, ledger.SetClaim(builders.OwnedClaim(webKey, "a")), 1, true, 0)
	ledger.SetPod(builders.OwnedPod(webKey, "p", "n1", "cpu", "1"))
	want(false, ledger.SetClaim(builders.OwnedClaim(webKey, "b")), 2, false, 0)
	require.True(t, ledger.DeletePod("p"), "nothing but claims is there")
	freed = 0
	want(false, ledger.DeleteClaim("a"), 1, true, 1)
	want(false, ledger.DeleteClaim("a"), 1, true, 1)
	want(true, ledger.DeleteClaim("b"), 0, false, 2)
}

// TestLedgerCountsSnapshots: the quota of a super namespace has counted its snapshots.
func TestLedgerCountsSnapshots(t *testing.T) {
	t.Parallel()
	ledger, freed := NewLedger(), 0
	ledger.Freed = func(types.NamespacedName) { freed++ }
	counting := func(snapshots string) *corev1.ResourceQuota {
		quota := builders.OwnedQuota(webKey, "u1", "requests.cpu", "0", "count/volumesnapshots.snapshot.storage.k8s.io", "2147483647")
		if snapshots != "" {
			quota.Status.Used = builders.Resources("count/volumesnapshots.snapshot.storage.k8s.io", snapshots)
		}
		return quota
	}
	want := func(changes, changed bool, snapshots int64) {
		t.Helper()
		require.Equal(t, changes, changed)
		require.Equal(t, snapshots, ledger.Use(webKey).Snapshots)
		require.Equal(t, snapshots > 0, ledger.HasOnlyVolumes(webKey))
		require.True(t, ledger.Use(webKey).Hard.IsZero(), "they are no room")
	}
	want(false, ledger.SetQuota(counting("")), 0)
	want(true, ledger.SetQuota(counting("2")), 2)
	freed = 0
	want(false, ledger.SetQuota(counting("1")), 1)
	require.Equal(t, 1, freed, "there is one less")
	want(true, ledger.DeleteQuota(counting("1")), 0)
}

// TestLedgerCountsTenants follows one namespace: what it may use, what it uses beyond its reservation, and who is told.
func TestLedgerCountsTenants(t *testing.T) {
	t.Parallel()
	ledger, now := NewLedger(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ledger.Clock = testingclock.NewFakePassiveClock(now)
	var freed []types.NamespacedName
	ledger.Freed = func(namespace types.NamespacedName) { freed = append(freed, namespace) }
	ledger.SetNode(builders.Node("n1", "cpu", "8", "memory", "8Gi", "pods", "110").Obj())
	want := func(mayUse, beyond, committed string) {
		t.Helper()
		use := ledger.Use(webKey)
		capacity := ledger.Capacity()
		require.Equal(t, []string{mayUse, beyond, committed}, []string{use.MayUse().String(), capacity.Beyond.String(), capacity.Committed.String()})
		require.Equal(t, "cpu=8,memory=8Gi,pods=110", capacity.Offered.String(), "tenants' pods are not foreign")
	}
	want("", "", "")
	require.True(t, ledger.SetReserved(webKey, slice.Amounts{"cpu": 2000, "pods": 10}))
	want("", "", "cpu=2,pods=10")
	require.False(t, ledger.SetQuota(builders.OwnedQuota(webKey, "u1", "requests.cpu", "1")), "what is reserved counts already")
	want("cpu=1", "", "cpu=2,pods=10")
	require.Equal(t, []types.NamespacedName{webKey}, freed, "another quota than before")
	require.False(t, ledger.SetPod(builders.OwnedPod(webKey, "a", "", "cpu", "500m")), "a pod without a node counts too, and is within what is reserved")
	want("cpu=1,pods=1", "", "cpu=2,pods=10")
	require.True(t, ledger.SetPod(builders.OwnedPod(webKey, "b", "n1", "cpu", "2")))
	want("cpu=2500m,pods=2", "cpu=500m", "cpu=2500m,pods=10")
	require.Len(t, freed, 1, "more is used")
	require.True(t, ledger.SetReserved(webKey, nil))
	want("cpu=2500m,pods=2", "cpu=2500m,pods=2", "cpu=2500m,pods=2")
	require.True(t, ledger.DeletePod("b"))
	want("cpu=1,pods=1", "cpu=1,pods=1", "cpu=1,pods=1")
	require.Len(t, freed, 2)
	require.True(t, ledger.SetQuota(builders.OwnedQuota(webKey, "u1", "requests.cpu", "100m")))
	want("cpu=500m,pods=1", "cpu=500m,pods=1", "cpu=500m,pods=1")
	require.Len(t, freed, 3)
	require.True(t, ledger.DeletePod("a"))
	want("cpu=100m", "cpu=100m", "cpu=100m")
	ledger.SetReserved(webKey, slice.Amounts{"cpu": 1000})
	require.False(t, ledger.SetQuota(answers("d1", builders.OwnedQuota(webKey, "u1", "requests.cpu", "100m"))))
	require.Len(t, freed, 5, "it answers another decision")
	require.Equal(t, "d1", ledger.Use(webKey).Decision)
	require.False(t, ledger.DeleteQuota(answers("d2", builders.OwnedQuota(webKey, "u1"))))
	want("", "", "cpu=1")
	require.Len(t, freed, 6)
	require.Equal(t, placement.Use{Requests: slice.Amounts{}, Decision: "d2", QuotaGone: now}, ledger.Use(webKey), "what it answered at last")
	ledger.SetQuota(builders.OwnedQuota(webKey, "u2"))
	require.Equal(t, placement.Use{Requests: slice.Amounts{}, Hard: slice.Amounts{}, NamespaceUID: "u2"}, ledger.Use(webKey), "another one answers for itself")
	charged := answers("d3", builders.OwnedQuota(webKey, "u2"))
	charged.Status.Used = builders.Resources("requests.cpu", "1")
	ledger.DeleteQuota(charged)
	require.Equal(t, placement.Use{Requests: slice.Amounts{}, QuotaGone: now}, ledger.Use(webKey), "the watch of pods has yet to show one")
	ledger.SetReserved(webKey, nil)
	require.Empty(t, ledger.Namespaces(), "nothing is left of it")
}

// TestQuotaThatWasLowered: admission goes by the status, which the super cluster's controller manager writes.
func TestQuotaThatWasLowered(t *testing.T) {
	t.Parallel()
	ledger := NewLedger()
	quota := builders.OwnedQuota(webKey, "u1", "requests.cpu", "1", "count/secrets", "7", "requests.nvidia.com/gpu", "0")
	quota.Status.Hard = builders.Resources("requests.cpu", "4", "requests.memory", "1Gi")
	ledger.SetQuota(quota)
	use := ledger.Use(webKey)
	require.Equal(t, "cpu=4,memory=1Gi", use.MayUse().String())
	require.Equal(t, types.UID("u1"), use.NamespaceUID)
	quota = quota.DeepCopy()
	quota.Status.Hard = quota.Spec.Hard
	ledger.SetQuota(quota)
	use = ledger.Use(webKey)
	require.Equal(t, "cpu=1", use.MayUse().String())
	quota = quota.DeepCopy()
	quota.Status.Used = builders.Resources("requests.cpu", "1500m", "requests.memory", "1Mi")
	ledger.SetQuota(quota)
	use = ledger.Use(webKey)
	require.Equal(t, "cpu=1500m,memory=1Mi", use.MayUse().String(), "a pod was charged that the watch of pods has yet to show")
}

// TestIncompleteMarks: what bears our label and not our marks was not made by the pool.
func TestIncompleteMarks(t *testing.T) {
	t.Parallel()
	ledger := NewLedger()
	ledger.SetNode(builders.Node("n1", "cpu", "8", "pods", "110").Obj())
	pod := builders.OwnedPod(webKey, "a", "n1", "cpu", "1")
	pod.Annotations = nil
	quota := builders.OwnedQuota(webKey, "u1", "requests.cpu", "1")
	quota.Annotations = nil
	require.True(t, ledger.SetPod(pod))
	require.False(t, ledger.SetQuota(quota))
	require.Equal(t, "cpu=7,pods=109", ledger.Capacity().Offered.String())
	require.Empty(t, ledger.Namespaces())
	require.True(t, ledger.SetPod(builders.OwnedPod(webKey, "a", "n1", "cpu", "1")), "an operator put them back")
	require.Equal(t, "cpu=8,pods=110", ledger.Capacity().Offered.String())
	require.Equal(t, "cpu=1,pods=1", ledger.Use(webKey).Requests.String())
}

// TestLedgerOfTenantsIsASum checks random events against the sums made from scratch.
func TestLedgerOfTenantsIsASum(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(11, 12))
	ledger := NewLedger()
	pods, quotas, reserved := map[string]*corev1.Pod{}, map[types.NamespacedName]*corev1.ResourceQuota{}, map[types.NamespacedName]slice.Amounts{}
	amount := func() string { return fmt.Sprintf("%dm", random.IntN(4)*500) }
	for range 5_000 {
		key := types.NamespacedName{Namespace: "tenant", Name: fmt.Sprintf("ns%d", random.IntN(4))}
		name := fmt.Sprintf("p%d", random.IntN(20))
		switch random.IntN(7) {
		case 0, 1, 2:
			pods[name] = builders.OwnedPod(key, name, "", "cpu", amount(), "memory", "1Gi")
			ledger.SetPod(pods[name])
		case 3:
			delete(pods, name)
			ledger.DeletePod(types.UID(name))
		case 4:
			quotas[key] = builders.OwnedQuota(key, "u", "requests.cpu", amount())
			ledger.SetQuota(quotas[key])
		case 5:
			if quota := quotas[key]; quota != nil {
				delete(quotas, key)
				ledger.DeleteQuota(quota)
			}
		default:
			reserved[key] = slice.Of(builders.Resources("cpu", amount(), "pods", "2"))
			ledger.SetReserved(key, reserved[key])
		}
		beyond, committed := slice.Amounts{}, slice.Amounts{}
		for i := range 4 {
			key := types.NamespacedName{Namespace: "tenant", Name: fmt.Sprintf("ns%d", i)}
			use := placement.Use{}
			for _, pod := range pods {
				if owner, _ := tenancy.GetOwner(pod); owner.Namespace == key.Name {
					use.Requests = use.Requests.Plus(slice.Taken(pod, slice.Reading{Pods: true}))
				}
			}
			if quota := quotas[key]; quota != nil {
				use.Hard = hardOf(quota)
			}
			here := ledger.Use(key)
			require.Equal(t, use.MayUse().Minus(nil).String(), here.MayUse().Minus(nil).String())
			beyond = beyond.Plus(use.MayUse().Minus(reserved[key]))
			committed = committed.Plus(reserved[key].Plus(use.MayUse().Minus(reserved[key])))
		}
		capacity := ledger.Capacity()
		require.Empty(t, cmp.Diff(beyond.Minus(nil), capacity.Beyond, cmpopts.EquateEmpty()))
		require.Empty(t, cmp.Diff(committed.Minus(nil), capacity.Committed, cmpopts.EquateEmpty()))
	}
}

// BenchmarkPodsOfTenants measures what a pod of a tenant costs: memory in the informer's store and in the ledger, and
// time for an event. 100,000 pods are in 10,000 namespaces.
func BenchmarkPodsOfTenants(b *testing.B) {
	const pods = 100_000
	made := func(i, version int) any {
		key := types.NamespacedName{Namespace: fmt.Sprintf("tenant-%04d", i%1000), Name: fmt.Sprintf("namespace-%05d", i%10_000)}
		pod := builders.OwnedPod(key, fmt.Sprintf("deployment-7d9f8b6c5d-%06d", i), fmt.Sprintf("node-%04d", i%2000), "cpu", fmt.Sprintf("%dm", 100+version), "memory", "128Mi")
		record, err := TrimPod(pod)
		require.NoError(b, err)
		return record
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	store, ledger := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc), NewLedger()
	for i := range pods {
		record := made(i, 0)
		require.NoError(b, store.Add(record))
		ledger.SetRecord(record.(*PodRecord))
	}
	b.ReportMetric(float64(heap()-before)/pods, "B/pod")
	records := make([]*PodRecord, 1000)
	for i := range records {
		records[i] = made(i, 1).(*PodRecord)
	}
	b.Run("event", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if record := records[i%len(records)]; (i/len(records))%2 == 0 {
				ledger.SetRecord(record)
			} else {
				ledger.DeletePod(record.UID)
			}
		}
	})
	runtime.KeepAlive(store)
}
