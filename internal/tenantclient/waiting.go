package tenantclient

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
)

const (
	// maxWaiting bounds what waits for the event handlers of all of a tenant's informers, in bytes of memory: client-go
	// keeps it in buffers that grow. Above it no watch of the tenant is read, so its API server waits, or ends the
	// watch as it does with any slow client. Lists are read: what they bring may wait up to mayBecome.
	maxWaiting = 8 << 20
	// arrivalBytes is what an object that waits takes besides its size: client-go's notification, and the arrival.
	arrivalBytes = 128
	// normalArrivals is for how many arrivals an informer keeps room: 192 bytes.
	normalArrivals = 8
	// handlePeriod is how long watches wait before they look whether any handler has returned meanwhile, and
	// handlePeriods how often none had before the connection ends. It takes several: a machine that stood still for
	// long had no chance to call one.
	handlePeriod, handlePeriods = 10 * time.Second, 6
)

// CheckFeatures returns an error unless client-go's informers take in and hand over as Accounts reckon: once, in order.
// Both feature gates are so unless somebody says otherwise. Programs call it when they begin.
func CheckFeatures() error {
	for _, gate := range []struct {
		feature features.Feature
		wanted  bool
	}{{features.InOrderInformers, true}, {features.WatchListClient, false}} {
		if features.FeatureGates().Enabled(gate.feature) != gate.wanted {
			return fmt.Errorf("%s of client-go must be %t (flag --feature-gates, or variable KUBE_FEATURE_%s)", gate.feature, gate.wanted, gate.feature)
		}
	}
	return nil
}

// arrival is an object that an informer has taken in, and of which its event handler has not been told.
type arrival struct {
	object any
	size   int64
}

// transform returns a transform that does what next does, which may be nil, and counts what comes of it as waiting
// until the account's event handler has returned. That is told of all that the informer takes in, in that order, since
// there are no resyncs, and client-go has InOrderInformers and no WatchListClient, with which each object of a first
// list is transformed twice (CheckFeatures).
func (a *Account) transform(next cache.TransformFunc) cache.TransformFunc {
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
	a.wait(-a.handling)
	a.handling = 0
	for arrived, ok := a.arrivals.ReadOne(); ok; arrived, ok = a.arrivals.ReadOne() {
		if arrived.object == object {
			a.handling = arrived.size + arrivalBytes
			return arrived.size
		}
		a.wait(-arrived.size - arrivalBytes) // an informer tells in the order in which it takes in: of this one no more
	}
	return sizeOf(object)
}

// end notes that the handler has returned.
func (a *Account) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wait(-a.handling)
	a.handling = 0
	a.bounds.returned()
}

// wait adds to what waits. The caller holds mu.
func (a *Account) wait(bytes int64) {
	a.waiting += bytes
	a.bounds.wait(bytes)
}

// wait adds to what waits for the event handlers of all informers, and ends Serve when that is too much.
func (b *Bounds) wait(bytes int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.waiting += bytes
	waiting := b.waiting
	if waiting <= b.mostWaiting && b.caughtUp != nil {
		close(b.caughtUp)
		b.caughtUp = nil
	}
	b.mu.Unlock()
	if bytes > 0 && waiting > b.mostWaiting {
		if most := max(b.mostWaiting, b.mayBecome()); waiting > most {
			b.exceed(b.tooMuch("What has come, and waits to be handled,", most))
		}
	}
}

// returned notes that an event handler has returned.
func (b *Bounds) returned() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handled++
}

// catchUp returns once no more than mostWaiting waits for event handlers, or ctx ends. It returns an error once none
// has returned for handlePeriods.
func (b *Bounds) catchUp(ctx context.Context) error {
	caughtUp, handled := b.behind()
	if caughtUp == nil {
		return nil
	}
	period := time.NewTicker(handlePeriod)
	defer period.Stop()
	for silent := 0; silent < handlePeriods; silent++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-caughtUp:
			return nil
		case <-period.C:
		}
		before := handled
		if caughtUp, handled = b.behind(); caughtUp == nil {
			return nil
		}
		if handled != before {
			silent = -1
		}
	}
	excess := &ExcessError{What: "What has come, while nothing was handled for " + (handlePeriods * handlePeriod).String() + ",", Limit: bytesOf(b.mostWaiting)}
	b.exceed(excess)
	return excess
}

// behind returns what is closed once no more than mostWaiting waits, nil if that is so, and how often a handler has
// returned.
func (b *Bounds) behind() (caughtUp <-chan struct{}, handled int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting <= b.mostWaiting {
		return nil, b.handled
	}
	if b.caughtUp == nil {
		b.caughtUp = make(chan struct{})
	}
	return b.caughtUp, b.handled
}
