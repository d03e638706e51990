package monitoring

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

// docs is where a runbook_url leads.
const docs = "https://github.com/superpool/superpool/blob/main/"

// readGroups returns the groups of the PrometheusRule as Prometheus reads them.
func readGroups(t *testing.T) []rulefmt.RuleGroup {
	t.Helper()
	objects := applied[monitoringv1.PrometheusRule](t, "monitoring", "PrometheusRule")
	require.Len(t, objects, 1)
	text, err := yaml.Marshal(objects[0].Spec)
	require.NoError(t, err)
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), quiet())
	require.Empty(t, errs)
	return groups.Groups
}

func readRules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	for _, group := range readGroups(t) {
		all = append(all, group.Rules...)
	}
	return all
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// TestRulesNameWhatThereIs: metrics and labels.
func TestRulesNameWhatThereIs(t *testing.T) {
	t.Parallel()
	known := readCatalogue(t)
	for _, rule := range readRules(t) {
		require.Empty(t, known.unknown(parsed(t, rule.Expr)), rule.Record+rule.Alert)
	}
}

// anchors returns those of a page's headings, as GitHub makes them.
func anchors(t *testing.T, page string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}

// TestAlertsSayWhatToDo: how bad it is, what it is, and where to read on.
func TestAlertsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for _, rule := range readRules(t) {
		if rule.Alert == "" {
			continue
		}
		t.Run(rule.Alert, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"])
			require.Greater(t, time.Duration(rule.For), time.Duration(0))
			require.Equal(t, []string{"description", "runbook_url", "summary"}, slices.Sorted(maps.Keys(rule.Annotations)))
			require.NotContains(t, rule.Annotations["summary"], "{{", "it is the same for all of them")
			link, found := strings.CutPrefix(rule.Annotations["runbook_url"], docs)
			require.True(t, found)
			page, anchor, found := strings.Cut(link, "#")
			require.True(t, found)
			require.Contains(t, []string{"docs/operating.md", "docs/metrics.md"}, page)
			require.Contains(t, anchors(t, page), anchor)
		})
	}
}

// TestDocsListTheAlerts: the table of docs/metrics.md is made of the rules.
func TestDocsListTheAlerts(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- The table is written by `go -C test/monitoring test . -update` from manifests/monitoring/rules.yaml. -->\n\n", "\n<!-- end -->"
	table := "| alert | severity | after | means |\n|---|---|---|---|\n"
	variable := regexp.MustCompile(`\{\{ \$(?:labels\.)?([a-z_]+)[^}]*\}\}`)
	for _, rule := range readRules(t) {
		if rule.Alert != "" {
			link := strings.TrimPrefix(strings.TrimPrefix(rule.Annotations["runbook_url"], docs+"docs/metrics.md"), docs+"docs/")
			means := variable.ReplaceAllStringFunc(rule.Annotations["description"], func(found string) string {
				return strings.ToUpper(variable.FindStringSubmatch(found)[1])
			})
			table += fmt.Sprintf("| [%s](%s) | %s | %s | %s |\n", rule.Alert, link, rule.Labels["severity"], rule.For, means)
		}
	}
	file := filepath.Join(root, "docs/metrics.md")
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found)
	got, after, found := strings.Cut(rest, end)
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+begin+table+end+after), 0o600))
		return
	}
	require.Empty(t, cmp.Diff(table, got), "run `go -C test/monitoring test . -update` (-want +got)")
}

// evaluate evaluates all rules each minute of a time on series, whose values are a minute apart, and returns the alerts
// that have fired at any time, by their labels, as they were last.
func evaluate(t *testing.T, series map[string]string, length time.Duration) map[string]*rules.Alert {
	t.Helper()
	stored := promqltest.LoadedStorage(t, load(series))
	t.Cleanup(func() { require.NoError(t, stored.Close()) })
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	options := &rules.ManagerOptions{
		Appendable: stored, Queryable: stored, QueryFunc: rules.EngineQueryFunc(engine, stored), Context: t.Context(), Logger: quiet(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	}
	var groups []*rules.Group
	for _, group := range readGroups(t) {
		groups = append(groups, newGroup(t, group, options))
	}
	fired := map[string]*rules.Alert{}
	for at := time.Unix(0, 0); !at.After(time.Unix(0, 0).Add(length)); at = at.Add(time.Minute) {
		for _, group := range groups {
			group.Eval(t.Context(), at)
			for _, rule := range group.Rules() {
				require.NoError(t, rule.LastError(), rule.Name())
			}
			for _, rule := range group.AlertingRules() {
				for _, alert := range rule.ActiveAlerts() {
					if alert.State == rules.StateFiring {
						fired[alert.Labels.String()] = alert
					}
				}
			}
		}
	}
	return fired
}

func newGroup(t *testing.T, group rulefmt.RuleGroup, options *rules.ManagerOptions) *rules.Group {
	t.Helper()
	made := rules.GroupOptions{Name: group.Name, File: "rules", Interval: time.Minute, Opts: options}
	for _, rule := range group.Rules {
		expr := parsed(t, rule.Expr)
		if rule.Record != "" {
			made.Rules = append(made.Rules, rules.NewRecordingRule(rule.Record, expr, labels.FromMap(rule.Labels)))
			continue
		}
		made.Rules = append(made.Rules, rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
			labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, quiet()))
	}
	return rules.NewGroup(made)
}

// load writes series as promqltest reads them.
func load(series map[string]string) string {
	text := "load 1m\n"
	for _, name := range slices.Sorted(maps.Keys(series)) {
		text += "  " + name + " " + series[name] + "\n"
	}
	return text
}
