package kind

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/writerate"
)

// ReasonWriteRateExceeded: the syncer writes more for the tenant into the super cluster than limits.writes of the
// TenantPolicy allows, so that the object, or its change, goes there later.
const ReasonWriteRateExceeded = "WriteRateExceeded"

// LimitWrites makes Super a client that writes no more to super of each tenant than limits.writes of its TenantPolicy.
func (e *Env) LimitWrites(super client.WithWatch) {
	rates := writerate.New(e.Clock, func(tenant string) (int64, int64) {
		if connected := e.Tenant(tenant); connected != nil {
			return connected.Policy.Get().WriteRate()
		}
		return policy.Default().WriteRate()
	})
	e.OnForget(func(string) { rates.ForgetFull() })
	e.Super = rates.Client(super)
}

// telling is a kind that tells tenants about objects that wait for limits.writes.
type telling struct {
	engine.Kind
	env *Env
}

// Reconcile implements engine.Kind.
func (t telling) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	after, err := t.Kind.Reconcile(ctx, key, waited)
	if engine.DelayOf(err) >= QuietTime {
		t.env.tellRate(key)
	}
	return after, err //nolint:wrapcheck // it is the kind's
}

// Run implements engine.Runner.
func (t telling) Run(ctx context.Context) {
	if runner, is := t.Kind.(engine.Runner); is {
		runner.Run(ctx)
	}
}

// tellRate records an Event on a tenant's object, or on its namespace.
func (e *Env) tellRate(key engine.Key) {
	tenant := e.Tenant(key.Tenant)
	if tenant == nil {
		return
	}
	spec, kind := e.kinds().spec(key.Kind), key.Kind
	if spec.From != "" {
		kind = spec.From
	}
	object, _ := tenant.Cache.Get(kind, key.Namespace, key.Name)
	if object == nil {
		object, _ = tenant.Cache.Get(Namespace, "", key.Namespace)
	}
	if object == nil {
		return
	}
	perSecond, burst := tenant.Policy.Get().WriteRate()
	e.WarnOnce(tenant, key, object, ReasonWriteRateExceeded, fmt.Sprintf(
		"Super cluster %s: the tenant's objects change by more than %d bytes a second, after %d at once (limits.writes of TenantPolicy %s): what this one needs there waits. "+
			"Change large objects less often, or make them smaller", e.ID, perSecond, burst, tenant.Policy.Get().Name()))
}
