package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// ofTargets are the labels that Prometheus adds to what it scrapes by our ServiceMonitors.
var ofTargets = []string{"job", "namespace", "pod", "service", "instance", "endpoint", "container"}

// ofLibraries are the metrics of libraries that rules and dashboard may name, with their labels: those of kube-scheduler,
// controller-runtime, client-go and client_golang, and of Prometheus itself.
var ofLibraries = map[string][]string{
	"controller_runtime_reconcile_errors_total": {"controller"},
	"controller_runtime_reconcile_time_seconds": {"controller", "le"},
	"controller_runtime_reconcile_total":        {"controller", "result"},
	"leader_election_master_status":             {"name"},
	"process_cpu_seconds_total":                 nil,
	"process_resident_memory_bytes":             nil,
	"rest_client_requests_total":                {"code", "host", "method"},
	"scheduler_pending_pods":                    {"queue"},
	"up":                                        nil,
}

// catalogue has the labels of each metric that there is.
type catalogue map[string][]string

// row is that of a metric of docs/reference/metrics.md, which hack/reference writes from the code.
var row = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\|.*\\| (\\S+) \\|$")

// readCatalogue returns the metrics that we export, those of libraries, and those that rules record.
func readCatalogue(t *testing.T) catalogue {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/metrics.md"))
	require.NoError(t, err)
	all := catalogue{}
	for _, cells := range row.FindAllStringSubmatch(string(page), -1) {
		name, kind, program := cells[1], cells[2], cells[4]
		had := append(slices.Clone(ofTargets), strings.FieldsFunc(cells[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })...)
		if program == "syncer" {
			had = append(had, "super_cluster")
		}
		if kind == "histogram" {
			had = append(had, "le")
		}
		all[name] = had
	}
	require.GreaterOrEqual(t, len(all), 20, "the page has another form than this test reads")
	for name, labels := range ofLibraries {
		all[name] = slices.Concat(ofTargets, labels, []string{"super_cluster"})
	}
	for _, rule := range readRules(t) {
		if rule.Record == "" {
			continue
		}
		parser.Inspect(parsed(t, rule.Expr), func(node parser.Node, _ []parser.Node) error {
			if by, ok := node.(*parser.AggregateExpr); ok && all[rule.Record] == nil {
				all[rule.Record] = append([]string{}, by.Grouping...)
			}
			return nil
		})
	}
	return all
}

func parsed(t *testing.T, text string) parser.Expr {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	require.NoError(t, err, text)
	return expr
}

// labelsOf returns the labels of a metric by its name in an expression, which may be of a histogram's series.
func (c catalogue) labelsOf(name string) ([]string, bool) {
	labels, exists := c[name]
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if histogram, ok := strings.CutSuffix(name, suffix); ok && !exists {
			labels, exists = c[histogram]
			exists = exists && slices.Contains(labels, "le")
		}
	}
	return labels, exists
}

// unknown returns the metrics and labels that an expression names and that there are not.
func (c catalogue) unknown(expr parser.Expr) (problems []string) {
	all := map[string]bool{} // labels of the metrics below a node
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		labels, exists := c.labelsOf(selector.Name)
		if !exists {
			problems = append(problems, "there is no metric "+selector.Name)
		}
		for _, label := range labels {
			all[label] = true
		}
		for _, matcher := range selector.LabelMatchers {
			if exists && matcher.Name != "__name__" && !slices.Contains(labels, matcher.Name) {
				problems = append(problems, selector.Name+" has no label "+matcher.Name)
			}
		}
		return nil
	})
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		by, ok := node.(*parser.AggregateExpr)
		if !ok {
			return nil
		}
		for _, label := range by.Grouping {
			if !all[label] {
				problems = append(problems, by.String()+": no metric has label "+label)
			}
		}
		return nil
	})
	return problems
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	known := catalogue{"a": {"x"}, "h": {"le"}}
	for text, want := range map[string][]string{
		`sum by (x) (a{x="1"})`:      nil,
		`rate(h_bucket[5m])`:         nil,
		`b`:                          {"there is no metric b"},
		`a_bucket`:                   {"there is no metric a_bucket"},
		`a{y="1"}`:                   {"a has no label y"},
		`sum by (y) (a) > 0`:         {"sum by (y) (a): no metric has label y"},
		`sum by (le) (a) / b{x="1"}`: {"there is no metric b", "sum by (le) (a): no metric has label le"},
	} {
		require.Equal(t, want, known.unknown(parsed(t, text)), text)
	}
}
