// Package placements is the only code that stores NamespacePlacements, and counts what becomes of them.
package placements

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// settlePeriod is the time between two reads that look whether a write happened.
const settlePeriod = time.Second

// Store is the only code that writes NamespacePlacements. It is safe for concurrent use.
type Store struct {
	// Metrics count moves, and how long namespaces wait. Nil counts none. Set it before the first write.
	Metrics *Metrics

	client client.Client
	Live   client.Reader
	clock  clock.PassiveClock

	mu sync.Mutex
	// written holds what the last write returned while the cache still has what was written over. It spares conflicts;
	// without it nothing would be wrong.
	written map[client.ObjectKey]writtenPlacement
	// asked is since when namespaces wait for what their quotas ask for, of those whose wait began in this process.
	asked map[client.ObjectKey]time.Time
}

type writtenPlacement struct {
	// base is the resource version that was written over.
	base string
	// result is nil for an object that was ended.
	result *schedulerv1alpha1.NamespacePlacement
}

// NewStore returns a Store that writes with meta, whose reads may come from a cache, and reads what is stored now with
// live.
func NewStore(meta client.Client, live client.Reader) *Store {
	return &Store{
		client: meta, Live: live, clock: clock.RealClock{},
		written: map[client.ObjectKey]writtenPlacement{}, asked: map[client.ObjectKey]time.Time{},
	}
}

// Get returns a NamespacePlacement as the cache has it, or newer where this Store wrote it. It returns nil without an
// error when there is none. The object belongs to the caller.
func (s *Store) Get(ctx context.Context, key client.ObjectKey) (*schedulerv1alpha1.NamespacePlacement, error) {
	np, err := Read(ctx, s.client, key)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, exists := s.written[key]
	if !exists {
		return np, nil
	}
	if np != nil && np.ResourceVersion == last.base {
		return last.result.DeepCopy(), nil
	}
	delete(s.written, key) // the cache holds a newer object
	return np, nil
}

// List returns the NamespacePlacements of a tenant as the cache has them.
func (s *Store) List(ctx context.Context, clusterKey string) ([]schedulerv1alpha1.NamespacePlacement, error) {
	list := &schedulerv1alpha1.NamespacePlacementList{}
	if err := s.client.List(ctx, list, client.InNamespace(clusterKey)); err != nil {
		return nil, fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	return list.Items, nil
}

// GetLive is Get from the API server.
func (s *Store) GetLive(ctx context.Context, key client.ObjectKey) (*schedulerv1alpha1.NamespacePlacement, error) {
	return Read(ctx, s.Live, key)
}

// Change applies change to a NamespacePlacement and writes what it changed: spec, finalizers and annotations first,
// which creates the object if there is none, then status. It returns the object as stored, nil if there is none.
//
// change receives a copy that it may change. An object without a resource version does not exist, and stays so unless
// change fills in its spec. change is called again after the spec was written, for the generation follows from it, and
// with a live read after a write that
//
//   - met a conflict, or an object that came or went meanwhile;
//   - may have happened or not (a timeout, a broken connection). Where a live read, then or after a later try, has what
//     was written, it did, and that is all.
//
// An error of change ends Change and is returned as it is.
func (s *Store) Change(ctx context.Context, key client.ObjectKey, change func(*schedulerv1alpha1.NamespacePlacement) error) (*schedulerv1alpha1.NamespacePlacement, error) {
	current, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	var doubt *lostWrite // the last write that may have happened
	for backoff := retry.DefaultRetry; ; {
		stored, lost, err := s.attempt(ctx, key, current, change)
		if IsAmbiguous(err) && lost != nil {
			doubt = lost
		}
		last := backoff.Steps == 0
		if lost == nil || !isRetriable(err) || last && doubt == nil {
			return stored, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(backoff.Step()):
		}
		live, readErr := s.settle(ctx, key, doubt)
		switch {
		case readErr != nil:
			return nil, errors.Join(err, readErr)
		case doubt.happened(live):
			s.mu.Lock()
			s.account(doubt.base, doubt.status, true)
			s.mu.Unlock()
			return live, nil
		case last:
			return nil, err
		}
		current = live
	}
}

// settle reads what is stored, after a write that failed. Where a write that may have happened changed placements, it
// reads until it can or ctx ends: a caller that took that write for lost would give the same capacity to another
// namespace.
func (s *Store) settle(ctx context.Context, key client.ObjectKey, doubt *lostWrite) (*schedulerv1alpha1.NamespacePlacement, error) {
	live, err := s.GetLive(ctx, key)
	if err == nil || !doubt.places() {
		return live, err
	}
	readErr := wait.PollUntilContextCancel(ctx, settlePeriod, false, func(ctx context.Context) (bool, error) {
		live, err = s.GetLive(ctx, key)
		return err == nil, nil
	})
	return live, errors.Join(readErr, err)
}

// lostWrite is a write that failed. base and status are the object before and as it was to be, nil if it was the spec.
// A nil lostWrite is none.
type lostWrite struct {
	base, status *schedulerv1alpha1.NamespacePlacement
}

// places returns whether the write was to change placements.
func (l *lostWrite) places() bool {
	return l != nil && l.status != nil && !equality.Semantic.DeepEqual(l.base.Status.Placements, l.status.Status.Placements)
}

// happened returns whether live, nil for no object, is what the write was to make, and nothing is left to write. Of a
// write that was to change placements only these are compared: another write can have followed it, such as that of
// status.published.
func (l *lostWrite) happened(live *schedulerv1alpha1.NamespacePlacement) bool {
	if l == nil || l.status == nil || live == nil || live.UID != l.status.UID || !equality.Semantic.DeepEqual(live.Spec, l.status.Spec) {
		return false
	}
	if l.places() {
		return equality.Semantic.DeepEqual(live.Status.Placements, l.status.Status.Placements)
	}
	return equality.Semantic.DeepEqual(live.Status, l.status.Status)
}

// attempt applies change to current, nil for an object that does not exist, and writes the result once. With an error
// of change, lost is nil.
func (s *Store) attempt(ctx context.Context, key client.ObjectKey, current *schedulerv1alpha1.NamespacePlacement, change func(*schedulerv1alpha1.NamespacePlacement) error) (stored *schedulerv1alpha1.NamespacePlacement, lost *lostWrite, err error) {
	wanted, err := changed(key, current, change)
	if err != nil {
		return nil, nil, err
	}
	if current == nil && equality.Semantic.DeepEqual(wanted.Spec, schedulerv1alpha1.NamespacePlacementSpec{}) {
		return nil, nil, nil
	}
	if current == nil || !equality.Semantic.DeepEqual(current.Spec, wanted.Spec) || !slices.Equal(current.Finalizers, wanted.Finalizers) ||
		!maps.Equal(current.Annotations, wanted.Annotations) {
		if current, err = s.writeSpec(ctx, key, current, wanted); err != nil {
			return nil, &lostWrite{}, err
		}
		if wanted, err = changed(key, current, change); err != nil {
			return nil, nil, err
		}
	}
	if equality.Semantic.DeepEqual(current.Status, wanted.Status) {
		return current, nil, nil
	}
	stored = current.DeepCopy()
	stored.Status = wanted.Status
	if err := s.client.Status().Update(ctx, stored); err != nil {
		return nil, &lostWrite{base: current, status: wanted}, fmt.Errorf("updating the status of NamespacePlacement %s: %w", key, err)
	}
	s.wrote(key, current, stored, true)
	return stored, nil, nil
}

// changed returns what change makes of current, nil for an object that does not exist.
func changed(key client.ObjectKey, current *schedulerv1alpha1.NamespacePlacement, change func(*schedulerv1alpha1.NamespacePlacement) error) (*schedulerv1alpha1.NamespacePlacement, error) {
	wanted := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if current != nil {
		wanted = current.DeepCopy()
	}
	return wanted, change(wanted)
}

func (s *Store) writeSpec(ctx context.Context, key client.ObjectKey, current, wanted *schedulerv1alpha1.NamespacePlacement) (*schedulerv1alpha1.NamespacePlacement, error) {
	if current == nil {
		stored := &schedulerv1alpha1.NamespacePlacement{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Finalizers: wanted.Finalizers}, Spec: wanted.Spec,
		}
		if err := s.client.Create(ctx, stored); err != nil {
			return nil, fmt.Errorf("creating NamespacePlacement %s: %w", key, err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.asked, key) // of another that had the name
		s.account(nil, stored, false)
		return stored, nil
	}
	stored := current.DeepCopy()
	stored.Spec, stored.Finalizers, stored.Annotations = wanted.Spec, wanted.Finalizers, wanted.Annotations
	if err := s.client.Update(ctx, stored); err != nil {
		return nil, fmt.Errorf("updating NamespacePlacement %s: %w", key, err)
	}
	s.wrote(key, current, stored, false)
	return stored, nil
}

// Delete deletes np if it is still as it was read. NotFound is no error.
func (s *Store) Delete(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement) error {
	err := s.client.Delete(ctx, np, client.Preconditions{UID: &np.UID, ResourceVersion: &np.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NamespacePlacement %s: %w", client.ObjectKeyFromObject(np), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.written, client.ObjectKeyFromObject(np))
	delete(s.asked, client.ObjectKeyFromObject(np))
	return nil
}

// Release removes vc-scheduler's finalizer from np, which is being deleted, if it is still as it was read. It returns
// whether np is gone now: nothing else holds it.
func (s *Store) Release(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement) (bool, error) {
	stored := np.DeepCopy()
	if controllerutil.RemoveFinalizer(stored, schedulerv1alpha1.FinalizerUsage) {
		if err := s.client.Update(ctx, stored); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("releasing NamespacePlacement %s: %w", client.ObjectKeyFromObject(np), err)
		}
	}
	if len(stored.Finalizers) > 0 {
		return false, nil
	}
	s.wrote(client.ObjectKeyFromObject(np), np, nil, false)
	return true, nil
}

// wrote remembers what was written over current, nil for the end of the object, and whether it was the status. Where
// current was itself newer than the cache, the first of them counts.
func (s *Store) wrote(key client.ObjectKey, current, result *schedulerv1alpha1.NamespacePlacement, ofStatus bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	base := current.ResourceVersion
	if last, exists := s.written[key]; exists && last.result != nil && last.result.ResourceVersion == base {
		base = last.base
	}
	s.written[key] = writtenPlacement{base: base, result: result.DeepCopy()}
	if result == nil {
		delete(s.asked, key)
		return
	}
	s.account(current, result, ofStatus)
}

// Read reads a NamespacePlacement, nil if there is none.
func Read(ctx context.Context, from client.Reader, key client.ObjectKey) (*schedulerv1alpha1.NamespacePlacement, error) {
	np := &schedulerv1alpha1.NamespacePlacement{}
	if err := from.Get(ctx, key, np); apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // no object is an answer, not an error
	} else if err != nil {
		return nil, fmt.Errorf("reading NamespacePlacement %s: %w", key, err)
	}
	return np, nil
}

// isRetriable reports whether a write that failed is to be tried again after a live read.
func isRetriable(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || IsAmbiguous(err)
}

// IsAmbiguous reports whether a write that failed may have happened: the API server did not answer, or answered that it
// does not know.
func IsAmbiguous(err error) bool {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonUnknown, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonInternalError, metav1.StatusReasonServiceUnavailable:
		return true
	default:
		return false
	}
}

// ErrChanged is the error for a gang whose NamespacePlacement has another spec or other placements now, or was deleted.
var ErrChanged = errors.New("changed since the decision")
