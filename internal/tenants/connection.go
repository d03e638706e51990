package tenants

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/tenantclient"
)

const (
	healthPeriod = 30 * time.Second
	longestDelay = time.Minute
)

// connection is the engage.Work of one tenant: it asks which control plane answers, and Engage works on it.
type connection struct {
	controller *Controller
	tenant     *Tenant
	uid        types.UID       // of the control plane, found by Connect
	versions   engage.Versions // of the control plane, begun by Connect
	// version is what the control plane said last of its version of Kubernetes; never nil.
	version atomic.Pointer[skew.Version]
}

func newConnection(controller *Controller, tenant *Tenant) *connection {
	c := &connection{controller: controller, tenant: tenant}
	c.version.Store(&skew.Version{})
	return c
}

// Server implements engage.Work.
func (c *connection) Server() string { return c.tenant.Config.Host }

// Connect implements engage.Work: it asks whether the control plane is the tenant's.
func (c *connection) Connect(ctx context.Context) error {
	uid, version, err := c.identify(ctx)
	if err != nil {
		return err
	}
	c.uid = uid
	c.versions.Begin()
	return c.versions.Observe(version) //nolint:wrapcheck // the first one goes back behind nothing
}

// Probe returns an error when the control plane does not answer, or is another than it was. The connection ends, and
// another begins, when another control plane has become the tenant's, and when it was restored from a backup.
func (c *connection) Probe(ctx context.Context) error {
	uid, version, err := c.identify(ctx)
	switch {
	case err != nil:
		return err
	case uid != c.uid:
		return controlPlaneChanged(c.tenant, uid, c.uid)
	}
	return c.versions.Observe(version) //nolint:wrapcheck // a Failure is complete
}

// identify returns the UID and the resource version of the control plane, if the VirtualCluster records that UID.
func (c *connection) identify(ctx context.Context) (types.UID, string, error) {
	uid, version, err := c.controller.probe(ctx, c.tenant.Config)
	if err != nil {
		return "", "", tenantclient.Failure(err)
	}
	if err := c.controller.recognize(ctx, c.tenant, uid); err != nil {
		return "", "", err
	}
	c.readVersion(ctx)
	return uid, version, nil
}

// readVersion asks for the version of Kubernetes. The VirtualCluster is reconciled for another one, which Connected
// before and after does not tell.
func (c *connection) readVersion(ctx context.Context) {
	if c.controller.Version == nil {
		return
	}
	version, err := c.controller.Version(ctx, c.tenant.Config)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The version of the control plane is not known", "err", err)
		return
	}
	if last := c.version.Swap(&version); *last != version {
		c.controller.supervisor.Changed(c.tenant.VirtualCluster)
	}
}

// Serve implements engage.Work.
func (c *connection) Serve(ctx context.Context, ready func()) error {
	tenant := *c.tenant
	tenant.ControlPlaneUID = c.uid
	return tenant.Bounds.Serve(ctx, func(ctx context.Context) error { return c.controller.Engage(ctx, &tenant, ready) })
}
