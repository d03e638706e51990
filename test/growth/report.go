package growth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/superpool/superpool/test/chart"
)

// resident returns the largest resident size of this process, in bytes.
func resident() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Maxrss) * 1024
}

// Grow measures pools of so many tenants, each in a process of its own that runs this program with -one, tells
// progress of each, prints a table to w, and writes a chart into a file, "" for none.
func Grow(ctx context.Context, tenants []int, o Options, figure string, w, progress io.Writer) error {
	var all []*Figures
	// The largest comes first: it is the one that may break.
	for _, count := range slices.Backward(slices.Sorted(slices.Values(tenants))) {
		o.Tenants = count
		f, err := runAlone(ctx, o)
		if err != nil {
			return fmt.Errorf("%d tenants: %w", count, err)
		}
		all = append([]*Figures{f}, all...)
		_, _ = fmt.Fprintf(progress, "%d tenants: %+v\n", count, *f)
	}
	printTable(w, all)
	if figure == "" {
		return nil
	}
	return draw(figure, all)
}

func runAlone(ctx context.Context, o Options) (*Figures, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	encoded, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encoding the options: %w", err)
	}
	out := &bytes.Buffer{}
	command := exec.CommandContext(ctx, self, "-one", string(encoded)) //nolint:gosec // it is this program
	command.Stdout, command.Stderr = out, os.Stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("running it alone: %w", err)
	}
	f := &Figures{}
	if err := json.Unmarshal(out.Bytes(), f); err != nil {
		return nil, fmt.Errorf("reading what it measured: %w", err)
	}
	return f, nil
}

// One measures one pool in this process, and writes the figures as JSON.
func One(ctx context.Context, encoded string, w io.Writer) error {
	var o Options
	if err := json.Unmarshal([]byte(encoded), &o); err != nil {
		return fmt.Errorf("reading the options: %w", err)
	}
	f, err := Run(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(f) //nolint:wrapcheck // it is stdout
}

// row is a figure of all pools. It is drawn as a part of that of the first pool with ten tenants or more, under the name
// curve, "" for not at all.
type row struct {
	name, format string
	curve        string
	of           func(*Figures) float64
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

var rows = []row{
	{"namespaces", "%.0f", "", func(f *Figures) float64 { return float64(f.Tenants * f.Namespaces) }},
	{"pods", "%.0f", "", func(f *Figures) float64 { return float64(f.Tenants * f.Pods) }},
	{"CPU time of a namespace, all at once, ms", "%.2f", "CPU time of a namespace, all at once", func(f *Figures) float64 { return milliseconds(f.Namespace) }},
	{"same, one more alone, p50, ms", "%.2f", "CPU time of one more namespace", func(f *Figures) float64 { return f.OneNamespace }},
	{"same, by the clock, p50; ms", "%.2f", "", func(f *Figures) float64 { return f.NamespaceClock }},
	{"same, slowest, ms", "%.2f", "", func(f *Figures) float64 { return f.SlowestNamespace }},
	{"CPU time of a pod, all at once, ms", "%.2f", "CPU time of a pod, all at once", func(f *Figures) float64 { return milliseconds(f.Pod) }},
	{"same, one more alone, p50, ms", "%.2f", "CPU time of one more pod", func(f *Figures) float64 { return f.OnePod }},
	{"same, by the clock, p50; ms", "%.2f", "", func(f *Figures) float64 { return f.PodClock }},
	{"same, slowest, ms", "%.2f", "", func(f *Figures) float64 { return f.SlowestPod }},
	{"CPU time of a tenant that connects, ms", "%.1f", "CPU time of a tenant that connects", func(f *Figures) float64 { return milliseconds(f.Engage) }},
	{"CPU time of an idle tenant in a second, ms", "%.3f", "", func(f *Figures) float64 { return milliseconds(f.Idle) }},
	{"memory of a namespace, kB", "%.1f", "memory of a namespace", func(f *Figures) float64 { return f.NamespaceBytes / 1e3 }},
	{"memory of an idle tenant, kB", "%.0f", "memory of an idle tenant", func(f *Figures) float64 { return f.TenantBytes / 1e3 }},
	{"memory of a pod, kB", "%.1f", "memory of a pod", func(f *Figures) float64 { return f.PodBytes / 1e3 }},
	{"memory of all, MB", "%.0f", "", func(f *Figures) float64 { return f.Bytes / 1e6 }},
	{"largest resident size, MB", "%.0f", "", func(f *Figures) float64 { return f.Resident / 1e6 }},
	{"goroutines", "%.0f", "", func(f *Figures) float64 { return float64(f.Goroutines) }},
}

func printTable(w io.Writer, all []*Figures) {
	header, rule := "| tenants |", "|---|"
	for _, f := range all {
		header += fmt.Sprintf(" %d |", f.Tenants)
		rule += "---|"
	}
	_, _ = fmt.Fprintf(w, "%s\n%s\n", header, rule)
	for i := range rows {
		line := "| " + rows[i].name + " |"
		for _, f := range all {
			line += fmt.Sprintf(" "+rows[i].format+" |", rows[i].of(f))
		}
		_, _ = fmt.Fprintln(w, line)
	}
}

func draw(figure string, all []*Figures) error {
	base := all[0]
	for _, f := range all {
		if base.Tenants < 10 {
			base = f
		}
	}
	c := &chart.Chart{Title: fmt.Sprintf("What each costs, as a part of the same with %d tenants", base.Tenants), XLabel: "tenants", YLabel: "×", Colours: 5}
	for _, f := range all {
		c.X = append(c.X, fmt.Sprint(f.Tenants))
	}
	for i := range rows {
		if rows[i].curve == "" {
			continue
		}
		line := chart.Line{Name: rows[i].curve}
		for _, f := range all {
			line.Y = append(line.Y, rows[i].of(f)/rows[i].of(base))
		}
		c.Lines = append(c.Lines, line)
	}
	return c.WriteFile(figure) //nolint:wrapcheck // it names the file
}
