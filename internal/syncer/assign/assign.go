// Package assign answers which namespaces of a tenant belong into one super cluster, and with what. It is the only
// place of the syncer that knows how namespaces come to super clusters; Pooled is the answer of a pool.
package assign

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State says what of a tenant namespace belongs into this super cluster.
type State string

const (
	// Unknown means that the caches which would tell are not filled, or that the tenant is not connected: what is there
	// stays.
	Unknown State = ""
	// None means that nothing of it belongs here.
	None State = "None"
	// ServicesOnly means that pods of the tenant here may call its Services, and that nothing else of it belongs here.
	ServicesOnly State = "ServicesOnly"
	// Placed means that its pods and all that they need may be here.
	Placed State = "Placed"
	// Leaving means that it is no longer placed here while pods of it still are: what is there stays, nothing new
	// comes.
	Leaving State = "Leaving"
)

// Assignment is what of one tenant namespace belongs into this super cluster.
type Assignment struct {
	State State
	// UID is that of the tenant namespace which is meant, "" where it is not known. A namespace made again has another
	// one.
	UID types.UID
	// Reserved is what a Placed namespace may use here; nil allows no pods.
	Reserved corev1.ResourceList
}

// Assignments says what a tenant holds in this super cluster. All methods may be called concurrently.
type Assignments interface {
	// Of answers from caches.
	Of(ctx context.Context, tenant, namespace string) (Assignment, error)
	// Confirm answers with what the servers hold now. It is required before anything is deleted because of an
	// Assignment.
	Confirm(ctx context.Context, tenant, namespace string) (Assignment, error)
	// ConfirmPlaced answers with one live read whether a namespace is Placed. Any other State it returns as Unknown: a
	// pod needs no more, and a deletion more proof than that.
	ConfirmPlaced(ctx context.Context, tenant, namespace string) (Assignment, error)
	// Namespaces returns the names of the tenant's namespaces that are Placed or Leaving here, or have yet to be
	// cleared here, sorted. Those that are here for their Services alone are not among them: they are here because of
	// the others.
	Namespaces(ctx context.Context, tenant string) ([]string, error)
	// PodSelector is the label selector of the tenants' pods that belong here, "" for all.
	PodSelector() string
}

// Answer is yes, no, or not known.
type Answer int

const (
	// Unclear means that nobody can say now.
	Unclear Answer = iota
	// No means that a filled cache, or the server, shows none.
	No
	// Yes means that there is at least one.
	Yes
)

// Content is what a super namespace is there for.
type Content int

const (
	// Absent means that there is no super namespace of ours that is not being deleted.
	Absent Content = iota
	// Services means that it is there for Services alone.
	Services
	// Everything means that it holds, or may hold, all that pods need.
	Everything
)

// Facts are what the State of a namespace that a pool placed follows from.
type Facts struct {
	// Exists says whether there is a NamespacePlacement, Here whether it lists this super cluster.
	Exists, Here bool
	// Content is what its super namespace is there for.
	Content Content
	// Pods says whether the tenant has pods in it that are assigned to this super cluster.
	Pods Answer
	// Services says whether it has Services.
	Services Answer
	// Holds says whether the tenant holds another namespace here, whose pods may call these Services.
	Holds bool
}

// State returns what follows from the facts, from the first line that matches:
//
//	here                                        Placed
//	Services, everything there, pods or unclear Leaving
//	Services                                    ServicesOnly
//	nothing there                               None
//	Services unclear, tenant holds others here  Unknown
//	placed elsewhere, everything there, pods    Leaving
//	else                                        None
//
// vc-scheduler removes a NamespacePlacement only with proof that the tenant's namespace is gone, so without one pods
// keep nothing here.
func (f *Facts) State() State {
	used := f.Content == Everything && f.Pods != No
	switch {
	case f.Here:
		return Placed
	case f.Services == Yes && used:
		return Leaving
	case f.Services == Yes:
		return ServicesOnly
	case f.Content == Absent:
		return None
	case f.Services == Unclear && f.Holds:
		return Unknown
	case f.Exists && used:
		return Leaving
	}
	return None
}
