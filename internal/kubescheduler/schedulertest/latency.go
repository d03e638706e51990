package schedulertest

import (
	"math"
	"slices"
	"syscall"
	"testing"
	"time"
)

// LatencyRecorder records the times that the operations of a benchmark took, by the clock and in CPU time of the whole
// process, the garbage collector's included. The second says what the first does not on a machine that is shared. The
// zero value is ready for use, by one goroutine.
type LatencyRecorder struct {
	begun   time.Time
	used    time.Duration
	wall    []time.Duration
	cpuTime []time.Duration
}

// Start begins an operation.
func (r *LatencyRecorder) Start() { r.begun, r.used = time.Now(), CPUTime() }

// Stop ends it.
func (r *LatencyRecorder) Stop() {
	r.cpuTime = append(r.cpuTime, CPUTime()-r.used)
	r.wall = append(r.wall, time.Since(r.begun))
}

// Report reports medians and 99th percentiles as metrics of a benchmark: p50-ms, p99-ms, p50-cpu-ms, p99-cpu-ms. Of
// fewer than a hundred operations the 99th percentile is the slowest.
func (r *LatencyRecorder) Report(b *testing.B) {
	b.Helper()
	for unit, latencies := range map[string][]time.Duration{"ms": r.wall, "cpu-ms": r.cpuTime} {
		b.ReportMetric(quantile(latencies, 0.5), "p50-"+unit)
		b.ReportMetric(quantile(latencies, 0.99), "p99-"+unit)
	}
}

// ReportFirst reports the first operation, for benchmarks that leave it out of what they measure: first-ms and
// first-cpu-ms.
func (r *LatencyRecorder) ReportFirst(b *testing.B) {
	b.Helper()
	b.ReportMetric(quantile(r.wall[:1], 1), "first-ms")
	b.ReportMetric(quantile(r.cpuTime[:1], 1), "first-cpu-ms")
}

// Len returns how many operations there were.
func (r *LatencyRecorder) Len() int { return len(r.wall) }

// Ratio returns the throughput of r as a part of that of other, by the clock and by CPU time: the medians over their
// operations in pairs, 0 for none.
func (r *LatencyRecorder) Ratio(other *LatencyRecorder) (wall, cpuTime float64) {
	return ratio(r.wall, other.wall), ratio(r.cpuTime, other.cpuTime)
}

func ratio(latencies, others []time.Duration) float64 {
	var ratios []float64
	for i := range min(len(latencies), len(others)) {
		ratios = append(ratios, others[i].Seconds()/latencies[i].Seconds())
	}
	if len(ratios) == 0 {
		return 0
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// ReportEach reports the medians of r for each of count things that an operation did, in microseconds.
func (r *LatencyRecorder) ReportEach(b *testing.B, name string, count int) {
	b.Helper()
	b.ReportMetric(quantile(r.wall, 0.5)*1e3/float64(count), name+"-µs")
	b.ReportMetric(quantile(r.cpuTime, 0.5)*1e3/float64(count), name+"-cpu-µs")
}

// Quantile returns what so large a part of the operations took at most, by the clock and in CPU time, in milliseconds.
func (r *LatencyRecorder) Quantile(part float64) (wall, cpuTime float64) {
	return quantile(r.wall, part), quantile(r.cpuTime, part)
}

// quantile returns the smallest of latencies that so large a part of them does not exceed, in milliseconds, 0 for none.
func quantile(latencies []time.Duration, part float64) float64 {
	if len(latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)].Seconds() * 1e3
}

// CPUTime returns the CPU time of this process since its start.
func CPUTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
