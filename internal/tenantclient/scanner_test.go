package tenantclient

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
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
			most := content{}
			for text := tc.text; text != ""; {
				n := min(size, len(text))
				most = most.most(s.scan([]byte(text[:n])))
				text = text[n:]
			}
			require.Equal(t, int64(len(tc.text))+tc.cost, most.bytes, "%.60s", tc.text)
			require.Equal(t, tc.cost, s.cost, "%.60s", tc.text)
		}
	}
}

// TestNamesCostNothing: UIDs, hashes and dates are no numbers, however many digits they have. Each object has a UID, so
// one in a million that looked like 1e-123456789012 would cost a tenant its connection.
func TestNamesCostNothing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(14, 15))
	for range 200_000 {
		id := make([]byte, 16)
		binary.BigEndian.PutUint64(id, random.Uint64())
		binary.BigEndian.PutUint64(id[8:], random.Uint64())
		uid := fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
		for _, text := range []string{uid, uid + "_" + uid, "sha256:" + hex.EncodeToString(id), "2026-11-23T01:33:12.123456Z"} {
			var s scanner
			s.scan([]byte(`["` + text + `"]`))
			require.Zero(t, s.cost, text)
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
		if s.cost > 100<<20 {
			return
		}
		started := time.Now()
		if quantity, err := resource.ParseQuantity(strings.TrimSpace(text)); err == nil {
			_ = quantity.String()
		}
		require.Less(t, time.Since(started), 2*time.Second, "cost %d", s.cost)
	})
}
