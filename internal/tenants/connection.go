package tenants

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

const (
	healthPeriod   = 30 * time.Second
	firstDelay     = time.Second
	longestDelay   = time.Minute
	backoffFactor  = 2
	backoffJitter  = 0.1
	backoffStepMax = 1 << 30
)

// connection is one instance of work for one tenant. It tries again until it is cancelled:
//
//	            probe fails, or Engage returns
//	   ┌──────────────────────────────────────────────┐
//	   ▼                                              │
//	(delay) ──► probe ──► Engage: Connecting ──ready──► Connected ◄──probe──► Unreachable, Engage still runs
type connection struct {
	tenant *Tenant
	engage Engage
	// probe returns an error when the control plane does not answer, or is another than it was.
	probe   func(context.Context) error
	changed func()

	mu    sync.Mutex
	state problem
	ready bool
}

func (r *Registry) connect(tenant *Tenant) *connection {
	return &connection{
		tenant: tenant,
		engage: r.Engage,
		probe: func(ctx context.Context) error {
			uid, err := r.probe(ctx, tenant.Config)
			if err != nil {
				return err
			}
			return r.recognize(ctx, tenant, uid)
		},
		changed: func() { r.instances.Changed(tenant.VirtualCluster) },
		state:   problem{tenancyv1alpha1.ReasonConnecting, "Connecting to " + tenant.Config.Host},
	}
}

// current returns the state in the words of the Ready condition. Its reason is Connected when all is well.
func (c *connection) current() problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *connection) set(ctx context.Context, reason, message string) {
	c.mu.Lock()
	state := problem{reason, message}
	changed := c.state != state && ctx.Err() == nil
	if changed {
		c.state = state
	}
	c.mu.Unlock()
	if changed {
		c.changed()
	}
}

// Run implements kubeconfig.Work.
func (c *connection) Run(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "tenant", c.tenant.Key)
	ctx = klog.NewContext(ctx, logger)
	logger.V(2).Info("Connecting to tenant", "server", c.tenant.Config.Host)
	defer logger.V(2).Info("Left tenant")
	backoff := newBackoff()
	for ctx.Err() == nil {
		wasReady, err := c.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if wasReady {
			backoff = newBackoff()
		}
		delay := backoff.Step()
		logger.V(2).Info("Tenant is not connected, trying again", "delay", delay, "err", err)
		c.set(ctx, reasonOf(err), err.Error())
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// once connects and works until the connection ends. It says whether the work was ready, and never returns a nil error.
func (c *connection) once(ctx context.Context) (wasReady bool, err error) {
	if err := c.probe(ctx); err != nil {
		return false, fmt.Errorf("connecting to %s: %w", c.tenant.Config.Host, err)
	}
	c.set(ctx, tenancyv1alpha1.ReasonConnecting, "Reading the objects of "+c.tenant.Config.Host)
	c.setReady(false)
	ctx, cancel := context.WithCancelCause(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { c.watchHealth(ctx, cancel) })
	defer watcher.Wait()
	defer cancel(nil)
	err = c.engage(ctx, c.tenant, func() {
		c.setReady(true)
		c.set(ctx, tenancyv1alpha1.ReasonConnected, "Connected to "+c.tenant.Config.Host)
	})
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &otherControlPlane{}):
		err = cause
	case err == nil:
		err = errors.New("the work ended")
	}
	return c.isReady(), fmt.Errorf("working on %s: %w", c.tenant.Config.Host, err)
}

// watchHealth keeps the state of an engaged tenant true to whether its server answers. Watches mend themselves, so it stops nothing, unless
// another control plane answers.
func (c *connection) watchHealth(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(healthPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		switch err := c.probe(ctx); {
		case errors.As(err, &otherControlPlane{}):
			stop(err)
			return
		case err != nil:
			c.set(ctx, tenancyv1alpha1.ReasonUnreachable, fmt.Sprintf("%s does not answer: %v", c.tenant.Config.Host, err))
		case c.isReady():
			c.set(ctx, tenancyv1alpha1.ReasonConnected, "Connected to "+c.tenant.Config.Host)
		default:
			c.set(ctx, tenancyv1alpha1.ReasonConnecting, "Reading the objects of "+c.tenant.Config.Host)
		}
	}
}

func reasonOf(err error) string {
	if errors.As(err, &otherControlPlane{}) {
		return tenancyv1alpha1.ReasonOtherControlPlane
	}
	return tenancyv1alpha1.ReasonUnreachable
}

func (c *connection) setReady(ready bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = ready
}

func (c *connection) isReady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: firstDelay, Factor: backoffFactor, Jitter: backoffJitter, Steps: backoffStepMax, Cap: longestDelay}
}
