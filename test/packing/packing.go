// Package packing measures how much of a pool is stranded: not given although somebody waits for it, or given to a
// namespace whose pods find no room in its pieces. Loads are drawn from published distributions, with seeds. Slices are
// cut and placed by the code of the namespace scheduler (placer.Rehearsal). Where pods go is a model of some lines: in
// the super cluster where the largest part of what the namespace holds is free (NamespaceRoom), and there on the node
// that has most free (NodeResourcesFit). There is nothing else in the pool, and nothing ends.
package packing

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/manifests/profiles"
)

// asked is how much is asked for, as a part of the pool.
const asked = 1.2

// Cut is how quotas are cut.
type Cut struct {
	Name string
	// Slice is the size of slices. Nil: a quota is one piece, for which a super cluster needs room in sum only.
	Slice slice.Amounts
	// Profile is that of the namespace scheduler, "" for its default.
	Profile string
	// NamesPods is whether quotas name how many pods there are. What a quota does not name comes with the slices.
	NamesPods bool
}

// Outcome is what came out of one cut. Parts are of the pool, in the resource of which most is given, unless something
// else is said.
type Outcome struct {
	// Reserved is what namespaces hold, and AtFirst what they held when the first one was refused.
	Reserved, AtFirst float64
	// Running is what pods run.
	Running float64
	// Refused is how many namespaces of All wait, of which TooMany have more slices than a namespace may have.
	Refused, TooMany, All int
	// NoRoom is the part of what the pods of placed namespaces request of cpu for which no super cluster has room, and
	// Unmoved the same where no slices move for pods.
	NoRoom, Unmoved float64
	// NoNode is the part of cpu for which a super cluster has room, and no node.
	NoNode float64
	// Moves is for how many pods slices moved.
	Moves int
}

// Run places a load in a pool.
func Run(ctx context.Context, pool *Pool, load *Load, cut *Cut, seed uint64) (*Outcome, error) {
	return run(ctx, pool, load.Namespaces(seed, pool.asked()), cut)
}

func run(ctx context.Context, pool *Pool, namespaces []Namespace, cut *Cut) (*Outcome, error) {
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	if err != nil {
		return nil, fmt.Errorf("reading the profiles: %w", err)
	}
	placed, order, err := place(ctx, cfg, pool, cut, namespaces)
	if err != nil {
		return nil, err
	}
	o := &Outcome{All: len(namespaces)}
	o.count(pool, placed, order)
	unmoved := runPods(pool, namespaces, placed, false)
	t := runPods(pool, namespaces, placed, true)
	o.Running, o.Moves, o.Unmoved = pool.given(t.running), t.moves, ratio(unmoved.noRoom, unmoved.all)
	o.NoRoom, o.NoNode = ratio(t.noRoom, t.all), ratio(t.noNode, t.all)
	return o, nil
}

func (p *Pool) asked() Size {
	all := p.Capacity()
	return Size{CPU: int64(asked * float64(all.CPU)), Memory: int64(asked * float64(all.Memory))}
}

// place returns the NamespacePlacements of namespaces as the namespace scheduler would leave them, and the order in which
// it tries them.
func place(
	ctx context.Context, cfg *config.KubeSchedulerConfiguration, pool *Pool, cut *Cut, namespaces []Namespace,
) ([]*schedulerv1alpha1.NamespacePlacement, []int, error) {
	placements := make([]*schedulerv1alpha1.NamespacePlacement, len(namespaces))
	for i := range namespaces {
		placements[i] = placementOf(&namespaces[i], cut, i)
	}
	rehearsal := &placer.Rehearsal{Config: cfg, Nodes: pool.virtualNodes(cut.Slice == nil), Placements: placements}
	outcomes, err := rehearsal.Run(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("placing: %w", err)
	}
	placed := make([]*schedulerv1alpha1.NamespacePlacement, len(outcomes))
	for i := range outcomes {
		placed[i] = outcomes[i].Placement
	}
	return placed, rehearsal.Order(), nil
}

// placementOf returns what vc-scheduler makes of a namespace with that quota. One whose quota makes too many slices asks
// for nothing.
func placementOf(n *Namespace, cut *Cut, age int) *schedulerv1alpha1.NamespacePlacement {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Annotations: map[string]string{}}}
	if cut.Profile != "" {
		namespace.Annotations[schedulerv1alpha1.AnnotationScheduler] = cut.Profile
	}
	quota, size := n.Quota(), cut.Slice
	if cut.NamesPods || size == nil {
		quota[corev1.ResourcePods] = int64(len(n.Pods))
	}
	if size == nil {
		size = quota
	}
	hard := corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: quota.List()}}
	np := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{
		Namespace: n.Tenant, Name: n.Name, UID: types.UID(n.Name), CreationTimestamp: metav1.NewTime(time.Unix(int64(age), 0)),
	}}
	np.Spec, _ = placement.Spec(namespace, []corev1.ResourceQuota{hard}, nil, size)
	return np
}

// count counts what is reserved.
func (o *Outcome) count(pool *Pool, placed []*schedulerv1alpha1.NamespacePlacement, order []int) {
	reserved := slice.Amounts{}
	refused := false
	for _, np := range placed {
		if len(np.Spec.Quota) == 0 {
			o.TooMany++
			o.Refused++
		}
	}
	for _, i := range order {
		if len(placement.Missing(placed[i])) > 0 {
			if o.Refused++; !refused {
				refused, o.AtFirst = true, pool.given(sizeOf(reserved))
			}
			continue
		}
		for at := range placed[i].Status.Placements {
			reserved = reserved.Plus(slice.Of(placed[i].Status.Placements[at].Reserved))
		}
	}
	o.Reserved = pool.given(sizeOf(reserved))
}

func sizeOf(amounts slice.Amounts) Size {
	return Size{CPU: amounts[corev1.ResourceCPU], Memory: amounts[corev1.ResourceMemory] >> 20}
}

// given returns which part of the pool an amount is, in the resource of which it is the larger one.
func (p *Pool) given(amount Size) float64 {
	all := p.Capacity()
	return max(ratio(amount.CPU, all.CPU), ratio(amount.Memory, all.Memory))
}

// FirstFit places all pods of a load on the first node of the pool with room, without quotas and slices: what packing
// alone leaves. It returns which part of the pool runs pods in the end, and when the first pod was refused.
func FirstFit(pool *Pool, load *Load, seed uint64) (running, atFirst float64) {
	all := pool.machines(pool.SuperClusters * pool.Nodes)
	used, refused := Size{}, false
	for _, n := range load.Namespaces(seed, pool.asked()) {
		for _, pod := range n.Pods {
			if !all.firstFit(pod) {
				if !refused {
					refused, atFirst = true, pool.given(used)
				}
				continue
			}
			used = used.plus(pod)
		}
	}
	return pool.given(used), atFirst
}
