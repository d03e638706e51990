package tenants

import (
	"context"
	"time"
)

const (
	healthPeriod = 30 * time.Second
	longestDelay = time.Minute
)

// connection is the engage.Work of one tenant: it asks which control plane answers, and Engage works on it.
type connection struct {
	controller *Controller
	tenant     *Tenant
}

// Server implements engage.Work.
func (c *connection) Server() string { return c.tenant.Config.Host }

// Connect implements engage.Work: it is a Probe.
func (c *connection) Connect(ctx context.Context) error { return c.Probe(ctx) }

// Probe returns an error when the control plane does not answer, or is another than it was.
func (c *connection) Probe(ctx context.Context) error {
	uid, err := c.controller.probe(ctx, c.tenant.Config)
	if err != nil {
		return err
	}
	return c.controller.recognize(ctx, c.tenant, uid)
}

// Serve implements engage.Work.
func (c *connection) Serve(ctx context.Context, ready func()) error {
	return c.controller.Engage(ctx, c.tenant, ready)
}
