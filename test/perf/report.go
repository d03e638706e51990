package perf

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Report is what a run showed.
type Report struct {
	Options Options
	Started time.Time

	bursts, paced map[string][]*result
	names         []string
	fairness      map[string]*fairness
	restarts      *restarts
}

func (r *Report) addFairness(name string, shown *fairness) {
	if r.fairness == nil {
		r.fairness = map[string]*fairness{}
	}
	r.fairness[name] = shown
}

func (r *Report) add(name string, shown *result) {
	if r.bursts == nil {
		r.bursts = map[string][]*result{}
	}
	if !slices.Contains(r.names, name) {
		r.names = append(r.names, name)
	}
	r.bursts[name] = append(r.bursts[name], shown)
}

func (r *Report) addPaced(name string, shown *result) {
	if r.paced == nil {
		r.paced = map[string][]*result{}
	}
	r.paced[name] = append(r.paced[name], shown)
}

// row is one line of the table: a figure of each load.
type row struct {
	name   string
	format string
	paced  bool
	of     func(*result) (float64, bool)
}

func rows(rate float64, resting map[string]float64) []row {
	always := func(of func(*result) float64) func(*result) (float64, bool) {
		return func(r *result) (float64, bool) { return of(r), true }
	}
	pace := fmt.Sprintf("%g pods/s, Ready ", rate)
	all := []row{
		{name: "burst, all Ready", format: "%.2f s", of: always(func(r *result) float64 { return r.total })},
		{name: "burst, Ready p50", format: "%.2f s", of: always(func(r *result) float64 { return quantile(r.ready, 0.5) })},
		{name: "burst, Ready p99", format: "%.2f s", of: always(func(r *result) float64 { return quantile(r.ready, 0.99) })},
		{name: "p50 as a part of all", format: "%.2f", of: always(func(r *result) float64 { return quantile(r.ready, 0.5) / r.total })},
		{name: "Ready in super → Ready in tenant, p50", format: "%.2f s", of: func(r *result) (float64, bool) { return quantile(r.up, 0.5), len(r.up) > 0 }},
		{name: "Ready in super → Ready in tenant, p99", format: "%.2f s", of: func(r *result) (float64, bool) { return quantile(r.up, 0.99), len(r.up) > 0 }},
		{name: pace + "p50", format: "%.0f ms", paced: true, of: always(func(r *result) float64 { return 1000 * quantile(r.ready, 0.5) })},
		{name: pace + "p99", format: "%.0f ms", paced: true, of: always(func(r *result) float64 { return 1000 * quantile(r.ready, 0.99) })},
		{name: "deletion", format: "%.2f s", of: always(func(r *result) float64 { return r.deletion })},
		{name: "CPU per pod, all programs", format: "%.1f ms", of: always(func(r *result) float64 { return perPod(r, sum(r.cpu)) })},
	}
	if resting != nil {
		all = append(all, row{name: "same, less what the programs use at rest in that time", format: "%.1f ms", of: always(func(r *result) float64 {
			used := 0.0
			for group, seconds := range r.cpu {
				used += max(0, seconds-resting[group]*r.total)
			}
			return perPod(r, used)
		})})
	}
	all = append(all, parts("of it", func(r *result) map[string]float64 { return r.cpu })...)
	all = append(all, row{name: "CPU per pod of the deletion, all programs", format: "%.1f ms", of: always(func(r *result) float64 { return perPod(r, sum(r.cpuDeletion)) })})
	return append(all, parts("of the deletion", func(r *result) map[string]float64 { return r.cpuDeletion })...)
}

// parts returns rows that say which programs used the CPU time that of returns, each with whole in front.
func parts(whole string, of func(*result) map[string]float64) (all []row) {
	for _, part := range []struct {
		name   string
		groups []string
	}{
		{"syncer + vc-scheduler", []string{"syncer", "vc-scheduler"}},
		{"syncer", []string{"syncer"}},
		{"vc-scheduler", []string{"vc-scheduler"}},
		{"tenants' API servers", []string{"tenant kube-apiserver"}},
		{"tenants' etcds", []string{"tenant etcd"}},
		{"the super API server", []string{"super kube-apiserver"}},
		{"the super cluster's controllers", []string{"super kube-controller-manager"}},
		{"etcd, kube-scheduler and kwok there", []string{"super etcd", "super kube-scheduler", "super kwok"}},
		{"the meta cluster", []string{"meta kube-apiserver", "meta etcd"}},
	} {
		all = append(all, row{name: whole + ", " + part.name, format: "%.1f ms", of: func(r *result) (float64, bool) {
			used, exists := 0.0, false
			for _, group := range part.groups {
				seconds, known := of(r)[group]
				used, exists = used+seconds, exists || known
			}
			return perPod(r, used), exists
		}})
	}
	return all
}

// perPod returns milliseconds of a pod.
func perPod(r *result, seconds float64) float64 { return 1000 * seconds / float64(r.pods) }

// Table returns the figures as a table in Markdown, and what the pool does at rest. Ratios are to the direct case with
// a ResourceQuota.
func (r *Report) Table() string {
	var text strings.Builder
	names := []string{inPool, direct, directWithQuota}
	fmt.Fprintf(&text, "%d tenants × %d pods, medians of %d, %s\n\n| | %s | ratio |\n|---|---|---|---|---|\n", r.Options.Tenants, r.Options.Pods, r.Options.Rounds,
		r.Started.UTC().Format(time.DateOnly), strings.Join(names, " | "))
	resting := r.resting()
	for _, row := range rows(r.Options.Rate, resting) {
		results := r.bursts
		if row.paced {
			results = r.paced
		}
		cells, figures := make([]string, len(names)), make([]float64, len(names))
		for i, name := range names {
			cells[i], figures[i] = cell(row, results[name])
		}
		ratio := "–"
		if against := figures[2]; !math.IsNaN(figures[0]) && against > 0 {
			ratio = fmt.Sprintf("%.2f", figures[0]/against)
		}
		if cells[0] != "–" {
			fmt.Fprintf(&text, "| %s | %s | %s |\n", row.name, strings.Join(cells, " | "), ratio)
		}
	}
	text.WriteString(r.atRest())
	return text.String()
}

// resting returns the CPU time of each group of programs in a second of rest; nil where nobody looked.
func (r *Report) resting() map[string]float64 {
	for _, shown := range r.bursts[inPool] {
		if shown.rest != nil {
			return shown.rest.cpu
		}
	}
	return nil
}

// cell returns the median of a figure over results, as text and number: "–" and NaN where no result has it.
func cell(row row, results []*result) (string, float64) {
	var figures []float64
	for _, shown := range results {
		if figure, exists := row.of(shown); exists {
			figures = append(figures, figure)
		}
	}
	if len(figures) == 0 {
		return "–", math.NaN()
	}
	median := quantile(figures, 0.5)
	return fmt.Sprintf(row.format, median), median
}

// atRest returns lines about the pool with all pods running, and beside what bursts show.
func (r *Report) atRest() string {
	var text strings.Builder
	for _, shown := range r.bursts[inPool] {
		if shown.rest == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(shown.rest.writes)) {
			fmt.Fprintf(&text, "\n- %s at rest: %.1f writes in 20 s (%d tenants with %d Nodes each), %.2f s of CPU time a minute; by each pod %.1f kB of heap, %.1f kB resident",
				name, shown.rest.writes[name], r.Options.Tenants, r.Options.Nodes, 60*shown.rest.cpu[name], shown.rest.heap[name]/1000, shown.rest.rss[name]/1000)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.fairness)) {
		shown := r.fairness[name]
		fmt.Fprintf(&text, "\n- %s: pods of regular tenants are Ready after %.0f ms in the mean, beside one that creates %d at once after %.0f ms, %.2f ×", name,
			1000*shown.alone, r.Options.Greedy, 1000*shown.beside, shown.beside/shown.alone)
		if shown.down > 0 {
			fmt.Fprintf(&text, "; of these until it is in the super cluster %.0f ms, Ready there %.0f ms, Ready in the tenant %.0f ms", 1000*shown.down, 1000*shown.below, 1000*shown.up)
		}
	}
	if r.restarts != nil {
		fmt.Fprintf(&text, "\n- syncer started again with %d pods: a new pod is Ready %.2f s after it was asked to end, %.2f s after it was killed",
			r.Options.Tenants*r.Options.Pods, quantile(r.restarts.stopped, 0.5), quantile(r.restarts.killed, 0.5))
	}
	if text.Len() > 0 {
		text.WriteString("\n")
	}
	for _, shown := range r.bursts[inPool] {
		text.WriteString(requestTable(shown))
	}
	return text.String()
}

// requestTable returns the requests of a load by each pod, but those that hardly any pod has.
func requestTable(shown *result) string {
	if len(shown.requests) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("\n| requests, bytes and reconciles, a pod | until Ready | deletion | all pods together, at rest in 20 s |\n|---|---|---|---|\n")
	resting := requests{}
	if shown.rest != nil {
		resting = shown.rest.requests
	}
	kinds := maps.Clone(shown.requests)
	maps.Copy(kinds, shown.requestsDeletion)
	maps.Copy(kinds, resting)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		created, deleted := shown.requests[kind]/float64(shown.pods), shown.requestsDeletion[kind]/float64(shown.pods)
		if max(created, deleted) >= 0.01 || resting[kind] >= 1 {
			fmt.Fprintf(&text, "| %s | %.2f | %.2f | %.0f |\n", kind, created, deleted, resting[kind])
		}
	}
	return text.String()
}

// quantile returns the smallest value that a part of the values do not exceed; NaN of none.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, min(len(sorted)-1, int(math.Ceil(part*float64(len(sorted))))-1))]
}

func sum(values map[string]float64) float64 {
	total := 0.0
	for _, value := range values {
		total += value
	}
	return total
}
