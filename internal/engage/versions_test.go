package engage_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/engage"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		versions []string
		want     []int // the indexes of the versions that are noticed
	}{
		{name: "they grow", versions: []string{"1", "1", "5", "10"}},
		{name: "they go back", versions: []string{"9", "10", "9"}, want: []int{2}},
		{name: "once", versions: []string{"1000", "10", "11", "12"}, want: []int{1}},
		{name: "twice", versions: []string{"1000", "10", "2000", "20"}, want: []int{1, 3}},
		{name: "no numbers", versions: []string{"", "x", "7", "", "7", "-1", "18446744073709551616", "7"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var versions engage.Versions
			var noticed []int
			for i, version := range tc.versions {
				err := versions.Observe(version)
				if err == nil {
					continue
				}
				var failure *engage.Failure
				require.ErrorAs(t, err, &failure)
				require.True(t, failure.Final)
				require.Equal(t, engage.ReasonRestored, failure.Reason.Reason)
				noticed = append(noticed, i)
			}
			require.Equal(t, tc.want, noticed)
		})
	}
}

// TestVersionsThatGoBackAgain: a server whose versions go back at each connection has everything listed ever more
// rarely. One where that happens twice in a day does not.
func TestVersionsThatGoBackAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var versions engage.Versions
		goBack := func() *engage.Failure {
			versions.Begin()
			require.NoError(t, versions.Observe("1000"))
			var failure *engage.Failure
			require.ErrorAs(t, versions.Observe("10"), &failure)
			return failure
		}
		require.False(t, goBack().Costly)
		<-time.After(time.Hour)
		require.False(t, goBack().Costly)
		for i, want := range []time.Duration{0, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour} {
			<-time.After(30 * time.Second)
			failure := goBack()
			require.True(t, failure.Costly, i)
			require.Equal(t, want, failure.Pause, i)
			<-time.After(want)
		}
		<-time.After(2 * time.Hour)
		require.False(t, goBack().Costly)
	})
}
