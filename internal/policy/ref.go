package policy

import (
	"context"
	"sync"
)

// Ref holds the policy in force for one tenant, and whether it is paused, while a connection to it lasts. It is safe
// for concurrent use. The nil Ref and the zero Ref hold the shipped policy, and pause nobody.
type Ref struct {
	mu      sync.Mutex
	current *Policy
	paused  bool
	changed chan struct{}
}

// Get returns the policy in force.
func (r *Ref) Get() *Policy {
	policy, _ := r.Watch()
	return policy
}

// Watch returns the policy in force, and a channel that is closed once another one is, or the tenant is paused or is so
// no more; nil for never.
func (r *Ref) Watch() (*Policy, <-chan struct{}) {
	if r == nil {
		return Default(), nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	if r.current == nil {
		return Default(), r.changed
	}
	return r.current, r.changed
}

// Paused returns whether the operator has paused the tenant.
func (r *Ref) Paused() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.paused
}

// Follow calls changed each time that another policy is in force than when Watch returned after, or the tenant is paused
// or is so no more, until ctx ends. What changes while changed runs causes another call.
func (r *Ref) Follow(ctx context.Context, after <-chan struct{}, changed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-after:
		}
		_, after = r.Watch()
		changed()
	}
}

// Set puts policy in force.
func (r *Ref) Set(policy *Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != policy {
		r.current = policy
		r.tell()
	}
}

// Pause notes whether the operator has paused the tenant.
func (r *Ref) Pause(paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paused != paused {
		r.paused = paused
		r.tell()
	}
}

// tell wakes all that watch. The caller holds mu.
func (r *Ref) tell() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}
