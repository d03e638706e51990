package simulation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// pageSize is how many objects are read at a time.
const pageSize = 500

// Live reads the state of the pool from the meta cluster. It reads Nodes and NamespacePlacements alone.
func Live(ctx context.Context, meta client.Reader) (*Pool, error) {
	pool := &Pool{Invalid: map[types.NamespacedName]string{}}
	nodes := &corev1.NodeList{}
	err := eachPage(ctx, meta, nodes, func() {
		for i := range nodes.Items {
			pool.Nodes = append(pool.Nodes, nodes.Items[i].DeepCopy())
		}
	}, client.HasLabels{schedulerv1alpha1.LabelVirtualNode})
	if err != nil {
		return nil, fmt.Errorf("reading virtual Nodes: %w", err)
	}
	if pool.Placements, err = Placements(ctx, meta); err != nil {
		return nil, err
	}
	slices.SortFunc(pool.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return pool, nil
}

// Placements reads NamespacePlacements of the meta cluster, sorted by tenant and name.
func Placements(ctx context.Context, meta client.Reader, options ...client.ListOption) (placements []*schedulerv1alpha1.NamespacePlacement, err error) {
	list := &schedulerv1alpha1.NamespacePlacementList{}
	err = eachPage(ctx, meta, list, func() {
		for i := range list.Items {
			placements = append(placements, list.Items[i].DeepCopy())
		}
	}, options...)
	if err != nil {
		return nil, fmt.Errorf("reading NamespacePlacements: %w", err)
	}
	slices.SortFunc(placements, func(a, b *schedulerv1alpha1.NamespacePlacement) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return placements, nil
}

// eachPage lists objects and calls read with each page of them.
func eachPage(ctx context.Context, meta client.Reader, list client.ObjectList, read func(), options ...client.ListOption) error {
	options = append(options, client.Limit(pageSize))
	for {
		if err := meta.List(ctx, list, options...); err != nil {
			return err //nolint:wrapcheck // the caller says what was read
		}
		read()
		if list.GetContinue() == "" {
			return nil
		}
		options = append(options, client.Continue(list.GetContinue()))
		list.SetContinue("")
	}
}

// Explanation is where one namespace of a pool is, what is missing, and why.
type Explanation struct {
	// Namespace is what the namespace scheduler would make of it now: Before is where it is.
	Namespace
	// Slice is the size of its slices, and Quota what it requests.
	Slice string `json:"slice,omitempty"`
	Quota string `json:"quota,omitempty"`
	// Holds is what it has in each super cluster.
	Holds []Holding `json:"holds,omitempty"`
	// Home is the super cluster of its load balancers and Ingresses, "" for none.
	Home string `json:"home,omitempty"`
	// Conditions are those of its NamespacePlacement.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Queue is its place among all that wait, nil where it does not.
	Queue *Queue `json:"queue,omitempty"`
	// Requested are other placements that its tenant requests, nil for none.
	Requested *Requested `json:"requested,omitempty"`
	// Deleted is whether it is being deleted.
	Deleted bool `json:"deleted,omitempty"`
	// Guaranteed is whether it is within what is guaranteed to its tenant.
	Guaranteed bool `json:"guaranteed,omitempty"`
	// Borrowed is what of Missing others borrow, and Borrowers who of them give way for it, or would (Yields), nothing
	// where it is not guaranteed, or fits nowhere even so.
	Borrowed  string     `json:"borrowed,omitempty"`
	Borrowers []Borrower `json:"borrowers,omitempty"`
	// Yields is whether Borrowers give way, "" where that would not help.
	Yields Yields `json:"yields,omitempty"`
	// WhyEvenSo is why it would fit nowhere if all gave way who may be asked to, "" where Why is.
	WhyEvenSo string `json:"whyEvenSo,omitempty"`
	// LargestFree is the largest free piece where a slice that is missing is larger than any, nil where it is not.
	LargestFree *FreePiece `json:"largestFree,omitempty"`
	// Pod is about a pod of the namespace, nil if none was asked about (ExplainPod).
	Pod *PodRoom `json:"pod,omitempty"`
}

// Holding is what a namespace has in one super cluster.
type Holding struct {
	SuperCluster string `json:"superCluster"`
	Slices       int32  `json:"slices"`
	// Reserved includes Leaving.
	Reserved string `json:"reserved"`
	// Leaving is what is to leave, and Reason why.
	Leaving string                          `json:"leaving,omitempty"`
	Reason  schedulerv1alpha1.LeavingReason `json:"reason,omitempty"`
}

// Queue is a place in the order in which vc-scheduler tries what waits: by priority, then by turns of tenants, and those
// of a tenant by age, what is guaranteed to it first.
type Queue struct {
	// Position is 1 for the first, and Length how many wait.
	Position int `json:"position"`
	Length   int `json:"length"`
}

// queueOf returns the place of a NamespacePlacement, nil where it does not wait.
func queueOf(cfg *config.KubeSchedulerConfiguration, pool *Pool, at int) (*Queue, error) {
	placements, err := Prepared(cfg, pool)
	if err != nil {
		return nil, err
	}
	order := (&placer.Rehearsal{Placements: placements}).Order()
	if place := slices.Index(order, at); place >= 0 {
		return &Queue{Position: place + 1, Length: len(order)}, nil
	}
	return nil, nil //nolint:nilnil // it does not wait
}

// Yields is whether others give way.
type Yields string

const (
	// YieldsAlready is that they do: nobody else is asked, and what they have is free when their pods have ended.
	YieldsAlready Yields = "Already"
	// YieldsInTurn is that vc-scheduler makes them, no more often than the policy of the tenant lets it.
	YieldsInTurn Yields = "InTurn"
	// YieldsNever is that the policy of the tenant makes nobody give way: preemptionsPerHour is 0.
	YieldsNever Yields = "Never"
)

// Borrower is who gives way in a super cluster, or would.
type Borrower struct {
	Tenant       string `json:"tenant"`
	Name         string `json:"name"`
	SuperCluster string `json:"superCluster"`
	Reserved     string `json:"reserved"`
	// Until is until when disruption budgets of one count that gives way already, nil for one that does not.
	Until *time.Time `json:"until,omitempty"`
}

// Requested are other placements that a tenant requests.
type Requested struct {
	// Annotation is what it wrote, cut; "" for any other placements.
	Annotation string                         `json:"annotation,omitempty"`
	State      schedulerv1alpha1.RequestState `json:"state"`
	// Message is why it is refused, or, of one that waits, would be now.
	Message string `json:"message,omitempty"`
}

// maxRequestLength is how much is shown of what a tenant wrote, in bytes.
const maxRequestLength = 256

// requestedOf returns what is requested for np, and what a rehearsal made of it.
func requestedOf(np, after *schedulerv1alpha1.NamespacePlacement) *Requested {
	request := np.Status.Requested
	if request == nil {
		return nil
	}
	r := &Requested{Annotation: tenancy.Cut(request.Annotation, maxRequestLength), State: request.State, Message: request.Message}
	if after.Status.Requested != nil {
		r.Message = after.Status.Requested.Message
	}
	return r
}

// Explain tries what is missing of one namespace in a pool, beside what all others hold now.
func Explain(ctx context.Context, cfg *config.KubeSchedulerConfiguration, pool *Pool, key types.NamespacedName) (*Explanation, error) {
	is := func(np *schedulerv1alpha1.NamespacePlacement) bool { return client.ObjectKeyFromObject(np) == key }
	at := slices.IndexFunc(pool.Placements, is)
	if at < 0 {
		return nil, fmt.Errorf("there is no NamespacePlacement %s: the namespace does not exist, has no ResourceQuota with compute resources (one with scopes asks for none, nor do limits), or its tenant is not connected", key)
	}
	np := pool.Placements[at]
	outcomes, err := rehearse(ctx, cfg, pool, is)
	if err != nil {
		return nil, err
	}
	e := &Explanation{
		Namespace: namespaceOf(np, outcomes[at], ""), Slice: slice.Of(np.Spec.Slice).String(), Quota: slice.Of(np.Spec.Quota).String(),
		Conditions: np.Status.Conditions, Deleted: np.DeletionTimestamp != nil,
		Requested: requestedOf(np, outcomes[at].Placement),
	}
	if e.Missing == "" { // what is missing now, even if it would be placed
		e.Missing = placement.Lacking(np).String()
	}
	if e.Missing != "" {
		if e.Queue, err = queueOf(cfg, pool, at); err != nil {
			return nil, err
		}
	}
	if e.Guaranteed = placement.IsGuaranteed(np); e.Guaranteed && e.Change == Waits {
		if err := e.findBorrowers(ctx, cfg, pool, np); err != nil {
			return nil, err
		}
	}
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		holding := Holding{SuperCluster: p.Cluster, Slices: p.Slices, Reserved: slice.Of(p.Reserved).String()}
		if p.Leaving != nil {
			holding.Leaving, holding.Reason = slice.Of(p.Leaving.Reserved).String(), p.Leaving.Reason
		}
		e.Holds = append(e.Holds, holding)
	}
	e.Home = np.Status.Home
	if e.Change == Waits && !e.Deleted && np.Status.Requested == nil {
		e.LargestFree = largestFree(pool.Nodes, pool.Placements, outcomes[at].Placement)
	}
	return e, nil
}

// findBorrowers looks for who would give way.
func (e *Explanation) findBorrowers(ctx context.Context, cfg *config.KubeSchedulerConfiguration, pool *Pool, np *schedulerv1alpha1.NamespacePlacement) error {
	search := &placer.Preemption{Config: cfg, Nodes: pool.Nodes, Now: time.Now()}
	for _, other := range pool.Placements {
		other = other.DeepCopy()
		other.UID = types.UID(client.ObjectKeyFromObject(other).String())
		search.Placements = append(search.Placements, other)
	}
	victims, err := search.Find(ctx, client.ObjectKeyFromObject(np))
	if err != nil {
		return fmt.Errorf("looking for who borrows: %w", err)
	}
	switch {
	case len(victims.Parts) > 0:
		e.borrowedBy(np, victims.Parts)
	case victims.Granted != nil:
		e.Yields, e.Borrowers = YieldsAlready, yielding(pool, client.ObjectKeyFromObject(np))
	case victims.Why.Message != e.Why:
		e.WhyEvenSo = victims.Why.Message
	}
	return nil
}

// borrowedBy says that parts are borrowed of what is missing of np.
func (e *Explanation) borrowedBy(np *schedulerv1alpha1.NamespacePlacement, parts []placer.Part) {
	e.Yields = YieldsInTurn
	if _, may := placement.PreemptionInterval(np); !may {
		e.Yields = YieldsNever
	}
	missing := slice.Total(placement.Missing(np))
	rest := missing
	for i := range parts {
		part := &parts[i]
		rest = rest.Minus(part.Amounts)
		e.Borrowers = append(e.Borrowers, Borrower{
			Tenant: part.Namespace.Namespace, Name: part.Namespace.Name, SuperCluster: part.Cluster, Reserved: part.Amounts.String(),
		})
	}
	e.Borrowed = missing.Minus(rest).String()
}

// yielding returns who gives way already for the NamespacePlacement key.
func yielding(pool *Pool, key types.NamespacedName) (borrowers []Borrower) {
	for _, np := range pool.Placements {
		for i := range np.Status.Placements {
			part := &np.Status.Placements[i]
			leaving := part.Leaving
			if leaving == nil || leaving.Reason != schedulerv1alpha1.LeavingPreempted || leaving.For != key.String() {
				continue
			}
			borrower := Borrower{Tenant: np.Namespace, Name: np.Name, SuperCluster: part.Cluster, Reserved: slice.Of(leaving.Reserved).String()}
			if leaving.Deadline != nil {
				borrower.Until = &leaving.Deadline.Time
			}
			borrowers = append(borrowers, borrower)
		}
	}
	return borrowers
}

// printBorrowers writes who gives way, or would.
func (e *Explanation) printBorrowers(p *page.Page) {
	if !e.Guaranteed {
		return
	}
	switch e.Yields {
	case YieldsAlready:
		p.Line("It is guaranteed to the tenant, and others give way already:")
	case YieldsInTurn:
		p.Line("It is guaranteed to the tenant, and %s of it are borrowed by others, who give way:", e.Borrowed)
	case YieldsNever:
		p.Line("It is guaranteed to the tenant, and %s of it are borrowed by others, who keep it, for the tenant's policy has preemptionsPerHour 0:", e.Borrowed)
	default:
		p.Line("It is guaranteed to the tenant, and would not fit if all gave way who borrow and may be asked to%s", prefixed(": ", e.WhyEvenSo))
	}
	for _, b := range e.Borrowers {
		until := ""
		if b.Until != nil {
			until = ", whose budgets count until " + b.Until.UTC().Format(time.RFC3339)
		}
		p.Line("    %s of tenant %s in super cluster %s: %s%s", b.Name, b.Tenant, b.SuperCluster, b.Reserved, until)
	}
}

// Err returns a DoesNotFit if the namespace waits.
func (e *Explanation) Err() error {
	if e.Change == Waits {
		return &DoesNotFit{Namespaces: 1, All: 1}
	}
	return nil
}

// Print writes the explanation.
func (e *Explanation) Print(p *page.Page) {
	p.Line("Namespace %s of tenant %s requests %s in slices of %s", e.Name, e.Tenant, cmp.Or(e.Quota, "nothing"), cmp.Or(e.Slice, "nothing"))
	if len(e.Holds) > 0 {
		p.Line("")
		p.Row("SUPER CLUSTER", "SLICES", "RESERVED", "LEAVING")
	}
	for _, h := range e.Holds {
		p.Row(h.SuperCluster, fmt.Sprint(h.Slices), h.Reserved, h.Leaving+prefixed(" ", string(h.Reason)))
	}
	if e.Home != "" {
		p.Line("")
		p.Line("Its load balancers and Ingresses are in %s", e.Home)
	}
	p.Line("")
	switch {
	case e.Deleted:
		p.Line("It is being deleted: what it holds is given back when its super clusters show that it is free")
	case e.Change == Waits:
		p.Line("%s is missing, and fits nowhere:", e.Missing)
		e.printReasons(p)
		if piece := e.LargestFree; piece != nil {
			p.Line("  A slice of %s is larger than any free piece: the largest is %s, in %s", piece.Slice, piece.Free, piece.SuperCluster)
		}
		e.printBorrowers(p)
	case e.Missing != "":
		p.Line("%s is missing, and fits now: %s. vc-scheduler places it in its turn", e.Missing, e.moved())
	default:
		p.Line("Nothing is missing")
	}
	if queue := e.Queue; queue != nil {
		p.Line("It is number %d of %d in the order in which vc-scheduler tries what waits", queue.Position, queue.Length)
	}
	if e.Pod != nil {
		e.Pod.print(p)
	}
	if r := e.Requested; r != nil {
		separator := ": "
		if r.State == schedulerv1alpha1.RequestWaiting {
			separator = ", and refused now: "
		}
		p.Line("Other placements are requested, %s: %s%s", cmp.Or(r.Annotation, "any"), r.State, prefixed(separator, r.Message))
	}
	if len(e.Conditions) > 0 {
		p.Line("")
	}
	for _, c := range e.Conditions {
		p.Line("Condition %s is %s since %s: %s: %s", c.Type, c.Status, c.LastTransitionTime.UTC().Format(time.RFC3339), c.Reason, c.Message)
	}
}
