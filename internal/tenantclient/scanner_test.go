package tenantclient

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// TestNumbers: only numbers that take work cost more than their bytes.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		cost int64
	}{
		{text: `["1","100m","1.5Gi","-3","1e3","12E6"]`},
		{text: `{"uid":"1e23-99999-45","sha":"1e-99999abc","digest":"sha256:1e-99999","bare":1e5,"t":true,"e":"e-99999"}`},
		{text: `{"uid":"2a4803b0-b046-4280-b839-39c25e419012","uid2":"24803123-9046-4280-8839-392e-419012345678"}`},
		{text: `{"uid":"12345678-9012-4345-8678-90123e456789","sign":"1-2e-99999","suffix":"1Kie-99999","suffix2":"12345678901234567890Ke99999"}`},
		{text: `["1e2147483647","123456789012345678e99999","1e+99999","1e4294967297","1e-4294967297"]`},
		{text: `["1e4294957296"]`, cost: 10_000},
		{text: `[1E+4294957296]`, cost: 10_000},
		{text: `["1e999999999999"]`, cost: 1 << 48 / 10_000},
		{text: `["1234567890123456789e10000"]`, cost: 2_000_000},
		{text: `[1234567890123456789E+10000]`, cost: 2_000_000},
		{text: `["1234567890123456789e900","1` + strings.Repeat("0", 998) + `"]`},
		{text: `["1` + strings.Repeat("0", 1999) + `"]`, cost: 4000 + 1999*1999/50},
		{text: `["1` + strings.Repeat("0", 1000) + `e1000"]`, cost: 1001*1001/1000 + 2000*2000/50},
		{text: `["1` + strings.Repeat("0", 1999) + `1"]`, cost: 2001 * 2001 / 1000},
		{text: `["1e-999"]`},
		{text: `["\u0031e-30000000"]`},
		{text: `["1e-10000"]`, cost: 10_000},
		{text: `[1e-10000]`, cost: 10_000},
		{text: "[\" -.1E-10000\u00a0\"]", cost: 10_000},
		{text: `["1e-10000","1e-10000"]`, cost: 20_000},
		{text: `["` + strings.Repeat("9", 10_000) + `"]`, cost: 100_000},
		{text: `["0.` + strings.Repeat("9", 9_998) + `Ki"]`, cost: 100_000},
		{text: `["1e-99999999999999999999"]`, cost: 1 << 48 / 10_000},
		{text: `["1e99999999999999999999"]`, cost: 1 << 48 / 10_000},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			var s scanner
			for text := tc.text; text != ""; {
				n, _ := s.scan([]byte(text[:min(size, len(text))]))
				text = text[n:]
			}
			require.Equal(t, int64(len(tc.text))+tc.cost, s.current.bytes, "%.60s", tc.text)
		}
	}
}

// TestNamesCostNothing: UIDs, hashes and dates are no numbers, however many digits they have. Each object has a UID, so
// one in a million that looked like 1e-123456789012 would cost a tenant its connection.
func TestNamesCostNothing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(14, 15))
	for range 20_000 {
		id := make([]byte, 16)
		binary.BigEndian.PutUint64(id, random.Uint64())
		binary.BigEndian.PutUint64(id[8:], random.Uint64())
		uid := fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
		for _, text := range []string{uid, uid + "_" + uid, "sha256:" + hex.EncodeToString(id), "2026-11-23T01:33:12.123456Z"} {
			var s scanner
			s.scan([]byte(`["` + text + `"]`))
			require.EqualValues(t, len(text)+4, s.current.bytes, text)
		}
	}
}

// FuzzNumbers: a number that takes long to parse, or to write, costs a lot.
func FuzzNumbers(f *testing.F) {
	for _, seed := range []string{
		"1e-99999", "0.0001E-999999", " 12e-100000\u00a0", strings.Repeat("1", 100_000), "1Ki", "1234567890123456789e50000", "1" + strings.Repeat("0", 50_000),
		"1e2147483647", "10000000000000000000e800000", "0.0000000000000000001e800000",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, `"\`) || len(text) > 1<<20 {
			return
		}
		var s scanner
		s.scan(fmt.Appendf(nil, "[%q]", text))
		if s.current.bytes > 100<<20 {
			return
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before := threadTime(t)
		if quantity, err := resource.ParseQuantity(strings.TrimSpace(text)); err == nil {
			_ = quantity.String()
		}
		require.Less(t, threadTime(t)-before, 20*time.Second, "cost %d", s.current.bytes)
	})
}

// threadTime returns the processor's time that this thread has had: what else runs on the machine is not in it.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_THREAD, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// checkWeights: what decoders make of a JSON text takes no more than was counted, however it comes. 8 KiB are the room
// for four items that a list of pods has.
func checkWeights(t *testing.T, text string) {
	t.Helper()
	counted := func(of weights) (memory int64) {
		w := newWeigher(of)
		for rest := text; rest != ""; {
			n := min(7, len(rest))
			memory += w.weigh([]byte(rest[:n]))
			rest = rest[n:]
		}
		return memory
	}
	var all any
	if utiljson.Unmarshal([]byte(text), &all) != nil {
		return
	}
	require.LessOrEqual(t, sizeOf(&all), 64+counted(anyWeights), text)
	require.GreaterOrEqual(t, counted(anyWeights), 16*valuesIn(text), text)
	for _, into := range []any{&corev1.PodList{}, &corev1.ConfigMap{}, &discoveryv1.EndpointSliceList{}, &appsv1.StatefulSetList{}, &metav1.Status{}} {
		if utiljson.Unmarshal([]byte(text), into) == nil {
			require.LessOrEqual(t, sizeOf(into), 8<<10+counted(typedWeights), "%T %s", into, text)
		}
	}
}

// valuesIn returns how many values are in the lists of a JSON text.
func valuesIn(text string) (found int64) {
	decoder := json.NewDecoder(strings.NewReader(text))
	var within []json.Delim
	for {
		token, err := decoder.Token()
		if err != nil {
			return found
		}
		delim, isDelim := token.(json.Delim)
		closes := isDelim && (delim == ']' || delim == '}')
		if closes {
			within = within[:len(within)-1]
			continue
		}
		if len(within) > 0 && within[len(within)-1] == '[' {
			found++
		}
		if isDelim {
			within = append(within, delim)
		}
	}
}

// FuzzWeights calls checkWeights.
func FuzzWeights(f *testing.F) {
	for _, seed := range []string{
		`[[],[],[]]`, `[0,1.5,"a",null,true,{}]`, `[{"":0},{"a":{"b":[]}}]`, `{"a":1,"b":"\"[","c":[{}],"d":{}}`, strings.Repeat("[", 100) + strings.Repeat("]", 100),
		`{"items":[{"spec":{"containers":[{},null,{"env":[{},{}],"args":["",""],"resources":{"limits":{"a":"1"}}}],"overhead":{"cpu":"1"}}}]}`,
		`{"items":[{"endpoints":[{},{"addresses":["",""]}],"ports":[{}]},{"metadata":{"labels":{"a":""},"finalizers":[""]}}]}`,
		`{"items":[{"spec":{"volumeClaimTemplates":[{},{}],"template":{"spec":{"volumes":[{},{"configMap":{}}]}}}},{},{},{},{}]}`, `{"data":{"a":"b","c":""}}`,
		`{"items":[` + strings.Repeat("{},", 50) + `{}]}`, `{"items":[` + strings.Repeat("null,", 50) + `null]}`, `{"details":{"causes":[{},{},{},{},{}]}}`,
		`[` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `,{},null,"",[{}],{"a":{}}]`, `{"a":` + strings.Repeat("[", 62) + `[0,{},""],{"a":[0],"b":0}` + strings.Repeat("]", 62) + `}`,
		`["` + strings.Repeat("\xff", 9_000) + `","ä"]`, `{"data":{"a":"` + strings.Repeat("\xc3", 9_000) + `"}}`,
		"{" + manyMembers(100) + "}", `{"data":{` + manyMembers(100) + "}}",
	} {
		f.Add(seed)
	}
	f.Fuzz(checkWeights)
}

func manyMembers(count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, `"%d":"",`, i)
	}
	return text.String() + `"":""`
}

// TestWeightsAtRandom holds texts against checkWeights.
func TestWeightsAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1_000) {
		checkWeights(t, anything(rand.New(rand.NewPCG(seed, 28)), 0)) //nolint:gosec // no secret
	}
}
