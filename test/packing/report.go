package packing

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/chart"
)

// cores are the sizes of slices that are compared.
var cores = []float64{0.5, 1, 2, 4, 8}

// series are kinds of slices, of each of those sizes.
type series struct {
	name string
	// memory is MiB and pods the number of pods of each core.
	memory, pods float64
	profile      string
	namesPods    bool
}

// all are what is compared: what is shipped, that for quotas that name pods, the same with as many pods and as much
// memory as nodes have of each core, and that packed.
var all = []series{
	{name: "2Gi and 10 pods a core", memory: 2048, pods: 10},
	{name: "same, quotas name pods", memory: 2048, pods: 10, namesPods: true},
	{name: "2Gi and 3 pods a core", memory: 2048, pods: 3},
	{name: "4Gi and 3 pods a core", memory: 4096, pods: 3},
	{name: "4Gi and 3 pods a core, pack", memory: 4096, pods: 3, profile: "pack"},
}

func (s *series) cut(cores float64) *Cut {
	size := slice.Amounts{
		corev1.ResourceCPU: int64(cores * 1000), corev1.ResourceMemory: int64(cores*s.memory) << 20,
		corev1.ResourcePods: max(1, int64(cores*s.pods)),
	}
	return &Cut{Name: fmt.Sprintf("%g: %s", cores, s.name), Slice: size, Profile: s.profile, NamesPods: s.namesPods}
}

// header begins a table of outcomes.
const header = `
| cores of a slice: memory and pods | reserved at the first refusal | in the end | pods run | no room for pods, without moves | with | room, but no node | moves | namespaces refused |
|---|---|---|---|---|---|---|---|---|
`

// Main measures all cuts, with seeds 1 to so many, prints a table to w, and writes a chart into a file, "" for none.
func Main(ctx context.Context, seeds int, figure string, w io.Writer) error {
	pool := DefaultPool()
	c := &chart.Chart{Title: "Part of the pool that runs no pods although somebody waits", XLabel: "cores of a slice", YLabel: "%", Colours: 4}
	for _, size := range cores {
		c.X = append(c.X, fmt.Sprint(size))
	}
	for l := range Loads {
		load := &Loads[l]
		_, _ = fmt.Fprintf(w, "\n%s\n%s", load.Name, header)
		running, atFirst := 0.0, 0.0
		for seed := range seeds {
			r, f := FirstFit(&pool, load, uint64(seed+1))
			running, atFirst = running+r/float64(seeds), atFirst+f/float64(seeds)
		}
		_, _ = fmt.Fprintf(w, "| none: pods, first fit | %.1f | – | %.1f | – | – | – | – | – |\n", 100*atFirst, 100*running)
		whole, err := mean(ctx, &pool, load, &Cut{Name: "the whole quota"}, seeds)
		if err != nil {
			return err
		}
		whole.print(w, "the whole quota")
		for s := range all {
			line := chart.Line{Name: load.Name + ": " + all[s].name}
			for _, size := range cores {
				cut := all[s].cut(size)
				o, err := mean(ctx, &pool, load, cut, seeds)
				if err != nil {
					return err
				}
				o.print(w, cut.Name)
				line.Y = append(line.Y, 100*(1-o.Running))
			}
			if !all[s].namesPods { // the picture is of the size of slices
				c.Lines = append(c.Lines, line)
			}
		}
	}
	if figure == "" {
		return nil
	}
	return c.WriteFile(figure) //nolint:wrapcheck // it names the file
}

// mean returns the mean outcome of loads with seeds 1 to so many.
func mean(ctx context.Context, pool *Pool, load *Load, cut *Cut, seeds int) (*Outcome, error) {
	sum := &Outcome{}
	n := float64(seeds)
	for seed := range seeds {
		o, err := Run(ctx, pool, load, cut, uint64(seed+1))
		if err != nil {
			return nil, fmt.Errorf("%s, %s, seed %d: %w", load.Name, cut.Name, seed+1, err)
		}
		sum.Reserved += o.Reserved / n
		sum.AtFirst += o.AtFirst / n
		sum.Running += o.Running / n
		sum.NoRoom += o.NoRoom / n
		sum.Unmoved += o.Unmoved / n
		sum.NoNode += o.NoNode / n
		sum.Moves += o.Moves
		sum.Refused += o.Refused
		sum.TooMany += o.TooMany
		sum.All += o.All
	}
	return sum, nil
}

// print prints a row of the table, in percent.
func (o *Outcome) print(w io.Writer, name string) {
	refused := fmt.Sprintf("%d of %d", o.Refused, o.All)
	if o.TooMany > 0 {
		refused += fmt.Sprintf(", %d of them make too many slices", o.TooMany)
	}
	_, _ = fmt.Fprintf(w, "| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %d | %s |\n", name,
		100*o.AtFirst, 100*o.Reserved, 100*o.Running, 100*o.Unmoved, 100*o.NoRoom, 100*o.NoNode, o.Moves, refused)
}
