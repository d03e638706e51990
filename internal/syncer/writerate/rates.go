// Package writerate limits what is written to one super cluster for each tenant (limits.writes of a TenantPolicy): etcd
// keeps what is written until it is compacted, and takes no writes of anybody when it is full.
package writerate

import (
	"context"
	"errors"
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
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/objectsize"
)

const (
	// revisionBytes is what a revision takes in etcd besides objectsize.Stored: its keys.
	revisionBytes = 1 << 10
	// podRevisions is how often a pod is written that was created, besides once for each of its containers, which the
	// kubelet starts: by us, by the scheduler that binds it, and by the kubelet.
	podRevisions = 3
	// maxTurn bounds how long a write waits for its turn: patrol tries it as often.
	maxTurn = time.Minute
)

// Rates holds what each tenant may write to a super cluster. All methods may be called concurrently.
type Rates struct {
	clock  clock.PassiveClock
	limits Limits

	mu      sync.Mutex
	tenants map[string]*tenantRate
}

// Limits returns limits.writes of a tenant: bytes in a second, and at once.
type Limits func(tenant string) (bytesPerSecond, burst int64)

// New returns the Rates of tenants that have written nothing.
func New(passive clock.PassiveClock, limits Limits) *Rates {
	return &Rates{clock: passive, limits: limits, tenants: map[string]*tenantRate{}}
}

// Client returns a client that writes to super what the labels of objects say that tenants may write. A write that is
// too early returns an error, which lets the engine try the key again when it is its turn. Reading and deleting have no
// limit.
func (w *Rates) Client(super client.WithWatch) client.WithWatch {
	return interceptor.NewClient(super, w.funcs())
}

// tenantRate is what a tenant may write. A write passes if anything is left, and may take more than that: so neither its
// size nor others that are smaller keep it waiting for ever.
type tenantRate struct {
	left *rate.Limiter
	// turn is when the last of the writes that wait may be tried. Those that wait are tried one after the other, not
	// all of them each time that something is left.
	turn time.Time
}

// funcs take all writes but deletions.
func (w *Rates) funcs() interceptor.Funcs {
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
func (w *Rates) write(object client.Object, revisions int64, do func() error) error {
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
func (w *Rates) take(tenant string, bytes int64, atOnce bool) time.Duration {
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
func (w *Rates) of(tenant string, now time.Time, perSecond, burst int64) *tenantRate {
	of, exists := w.tenants[tenant]
	if !exists {
		w.dropFull(now)
		of = &tenantRate{left: rate.NewLimiter(rate.Limit(perSecond), int(burst))}
		w.tenants[tenant] = of
	}
	if of.left.Limit() != rate.Limit(perSecond) || of.left.Burst() != int(burst) {
		of.left.SetLimitAt(now, rate.Limit(perSecond))
		of.left.SetBurstAt(now, int(burst))
		of.turn = now
	}
	return of
}

// ForgetFull forgets the tenants that may write all that they may at once: they are as new. One that has just written
// is not forgotten with its connection, which it could end to write as much again.
func (w *Rates) ForgetFull() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropFull(w.clock.Now())
}

// dropFull is ForgetFull for a caller that holds mu.
func (w *Rates) dropFull(now time.Time) {
	maps.DeleteFunc(w.tenants, func(_ string, of *tenantRate) bool {
		return of.left.TokensAt(now) >= float64(of.left.Burst())
	})
}

// secondsFor returns how long it takes until there are so many bytes.
func secondsFor(bytes float64, perSecond int64) time.Duration {
	return time.Duration(bytes / float64(perSecond) * float64(time.Second))
}
