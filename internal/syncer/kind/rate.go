package kind

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/objectsize"
)

// ReasonWriteRateExceeded: the syncer writes more for the tenant into the super cluster than limits.writes of the
// TenantPolicy allows, so that the object, or its change, goes there later.
const ReasonWriteRateExceeded = "WriteRateExceeded"

const (
	// revisionBytes is what a revision takes in etcd besides objectsize.Stored: its keys.
	revisionBytes = 1 << 10
	// podRevisions is how often a pod is written that was created, besides once for each of its containers, which the
	// kubelet starts: by us, by the scheduler that binds it, and by the kubelet.
	podRevisions = 3
	// maxTurn bounds how long a write waits for its turn: patrol tries it as often.
	maxTurn = time.Minute
)

// LimitWrites makes Super a client that writes no more to super of each tenant than limits.writes of its TenantPolicy:
// etcd keeps what is written until it is compacted, and takes no writes of anybody when it is full. Whose object it is
// its labels tell. A write that is too early returns an error, which lets the engine try the key again when it is its
// turn. Reading and deleting have no limit.
func (e *Env) LimitWrites(super client.WithWatch) {
	rates := &writeRates{clock: e.Clock, limits: func(tenant string) (int64, int64) {
		if connected := e.Tenant(tenant); connected != nil {
			return connected.Policy.Get().WriteRate()
		}
		return policy.Default().WriteRate()
	}}
	e.OnForget(func(string) { rates.forgetFull() })
	e.Super = interceptor.NewClient(super, rates.funcs())
}

// writeRates holds what each tenant may write to a super cluster. All methods may be called concurrently.
type writeRates struct {
	clock clock.PassiveClock
	// limits returns limits.writes of a tenant: bytes in a second, and at once.
	limits func(tenant string) (bytesPerSecond, burst int64)

	mu      sync.Mutex
	tenants map[string]*writeRate
}

// writeRate is what a tenant may write. A write passes if anything is left, and may take more than that: so neither its
// size nor others that are smaller keep it waiting for ever.
type writeRate struct {
	left *rate.Limiter
	// turn is when the last of the writes that wait may be tried. Those that wait are tried one after the other, not
	// all of them each time that something is left.
	turn time.Time
}

// funcs take all writes but deletions.
func (w *writeRates) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return w.write(object, revisionsOf(object), func() error { return to.Create(ctx, object, options...) })
		},
		Update: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return w.write(object, 1, func() error { return to.Update(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, to client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return w.write(object, 1, func() error { return to.Patch(ctx, object, patch, options...) })
		},
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return errUncounted
		},
		SubResourceCreate: func(ctx context.Context, to client.Client, name string, object, body client.Object, options ...client.SubResourceCreateOption) error {
			return w.write(object, 1, func() error { return to.SubResource(name).Create(ctx, object, body, options...) })
		},
		SubResourceUpdate: func(ctx context.Context, to client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption) error {
			return w.write(object, 1, func() error { return to.SubResource(name).Update(ctx, object, options...) })
		},
		SubResourcePatch: func(ctx context.Context, to client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return w.write(object, 1, func() error { return to.SubResource(name).Patch(ctx, object, patch, options...) })
		},
		SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
			return errUncounted
		},
	}
}

// errUncounted is the error for a write whose size is not known, which is a bug.
var errUncounted = errors.New("what it writes is not counted")

func revisionsOf(created client.Object) int64 {
	if pod, isPod := created.(*corev1.Pod); isPod {
		return podRevisions + int64(len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	}
	return 1
}

// write counts so many revisions of an object, and writes it if it is its turn.
func (w *writeRates) write(object client.Object, revisions int64, do func() error) error {
	tenant := object.GetLabels()[tenancyv1alpha1.LabelCluster]
	if tenant == "" {
		return do()
	}
	// A quota takes room from its tenant and gives it to others, so it does not wait.
	_, atOnce := object.(*corev1.ResourceQuota)
	if wait := w.take(tenant, revisions*(objectsize.Stored(object)+revisionBytes), atOnce); wait > 0 {
		return engine.WaitFor(wait, "limits.writes of the tenant")
	}
	return do()
}

// take takes bytes of what a tenant may write and returns 0, or takes nothing and returns after what time there is
// something. atOnce takes them in any case.
func (w *writeRates) take(tenant string, bytes int64, atOnce bool) time.Duration {
	perSecond, burst := w.limits(tenant)
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.of(tenant, now, perSecond, burst)
	left := of.left.TokensAt(now)
	if left > 0 || atOnce {
		for rest := bytes; rest > 0 && burst > 0; rest -= burst { // a reservation takes burst at most
			of.left.ReserveN(now, int(min(rest, burst)))
		}
		return 0
	}
	if first := now.Add(secondsFor(-left+1, perSecond)); of.turn.Before(first) {
		of.turn = first
	} else {
		of.turn = of.turn.Add(secondsFor(float64(bytes), perSecond))
	}
	if last := now.Add(maxTurn); of.turn.After(last) {
		of.turn = last
	}
	return of.turn.Sub(now)
}

// of returns what a tenant may write, by those limits. The caller holds mu.
func (w *writeRates) of(tenant string, now time.Time, perSecond, burst int64) *writeRate {
	of, exists := w.tenants[tenant]
	if !exists {
		w.dropFull(now)
		if w.tenants == nil {
			w.tenants = map[string]*writeRate{}
		}
		of = &writeRate{left: rate.NewLimiter(rate.Limit(perSecond), int(burst))}
		w.tenants[tenant] = of
	}
	if of.left.Limit() != rate.Limit(perSecond) || of.left.Burst() != int(burst) {
		of.left.SetLimitAt(now, rate.Limit(perSecond))
		of.left.SetBurstAt(now, int(burst))
		of.turn = now
	}
	return of
}

// forgetFull forgets the tenants that may write all that they may at once: they are as new. One that has just written
// is not forgotten with its connection, which it could end to write as much again.
func (w *writeRates) forgetFull() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropFull(w.clock.Now())
}

// dropFull is forgetFull for a caller that holds mu.
func (w *writeRates) dropFull(now time.Time) {
	maps.DeleteFunc(w.tenants, func(_ string, of *writeRate) bool {
		return of.left.TokensAt(now) >= float64(of.left.Burst())
	})
}

// secondsFor returns how long it takes until there are so many bytes.
func secondsFor(bytes float64, perSecond int64) time.Duration {
	return time.Duration(bytes / float64(perSecond) * float64(time.Second))
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
