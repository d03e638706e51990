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

	"github.com/superpool/superpool/internal/vnagent/pods"
)

// maxLine is the length of a line of metrics that is still read.
const maxLine = 1 << 20

// nodeSums says which family of pods adds up to which of the node.
var nodeSums = map[string]string{
	"pod_cpu_usage_seconds_total":  "node_cpu_usage_seconds_total",
	"pod_memory_working_set_bytes": "node_memory_working_set_bytes",
	"pod_swap_usage_bytes":         "node_swap_usage_bytes",
}

// nodeFileSystems are families whose series name a container and say how large the node's file system is, or how full: cAdvisor with CRI-O.
var nodeFileSystems = []string{"container_fs_limit_bytes", "container_fs_inodes_free", "container_fs_inodes_total"}

// Metrics collects metrics of nodes: series that say which pod they are of, if that is the tenant's. It is not safe for concurrent use.
type Metrics struct {
	own      index
	families map[string]*dto.MetricFamily
	// seen are the series of a family: those that differed only in what was dropped are one.
	seen map[string]struct{}
	// nodeFamilies are those of nodeSums that a kubelet showed, without their series but for the time.
	nodeFamilies map[string]*dto.MetricFamily
}

// NewMetrics returns an empty collection for the tenant's pods.
func NewMetrics(own []pods.Pod) *Metrics {
	return &Metrics{
		own: newIndex(own), families: map[string]*dto.MetricFamily{}, seen: map[string]struct{}{}, nodeFamilies: map[string]*dto.MetricFamily{},
	}
}

// Add reads metrics in Prometheus' text format, one family after the other, and keeps the tenant's series. The caller bounds in.
func (m *Metrics) Add(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	var block bytes.Buffer
	current := ""
	for lines.Scan() {
		if name := commented(lines.Text()); name != "" && name != current {
			if err := m.addBlock(&block); err != nil {
				return err
			}
			current = name
		}
		block.Write(lines.Bytes())
		block.WriteByte('\n')
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading metrics: %w", err)
	}
	return m.addBlock(&block)
}

// commented returns the family that a HELP or TYPE line is about, "" for other lines.
func commented(line string) string {
	for _, prefix := range []string{"# HELP ", "# TYPE "} {
		if rest, found := strings.CutPrefix(line, prefix); found {
			name, _, _ := strings.Cut(rest, " ")
			return name
		}
	}
	return ""
}

// addBlock parses what block holds, and empties it.
func (m *Metrics) addBlock(block *bytes.Buffer) error {
	var parser expfmt.TextParser
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
		if m.keep(name, series) {
			kept = append(kept, series)
		}
	}
	if len(kept) == 0 {
		return
	}
	if former, exists := m.families[name]; exists {
		if former.GetType() == family.GetType() {
			former.Metric = append(former.Metric, kept...)
		}
		return
	}
	family.Metric = kept
	m.families[name] = family
}

// keep renames the labels of series, which was parsed for us, and says whether it is the tenant's.
func (m *Metrics) keep(name string, series *dto.Metric) bool {
	labels := map[string]string{}
	for _, label := range series.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	pod, ok := m.own.find(labels["namespace"], labels["pod"], labels["pod_uid"])
	if !ok {
		return false
	}
	// A cgroup's path tells the super cluster's UID and how the node is built.
	series.Label = slices.DeleteFunc(series.GetLabel(), func(label *dto.LabelPair) bool { return label.GetName() == "id" })
	key, words := name, wordsOf(pod)
	for _, label := range series.GetLabel() {
		value := words.Translate(label.GetValue())
		label.Value = &value
		key += fmt.Sprintf(",%s=%q", label.GetName(), value)
	}
	_, doubled := m.seen[key]
	m.seen[key] = struct{}{}
	return !doubled
}

// WriteTo writes what was collected in Prometheus' text format, families in order of their names.
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

// nodeFamily returns node with one series: the sum of the pods' over so many nodes at the latest of their times, or zero at the node's own
// time.
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
