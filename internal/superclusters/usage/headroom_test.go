package usage_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters/usage"
)

func TestHeadroom(t *testing.T) {
	t.Parallel()
	offered := slice.Amounts{"cpu": 1001, "memory": 1 << 30, "pods": 110}
	for _, tc := range []struct {
		name, text, want, wantError string
	}{
		{name: "none", want: "cpu=1001m,memory=1Gi,pods=110"},
		{name: "percent, kept is rounded up", text: `{"cpu":"10%"}`, want: "cpu=900m,memory=1Gi,pods=110"},
		{name: "absolute", text: `{"memory":"512Mi","cpu":"1m"}`, want: "cpu=1,memory=512Mi,pods=110"},
		{name: "more than there is", text: `{"memory":"2Gi","cpu":"100%"}`, want: "pods=110"},
		{name: "of what there is not", text: `{"nvidia.com/gpu":"1"}`, want: "cpu=1001m,memory=1Gi,pods=110"},
		{name: "not JSON", text: "10%", wantError: "not a JSON object"},
		{name: "too many percent", text: `{"cpu":"101%"}`, wantError: "0% to 100%"},
		{name: "negative percent", text: `{"cpu":"-1%"}`, wantError: "0% to 100%"},
		{name: "negative", text: `{"cpu":"-1"}`, wantError: "must not be negative"},
		{name: "no quantity", text: `{"cpu":"some"}`, wantError: "want a quantity or a percentage"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			headroom, err := usage.ParseHeadroom(tc.text)
			if tc.wantError != "" {
				require.ErrorContains(t, err, tc.wantError)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, headroom.Apply(offered).String())
		})
	}
}

func FuzzParseHeadroom(f *testing.F) {
	f.Add(`{"cpu":"10%","memory":"16Gi"}`)
	f.Fuzz(func(t *testing.T, text string) {
		headroom, err := usage.ParseHeadroom(text)
		if err != nil {
			return
		}
		offered := slice.Amounts{"cpu": slice.MaxAmount * 1000, "memory": 3, "x/y": 1}
		left := headroom.Apply(offered)
		require.True(t, left.Fits(offered))
		for _, amount := range left {
			require.Positive(t, amount)
		}
	})
}
