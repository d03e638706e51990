package placement_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
)

// TestAnswers asks about decision d1, which has stood for three seconds.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		decision  string
		use       placement.Use
		want      bool
		wantAgain time.Duration
	}{
		"the quota answers":                 {decision: "d1", use: placement.Use{Hard: slice.Amounts{}, Decision: "d1"}, want: true},
		"the quota has answered":            {decision: "d1", use: placement.Use{Decision: "d1", QuotaGone: noon}, want: true},
		"the quota answers another":         {decision: "d1", use: placement.Use{Hard: slice.Amounts{}, Decision: "d0"}},
		"the quota answers none":            {decision: "d1", use: placement.Use{Hard: slice.Amounts{}}},
		"nothing was decided":               {use: placement.Use{Hard: slice.Amounts{}}},
		"no quota was seen":                 {decision: "d1", wantAgain: 7 * time.Second},
		"the quota is gone for long":        {decision: "d1", use: placement.Use{Decision: "d0", QuotaGone: noon.Add(-time.Hour)}, wantAgain: 7 * time.Second},
		"the quota is gone since then":      {decision: "d1", use: placement.Use{Decision: "d0", QuotaGone: noon.Add(-time.Second)}, wantAgain: 9 * time.Second},
		"the super cluster is not there":    {decision: "d1", use: placement.Use{Gone: true}, want: true},
		"nobody knows, and it is not there": {use: placement.Use{Gone: true}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers, again := tc.use.Answers(tc.decision, noon.Add(-3*time.Second), noon)
			require.Equal(t, tc.want, answers)
			require.Equal(t, tc.wantAgain, again)
		})
	}
	answers, again := (&placement.Use{}).Answers("d1", noon.Add(-placement.SettleTime), noon)
	require.True(t, answers)
	require.Zero(t, again)
}
