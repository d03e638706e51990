package schedulertest

import (
	"math"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Laps are the times that the operations of a benchmark took, by the clock and in CPU time of the whole process, the
// garbage collector's included. The second says what the first does not on a machine that is shared. The zero value is
// ready for use, by one goroutine.
type Laps struct {
	begun   time.Time
	used    time.Duration
	wall    []time.Duration
	cpuTime []time.Duration
}

// Start begins an operation.
func (l *Laps) Start() { l.begun, l.used = time.Now(), CPUTime() }

// Stop ends it.
func (l *Laps) Stop() {
	l.cpuTime = append(l.cpuTime, CPUTime()-l.used)
	l.wall = append(l.wall, time.Since(l.begun))
}

// Report reports medians and 99th percentiles as metrics of a benchmark: p50-ms, p99-ms, p50-cpu-ms, p99-cpu-ms. Of
// fewer than a hundred operations the 99th percentile is the slowest.
func (l *Laps) Report(b *testing.B) {
	b.Helper()
	for unit, laps := range map[string][]time.Duration{"ms": l.wall, "cpu-ms": l.cpuTime} {
		b.ReportMetric(quantile(laps, 0.5), "p50-"+unit)
		b.ReportMetric(quantile(laps, 0.99), "p99-"+unit)
	}
}

// quantile returns the smallest of laps that so large a part of them does not exceed, in milliseconds, 0 for none.
func quantile(laps []time.Duration, part float64) float64 {
	if len(laps) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(laps))
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
