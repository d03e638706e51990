package tenantclient

import (
	"context"
	"time"

	"k8s.io/client-go/tools/cache"
)

const (
	// maxWaiting bounds what waits for the event handlers of all of a tenant's informers, in bytes of memory: client-go
	// keeps it in buffers that grow. Above it no watch of the tenant is read, so its API server waits, or ends the
	// watch as it does with any slow client. What a list brings waits, too, bounded by limits.cachedBytes.
	maxWaiting = 8 << 20
	// arrivalBytes is what an object that waits takes besides its size: client-go's notification, and the arrival.
	arrivalBytes = 128
	// normalArrivals is for how many arrivals an informer keeps room: 256 bytes.
	normalArrivals = 8
	// handlePatience is how long watches wait while no handler returns, before the connection ends.
	handlePatience = time.Minute
)

// arrival is an object that an informer has taken in, and of which its event handler has not been told.
type arrival struct {
	object any
	size   int64
}

// Transform returns a transform that does what next does, which may be nil, and counts what comes of it as waiting
// until the account's event handler has returned (Handler). That is of the same informer, which has no resyncs: then it
// tells its handler of all that it takes in, in that order.
func (a *Account) Transform(next cache.TransformFunc) cache.TransformFunc {
	if a.bounds == nil {
		return next
	}
	return func(object any) (any, error) {
		if next != nil {
			var err error
			if object, err = next(object); err != nil {
				return nil, err
			}
		}
		a.arrive(arrival{object: object, size: sizeOf(object)})
		return object, nil
	}
}

func (a *Account) arrive(arrived arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.arrivals.WriteOne(arrived)
		a.wait(arrived.size + arrivalBytes)
	}
}

// begin returns the size of an object of which the handler is told now.
func (a *Account) begin(object any) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	for arrived, any := a.arrivals.ReadOne(); any; arrived, any = a.arrivals.ReadOne() {
		if arrived.object == object {
			a.handling = arrived.size + arrivalBytes
			return arrived.size
		}
		a.wait(-arrived.size - arrivalBytes)
	}
	return sizeOf(object)
}

// end notes that the handler has returned.
func (a *Account) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wait(-a.handling)
	a.handling = 0
}

// wait adds to what waits. The caller holds mu.
func (a *Account) wait(bytes int64) {
	a.waiting += bytes
	a.bounds.wait(bytes)
}

// wait adds to what waits for the event handlers of all informers.
func (b *Bounds) wait(bytes int64) {
	if b == nil || bytes == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting += bytes
	if bytes < 0 {
		b.handled++
	}
	if b.waiting <= maxWaiting && b.caughtUp != nil {
		close(b.caughtUp)
		b.caughtUp = nil
	}
}

// catchUp returns once no more than maxWaiting waits for event handlers, or ctx ends. It returns an error once none has
// returned for handlePatience.
func (b *Bounds) catchUp(ctx context.Context) error {
	for {
		b.mu.Lock()
		if b.waiting <= maxWaiting {
			b.mu.Unlock()
			return nil
		}
		if b.caughtUp == nil {
			b.caughtUp = make(chan struct{})
		}
		caughtUp, handled := b.caughtUp, b.handled
		b.mu.Unlock()
		patience := time.NewTimer(handlePatience)
		select {
		case <-ctx.Done():
			patience.Stop()
			return context.Cause(ctx)
		case <-caughtUp:
			patience.Stop()
			return nil
		case <-patience.C:
		}
		b.mu.Lock()
		stands := b.handled == handled
		b.mu.Unlock()
		if stands {
			excess := &ExcessError{What: "What has come, and was not handled within " + handlePatience.String() + ",", Limit: bytesOf(maxWaiting)}
			b.exceed(excess)
			return excess
		}
	}
}
