package kind

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// table holds the Specs by name and by what their changes enqueue.
type table struct {
	specs  []Spec
	byName map[string]*Spec
	// counted are the names under which the tally counts objects of the specs.
	counted sets.Set[string]
	// derived holds, by kind, the kinds whose From it is, after that kind itself.
	derived map[string][]*Spec
	// wakes holds, by kind, the functions that return the keys which a change of it enqueues.
	wakes map[string][]func(*Env, Change) []engine.Key
}

func newTable(specs []Spec) *table {
	t := &table{specs: specs, byName: map[string]*Spec{}, counted: sets.New[string](), derived: map[string][]*Spec{}, wakes: map[string][]func(*Env, Change) []engine.Key{}}
	for i := range specs {
		spec := &specs[i]
		t.byName[spec.Name] = spec
		t.counted.Insert(spec.Name)
		for _, share := range spec.Shares {
			t.counted.Insert(share.Name)
		}
		t.derived[spec.Name] = slices.Insert(t.derived[spec.Name], 0, spec)
		own := []string{spec.Name}
		if spec.From != "" {
			t.derived[spec.From] = append(t.derived[spec.From], spec)
			own = append(own, spec.From)
		}
		for name, wake := range spec.Wakes {
			t.wakes[name] = append(t.wakes[name], wake)
		}
		for _, name := range own {
			if spec.Wakes[name] == nil {
				t.wakes[name] = append(t.wakes[name], spec.OwnKeys)
			}
		}
	}
	return t
}

// spec returns the Spec of a kind. Of one that is no longer synced, of which events are still under way, it is one that
// watches nothing.
func (t *table) spec(kind string) *Spec {
	if spec, found := t.byName[kind]; found {
		return spec
	}
	return &Spec{Name: kind}
}

// kinds returns the table of all kinds, which its first call builds.
func (e *Env) kinds() *table {
	e.once.Do(func() { e.table.CompareAndSwap(nil, newTable(e.Declared)) })
	return e.table.Load()
}

// Specs returns the declarations of all kinds that are synced now, which must not be changed: those Declared, and those
// of SyncPolicies (Extend).
func (e *Env) Specs() []Spec { return e.kinds().specs }

// Extend adds kinds to those Declared, in the place of those that an earlier call has added.
func (e *Env) Extend(more []Spec) {
	made := newTable(slices.Concat(e.Declared, more))
	e.table.Store(made)
	// Another informer of a kind that is followed again counts all of it.
	e.Tally.ForgetKinds(func(kind string) bool {
		name, _, _ := strings.Cut(kind, perNamespace)
		return !made.counted.Has(name)
	})
	e.isExtended.Store(true)
}

// Reconcilers returns the reconcilers of all kinds.
func (e *Env) Reconcilers() []engine.Kind {
	var reconcilers []engine.Kind
	specs := e.Specs()
	for i := range specs {
		if spec := &specs[i]; spec.New != nil {
			reconcilers = append(reconcilers, telling{spec.New(e), e})
		}
	}
	return reconcilers
}

// Extended returns whether Extend was called: what SyncPolicies add is known.
func (e *Env) Extended() bool { return e.isExtended.Load() }
