package slice_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// soon fails the test, and goes on, if do takes long: what writes out a large exponent does not end.
func soon(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s takes more than 10 s", what)
	}
}

// ascending are quantities, the smallest first. Those of one line are equal.
var ascending = [...][]string{
	{"-1e2147483647"},
	{"-" + strings.Repeat("9", 1000)},
	{"-1e400", "-10e399"},
	{"-1k", "-1000", "-1e3"},
	{"-1n"},
	{"0", "0e2147483647", "0e-100000", "0.0e400"},
	{"1n", "1e-2000", "0.0000000001"},
	{"100m", "0.1"},
	{"1", "1000m", "1000000000n"},
	{"1024", "1Ki"},
	{"9007199254740992"},
	{"9007199254740993"},
	{"1e18", "1000000000000000000"},
	{"9223372036854775807", "8Ei", "20Ei"}, // what has a binary suffix is cut to that
	{"9223372036854775808"},
	{"1e300"},
	{"1e301"},
	{"9e400"},
	{"1e401", "0.1e402", "1" + strings.Repeat("0", 401), "10000000000000000000e382"},
	{"1e401000"},
	{"1e2147483600"},
	{"2e2147483600"},
	{"1e2147483647"},
	{"922337203685477580e2147483647"},
}

// TestCompare compares each quantity with each.
func TestCompare(t *testing.T) {
	t.Parallel()
	for i, equal := range ascending {
		for _, a := range equal {
			for j, others := range ascending {
				for _, b := range others {
					x, y := resource.MustParse(a), resource.MustParse(b)
					what := fmt.Sprintf("%.30s and %.30s", a, b)
					soon(t, what, func() {
						want := 0
						if i < j {
							want = -1
						} else if i > j {
							want = 1
						}
						require.Equal(t, want, slice.Compare(x, y), what)
					})
				}
			}
		}
	}
}

// TestCompareIsCmp compares with Quantity.Cmp what that can compare.
func TestCompareIsCmp(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pick := func() resource.Quantity {
		digits := fmt.Sprint(random.Int64N(1 << random.IntN(62)))
		switch random.IntN(4) {
		case 0:
			digits += strings.Repeat("0", random.IntN(30))
		case 1:
			digits = "-" + digits
		case 2:
			return resource.MustParse(digits + []string{"m", "u", "Ki", "Gi", "k", "E", ""}[random.IntN(7)])
		}
		return resource.MustParse(fmt.Sprintf("%se%d", digits, random.IntN(800)-20))
	}
	for range 4_000 {
		a, b := pick(), pick()
		require.Equal(t, a.Cmp(b), slice.Compare(a, b), "%v and %v", &a, &b)
		require.Zero(t, slice.Compare(a, a))
	}
}

// TestDeepEqual: objects are compared as equality.Semantic has it, whatever quantities they hold.
func TestDeepEqual(t *testing.T) {
	t.Parallel()
	quota := func(cpu string) *corev1.ResourceQuota { return builders.Quota("web", "quota", "cpu", cpu) }
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{a: "1", b: "1000m", want: true},
		{a: "1", b: "2"},
		{a: "1", b: "1e2147483647"},
		{a: "1", b: "0e2147483647"},
		{a: "0", b: "0e2147483647", want: true},
		{a: "1e2147483647", b: "1e2147483647", want: true},
		{a: "1", b: "1" + strings.Repeat("0", 5000)},
	} {
		soon(t, tc.b, func() {
			require.Equal(t, tc.want, slice.DeepEqual(quota(tc.a), quota(tc.b)), "%s and %.30s", tc.a, tc.b)
		})
	}
	empty := quota("1")
	empty.Labels = map[string]string{}
	require.True(t, slice.DeepEqual(quota("1"), empty), "nil and empty are equal")
}

// BenchmarkCompare compares what is common: it allocates nothing.
func BenchmarkCompare(b *testing.B) {
	for _, pair := range [][2]string{{"100m", "2"}, {"100m", "100m"}, {"1Gi", "1073741824"}, {"1e400", "1"}} {
		x, y := resource.MustParse(pair[0]), resource.MustParse(pair[1])
		b.Run(pair[0]+"-"+pair[1], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				slice.Compare(x, y)
			}
		})
	}
}
