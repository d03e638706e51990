// Package census counts objects of the meta cluster for metrics: those that a program's cache holds, anew at each
// scrape. No label holds a tenant.
package census

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience is how long a scrape waits for a cache, which a program that has just started is yet to fill.
const patience = time.Second

// census is one count. Its gauges are made with it, and have no values before count.
type census interface {
	gauges() []*prometheus.GaugeVec
	count(ctx context.Context, reader client.Reader) error
}

// collector makes a census at each scrape. It is safe for concurrent use.
type collector struct {
	begin func() census
	// within returns the context of one scrape.
	within func() (context.Context, context.CancelFunc)
	reader client.Reader
}

// register registers gauges that are counted in reader, a cache, until ctx ends: nothing is shown while it has not
// synced. They take the place of those that a program has registered which ran in this process before.
func register(ctx context.Context, registerer prometheus.Registerer, reader client.Reader, begin func() census) error {
	c := &collector{begin: begin, reader: reader, within: func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, patience) }}
	registerer.Unregister(c)
	var registered prometheus.AlreadyRegisteredError
	if err := registerer.Register(c); err != nil && !errors.As(err, &registered) { // of a program that runs beside in this process
		return fmt.Errorf("registering what the meta cluster has: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, gauge := range c.begin().gauges() {
		gauge.Describe(descriptions)
	}
}

// Collect implements prometheus.Collector. Where the cache cannot be read it shows nothing: all other metrics stay.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := c.within()
	defer cancel()
	current := c.begin()
	if err := current.count(ctx, c.reader); err != nil {
		klog.FromContext(ctx).V(2).Info("Nothing is counted in the meta cluster", "err", err)
		return
	}
	for _, gauge := range current.gauges() {
		gauge.Collect(metrics)
	}
}
