package rename

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/superpool/superpool/internal/vnagent/pods"
)

const (
	// maxLine bounds a line of metrics, and maxFamily the lines that are parsed at a time, in bytes. Add fails on
	// longer lines, and on families of histograms and summaries with more, whose series are several lines.
	maxLine   = 1 << 20
	maxFamily = 4 << 20
	// maxKept bounds the names and labels of the series that are kept, in bytes: others are left out.
	maxKept = 8 << 20
)

// nodeSums maps a metric family of pods to the family of the node that their sum is shown as.
var nodeSums = map[string]string{
	"pod_cpu_usage_seconds_total":  "node_cpu_usage_seconds_total",
	"pod_memory_working_set_bytes": "node_memory_working_set_bytes",
	"pod_swap_usage_bytes":         "node_swap_usage_bytes",
}

// nodeFileSystems lists families that are dropped: with CRI-O, cAdvisor labels their series with a container, but their
// values are the size and the free space of the node's file system.
var nodeFileSystems = []string{"container_fs_limit_bytes", "container_fs_inodes_free", "container_fs_inodes_total"}

// Metrics collects from the metrics of nodes the series whose labels name a pod of the tenant. It is not safe for
// concurrent use.
type Metrics struct {
	own      index
	families map[string]*dto.MetricFamily
	// seen holds name and labels of the series that were kept: two that differ only in dropped labels are kept once.
	seen map[string]struct{}
	// kept is the size of seen, in bytes.
	kept int
	// nodeFamilies holds the families of the node that are values of nodeSums, as a kubelet served them. WriteTo takes
	// their type, help and time.
	nodeFamilies map[string]*dto.MetricFamily
}

// NewMetrics returns an empty collection for the tenant's pods.
func NewMetrics(own []pods.Pod) *Metrics {
	return &Metrics{
		own: newIndex(own), families: map[string]*dto.MetricFamily{}, seen: map[string]struct{}{}, nodeFamilies: map[string]*dto.MetricFamily{},
	}
}

// Add parses metrics in Prometheus' text format, family by family, and keeps the tenant's series. An error means that
// in cannot be read or parsed, or is more than a bound; what was kept before stays. The caller bounds in.
func (m *Metrics) Add(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	var block, comments bytes.Buffer // comments are the HELP and TYPE lines of current
	current := ""
	for lines.Scan() {
		name := commented(lines.Text())
		if name != "" && name != current {
			if err := m.addBlock(&block); err != nil {
				return err
			}
			current = name
			comments.Reset()
		}
		if block.Len()+len(lines.Bytes()) > maxFamily {
			if !splits(comments.String()) {
				return fmt.Errorf("reading metrics: family %s has more than %d bytes", current, maxFamily)
			}
			if err := m.addBlock(&block); err != nil {
				return err
			}
			block.Write(comments.Bytes())
		}
		writeLine(&block, lines.Bytes())
		if name != "" && comments.Len() <= maxLine {
			writeLine(&comments, lines.Bytes())
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading metrics: %w", err)
	}
	return m.addBlock(&block)
}

func writeLine(to *bytes.Buffer, line []byte) {
	to.Write(line)
	to.WriteByte('\n')
}

// splits reports whether the series of a family of these comments can be read in parts: each is one line.
func splits(comments string) bool {
	return strings.Contains(comments, " counter\n") || strings.Contains(comments, " gauge\n")
}

// commented returns the family that a HELP or TYPE line names, "" for other lines.
func commented(line string) string {
	for _, prefix := range []string{"# HELP ", "# TYPE "} {
		if rest, found := strings.CutPrefix(line, prefix); found {
			name, _, _ := strings.Cut(rest, " ")
			return name
		}
	}
	return ""
}

// addBlock parses the families in block, and resets it.
func (m *Metrics) addBlock(block *bytes.Buffer) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(block)
	block.Reset()
	if err != nil {
		return fmt.Errorf("parsing metrics: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		m.addFamily(families[name])
	}
	return nil
}

// addFamily keeps the tenant's series of family. Of two families of one name but different types, the first stays.
func (m *Metrics) addFamily(family *dto.MetricFamily) {
	name := family.GetName()
	if slices.Contains(slices.Collect(maps.Values(nodeSums)), name) {
		m.nodeFamilies[name] = family
		return
	}
	if slices.Contains(nodeFileSystems, name) {
		return
	}
	var kept []*dto.Metric
	for _, series := range family.GetMetric() {
		if m.kept <= maxKept && m.keep(name, series) {
			kept = append(kept, series)
		}
	}
	if len(kept) == 0 {
		return
	}
	if previous, exists := m.families[name]; exists {
		if previous.GetType() == family.GetType() {
			previous.Metric = append(previous.Metric, kept...)
		}
		return
	}
	family.Metric = kept
	m.families[name] = family
}

// keep reports whether series is of a pod of the tenant and not seen before. It rewrites the labels of such a series in
// place.
func (m *Metrics) keep(name string, series *dto.Metric) bool {
	labels := map[string]string{}
	for _, label := range series.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	pod, ok := m.own.find(labels["namespace"], labels["pod"], labels["pod_uid"])
	if !ok {
		return false
	}
	// id is a cgroup's path, which holds the UID of the super pod and the layout of the node.
	series.Label = slices.DeleteFunc(series.GetLabel(), func(label *dto.LabelPair) bool { return label.GetName() == "id" })
	key, rewriter := name, rewriterOf(pod)
	for _, label := range series.GetLabel() {
		value := rewriter.Rewrite(label.GetValue())
		label.Value = &value
		key += fmt.Sprintf(",%s=%q", label.GetName(), value)
	}
	_, duplicate := m.seen[key]
	if !duplicate {
		m.seen[key] = struct{}{}
		m.kept += len(key)
	}
	return !duplicate
}

// WriteTo implements io.WriterTo: it writes the collected families in Prometheus' text format, sorted by name. An error
// is out's.
func (m *Metrics) WriteTo(out io.Writer) (int64, error) {
	families := maps.Clone(m.families)
	for podName, nodeName := range nodeSums {
		if node, exists := m.nodeFamilies[nodeName]; exists {
			families[nodeName] = nodeFamily(node, m.families[podName], m.own.nodes)
		}
	}
	var written int64
	for _, name := range slices.Sorted(maps.Keys(families)) {
		n, err := expfmt.MetricFamilyToText(out, families[name])
		written += int64(n)
		if err != nil {
			return written, fmt.Errorf("writing metrics: %w", err)
		}
	}
	return written, nil
}

// nodeFamily returns family node with one series: the sum of ofPods' series divided by nodes, at the latest of their
// times; without any series of pods, zero at the node's own time.
func nodeFamily(node, ofPods *dto.MetricFamily, nodes int) *dto.MetricFamily {
	sum, latest := 0.0, int64(0)
	for _, series := range ofPods.GetMetric() {
		sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() + series.GetUntyped().GetValue()
		latest = max(latest, series.GetTimestampMs())
	}
	sum /= float64(nodes)
	if latest == 0 && len(node.GetMetric()) > 0 {
		latest = node.GetMetric()[0].GetTimestampMs()
	}
	series := &dto.Metric{}
	if latest != 0 {
		series.TimestampMs = &latest
	}
	switch node.GetType() {
	case dto.MetricType_COUNTER:
		series.Counter = &dto.Counter{Value: &sum}
	case dto.MetricType_GAUGE:
		series.Gauge = &dto.Gauge{Value: &sum}
	case dto.MetricType_UNTYPED, dto.MetricType_SUMMARY, dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
		untyped := dto.MetricType_UNTYPED
		return &dto.MetricFamily{Name: node.Name, Help: node.Help, Type: &untyped, Metric: []*dto.Metric{{Untyped: &dto.Untyped{Value: &sum}, TimestampMs: series.TimestampMs}}}
	}
	return &dto.MetricFamily{Name: node.Name, Help: node.Help, Type: node.Type, Metric: []*dto.Metric{series}}
}
