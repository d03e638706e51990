package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"
)

// datasource is the variable that each query goes to.
const datasource = "${datasource}"

// source is where Grafana sends a query.
type source struct{ Type, UID string }

// dashboard is what the tests read of Grafana's JSON.
type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
	Panels []struct {
		ID          int
		Type, Title string
		Description string
		Datasource  source
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct {
			Expr       string
			Datasource source
		}
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "manifests/monitoring/dashboard.json"))
	require.NoError(t, err)
	var board dashboard
	require.NoError(t, json.Unmarshal(text, &board))
	require.NotEmpty(t, board.Panels)
	return board
}

// withoutVariables returns an expression with values in the place of Grafana's variables: all super clusters.
func withoutVariables(expr string) string {
	return strings.NewReplacer("$super_cluster", ".*", "$__rate_interval", "5m").Replace(expr)
}

// TestDashboardNamesWhatThereIs: metrics and labels, and each panel shows something of a healthy pool.
func TestDashboardNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	known, series := readCatalogue(t), map[string]string{}
	for name, values := range healthy {
		series[name] = values
	}
	for name, values := range map[string]string{ // what rules record
		`superpool:syncer_reconcile_errors:ratio_rate5m{super_cluster="r1", kind="Pod"}`:          steady("0"),
		`superpool:placement_duration_seconds:p99_rate1h`:                                         steady("1"),
		`superpool:rest_client_requests:rate5m{job="vc-scheduler", super_cluster="", code="200"}`: steady("1"),
	} {
		series[name] = values
	}
	stored := promqltest.LoadedStorage(t, load(series))
	t.Cleanup(func() { require.NoError(t, stored.Close()) })
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			expr := withoutVariables(target.Expr)
			require.NotContains(t, expr, "$", panel.Title)
			require.Empty(t, known.unknown(parsed(t, expr)), panel.Title)
			query, err := engine.NewInstantQuery(t.Context(), stored, nil, expr, time.Unix(0, 0).Add(30*time.Minute))
			require.NoError(t, err, panel.Title)
			t.Cleanup(query.Close)
			shown, err := query.Exec(t.Context()).Vector()
			require.NoError(t, err, panel.Title)
			require.NotEmpty(t, shown, "%s: %s", panel.Title, expr)
		}
	}
}

// TestDashboardIsWhole: Grafana shows what is on top of something else, or goes nowhere, without a word.
func TestDashboardIsWhole(t *testing.T) {
	t.Parallel()
	board := readDashboard(t)
	require.NotEmpty(t, board.UID, "a new version replaces it")
	require.Len(t, board.Templating.List, 2)
	require.Equal(t, "datasource", board.Templating.List[0].Name)
	require.Equal(t, "super_cluster", board.Templating.List[1].Name)
	require.Contains(t, string(board.Templating.List[1].Query), "label_values(vc_scheduler_super_cluster_ready, super_cluster)")
	require.NotEmpty(t, readCatalogue(t)["vc_scheduler_super_cluster_ready"])

	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, panel := range board.Panels {
		require.False(t, ids[panel.ID], panel.Title)
		ids[panel.ID] = true
		require.NotEmpty(t, panel.Title)
		at := panel.GridPos
		require.LessOrEqual(t, at.X+at.W, 24, panel.Title)
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], panel.Title)
				taken[[2]int{x, y}] = panel.Title
			}
		}
		if panel.Type == "row" {
			continue
		}
		require.NotEmpty(t, panel.Description, panel.Title)
		require.NotEmpty(t, panel.Targets, panel.Title)
		require.Equal(t, datasource, panel.Datasource.UID, panel.Title)
		for _, target := range panel.Targets {
			require.Equal(t, datasource, target.Datasource.UID, panel.Title)
		}
	}
}
