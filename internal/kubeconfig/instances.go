package kubeconfig

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Work is what an instance does.
type Work interface {
	// Run works until ctx ends, and returns when all that it started has ended.
	Run(ctx context.Context)
}

// Instances runs at most one instance of work per object. An instance has an identity (the object's UID, its credentials); when the
// identity changes, the old instance is cancelled and its end awaited before another starts:
//
//	none ──Ensure──► running ──Ensure with another identity, Stop──► ending ──Run returns──► none (and a notification)
//
// The zero value is ready for use. All methods are safe for concurrent use and none of them waits for work, except Start.
type Instances[W Work] struct {
	mu     sync.Mutex
	byName map[types.NamespacedName]*instance[W]
	notify func(types.NamespacedName)
	closed bool
	group  sync.WaitGroup
}

type instance[W Work] struct {
	identity string
	work     W
	cancel   context.CancelFunc
}

// OnChange sets what is called with an object's name when its instance has ended or said so by Changed. It must not block.
func (i *Instances[W]) OnChange(notify func(types.NamespacedName)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.notify = notify
}

// Changed tells the callback of OnChange that the object's instance has news.
func (i *Instances[W]) Changed(name types.NamespacedName) {
	i.mu.Lock()
	notify := i.notify
	i.mu.Unlock()
	if notify != nil {
		notify(name)
	}
}

// Ensure sees to it that the object's instance is the one of identity. It returns the running work, and false while an older
// instance is still ending: Ensure is then to be called again after the callback of OnChange. An instance ends by Stop, by another
// identity, or with Start's context, and outlives who asked for it: nothing of the caller's context is in its own.
func (i *Instances[W]) Ensure(name types.NamespacedName, identity string, build func() W) (W, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var none W
	if current, exists := i.byName[name]; exists {
		if current.identity == identity {
			return current.work, true
		}
		i.endLocked(current)
		return none, false
	}
	if i.closed {
		return none, false
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // an instance ends by Stop, not with a caller's context
	started := &instance[W]{identity: identity, work: build(), cancel: cancel}
	if i.byName == nil {
		i.byName = map[types.NamespacedName]*instance[W]{}
	}
	i.byName[name] = started
	i.group.Go(func() {
		defer i.ended(name, started)
		started.work.Run(ctx)
	})
	return started.work, true
}

// Stop cancels the object's instance. It returns true when none is left, false while it is still ending: the callback of OnChange
// follows.
func (i *Instances[W]) Stop(name types.NamespacedName) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	current, exists := i.byName[name]
	if !exists {
		return true
	}
	i.endLocked(current)
	return false
}

// Get returns the work of the object's instance, if there is one that is not ending.
func (i *Instances[W]) Get(name types.NamespacedName) (W, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var none W
	current, exists := i.byName[name]
	if !exists || current.identity == "" {
		return none, false
	}
	return current.work, true
}

// Start waits for the end of ctx, then cancels all instances and waits for their end. No other instance starts after that.
// It implements controller-runtime's Runnable.
func (i *Instances[W]) Start(ctx context.Context) error {
	<-ctx.Done()
	i.mu.Lock()
	i.closed = true
	for _, current := range i.byName {
		i.endLocked(current)
	}
	i.mu.Unlock()
	i.group.Wait()
	return nil
}

// endLocked cancels an instance and takes its identity, so that no later Ensure takes it for a running one.
func (i *Instances[W]) endLocked(current *instance[W]) {
	current.identity = ""
	current.cancel()
}

func (i *Instances[W]) ended(name types.NamespacedName, which *instance[W]) {
	which.cancel()
	i.mu.Lock()
	if i.byName[name] == which {
		delete(i.byName, name)
	}
	i.mu.Unlock()
	i.Changed(name)
}
