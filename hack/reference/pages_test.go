package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		rows [][]string
		want string
	}{
		{name: "no rows", want: "| a | b |\n| --- | --- |\n"},
		{name: "rows", rows: [][]string{{"1", "2"}, {"3", ""}}, want: "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 |  |\n"},
		{name: "a cell stays in its cell", rows: [][]string{{"x|y", "one\ntwo"}}, want: "| a | b |\n| --- | --- |\n| x\\|y | one two |\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, table([]string{"a", "b"}, tc.rows))
		})
	}
	require.Equal(t, "| a |\n| --- |\n", table([]string{"a"}, nil))
}

func TestKeysPage(t *testing.T) {
	t.Parallel()
	const who = " Written by tenants; read by syncers."
	for _, tc := range []struct {
		name, text string
		want       string // of the page, without its head
		wantErr    string
	}{
		{
			name: "one group",
			text: "// On Pods.\nconst (\n// AnnotationA says a." + who + "\nAnnotationA = `x.io/a`\n// LabelB is b." + who + "\nLabelB = `x.io/b`\n)",
			want: "\nOn Pods.\n\n| key | what | written by | read by |\n| --- | --- | --- | --- |\n" +
				"| `x.io/a` | Says a. | tenants | syncers |\n| `x.io/b` | B. | tenants | syncers |\n",
		},
		{
			name: "two groups",
			text: "// On Pods.\nconst (\n// AnnotationA says a." + who + "\nAnnotationA = `x.io/a`\n)\n// On Nodes.\nconst (\n// TaintB is b." + who + "\nTaintB = `x.io/b`\n)",
			want: "\nOn Pods.\n\n| key | what | written by | read by |\n| --- | --- | --- | --- |\n| `x.io/a` | Says a. | tenants | syncers |\n" +
				"\nOn Nodes.\n\n| key | what | written by | read by |\n| --- | --- | --- | --- |\n| `x.io/b` | B. | tenants | syncers |\n",
		},
		{name: "no key but a value", text: "// TaintB is b.\nconst TaintB = `superpool`"},
		{name: "nobody", text: "// LabelB is b.\nconst LabelB = `x.io/b`", wantErr: `the comment of LabelB in apis/v1 must end with "Written by ...; read by ...."`},
		{name: "nobody reads it", text: "// LabelB is b. Written by tenants.\nconst LabelB = `x.io/b`", wantErr: "the comment of LabelB"},
		{name: "no comment", text: "const LabelB = `x.io/b`", wantErr: "constant LabelB has no comment"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := keysPage(parsed(t, map[string]string{"apis/v1/a.go": "package a\n" + tc.text}))
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, notice+"# Annotations and labels\n"+tc.want, got)
		})
	}
}

// TestKeysOfInternalPackages are listed where they are ours, but for those on Pods in memory.
func TestKeysOfInternalPackages(t *testing.T) {
	t.Parallel()
	got, err := keysPage(parsed(t, map[string]string{
		"internal/a/a.go":    "package a\n// annotationA is a. Written by a; read by b.\nconst annotationA = `tenancy.x-k8s.io/a`\n// annotationB is b.\nconst annotationB = `x.io/b`",
		"internal/view/a.go": "package view\n// AnnotationA is a.\nconst AnnotationA = `tenancy.x-k8s.io/view`",
	}))
	require.NoError(t, err)
	require.Equal(t, notice+"# Annotations and labels\n\n"+ownKeys+"\n\n"+
		table([]string{"key", "what", "written by", "read by"}, [][]string{{"`tenancy.x-k8s.io/a`", "A.", "a", "b"}}), got)

	_, err = keysPage(parsed(t, map[string]string{"internal/a/a.go": "package a\n// labelDomainA is a.\nconst labelDomainA = `a.tenancy.x-k8s.io/`"}))
	require.ErrorContains(t, err, "the comment of labelDomainA")
}

func TestReasonsPage(t *testing.T) {
	t.Parallel()
	code := parsed(t, map[string]string{
		"apis/v1/widget_types.go": "package a\n// ConditionReady is met.\nconst ConditionReady = `Ready`\n// ReasonConnected is good.\nconst ReasonConnected = `Connected`\ntype Widget struct{}\n",
		"apis/v1/keys.go":         "package a\n// NodeDrained is empty. Written by a; read by b.\nconst NodeDrained = `Drained`\n",
		"internal/syncer/s.go": "package s\n// reasonTaken is bad.\nconst reasonTaken = `Taken`\n// ReasonSame is\n// one | two.\nconst ReasonSame = `Same`\n" +
			"// conditionMine is its own.\nconst ConditionMine = `Mine`\n",
		"internal/syncer/kinds/k.go": "package k\n// ReasonSame is more.\nconst ReasonSame = `Same`\n",
		"internal/tenancy/t.go":      "package t\n// ReasonBoth is said twice.\nconst ReasonBoth = `Both`\n",
		"internal/placer/p.go":       "package p\n// ReasonFull is so.\nconst ReasonFull = `Full`\n",
	})
	got, err := reasonsPage(code)
	require.NoError(t, err)
	want := notice + `# Events and conditions

## Conditions

| of | condition | what |
| --- | --- | --- |
| virtual Node | ` + "`Drained`" + ` | Empty. |
| Widget | ` + "`Ready`" + ` | Met. |

Their reasons:

| reason | what |
| --- | --- |
| ` + "`Connected`" + ` | Good. |

## Events of vc-scheduler

| reason | what |
| --- | --- |
| ` + "`Full`" + ` | So. |

## Events of syncer

| reason | what |
| --- | --- |
| ` + "`Same`" + ` | More. One \| two. |
| ` + "`Taken`" + ` | Bad. |

## Events of vc-scheduler and syncer

| reason | what |
| --- | --- |
| ` + "`Both`" + ` | Said twice. |
`
	require.Empty(t, cmp.Diff(want, got))
	for text, wantErr := range map[string]string{"const ConditionA = `A`": "constant ConditionA has no comment", "const ReasonA = `A`": "constant ReasonA has no comment"} {
		_, err := reasonsPage(parsed(t, map[string]string{"apis/v1/a.go": "package a\n" + text}))
		require.ErrorContains(t, err, wantErr)
	}
}

func TestProgramOf(t *testing.T) {
	t.Parallel()
	for folder, want := range map[string]string{
		"internal/syncer/kinds": "syncer", "internal/vnagent": "vn-agent", "internal/placer": "vc-scheduler", "plugins/nodeshape": "vc-scheduler", "plugins/nodegroups": "vc-scheduler", "internal/census/controlplanes.go": "vc-manager", "internal/tenancy": "vc-scheduler and syncer", "apis/tenancy": "",
	} {
		require.Equal(t, want, programOf(folder), folder)
	}
}

func TestMetricsPage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		want       [][]string
	}{
		{
			name: "a vector", text: "var a = prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: `vn_agent`, Name: `requests_total`, Help: `Of all.`}, []string{`kind`, \"result\"})",
			want: [][]string{{"`vn_agent_requests_total`", "counter", "`kind`, `result`", "Of all.", "syncer"}},
		},
		{
			name: "alone", text: "var a = prometheus.NewGauge(prometheus.GaugeOpts{Name: `a`, Help: `H.`})",
			want: [][]string{{"`a`", "gauge", "", "H.", "syncer"}},
		},
		{
			name: "constant labels", text: "var a = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: `a`, ConstLabels: prometheus.Labels{`kind`: kind, name: `b`}}, f)",
			want: [][]string{{"`a`", "gauge", "`kind`", "", "syncer"}},
		},
		{
			name: "by name, and one inside a function",
			text: "var b = prometheus.NewHistogram(prometheus.HistogramOpts{Name: `b`})\nfunc f() { _ = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: `a`}, nil) }",
			want: [][]string{{"`a`", "gauge", "", "", "syncer"}, {"`b`", "histogram", "", "", "syncer"}},
		},
		{
			name: "labels that are not written there", text: "var a = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: `a`}, labels)",
			want: [][]string{{"`a`", "gauge", "", "", "syncer"}},
		},
		{
			name: "values that are no strings", text: "var a = prometheus.NewGauge(prometheus.GaugeOpts{Name: `a`, Help: help, ConstLabels: nil, Subsystem: 3})",
			want: [][]string{{"`a`", "gauge", "", "", "syncer"}},
		},
		{name: "another package's", text: "var a = other.NewGauge(prometheus.GaugeOpts{Name: `a`})"},
		{name: "no constructor of metrics", text: "var a = prometheus.NewRegistry()\nvar b = prometheus.NewDesc(prometheus.Opts{})\nvar c = NewGauge(x.y{})"},
		{name: "options that are not written there", text: "var a = prometheus.NewGauge(options)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := metricsPage(parsed(t, map[string]string{"internal/syncer/a.go": "package a\n" + tc.text}))
			require.NoError(t, err)
			require.Contains(t, got, table([]string{"metric", "type", "labels", "what", "program"}, tc.want))
		})
	}
}

func TestGateRows(t *testing.T) {
	t.Parallel()
	usage := "A set of key=value pairs:\nAllAlpha=true|false (ALPHA - default=false)\nAllBeta=true|false (BETA - default=false)\n" +
		"LoggingBetaOptions=true|false (BETA - default=true)\n  Spaced=true|false (ALPHA - default=false)\n"
	require.Equal(t, [][]string{{"`LoggingBetaOptions`", "BETA - default=true"}, {"`Spaced`", "ALPHA - default=false"}}, gateRows(usage))
	require.Empty(t, gateRows(""))
}

func TestFlagsPage(t *testing.T) {
	t.Setenv("NODE_IP", "of-this-machine")
	got, err := flagsPage(nil)
	require.NoError(t, err)
	for _, want := range []string{
		"\n## vc-scheduler\n", "\n## syncer\n", "\n## vn-agent\n", "| `--leader-elect` | `true` |", "| vc-scheduler, syncer, vc-manager |\n", "| `SuperClusterPooling` | ALPHA - default=false |", "&lt;id&gt;.&lt;node&gt;",
	} {
		require.Contains(t, got, want)
	}
	for _, not := range []string{"of-this-machine", "`--help`", "`--feature-gates`", "`[]`", "``"} {
		require.NotContains(t, got[len(notice):], "| "+not+" |")
	}
	require.NotContains(t, got, "of-this-machine", "the page must be the same on every machine")
}

// TestRun writes the pages of a small checkout, and writes none when one comment lacks what its page needs.
func TestRun(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"apis", "internal", "plugins", "cmd"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, folder, "v1"), 0o755))
	}
	require.NoError(t, run(root))
	pages, err := os.ReadDir(filepath.Join(root, "docs", "reference"))
	require.NoError(t, err)
	var names []string
	for _, page := range pages {
		names = append(names, page.Name())
		text, err := os.ReadFile(filepath.Join(root, "docs", "reference", page.Name()))
		require.NoError(t, err)
		require.Contains(t, string(text), notice)
	}
	require.Equal(t, []string{"annotations-and-labels.md", "crds.md", "events-and-conditions.md", "flags-and-gates.md", "kubectl-vc.md", "metrics.md", "plugins.md"}, names)

	require.NoError(t, os.WriteFile(filepath.Join(root, "apis", "v1", "a.go"), []byte("package a\n// LabelB is b.\nconst LabelB = `x.io/b`"), 0o600))
	require.ErrorContains(t, run(root), "annotations-and-labels.md: the comment of LabelB")
	require.ErrorIs(t, run(t.TempDir()), os.ErrNotExist)
}
