package cli

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/simulation"
)

// patience is how long nothing is said of what is being done.
const patience = 2 * time.Second

// Doing does something, and says what where it takes longer than two seconds. It returns the error of do, which writes
// nothing to the standard error.
func (c *CLI) Doing(what string, do func() error) error {
	told := make(chan struct{})
	timer := time.AfterFunc(patience, func() {
		defer close(told)
		_, _ = fmt.Fprintln(c.ErrOut, what+" ...") // nobody reads it who has closed it
	})
	err := do()
	if !timer.Stop() {
		<-told
	}
	return err
}

// Pool reads the state of the pool from the meta cluster.
func (c *CLI) Pool(ctx context.Context, cluster client.Reader) (pool *simulation.Pool, err error) {
	err = c.Doing("reading virtual Nodes and NamespacePlacements", func() error {
		pool, err = simulation.Live(ctx, cluster)
		return err //nolint:wrapcheck // it says what it did
	})
	return pool, err
}

// Placements reads all NamespacePlacements of the meta cluster, sorted by tenant and name.
func (c *CLI) Placements(ctx context.Context, cluster client.Reader) (placements []*schedulerv1alpha1.NamespacePlacement, err error) {
	err = c.Doing("reading NamespacePlacements", func() error {
		placements, err = simulation.Placements(ctx, cluster)
		return err //nolint:wrapcheck // it says what it did
	})
	return placements, err
}
