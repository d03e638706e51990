package placement

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/slice"
)

// Use is what one super cluster says about one tenant namespace. The zero value says that nothing of it is there.
type Use struct {
	// Requests is what the namespace's pods request there, each one of pods. Pods that have ended are not counted.
	Requests slice.Amounts
	// Hard is what the quota of the super namespace lets pods request. nil: there is no quota.
	Hard slice.Amounts
	// NamespaceUID is the UID of the tenant's namespace for which that quota was written, "" without a quota.
	NamespaceUID types.UID
	// Withdrawn is whether a quota was there since vc-scheduler has watched, and is gone: the syncer has taken it away.
	// Without it, no quota may mean that the syncer has yet to write one.
	Withdrawn bool
	// Gone is whether the operator has removed the super cluster.
	Gone bool
}

// MayUse returns what the namespace's pods use, or may use at any moment without anyone's doing: per resource the
// larger of what they request and what their quota lets them request.
func (u *Use) MayUse() slice.Amounts { return larger(u.Requests, u.Hard) }

// IsNothing reports whether the super cluster has neither pods of the namespace nor a quota for them.
func (u *Use) IsNothing() bool { return u.Hard == nil && u.Requests.IsZero() }

// larger returns the larger amount of each resource.
func larger(a, b slice.Amounts) slice.Amounts { return a.Plus(b.Minus(a)) }
