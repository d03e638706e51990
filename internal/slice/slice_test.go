package slice_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

const mi = int64(1) << 20

// amounts reads the short form "cpu=200m,memory=1Gi".
func amounts(t testing.TB, text string) slice.Amounts {
	t.Helper()
	list := corev1.ResourceList{}
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		name, quantity, _ := strings.Cut(part, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	result, errs := slice.FromList(list, field.NewPath("test"))
	require.Empty(t, errs)
	return result
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, quota, size string
		want              []string // count × size
	}{
		{name: "the demo", quota: "cpu=200m,memory=200Mi,pods=2", size: "cpu=100m,memory=100Mi,pods=1", want: []string{"2×cpu=100m,memory=100Mi,pods=1"}},
		{name: "five", quota: "cpu=2500m", size: "cpu=500m", want: []string{"5×cpu=500m"}},
		{name: "a partial one last", quota: "cpu=250m", size: "cpu=100m", want: []string{"2×cpu=100m", "1×cpu=50m"}},
		{name: "memory goes to all slices", quota: "cpu=4,memory=4Gi", size: "cpu=1,memory=4Gi", want: []string{"4×cpu=1,memory=1Gi"}},
		{
			name: "memory that cannot be divided evenly", quota: "cpu=2500m,memory=1Gi", size: "cpu=500m,memory=1Gi",
			want: []string{"4×cpu=500m,memory=205Mi", "1×cpu=500m,memory=204Mi"},
		},
		{name: "much memory leads", quota: "cpu=2,memory=64Gi", size: "cpu=2,memory=4Gi", want: []string{"16×cpu=125m,memory=4Gi"}},
		{name: "a partial slice has its part of all", quota: "cpu=5,memory=5Gi", size: "cpu=2,memory=4Gi", want: []string{"2×cpu=2,memory=2Gi", "1×cpu=1,memory=1Gi"}},
		{name: "pieces go to the first slices", quota: "cpu=5,nvidia.com/gpu=3", size: "cpu=1,nvidia.com/gpu=2", want: []string{"3×cpu=1,nvidia.com/gpu=1", "2×cpu=1"}},
		{name: "more pieces than slices", quota: "cpu=3,nvidia.com/gpu=4", size: "cpu=1,nvidia.com/gpu=2", want: []string{"1×cpu=1,nvidia.com/gpu=2", "2×cpu=1,nvidia.com/gpu=1"}},
		{name: "extended resource counts one by one", quota: "cpu=3,nvidia.com/gpu=3", size: "cpu=2", want: []string{"3×cpu=1,nvidia.com/gpu=1"}},
		{name: "a resource without any size is spread", quota: "cpu=2,ephemeral-storage=10Gi", size: "cpu=1", want: []string{"2×cpu=1,ephemeral-storage=5Gi"}},
		{name: "no size at all", quota: "memory=1Gi,ephemeral-storage=10Gi", want: []string{"1×ephemeral-storage=10Gi,memory=1Gi"}},
		{name: "storage is spread like any other", quota: "cpu=4,storage=10Gi", size: "cpu=1", want: []string{"4×cpu=1,storage=2560Mi"}},
		{name: "storage that the size names leads", quota: "cpu=2,storage=40Gi", size: "cpu=1,storage=10Gi", want: []string{"4×cpu=500m,storage=10Gi"}},
		{name: "huge pages are whole", quota: "cpu=3,hugepages-1Gi=4Gi", size: "cpu=1", want: []string{"1×cpu=1,hugepages-1Gi=2Gi", "2×cpu=1,hugepages-1Gi=1Gi"}},
		{name: "larger than the quota", quota: "cpu=100m,memory=100Mi", size: "cpu=4,memory=8Gi", want: []string{"1×cpu=100m,memory=100Mi"}},
		{name: "a pod for the last crumb", quota: "cpu=2010m,pods=21", size: "cpu=2,pods=20", want: []string{"1×cpu=2,pods=20", "1×cpu=10m,pods=1"}},
		{name: "pods that the size names lead", quota: "cpu=2,pods=40", size: "cpu=2,pods=10", want: []string{"4×cpu=500m,pods=10"}},
		{name: "fewer pods than slices", quota: "cpu=3,pods=2", size: "cpu=1,pods=10", want: []string{"2×cpu=1,pods=1", "1×cpu=1"}},
		{name: "equal ratios", quota: "cpu=3,memory=3Gi", size: "cpu=2,memory=2Gi", want: []string{"1×cpu=2,memory=2Gi", "1×cpu=1,memory=1Gi"}},
		{name: "nothing", quota: "", size: "cpu=1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			quota, size := amounts(t, tc.quota), amounts(t, tc.size)
			require.Empty(t, cmp.Diff(tc.want, written(slice.Cut(quota, size))))
			requireCut(t, quota, size)
		})
	}
}

// written returns runs as count × size.
func written(runs []slice.Run) []string {
	var all []string
	for _, run := range runs {
		all = append(all, fmt.Sprintf("%d×%s", run.Count, run.Size))
	}
	return all
}

// requireCut checks what holds for every cut.
func requireCut(t testing.TB, quota, size slice.Amounts) {
	t.Helper()
	runs := slice.Cut(quota, size)
	require.Empty(t, cmp.Diff(quota.Minus(nil), slice.Total(runs)), "the slices must add up to the quota %s by %s", quota, size)
	count := int64(0)
	for i, run := range runs {
		count += run.Count
		require.Positive(t, run.Count)
		require.False(t, run.Size.IsZero())
		for name, amount := range run.Size {
			require.Positive(t, amount, "%s of %s by %s", name, quota, size)
			piece := size[name]
			if piece == 0 && slice.IsExtended(name) {
				piece = 1
			}
			if piece > 0 {
				require.LessOrEqual(t, amount, piece, "%s of %s by %s", name, quota, size)
			}
		}
		if i > 0 {
			require.True(t, run.Size.Fits(runs[i-1].Size), "slice %s is larger than the one before it, %s", run.Size, runs[i-1].Size)
		}
	}
	require.Equal(t, slice.Count(quota, size), count)
	most := int64(1)
	for name, amount := range quota {
		piece := size[name]
		if piece == 0 && slice.IsExtended(name) {
			piece = 1
		}
		if piece > 0 && amount > 0 {
			most = max(most, (amount-1)/piece+1)
		}
	}
	require.LessOrEqual(t, count, most, "no more slices than the lead makes")
	require.LessOrEqual(t, len(runs), len(quota)+1)
}

var resources = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods, "hugepages-2Mi", "nvidia.com/gpu", "example.com/x",
	corev1.ResourceStorage,
}

// pick returns random amounts of some resources, some of them zero if zeros.
func pick(random *rand.Rand, zeros bool) slice.Amounts {
	result := slice.Amounts{}
	for _, name := range resources {
		switch random.IntN(6) {
		case 0, 1:
		case 2:
			if zeros {
				result[name] = 0
			}
		case 3:
			result[name] = (1 + random.Int64N(64)) * mi
		default:
			result[name] = 1 + random.Int64N(int64(1)<<(1+random.IntN(53)))
		}
	}
	return result
}

func TestCutProperties(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 4_000 {
		requireCut(t, pick(random, true), pick(random, false))
	}
}

func FuzzCut(f *testing.F) {
	f.Add(int64(200), 200*mi, int64(0), int64(2), int64(100), 100*mi, int64(1), int64(1))
	f.Add(slice.MaxAmount, slice.MaxAmount, slice.MaxAmount, slice.MaxAmount, int64(1), int64(2), slice.MaxAmount, int64(3))
	f.Fuzz(func(t *testing.T, cpu, memory, gpu, pods, cpuSize, memorySize, gpuSize, podsSize int64) {
		of := func(a, b, c, d int64) slice.Amounts {
			list := slice.Amounts{corev1.ResourceCPU: a, corev1.ResourceMemory: b, "nvidia.com/gpu": c, corev1.ResourcePods: d}
			for name, amount := range list {
				if list[name] = amount & (slice.MaxAmount - 1); list[name] == 0 {
					delete(list, name)
				}
			}
			return list
		}
		requireCut(t, of(cpu, memory, gpu, pods), of(cpuSize, memorySize, gpuSize, podsSize))
	})
}

// TestCutIsEven checks that no slice has much less than its part: where the lead is half, everything is about half.
func TestCutIsEven(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	for range 2_000 {
		cores, count := 1+random.Int64N(8), 1+random.Int64N(1000)
		quota := slice.Amounts{corev1.ResourceCPU: count * cores * 1000, corev1.ResourceMemory: 1 + random.Int64N(count*cores*4<<30)}
		runs := slice.Cut(quota, slice.Amounts{corev1.ResourceCPU: cores * 1000, corev1.ResourceMemory: cores * 4 << 30})
		part := quota[corev1.ResourceMemory] / count
		for _, run := range runs {
			require.InDelta(t, part, run.Size[corev1.ResourceMemory], float64(part/100+1), "%s in %d slices: %v", quota, count, written(runs))
		}
	}
}

func TestFromList(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, quantity string
		resource       corev1.ResourceName
		want           int64
		wantError      string
	}{
		{name: "milli cpu", resource: "cpu", quantity: "100m", want: 100},
		{name: "parts of a milli cpu are rounded up", resource: "cpu", quantity: "1n", want: 1},
		{name: "bytes", resource: "memory", quantity: "100Mi", want: 100 * mi},
		{name: "parts of a byte are rounded up", resource: "memory", quantity: "1500m", want: 2},
		{name: "zero is dropped", resource: "cpu", quantity: "0"},
		{name: "negative", resource: "cpu", quantity: "-1", wantError: "must not be negative"},
		{name: "the largest", resource: "memory", quantity: "8Pi", want: slice.MaxAmount},
		{name: "larger than the largest", resource: "memory", quantity: "9Pi", wantError: "larger than any pool"},
		{name: "one above the largest", resource: "memory", quantity: "9007199254740993", wantError: "larger than any pool"},
		{name: "one below the largest", resource: "memory", quantity: "9007199254740991", want: slice.MaxAmount - 1},
		{name: "half of the largest", resource: "cpu", quantity: "4503599627370496m", want: slice.MaxAmount / 2},
		{name: "the largest cpu", resource: "cpu", quantity: "9007199254740992m", want: slice.MaxAmount},
		{name: "a thousandth of a core above the largest", resource: "cpu", quantity: "9007199254740993m", wantError: "larger than any pool"},
		{name: "twice the largest", resource: "cpu", quantity: "18014398509482", wantError: "larger than any pool"},
		{name: "huge", resource: "cpu", quantity: "1e40", wantError: "larger than any pool"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, errs := slice.FromList(corev1.ResourceList{tc.resource: resource.MustParse(tc.quantity)}, field.NewPath("hard"))
			if tc.wantError != "" {
				require.ErrorContains(t, errs.ToAggregate(), tc.wantError)
				return
			}
			require.Empty(t, errs)
			require.Equal(t, tc.want, got[tc.resource])
		})
	}
}

func TestArithmetic(t *testing.T) {
	t.Parallel()
	a, b := amounts(t, "cpu=3,memory=1Gi"), amounts(t, "cpu=1,nvidia.com/gpu=2")
	require.Equal(t, "cpu=4,memory=1Gi,nvidia.com/gpu=2", a.Plus(b).String())
	require.Equal(t, "cpu=2,memory=1Gi", a.Minus(b).String())
	require.Equal(t, "cpu=9,memory=3Gi", a.Times(3).String())
	require.True(t, a.Times(0).IsZero())
	require.True(t, a.Minus(a).Fits(nil))
	require.False(t, b.Fits(a))
	require.Equal(t, "cpu=3,memory=1Gi", a.String(), "arguments stay as they are")
	huge := slice.Amounts{"cpu": slice.MaxAmount}.Times(slice.MaxAmount)
	require.Equal(t, huge, huge.Plus(huge), "sums saturate")
	require.Empty(t, cmp.Diff(a, slice.Of(a.List())))
	require.Equal(t, slice.Amounts{"memory": slice.MaxAmount}, slice.Of(builders.Resources("cpu", "-1", "memory", "1e30")))
}

func TestQuota(t *testing.T) {
	t.Parallel()
	quota := func(scopes []corev1.ResourceQuotaScope, pairs ...string) corev1.ResourceQuota {
		made := builders.Quota("web", "quota", pairs...)
		made.Spec.Scopes = scopes
		return *made
	}
	for _, tc := range []struct {
		name   string
		quotas []corev1.ResourceQuota
		want   string
	}{
		{name: "none"},
		{name: "the demo", quotas: []corev1.ResourceQuota{quota(nil, "cpu", "200m", "memory", "200Mi")}, want: "cpu=200m,memory=200Mi"},
		{name: "the smallest counts", quotas: []corev1.ResourceQuota{quota(nil, "cpu", "2", "requests.cpu", "3"), quota(nil, "requests.cpu", "1")}, want: "cpu=1"},
		{name: "scoped quotas do not count", quotas: []corev1.ResourceQuota{quota([]corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}, "cpu", "1")}},
		{name: "zero forbids", quotas: []corev1.ResourceQuota{quota(nil, "cpu", "2"), quota(nil, "cpu", "0")}, want: "cpu=0"},
		{name: "zero with an exponent", quotas: []corev1.ResourceQuota{quota(nil, "cpu", "0e2147483647"), quota(nil, "cpu", "2")}, want: "cpu=0"},
		{name: "no storage with an exponent", quotas: []corev1.ResourceQuota{quota(nil, "requests.storage", "0e2147483647")}, want: "storage=0"},
		{name: "extended", quotas: []corev1.ResourceQuota{quota(nil, "requests.nvidia.com/gpu", "4")}, want: "nvidia.com/gpu=4"},
		{name: "pods", quotas: []corev1.ResourceQuota{quota(nil, "pods", "4"), quota(nil, "count/pods", "3")}, want: "pods=3"},
		{name: "others are left out", quotas: []corev1.ResourceQuota{quota(nil, "limits.cpu", "3", "count/secrets", "2", "gold.storageclass.storage.k8s.io/requests.storage", "1Gi")}},
		{name: "storage", quotas: []corev1.ResourceQuota{quota(nil, "requests.storage", "2Gi"), quota(nil, "requests.storage", "1Gi")}, want: "storage=1Gi"},
		{name: "storage without a limit", quotas: []corev1.ResourceQuota{quota(nil, "cpu", "1", "requests.storage", "1e30")}, want: "cpu=1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, errs := slice.Quota(tc.quotas)
			require.Empty(t, errs)
			require.Equal(t, tc.want, got.String())
		})
	}
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text, want, wantError string
	}{
		{name: "the demo", text: `{"cpu":"100m", "memory":"100Mi"}`, want: "cpu=100m,memory=100Mi"},
		{name: "extended", text: `{"nvidia.com/gpu":"2"}`, want: "nvidia.com/gpu=2"},
		{name: "a number", text: `{"cpu":2}`, want: "cpu=2"},
		{name: "not JSON", text: `cpu=1`, wantError: "not a JSON object"},
		{name: "a list", text: `["cpu"]`, wantError: "not a JSON object"},
		{name: "empty", text: ``, wantError: "not a JSON object"},
		{name: "null", text: `null`, wantError: "names no resource"},
		{name: "no resource", text: `{}`, wantError: "names no resource"},
		{name: "negative", text: `{"cpu":"-1"}`, wantError: "must not be negative"},
		{name: "zero", text: `{"cpu":"0"}`, wantError: "must be above zero"},
		{name: "huge", text: `{"cpu":"1e30"}`, wantError: "larger than any pool"},
		{name: "hours to write out", text: `{"cpu":"99999999999999999999e999999999"}`, wantError: "is no quantity of a pool"},
		{name: "hours to write out, small", text: `{"cpu":1e-999999999}`, wantError: "is no quantity of a pool"},
		{name: "many digits", text: `{"memory":"1` + strings.Repeat("0", 30) + `"}`, wantError: "is no quantity of a pool"},
		{name: "no quantity", text: `{"cpu":"much"}`, wantError: "not a JSON object"},
		{name: "what quotas do not bound", text: `{"services":"1"}`, wantError: "is not a resource that quotas bound"},
		{name: "the key of a quota", text: `{"requests.cpu":"1"}`, wantError: "is not a resource that quotas bound"},
		{name: "endless", text: strings.Repeat(" ", 5000) + `{"cpu":"1"}`, wantError: "longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := slice.ParseSize(tc.text)
			if tc.wantError != "" {
				require.ErrorContains(t, err, tc.wantError)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, got.String())
		})
	}
}

func TestParseSizeSaysTheSameEveryTime(t *testing.T) {
	t.Parallel()
	text := `{"cpu":"0","memory":"-1","pods":"1","requests.cpu":"2","a":"0"}`
	_, first := slice.ParseSize(text)
	for range 50 {
		_, err := slice.ParseSize(text)
		require.EqualError(t, err, first.Error())
	}
}

func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{`{"cpu":"100m"}`, `{"cpu":-1}`, `{`, `null`, `{"cpu":"1e99"}`, `{"memory":"1Ki","x.y/z":"3"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := slice.ParseSize(text)
		if err != nil {
			return
		}
		require.NotEmpty(t, size)
		for name, amount := range size {
			require.Positive(t, amount)
			require.LessOrEqual(t, amount, slice.MaxAmount)
			bounded, ok := slice.DimensionOfQuotaKey(slice.DimensionOf(name).QuotaKey)
			require.True(t, ok)
			require.Equal(t, name, bounded.Name)
		}
		require.Empty(t, cmp.Diff(size, slice.Of(size.List())))
	})
}

func BenchmarkCut(b *testing.B) {
	for _, resources := range []int{2, 8, 32} {
		quota, size := slice.Amounts{}, slice.Amounts{}
		for i := range resources {
			name := corev1.ResourceName(fmt.Sprintf("example.com/r%d", i))
			quota[name], size[name] = int64(1000+i), int64(1+i)
		}
		b.Run(fmt.Sprintf("resources=%d", resources), func(b *testing.B) {
			for b.Loop() {
				slice.Cut(quota, size)
			}
		})
	}
}

func TestAmountsOfMonstrousQuantities(t *testing.T) {
	for _, text := range []string{"1e999999999", "9e19", "1e20", "123456789012345678901234567890"} {
		quantity := resource.MustParse(text)
		list := corev1.ResourceList{corev1.ResourceCPU: quantity, corev1.ResourceMemory: quantity}
		_, errs := slice.FromList(list, field.NewPath("hard"))
		require.Len(t, errs, 2, text)
		require.Equal(t, slice.Amounts{corev1.ResourceCPU: slice.MaxAmount, corev1.ResourceMemory: slice.MaxAmount}, slice.Of(list), text)
	}
}

// allocated returns how many bytes do allocates. A quantity that is written out needs one for each two or three of its
// digits, however fast the machine is. It is for tests that run alone.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestQuotaOfMonstrousQuantities compares two limits of one resource, either of which a tenant may write with any
// exponent.
func TestQuotaOfMonstrousQuantities(t *testing.T) {
	quota := func(text string) corev1.ResourceQuota {
		return *builders.Quota("web", "quota", "cpu", text)
	}
	for _, monster := range []string{"1e9999999", "3e9999998"} {
		for _, quotas := range [][]corev1.ResourceQuota{{quota(monster), quota("2")}, {quota("2"), quota(monster)}, {quota(monster), quota("2"), quota(monster)}} {
			var got slice.Amounts
			var errs field.ErrorList
			written := allocated(func() { got, errs = slice.Quota(quotas) })
			require.Less(t, written, uint64(1<<20), "the exponent is looked at before the quantity is written out")
			require.Empty(t, errs)
			require.Equal(t, slice.Amounts{corev1.ResourceCPU: 2000}, got)
		}
		_, errs := slice.Quota([]corev1.ResourceQuota{quota(monster), quota(monster)})
		require.Len(t, errs, 1, "no other quota bounds it")
	}
	_, errs := slice.Quota([]corev1.ResourceQuota{quota("2"), quota("-1e9999999")})
	require.Len(t, errs, 1, "a negative limit is not overlooked")
}

// BenchmarkCutThousand cuts a quota of four resources into a thousand slices.
func BenchmarkCutThousand(b *testing.B) {
	quota := slice.Amounts{corev1.ResourceCPU: 1_999_900, corev1.ResourceMemory: 3_333 << 30, corev1.ResourcePods: 19_999, "nvidia.com/gpu": 700}
	size := slice.Amounts{corev1.ResourceCPU: 2_000, corev1.ResourceMemory: 4 << 30, corev1.ResourcePods: 20, "nvidia.com/gpu": 1}
	require.Equal(b, int64(1000), slice.Count(quota, size))
	b.ReportAllocs()
	for b.Loop() {
		slice.Cut(quota, size)
	}
}

// TestPercent: it is exact, and what is more than any pool has is no negative share.
func TestPercent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ part, whole, want int64 }{
		{part: 29, whole: 100, want: 29}, // in floating point it is 28.999999999999996
		{part: 57, whole: 100, want: 57},
		{part: 299, whole: 1000, want: 29},
		{part: 0, whole: 100, want: 0},
		{part: 150, whole: 100, want: 150},
		{part: 1, whole: 0, want: -1},
		{part: math.MaxInt64, whole: math.MaxInt64, want: 100},
		{part: math.MaxInt64, whole: 1, want: math.MaxInt64},
	} {
		require.Equal(t, tc.want, slice.Percent(tc.part, tc.whole), "%d of %d", tc.part, tc.whole)
	}
}
