// Package tenantclient bounds what one program of the pool takes from one tenant's API server: the size, time and form
// of each answer (Bounds.Config), and the objects that informers keep (Bounds.Account). What exceeds a bound ends the
// connection to that tenant (Bounds.Serve).
package tenantclient

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// eventBytesPerSecond and eventBurst bound how fast all watches of one tenant are read together. Whoever sends more
	// waits: decoding costs the program CPU that all tenants share. Each event counts as minEventBytes at least, so
	// there are 4,096 a second: to handle one costs as much as to decode that many bytes.
	eventBytesPerSecond = 16 << 20
	eventBurst          = 64 << 20
	minEventBytes       = 4 << 10
)

// Bounds are the bounds of one tenant in one program. They follow the tenant's policy. A nil Bounds bounds nothing.
// All methods are safe for concurrent use.
type Bounds struct {
	policy *policy.Ref
	events *rate.Limiter
	// inFlight is the size of the answers and events that are being read.
	inFlight atomic.Int64
	logged   logged
	// relists is what may become of lists, in shares of what all of them may become at once.
	relists *rate.Limiter
	// mostWaiting is maxWaiting, but in tests.
	mostWaiting int64

	mu sync.Mutex
	// objects and bytes are what the open Accounts hold together.
	objects, bytes int64
	// waiting is what waits for the event handlers of informers, and handled how often one has returned; caughtUp is
	// closed when waiting is within its bound, and nil while nobody waits for that.
	waiting, handled int64
	caughtUp         chan struct{}
	// lists is what the pages of each list that has not ended brought so far, by its URL without the place to continue,
	// and decoding the memory of all of them, and of the answers and events that are read and decoded.
	lists    map[string]*pages
	decoding int64
	// transports are those of the tenant, by client-go's.
	transports map[http.RoundTripper]*http.Transport
	// fail ends Serve; nil while it does not run.
	fail context.CancelCauseFunc
}

// New returns the bounds that a tenant's policy sets.
func New(ref *policy.Ref) *Bounds {
	return &Bounds{
		policy: ref, events: rate.NewLimiter(eventBytesPerSecond, eventBurst), relists: newRelists(), lists: map[string]*pages{},
		logged: logged{limiter: rate.NewLimiter(logBytesPerSecond, logBurst)}, mostWaiting: maxWaiting,
	}
}

// Serve calls serve with a context that ends when a bound is exceeded, and then returns an *engage.Failure with reason
// TooMuchData in place of its error. The logger in it writes no more than a tenant may have written. It does not run
// twice at a time.
func (b *Bounds) Serve(ctx context.Context, serve func(context.Context) error) error {
	if b == nil {
		return serve(ctx)
	}
	ctx, cancel := context.WithCancelCause(klog.NewContext(ctx, b.Logger(klog.FromContext(ctx))))
	defer cancel(nil)
	b.mu.Lock()
	b.fail = cancel
	for list := range b.lists {
		b.forget(list)
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.fail = nil
	}()
	err := serve(ctx)
	if failure, exceeded := context.Cause(ctx).(*engage.Failure); exceeded { //nolint:errorlint // it is what exceed passed
		return failure
	}
	return err
}

// Failure returns the *engage.Failure of an error that reports an exceeded bound, and any other error as it is.
func Failure(err error) error {
	if excess := asExcess(err); excess != nil {
		return excess.failure()
	}
	return err
}

// exceed ends Serve.
func (b *Bounds) exceed(excess *ExcessError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		b.fail(excess.failure())
	}
}

// ExcessError says which bound was exceeded, and by what.
type ExcessError struct {
	// What was too large, as the beginning of a sentence: "The answer to GET /api/v1/pods".
	What string
	// Limit is the largest allowed value, with its unit, and Field the field of the TenantPolicy that sets it, "" for a
	// limit that no policy sets.
	Limit, Field string
	// Policy is the name of the TenantPolicy.
	Policy string
}

// Error implements error.
func (e *ExcessError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s is more than %s", e.What, e.Limit)
	}
	return fmt.Sprintf("%s is more than %s (limits.%s of TenantPolicy %s)", e.What, e.Limit, e.Field, e.Policy)
}

func (e *ExcessError) failure() *engage.Failure {
	return &engage.Failure{Final: true, Costly: true, Reason: tenancy.Reason{Reason: tenancyv1alpha1.ReasonTooMuchData, Message: e.Error()}}
}

func lower(sentence string) string { return strings.ToLower(sentence[:1]) + sentence[1:] }

func bytesOf(limit int64) string { return resource.NewQuantity(limit, resource.BinarySI).String() }
