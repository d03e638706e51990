package assign

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// SuperNamespace describes a super namespace of a tenant.
type SuperNamespace struct {
	// Namespace is the name of the tenant's namespace.
	Namespace string
	// Content is what it holds, also while it is terminating: Services or Everything.
	Content Content
	// Terminating is whether it has a deletionTimestamp.
	Terminating bool
}

// Sides reads both sides of one super cluster's tenants. All methods but Live and LacksData read caches.
type Sides interface {
	// Content returns what the super namespace of a tenant namespace holds, and its owner; none if it is Absent.
	Content(tenant, namespace string) (Content, tenancy.Owner)
	// SuperNamespaces returns all super namespaces of a tenant.
	SuperNamespaces(tenant string) []SuperNamespace
	// NamespaceUID returns the UID of a tenant's namespace, "" if the cache has none of that name.
	NamespaceUID(tenant, namespace string) types.UID
	// Pods returns whether a tenant has pods in a namespace that match PodSelector.
	Pods(tenant, namespace string) Answer
	// Services returns whether a tenant has Services in a namespace.
	Services(tenant, namespace string) Answer
	// Data returns whether the super namespace of a tenant namespace holds claims or snapshots of the tenant, or may,
	// or whether claims of the tenant wait for this super cluster (Facts.Data).
	Data(tenant, namespace string) bool
	// LacksData returns by a live read of the super cluster whether it holds none, whoever waits, and the Proof of
	// that.
	LacksData(ctx context.Context, tenant, namespace string) (proof.Proof, bool, error)
	// Live returns the tenant's control plane, nil while it is not connected.
	Live(tenant string) *proof.ControlPlane
}

// Pooled are the Assignments of a super cluster in a pool. The status of a NamespacePlacement lists where the namespace
// is placed; a tenant with any placement in a super cluster has the Services of all its namespaces there.
type Pooled struct {
	// SuperCluster is the id of the super cluster.
	SuperCluster string
	// Meta reads NamespacePlacements from a cache.
	Meta client.Reader
	// Live is the meta cluster.
	Live *proof.ControlPlane
	// Informers watch NamespacePlacements, for Watch.
	Informers cache.Informers
	// Sides shows the super cluster and its tenants.
	Sides Sides
}

var _ Assignments = &Pooled{}

// Watch implements Assignments: changed is called for each event of a NamespacePlacement.
func (p *Pooled) Watch(ctx context.Context, changed func(tenant, namespace string)) error {
	informer, err := p.Informers.GetInformer(ctx, &schedulerv1alpha1.NamespacePlacement{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	call := func(np *schedulerv1alpha1.NamespacePlacement) { changed(np.Namespace, np.Name) }
	handler := engage.Handler(ctx, "informer of NamespacePlacements", nil, engage.ObjectHandler(call, call))
	if _, err := informer.AddEventHandler(handler); err != nil {
		return fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	return nil
}

// Of implements Assignments. What no cache shows counts as gone, and the VirtualCluster of a tenant that is not
// connected as being deleted: Confirm asks before anything is deleted.
func (p *Pooled) Of(ctx context.Context, tenant, namespace string) (Assignment, error) {
	facts, owner, placed, err := p.facts(ctx, p.Meta, tenant, namespace)
	if err == nil && !facts.Here && facts.Content != Absent {
		facts.Gone = Yes
		if owner.UID == p.Sides.NamespaceUID(tenant, namespace) {
			facts.Gone = No
		}
		facts.Ended = p.Sides.Live(tenant) == nil
		if facts.Services == Unclear {
			facts.Holds, err = p.mayHold(ctx, tenant, namespace)
		}
	}
	if err != nil {
		return Assignment{}, err
	}
	return p.assignment(&facts, placed, tenant, namespace), nil
}

// Confirm implements Assignments. It asks the tenant only for what would allow a deletion. Who answers for the meta
// cluster is asked before it is asked for anything, and again where a Proof is made of its answers.
func (p *Pooled) Confirm(ctx context.Context, tenant, namespace string) (Assignment, proof.Proof, error) {
	if _, err := p.Live.Answered(ctx, "it is asked about namespace "+namespace); err != nil {
		return Assignment{}, proof.Proof{}, err //nolint:wrapcheck // it names what was read
	}
	facts, owner, placed, err := p.facts(ctx, p.Live.Reader, tenant, namespace)
	if err != nil {
		return Assignment{}, proof.Proof{}, err
	}
	var proven proof.Proof
	switch {
	case facts.Here, facts.Content == Absent:
	case facts.Content == Everything && !facts.Decided:
		facts.Gone, proven, err = gone(ctx, p.Live, p.Sides.Live(tenant), owner)
		if err == nil && facts.Gone == Yes {
			proven, err = facts.askData(ctx, p.Live, p.Sides, owner, proven)
		}
	default:
		proven, err = p.unused(ctx, &facts, tenant, owner)
	}
	if err != nil {
		return Assignment{}, proof.Proof{}, err
	}
	confirmed := p.assignment(&facts, placed, tenant, namespace)
	if confirmed.State != None && confirmed.State != ServicesOnly && confirmed.State != Kept {
		proven = proof.Proof{}
	}
	return confirmed, proven, nil
}

// gone asks a tenant, unless it is nil because it is not connected, whether the namespace of owner is gone, and meta
// whether its VirtualCluster is being deleted.
func gone(ctx context.Context, meta, tenant *proof.ControlPlane, owner tenancy.Owner) (Answer, proof.Proof, error) {
	answer := Unclear
	if tenant != nil {
		namespace := &corev1.Namespace{}
		proven, lacks, err := tenant.Lacks(ctx, types.NamespacedName{Name: owner.Namespace}, namespace, func() bool { return namespace.UID == owner.UID })
		if err != nil || lacks {
			return Yes, proven, err //nolint:wrapcheck // it names what was read
		}
		answer = No
	}
	proven, deleted, err := ended(ctx, meta, owner)
	if err != nil || deleted {
		return Yes, proven, err
	}
	return answer, proof.Proof{}, nil
}

// ended asks meta whether the VirtualCluster of owner is being deleted. One that is missing says nothing: the meta
// cluster may have been restored from a backup from before it was made. One that is deleted is there until no super
// cluster of the pool holds anything of it (virtualclusters.FinalizerPlacements).
func ended(ctx context.Context, meta *proof.ControlPlane, owner tenancy.Owner) (proof.Proof, bool, error) {
	vc := &tenancyv1alpha1.VirtualCluster{}
	err := meta.Reader.Get(ctx, owner.VirtualCluster, vc)
	switch {
	case apierrors.IsNotFound(err):
		return proof.Proof{}, false, nil
	case err != nil:
		return proof.Proof{}, false, fmt.Errorf("reading VirtualCluster %s: %w", owner.VirtualCluster, err)
	case vc.UID != owner.VirtualClusterUID, vc.DeletionTimestamp == nil:
		return proof.Proof{}, false, nil
	}
	proven, err := meta.Answered(ctx, fmt.Sprintf("VirtualCluster %s is being deleted", owner.VirtualCluster))
	return proven, err == nil, err //nolint:wrapcheck // it names what was read
}

// askData sets Data and Ended of a namespace that is gone, by live reads where the answer would let its claims be
// deleted. It returns proven, and what it has found besides. That a tenant lacks a namespace is no witness of the
// deletion of its claims: a backup from before they were made lacks it, too.
func (f *Facts) askData(ctx context.Context, meta *proof.ControlPlane, sides Sides, owner tenancy.Owner, proven proof.Proof) (proof.Proof, error) {
	if !f.Data {
		none, lacks, err := sides.LacksData(ctx, owner.ClusterKey, owner.Namespace)
		if err != nil || lacks {
			return proven.And(none), err //nolint:wrapcheck // it names what was read
		}
		f.Data = true
	}
	deleted, isDeleted, err := ended(ctx, meta, owner)
	if f.Ended = isDeleted; isDeleted {
		return deleted, err
	}
	return proven, err
}

// unused asks whether the tenant has pods here, where caches show none, and whether it has Services, where somebody is
// here to call them. The NamespacePlacement was just read live: it places the namespace elsewhere, or there was none
// and the super namespace holds Services alone.
func (p *Pooled) unused(ctx context.Context, facts *Facts, tenant string, owner tenancy.Owner) (proof.Proof, error) {
	proven, err := p.Live.Answered(ctx, "namespace "+owner.Namespace+" is not placed here")
	if err != nil {
		return proof.Proof{}, err //nolint:wrapcheck // it names what was read
	}
	selector, err := labels.Parse(p.PodSelector())
	if err != nil {
		return proof.Proof{}, fmt.Errorf("parsing the selector of pods: %w", err)
	}
	if facts.Content == Everything && facts.Pods == No {
		var none proof.Proof
		facts.Pods, none, err = p.ask(ctx, tenant, &corev1.PodList{}, client.InNamespace(owner.Namespace), client.MatchingLabelsSelector{Selector: selector})
		if err != nil {
			return proof.Proof{}, err
		}
		proven = proven.And(none)
	}
	if facts.Content == Everything && facts.Pods == No && !facts.Data {
		none, lacks, err := p.Sides.LacksData(ctx, tenant, owner.Namespace)
		if err != nil {
			return proof.Proof{}, err //nolint:wrapcheck // it names what was read
		}
		facts.Data, proven = !lacks, proven.And(none)
	}
	if facts.Services == Yes {
		return proven, nil
	}
	facts.Services = No
	if facts.Holds, err = p.holds(ctx, tenant, owner.Namespace); err != nil {
		return proof.Proof{}, err
	}
	if !facts.Holds {
		none, err := p.Live.Answered(ctx, "nobody is here to call its Services")
		return proven.And(none), err //nolint:wrapcheck // it names what was read
	}
	var none proof.Proof
	facts.Services, none, err = p.ask(ctx, tenant, &corev1.ServiceList{}, client.InNamespace(owner.Namespace))
	if facts.Services == No {
		proven = proven.And(none)
	}
	return proven, err
}

// ask reads from the tenant's API server whether it has any objects of a list. It is Unclear while the tenant is not
// connected. The Proof is that of No.
func (p *Pooled) ask(ctx context.Context, tenant string, list client.ObjectList, options ...client.ListOption) (Answer, proof.Proof, error) {
	live := p.Sides.Live(tenant)
	if live == nil {
		return Unclear, proof.Proof{}, nil
	}
	none, lacks, err := live.LacksAll(ctx, list, options...)
	switch {
	case err != nil:
		return Unclear, proof.Proof{}, err //nolint:wrapcheck // it names what was read
	case lacks:
		return No, none, nil
	}
	return Yes, proof.Proof{}, nil
}

// ConfirmPlaced implements Assignments. It reads one NamespacePlacement and nothing of the tenant: a tenant can have it
// asked for any number of pods.
func (p *Pooled) ConfirmPlaced(ctx context.Context, tenant, namespace string) (Assignment, error) {
	placed, here, _, err := p.placement(ctx, p.Live.Reader, tenant, namespace)
	if err != nil || !here {
		return Assignment{}, err
	}
	return placed, nil
}

// Home implements Assignments.
func (p *Pooled) Home(ctx context.Context, tenant, namespace string) (Home, error) {
	return p.home(ctx, p.Meta, tenant, namespace)
}

// ConfirmHome implements Assignments.
func (p *Pooled) ConfirmHome(ctx context.Context, tenant, namespace string) (Home, proof.Proof, error) {
	if _, err := p.Live.Answered(ctx, "it is asked about the home of namespace "+namespace); err != nil {
		return HomeUnknown, proof.Proof{}, err //nolint:wrapcheck // it names what was read
	}
	home, err := p.home(ctx, p.Live.Reader, tenant, namespace)
	if err != nil || home != HomeElsewhere && home != HomeNowhere {
		return home, proof.Proof{}, err
	}
	proven, err := p.Live.Answered(ctx, "namespace "+namespace+" has its home elsewhere")
	if err != nil {
		return HomeUnknown, proof.Proof{}, err //nolint:wrapcheck // it names what was read
	}
	return home, proven, nil
}

func (p *Pooled) home(ctx context.Context, reader client.Reader, tenant, namespace string) (Home, error) {
	var object schedulerv1alpha1.NamespacePlacement
	err := reader.Get(ctx, types.NamespacedName{Namespace: tenant, Name: namespace}, &object)
	switch {
	case apierrors.IsNotFound(err):
		return HomeUnknown, nil
	case err != nil:
		return HomeUnknown, fmt.Errorf("reading NamespacePlacement %s/%s: %w", tenant, namespace, err)
	case object.DeletionTimestamp != nil || !placement.IsDecided(&object):
		return HomeUnknown, nil
	case object.Status.Home == p.SuperCluster:
		return HomeHere, nil
	case object.Status.Home != "":
		return HomeElsewhere, nil
	case len(object.Status.Placements) > 0:
		return HomeUnknown, nil
	}
	return HomeNowhere, nil
}

// Namespaces implements Assignments.
func (p *Pooled) Namespaces(ctx context.Context, tenant string) ([]string, error) {
	names, err := p.placed(ctx, p.Meta, tenant)
	if err != nil {
		return nil, err
	}
	for _, superNamespace := range p.Sides.SuperNamespaces(tenant) {
		if superNamespace.Content == Everything {
			names = append(names, superNamespace.Namespace)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Held implements Assignments.
func (p *Pooled) Held(ctx context.Context, tenant string) (corev1.ResourceList, error) {
	var placements schedulerv1alpha1.NamespacePlacementList
	if err := p.Meta.List(ctx, &placements, client.InNamespace(tenant), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NamespacePlacements of tenant %s: %w", tenant, err)
	}
	held := slice.Amounts{}
	for i := range placements.Items {
		if at := p.indexOf(&placements.Items[i]); at >= 0 {
			held = held.Plus(placement.StayingIn(&placements.Items[i].Status.Placements[at]).OfPods())
		}
	}
	if held.IsZero() {
		return nil, nil
	}
	return held.List(), nil
}

// Speaks implements Assignments.
func (p *Pooled) Speaks(ctx context.Context, tenant string) (bool, error) {
	clusters, err := p.superClusters(ctx, tenant)
	return len(clusters) > 0 && clusters[0] == p.SuperCluster, err
}

// Spread implements Assignments.
func (p *Pooled) Spread(ctx context.Context, tenant string) (bool, error) {
	clusters, err := p.superClusters(ctx, tenant)
	return slices.ContainsFunc(clusters, func(cluster string) bool { return cluster != p.SuperCluster }), err
}

// superClusters returns, from the cache, where a tenant has placements, sorted.
func (p *Pooled) superClusters(ctx context.Context, tenant string) ([]string, error) {
	var placements schedulerv1alpha1.NamespacePlacementList
	if err := p.Meta.List(ctx, &placements, client.InNamespace(tenant), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing NamespacePlacements of tenant %s: %w", tenant, err)
	}
	var clusters []string
	for i := range placements.Items {
		for j := range placements.Items[i].Status.Placements {
			clusters = append(clusters, placements.Items[i].Status.Placements[j].Cluster)
		}
	}
	slices.Sort(clusters)
	return slices.Compact(clusters), nil
}

// Whole implements Assignments.
func (*Pooled) Whole() bool { return false }

// PodSelector implements Assignments: vc-scheduler patches the label of the chosen super cluster onto each pod.
func (p *Pooled) PodSelector() string {
	return schedulerv1alpha1.LabelSuperCluster + "=" + p.SuperCluster
}

// assignment returns the Assignment that follows from facts. placed is that of a NamespacePlacement which lists this
// super cluster, and of any other has the Decision alone.
func (p *Pooled) assignment(facts *Facts, placed Assignment, tenant, namespace string) Assignment {
	state := facts.State()
	if state == Placed {
		return placed
	}
	return Assignment{State: state, UID: p.Sides.NamespaceUID(tenant, namespace), Decision: placed.Decision}
}

// facts reads the NamespacePlacement with reader and, unless it lists this super cluster, the rest from caches. It
// leaves out Gone and Holds. owner is that of the super namespace.
func (p *Pooled) facts(ctx context.Context, reader client.Reader, tenant, namespace string) (facts Facts, owner tenancy.Owner, placed Assignment, err error) {
	placed, facts.Here, facts.Decided, err = p.placement(ctx, reader, tenant, namespace)
	if err != nil || facts.Here {
		return facts, owner, placed, err
	}
	facts.Content, owner = p.Sides.Content(tenant, namespace)
	facts.Pods = p.Sides.Pods(tenant, namespace)
	facts.Data = p.Sides.Data(tenant, namespace)
	facts.Services = p.Sides.Services(tenant, namespace)
	return facts, owner, placed, nil
}

// placement returns whether a NamespacePlacement says where a namespace belongs (decided), and the Assignment of one
// that lists this super cluster (here). That of another has the Decision alone.
func (p *Pooled) placement(ctx context.Context, reader client.Reader, tenant, namespace string) (placed Assignment, here, decided bool, err error) {
	var object schedulerv1alpha1.NamespacePlacement
	err = reader.Get(ctx, types.NamespacedName{Namespace: tenant, Name: namespace}, &object)
	switch {
	case apierrors.IsNotFound(err):
		return Assignment{}, false, false, nil
	case err != nil:
		return Assignment{}, false, false, fmt.Errorf("reading NamespacePlacement %s/%s: %w", tenant, namespace, err)
	}
	at, decision := p.indexOf(&object), placement.Decision(&object, p.SuperCluster)
	if at < 0 {
		return Assignment{Decision: decision}, false, object.DeletionTimestamp == nil && placement.IsDecided(&object), nil
	}
	stays := placement.StayingIn(&object.Status.Placements[at])
	placed = Assignment{State: Placed, UID: object.Spec.NamespaceUID, Reserved: stays.OfPods().List(), Decision: decision}
	if placement.NamesStorage(&object) {
		d := slice.DimensionOf(corev1.ResourceStorage)
		placed.Storage = d.Quantity(stays[corev1.ResourceStorage])
	}
	return placed, true, true, nil
}

// holds returns whether a tenant has a placement here, by a live read, or whether the super namespace of another
// namespace than this one has yet to be cleared or deleted.
func (p *Pooled) holds(ctx context.Context, tenant, except string) (bool, error) {
	if slices.ContainsFunc(p.Sides.SuperNamespaces(tenant), func(superNamespace SuperNamespace) bool { return superNamespace.holdsPods(except) }) {
		return true, nil
	}
	placed, err := p.placed(ctx, p.Live.Reader, tenant)
	return len(placed) > 0, err
}

// holdsPods returns whether it may hold pods for long, and is of another namespace than except.
func (s *SuperNamespace) holdsPods(except string) bool {
	return s.Namespace != except && s.Content == Everything && !s.Terminating
}

// mayHold is holds by caches. A super namespace without a NamespacePlacement counts for nothing: its reconcile looks
// into that.
func (p *Pooled) mayHold(ctx context.Context, tenant, except string) (bool, error) {
	for _, superNamespace := range p.Sides.SuperNamespaces(tenant) {
		if !superNamespace.holdsPods(except) {
			continue
		}
		err := p.Meta.Get(ctx, types.NamespacedName{Namespace: tenant, Name: superNamespace.Namespace}, &schedulerv1alpha1.NamespacePlacement{})
		switch {
		case err == nil:
			return true, nil
		case !apierrors.IsNotFound(err):
			return false, fmt.Errorf("reading NamespacePlacement %s/%s: %w", tenant, superNamespace.Namespace, err)
		}
	}
	placed, err := p.placed(ctx, p.Meta, tenant)
	return len(placed) > 0, err
}

// placed returns the names of a tenant's namespaces that are placed here.
func (p *Pooled) placed(ctx context.Context, reader client.Reader, tenant string) ([]string, error) {
	var placements schedulerv1alpha1.NamespacePlacementList
	if err := reader.List(ctx, &placements, client.InNamespace(tenant)); err != nil {
		return nil, fmt.Errorf("listing NamespacePlacements of tenant %s: %w", tenant, err)
	}
	var names []string
	for i := range placements.Items {
		if p.indexOf(&placements.Items[i]) >= 0 {
			names = append(names, placements.Items[i].Name)
		}
	}
	return names, nil
}

// indexOf returns the index of this super cluster in the status of a NamespacePlacement, -1 if it is not listed, or if
// the NamespacePlacement is being deleted.
func (p *Pooled) indexOf(object *schedulerv1alpha1.NamespacePlacement) int {
	if object.DeletionTimestamp != nil {
		return -1
	}
	return slices.IndexFunc(object.Status.Placements, func(placement schedulerv1alpha1.ClusterPlacement) bool {
		return placement.Cluster == p.SuperCluster
	})
}
