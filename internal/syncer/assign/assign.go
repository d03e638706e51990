// Package assign computes which namespaces of a tenant are placed in one super cluster, and with what they have
// reserved there. No other package of the syncer reads placements. Pooled is the implementation for a pool of super
// clusters, Single that for a cluster without a pool.
package assign

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/proof"
)

// State is what of a tenant namespace belongs into this super cluster.
type State string

const (
	// Unknown means that caches are not synced, that the tenant is not connected, or that nothing says where a
	// namespace belongs that may still exist: nothing in the super cluster is changed.
	Unknown State = ""
	// None means that nothing of it belongs here.
	None State = "None"
	// ServicesOnly means that pods of the tenant here may call its Services, and that nothing else of it belongs here.
	ServicesOnly State = "ServicesOnly"
	// Placed means that its pods, and the objects that they need, are synced.
	Placed State = "Placed"
	// Leaving means that it is no longer placed here while pods of it still are, or claims and snapshots, which hold
	// data: their objects stay, no new ones are created.
	Leaving State = "Leaving"
	// Kept means that the tenant lacks the namespace, as one does that was restored from an older backup, and that
	// claims or snapshots of it are here: all else of it goes. Claims stay whose deletion nobody has witnessed.
	Kept State = "Kept"
)

// Assignment is what of one tenant namespace belongs into this super cluster.
type Assignment struct {
	State State
	// UID is the UID of the tenant namespace, "" if no cache has it. A namespace that is deleted and created again has
	// another one.
	UID types.UID
	// Reserved are the resource requests that the pods of a Placed namespace may have here in total; nil allows no
	// pods. It is what stays of the reservation: vc-scheduler lowers one by marking a part of it as leaving, and gives
	// that part to others once the quota here does not allow it and no pod uses it.
	Reserved corev1.ResourceList
	// Storage is what the claims of the namespace may request here in total, by the same rule, and zero where nothing
	// stays. Nil: its quota names no storage, and the policy of the tenant alone bounds it.
	Storage *resource.Quantity
	// Decision is the decision of vc-scheduler that a quota answers which is written for this Assignment, "" for none
	// (placement.Decision).
	Decision string
}

// Leaves reports whether new pods and volumes of the namespace are to be elsewhere: all that it has here leaves, or it
// is no longer placed here.
func (a *Assignment) Leaves() bool {
	return a.State == Placed && a.Reserved == nil || a.State == Leaving || a.State == ServicesOnly
}

// Home is where a tenant namespace has what can be in one super cluster only: its load balancers and Ingresses.
type Home int

const (
	// HomeUnknown means that nothing says where: no NamespacePlacement does, or it is being deleted, or its status was
	// not written, or not yet by a version that names homes. What is there stays as it is.
	HomeUnknown Home = iota
	// HomeHere is this super cluster.
	HomeHere
	// HomeElsewhere is another super cluster.
	HomeElsewhere
	// HomeNowhere means that the namespace is placed in no super cluster.
	HomeNowhere
)

// Assignments answers what of a tenant belongs into this super cluster. All methods may be called concurrently.
type Assignments interface {
	// Of answers from caches.
	Of(ctx context.Context, tenant, namespace string) (Assignment, error)
	// Confirm answers from live reads of the API servers. It is required before anything is deleted because of an
	// Assignment, of which the Proof holds only for None and ServicesOnly, and for Kept: that proves that the tenant
	// lacks the namespace, so all but its data may go.
	Confirm(ctx context.Context, tenant, namespace string) (Assignment, proof.Proof, error)
	// ConfirmPlaced answers with one live read of the meta cluster whether a namespace is Placed, and from caches where
	// nobody but the tenant decides that. It returns any other State as Unknown: a warning about a pod needs no more,
	// and a deletion needs Confirm.
	ConfirmPlaced(ctx context.Context, tenant, namespace string) (Assignment, error)
	// Home answers from caches where a namespace has its load balancers and Ingresses.
	Home(ctx context.Context, tenant, namespace string) (Home, error)
	// ConfirmHome is Home by a live read. It is required before what is there for a home is taken away, and before the
	// tenant is told an address: of two super clusters that take themselves for the home only one may do so. The Proof
	// holds for HomeElsewhere and HomeNowhere.
	ConfirmHome(ctx context.Context, tenant, namespace string) (Home, proof.Proof, error)
	// Namespaces returns the names of the tenant's namespaces that are Placed or Leaving here, or whose super namespace
	// has yet to be cleared or deleted, sorted. It leaves out those that are ServicesOnly: they follow from the others.
	Namespaces(ctx context.Context, tenant string) ([]string, error)
	// Held returns, from caches, what is Reserved for the pods of all namespaces of the tenant that are Placed here
	// together, nil for none.
	Held(ctx context.Context, tenant string) (corev1.ResourceList, error)
	// Speaks answers from caches whether this super cluster is the one, of those that hold anything of a tenant, which
	// tells it what concerns none of them: the first by name.
	Speaks(ctx context.Context, tenant string) (bool, error)
	// Spread answers from caches whether a tenant is placed in another super cluster than this one, too.
	Spread(ctx context.Context, tenant string) (bool, error)
	// Whole returns whether all that any tenant has belongs here, so that each tenant is watched as a whole. It never
	// changes.
	Whole() bool
	// PodSelector is the label selector of the tenants' pods that belong here, "" for all. It never changes.
	PodSelector() string
	// Watch calls changed with each namespace of a tenant whose Assignment may have changed for another reason than an
	// object of the tenant or of the super cluster, which the caller watches. It returns at once; the calls end with
	// ctx.
	Watch(ctx context.Context, changed func(tenant, namespace string)) error
}

// Answer is yes, no, or unclear.
type Answer int

const (
	// Unclear means that the cache is not synced, or the tenant not connected.
	Unclear Answer = iota
	// No means that a synced cache, or the API server, has none.
	No
	// Yes means that there is at least one.
	Yes
)

// Content is what a super namespace holds.
type Content int

const (
	// Absent means that there is no super namespace with our owner, or that it is terminating.
	Absent Content = iota
	// Services means that it holds Services and EndpointSlices alone.
	Services
	// Everything means that it holds, or may hold, pods and the objects that they need.
	Everything
)

// Facts are the inputs of State.
type Facts struct {
	// Decided is whether a NamespacePlacement says where the namespace belongs: it is not being deleted, and its status
	// was written. Here is whether it is Decided and its status lists this super cluster.
	Decided, Here bool
	// Content is what its super namespace holds.
	Content Content
	// Gone is whether the tenant's namespace, for which the super namespace was made, is gone.
	Gone Answer
	// Ended is whether its VirtualCluster is being deleted, by the operator: nothing of the tenant stays. One that is
	// missing is not Ended.
	Ended bool
	// Pods is whether the tenant has pods in it that match PodSelector.
	Pods Answer
	// Data is whether its super namespace holds claims or snapshots, or may hold them, or a claim of the tenant waits
	// for this super cluster to say that it holds none. Each goes with the tenant's.
	Data bool
	// Services is whether the tenant has Services in it.
	Services Answer
	// Holds is whether another namespace of the tenant is placed here, whose pods may connect to these Services.
	Holds bool
}

// used returns whether its super namespace holds, or may hold, what must not be deleted with it.
func (f *Facts) used() bool { return f.Content == Everything && (f.Pods != No || f.Data) }

// State returns the state of a tenant namespace in a pool. The first line that matches holds:
//
//	placed here                                     Placed
//	content absent, Services                        ServicesOnly
//	content absent                                  None
//	content everything, not decided, gone           Kept      (data, and not Ended), None
//	content everything, not decided, else           Unknown
//	content everything, Services, pods or unclear   Leaving   (or data)
//	Services                                        ServicesOnly
//	Services unclear, others placed here            Unknown
//	content everything, pods or unclear             Leaving   (or data)
//	else                                            None
//
// A NamespacePlacement that is missing says nothing: it may have been deleted by hand, or be missing in a backup from
// which the meta cluster was restored. One that was just made says nothing either, until vc-scheduler has asked the
// super clusters what the namespace holds there. And one that is being deleted, held by a finalizer until they show
// that nothing is left, is made again if its namespace exists. So none of them is enough to delete what may run.
func (f *Facts) State() State {
	used := f.used()
	switch {
	case f.Here:
		return Placed
	case f.Content == Absent && f.Services == Yes:
		return ServicesOnly
	case f.Content == Absent:
		return None
	case f.Content == Everything && !f.Decided:
		return f.undecided()
	case f.Services == Yes && used:
		return Leaving
	case f.Services == Yes:
		return ServicesOnly
	case f.Services == Unclear && f.Holds:
		return Unknown
	case used:
		return Leaving
	}
	return None
}

// undecided is State where nothing says where the namespace belongs.
func (f *Facts) undecided() State {
	switch {
	case f.Gone != Yes:
		return Unknown
	case f.Data && !f.Ended:
		return Kept
	}
	return None
}
