package dynamic

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/offer"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// ReasonNotOffered: the super cluster offers an object of this kind and name, and the tenant has made its own,
	// which stays.
	ReasonNotOffered = "NotOffered"
	// ReasonOffersDiffer: super clusters offer different objects of one kind and name. The Event is on the virtual Node
	// of the one whose object tenants do not have.
	ReasonOffersDiffer = "OffersDiffer"
)

// offerTable is offeredKinds by name. Its entries are not changed.
var offerTable = sync.OnceValue(func() map[string]*offered {
	byName := map[string]*offered{}
	for _, row := range offeredKinds() {
		byName[row.name] = &row
	}
	return byName
})

// offeredByName returns the kind of that name, nil if super clusters offer no such objects.
func offeredByName(name string) *offered { return offerTable()[name] }

// OfferSpecs returns a Spec for each kind that super clusters offer, and one for their reconciler.
func OfferSpecs() []kind.Spec {
	specs := []kind.Spec{{
		Name: kind.Offer, Scope: kind.ScopeUp, ClusterScoped: true,
		Wakes:       map[string]func(*kind.Env, kind.Change) []engine.Key{kind.Namespace: superNamespaceWakesOffers},
		OfTenant:    offerKeys,
		OfNamespace: func(_ *kind.Env, tenant, _ string) []engine.Key { return []engine.Key{offerSetKey(tenant)} },
		New:         func(env *kind.Env) engine.Kind { return &Offers{env: env} },
	}}
	for _, row := range offeredKinds() {
		specs = append(specs, row.spec())
	}
	return specs
}

// spec returns the Spec of a kind that super clusters offer.
func (row *offered) spec() kind.Spec {
	return kind.Spec{
		Name: row.name, Scope: kind.ScopeUp, ClusterScoped: true, Aside: row.custom != nil,
		Super:  &kind.Watch{Object: row.object, Optional: true},
		Tenant: &kind.Watch{Object: row.object, Optional: true, Labels: func(*kind.Env) string { return tenancyv1alpha1.LabelOffered + "=true" }},
		TenantKey: func(tenant string, tenantObject client.Object) (engine.Key, bool) {
			return offerKey(tenant, row.name, tenantObject.GetName()), true
		},
		SuperKey: func(client.Object) (engine.Key, bool) { return engine.Key{}, false },
		Wakes:    map[string]func(*kind.Env, kind.Change) []engine.Key{row.name: row.wakes},
		Filled:   offerKeys,
		Wanted:   func(_ *kind.Env, tenant *kind.Tenant) bool { return row.wanted(tenant) },
		Remains: func(env *kind.Env, tenantObject client.Object) bool {
			_, noted := offer.NoteOf(tenantObject, env.ID)
			return noted
		},
	}
}

func offerKey(tenant, kindName, name string) engine.Key {
	return engine.Key{Tenant: tenant, Kind: kind.Offer, Namespace: kindName, Name: name}
}

// offerSetKey is the key under which a tenant is asked whether it holds anything here.
func offerSetKey(tenant string) engine.Key { return engine.Key{Tenant: tenant, Kind: kind.Offer} }

// superNamespaceWakesOffers asks a tenant of which a super namespace has come or gone whether it holds anything here.
func superNamespaceWakesOffers(_ *kind.Env, change kind.Change) []engine.Key {
	owner, owned := tenancy.GetOwner(change.Object())
	if change.Side != kind.SuperSide || !owned || !change.CreatedOrDeleted() && kind.ServicesOnly(change.Old) == kind.ServicesOnly(change.Current) {
		return nil
	}
	return []engine.Key{offerSetKey(owner.ClusterKey)}
}

// wakes enqueues an object of a tenant, and for one of the super cluster that of all tenants to which it may be
// offered.
func (row *offered) wakes(env *kind.Env, change kind.Change) []engine.Key {
	name := change.Object().GetName()
	if change.Side == kind.TenantSide {
		return []engine.Key{offerKey(change.Tenant, row.name, name)}
	}
	var keys []engine.Key
	for _, tenant := range env.Tenants() {
		if row.may(tenant, name) {
			keys = append(keys, offerKey(tenant.Key, row.name, name))
		}
	}
	return keys
}

// offerKeys returns the keys of all that may be offered to a tenant, and of all that it has.
func offerKeys(e *kind.Env, tenant *kind.Tenant) []engine.Key {
	keys := []engine.Key{offerSetKey(tenant.Key)}
	for _, row := range offeredRows(e) {
		names := names(e, tenant, row)
		for _, object := range tenant.Cache.List(row.name) {
			names = append(names, object.GetName())
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			keys = append(keys, offerKey(tenant.Key, row.name, name))
		}
	}
	return keys
}

// Offers keeps in each tenant that holds anything here the objects that this super cluster offers and the tenant's
// policy lists. Package offer says how syncers of several super clusters share one object.
type Offers struct{ env *kind.Env }

var _ engine.Kind = &Offers{}

// Name implements engine.Kind.
func (o *Offers) Name() string { return kind.Offer }

// Keys implements engine.Kind.
func (o *Offers) Keys() []engine.Key {
	var keys []engine.Key
	for _, tenant := range o.env.Tenants() {
		keys = append(keys, offerKeys(o.env, tenant)...)
	}
	return keys
}

// Reconcile implements engine.Kind.
func (o *Offers) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	tenant := o.env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil
	}
	if key.Name == "" {
		return 0, o.reconcileSet(ctx, tenant)
	}
	pair := &offerPair{key: key, tenant: tenant, row: offeredKind(o.env, key.Namespace)}
	if pair.row == nil {
		return 0, nil
	}
	tenantObject, synced := tenant.Cache.Get(pair.row.name, "", key.Name)
	superObject, superSynced := o.env.SuperCache.Get(pair.row.name, "", key.Name)
	if !synced || !superSynced {
		return 0, nil // session.filled and engine.Patrol enqueue this key again once the caches are synced
	}
	pair.superObject = superObject
	if err := o.note(ctx, pair); err != nil || pair.stays() {
		return 0, err
	}
	return 0, o.step(ctx, pair, tenantObject)
}

// offerPair is an object of the super cluster, and the tenant to which it is offered.
type offerPair struct {
	key    engine.Key
	tenant *kind.Tenant
	row    *offered
	// superObject is nil if there is none.
	superObject client.Object
	// note is what is noted of it on the tenant's object, nil if nothing is offered to the tenant; then hidden says
	// why, "" if there is no superObject.
	note   *offer.Note
	hidden string
}

// name is that of both objects.
func (p *offerPair) name() types.NamespacedName { return types.NamespacedName{Name: p.key.Name} }

// notListed is offerPair.hidden of what the policy does not list.
const notListed = "the policy does not list it"

// stays returns whether a pair is left as it is: a SyncPolicy that is no longer for a tenant takes nothing from it.
func (p *offerPair) stays() bool {
	custom := p.row.custom
	return p.hidden == notListed && custom != nil && !custom.Rules.For(p.tenant.Policy.Get().Name())
}

// holding is whether a tenant holds anything in this super cluster, nil before that was first asked.
type holding bool

// holds returns whether a tenant holds anything here.
func (o *Offers) holds(ctx context.Context, tenant *kind.Tenant) (bool, error) {
	if known := kind.Kept[holding](tenant).Load(); known != nil {
		return bool(*known), nil
	}
	namespaces, err := o.env.Assignments.Namespaces(ctx, tenant.Key)
	if err != nil {
		return false, fmt.Errorf("reading what the tenant holds: %w", err)
	}
	holds := len(namespaces) > 0
	known := holding(holds)
	kind.Kept[holding](tenant).Store(&known)
	return holds, nil
}

// reconcileSet asks whether a tenant holds anything here, and enqueues what is offered to it if that has changed.
func (o *Offers) reconcileSet(ctx context.Context, tenant *kind.Tenant) error {
	before := kind.Kept[holding](tenant).Swap(nil)
	holds, err := o.holds(ctx, tenant)
	if err != nil || before != nil && bool(*before) == holds {
		return err
	}
	keys := offerKeys(o.env, tenant)
	o.env.Resync(slices.DeleteFunc(keys, func(key engine.Key) bool { return key.Name == "" }))
	return nil
}

// note sets the note of a pair.
func (o *Offers) note(ctx context.Context, pair *offerPair) error {
	holds, err := o.holds(ctx, pair.tenant)
	switch {
	case err != nil:
		return err
	case !holds:
		pair.hidden = "the tenant holds nothing in super cluster " + o.env.ID
	case !pair.row.may(pair.tenant, pair.key.Name):
		pair.hidden = notListed
	}
	if pair.hidden != "" || pair.superObject == nil || pair.superObject.GetDeletionTimestamp() != nil {
		return nil
	}
	content := pair.row.shown(pair.superObject, nil)
	hash, err := offer.HashOf(content)
	if err != nil {
		return err
	}
	key := pair.row.defaultKey
	pair.note = &offer.Note{Hash: hash, Default: key != "" && pair.superObject.GetAnnotations()[key] == "true"}
	return nil
}

// empty returns an empty object of the kind.
func (row *offered) empty() client.Object {
	object, _ := row.object.DeepCopyObject().(client.Object)
	return object
}

// step makes one step towards what the tenant is to have. tenantObject is nil where there is none.
func (o *Offers) step(ctx context.Context, pair *offerPair, tenantObject client.Object) error {
	step, standing := offer.Next(o.env.ID, pair.note, tenantObject)
	switch step {
	case offer.Create:
		return o.create(ctx, pair)
	case offer.Write:
		return o.write(ctx, pair, tenantObject)
	case offer.Withdraw, offer.Delete:
		return o.withdraw(ctx, pair)
	case offer.Differ:
		o.reportDiffers(pair, standing)
		return o.unmark(ctx, pair, tenantObject)
	case offer.Own:
		o.env.WarnOnce(pair.tenant, pair.key, tenantObject, ReasonNotOffered, fmt.Sprintf(
			"Super cluster %s offers a %s of this name. This one is the tenant's own, and stays as it is: what names it does not get what the super cluster offers",
			o.env.ID, pair.row.title))
		return nil
	case offer.Leave:
		o.env.Settle(pair.key)
	}
	return nil
}

// create creates the tenant's object. If one of that name exists that the cache does not have, it makes the step that
// follows from that one: another syncer has just made it, or the tenant.
func (o *Offers) create(ctx context.Context, pair *offerPair) error {
	created := pair.desired(nil, o.env.ID)
	created.SetName(pair.key.Name)
	err := pair.tenant.Client.Create(ctx, created)
	switch {
	case apierrors.IsNotFound(err):
		return nil // the tenant's control plane does not serve the type
	case !apierrors.IsAlreadyExists(err):
		return o.env.Done(ctx, pair.row.name, "create", err)
	}
	live, err := o.live(ctx, pair)
	if err != nil || live == nil {
		return err
	}
	return o.step(ctx, pair, live)
}

// live reads the tenant's object, nil if there is none.
func (o *Offers) live(ctx context.Context, pair *offerPair) (client.Object, error) {
	live := pair.row.empty()
	err := pair.tenant.Client.Get(ctx, pair.name(), live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s of the tenant: %w", pair.row.title, pair.key.Name, err)
	}
	live.SetManagedFields(nil)
	return live, nil
}

// desired returns what the tenant is to have in place of tenantObject, nil for nothing. Further labels and annotations
// stay: they are the tenant's.
func (p *offerPair) desired(tenantObject client.Object, superCluster string) client.Object {
	object := p.row.shown(p.superObject, tenantObject)
	offer.Mark(object, superCluster, *p.note)
	p.row.setDefault(object, tenantObject)
	return object
}

// setDefault marks an object as the default of its kind where a super cluster does. Where none does any more it takes
// the mark of before, nil for nothing, away; where none ever did the mark is the tenant's.
func (row *offered) setDefault(object, before client.Object) {
	annotations := object.GetAnnotations()
	switch {
	case row.defaultKey == "":
		return
	case offer.IsDefault(object):
		annotations[row.defaultKey] = "true"
	case before != nil && offer.IsDefault(before):
		delete(annotations, row.defaultKey)
	}
	object.SetAnnotations(annotations)
}

// write writes the tenant's object if it differs. One that cannot be updated, since what differs is immutable, is
// created again.
func (o *Offers) write(ctx context.Context, pair *offerPair, tenantObject client.Object) error {
	desired := pair.desired(tenantObject, o.env.ID)
	if slice.DeepEqual(tenantObject, desired) {
		o.env.Settle(pair.key)
		return nil
	}
	err := pair.tenant.Client.Update(ctx, desired)
	if !apierrors.IsInvalid(err) {
		return o.env.Done(ctx, pair.row.name, "update", err)
	}
	proven, err := pair.tenant.ControlPlane().Answered(ctx, "it is created again")
	if err != nil {
		return kind.Unproven(err)
	}
	return o.env.RemoveVersion(ctx, pair.tenant.Client, pair.row.name, tenantObject, proven)
}

// unmark removes the note of this super cluster from the tenant's object, if it has one.
func (o *Offers) unmark(ctx context.Context, pair *offerPair, tenantObject client.Object) error {
	if _, noted := offer.NoteOf(tenantObject, o.env.ID); !noted {
		return nil
	}
	desired, ok := tenantObject.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy of %T is no object", tenantObject)
	}
	offer.Unmark(desired, o.env.ID)
	pair.row.setDefault(desired, tenantObject)
	return o.env.Done(ctx, pair.row.name, "update", client.IgnoreNotFound(pair.tenant.Client.Update(ctx, desired)))
}

// withdraw removes the note of this super cluster, or the object if it has no other. Both rest on live reads: of the
// super cluster, that it offers nothing, and of the tenant's object, which must not change until it is deleted.
func (o *Offers) withdraw(ctx context.Context, pair *offerPair) error {
	proven, err := o.unoffered(ctx, pair)
	if err != nil {
		return err
	}
	live, err := o.live(ctx, pair)
	if err != nil || live == nil {
		return err
	}
	switch step, _ := offer.Next(o.env.ID, nil, live); step { //nolint:exhaustive // Nothing is offered.
	case offer.Withdraw:
		return o.unmark(ctx, pair, live)
	case offer.Delete:
		answered, err := pair.tenant.ControlPlane().Answered(ctx, "no other super cluster offers it")
		if err != nil {
			return kind.Unproven(err)
		}
		o.env.Settle(pair.key)
		return o.env.RemoveVersion(ctx, pair.tenant.Client, pair.row.name, live, proven.And(answered))
	default:
		return nil
	}
}

// unoffered proves that this super cluster offers nothing to the tenant.
func (o *Offers) unoffered(ctx context.Context, pair *offerPair) (proof.Proof, error) {
	if custom := pair.row.custom; custom != nil && pair.hidden == notListed {
		return custom.Removes(ctx, pair.key.Name)
	}
	if pair.hidden != "" {
		return proof.NotNeeded(pair.hidden), nil
	}
	live := pair.row.empty()
	proven, lacks, err := o.env.SuperCluster().Lacks(ctx, pair.name(), live, func() bool { return live.GetDeletionTimestamp() == nil })
	switch {
	case err != nil:
		return proof.Proof{}, kind.Unproven(err)
	case !lacks:
		return proof.Proof{}, engine.Waitf("the cache of the super cluster's %ss", pair.row.title)
	}
	return proven, nil
}

// reportDiffers tells the operator, on the virtual Node, that tenants have what another super cluster offers.
func (o *Offers) reportDiffers(pair *offerPair, standing string) {
	if o.env.MetaRecorder == nil || o.env.VirtualNode == nil {
		return
	}
	node, of := o.env.VirtualNode(), strings.Join([]string{pair.row.name, pair.key.Name, standing}, "/")
	if node == nil || !differsOf(o.env).isNew(of, pair.note.Hash, pair.tenant.Key) {
		return
	}
	o.env.MetaRecorder.Event(node, corev1.EventTypeWarning, ReasonOffersDiffer, tenancy.Cut(fmt.Sprintf(
		"%s %s of super cluster %s differs from that of super cluster %s, which tenants have, as %s: make them equal, or give one of them another name",
		pair.row.title, pair.key.Name, o.env.ID, standing, pair.tenant.Key), tenancy.MaxEventNote))
}

// OfferedPriorityClass returns the PriorityClass of a super pod whose pod names one: that one if the tenant's is what
// this super cluster offers to it, "" if it is the tenant's own, or another super cluster's.
func OfferedPriorityClass(e *kind.Env, tenant *kind.Tenant, name string) (string, error) {
	if name == "" || !tenant.Policy.Get().MayOffer(policy.PriorityClasses, name) {
		return "", nil
	}
	class, synced := tenant.Cache.Get(kind.PriorityClass, "", name)
	superClass, superSynced := e.SuperCache.Get(kind.PriorityClass, "", name)
	if !synced || !superSynced {
		return "", engine.Waitf("the caches of PriorityClasses")
	}
	if class == nil || superClass == nil {
		return "", nil
	}
	if _, noted := offer.NoteOf(class, e.ID); !noted {
		return "", nil
	}
	return name, nil
}

// maxDiffers bounds how many different offers the operator is told of because of one tenant: a tenant can write that
// any super cluster offers something.
const maxDiffers = 128

// differs holds which different offers the operator was told of, once for all tenants. The zero value holds none. All
// methods may be called concurrently.
type differs struct {
	mu sync.Mutex
	// told holds what was told, by kind, name and the other super cluster.
	told map[string]difference
	// tenants counts what was told because of each tenant.
	tenants map[string]int
}

// difference is the hash of what this super cluster offered, and because of which tenant the operator was told.
type difference struct{ hash, tenant string }

// isNew notes that the operator is told because of a tenant, and returns whether that differs from what was told
// before and the tenant is within its bound.
func (d *differs) isNew(of, hash, tenant string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, told := d.told[of]
	switch {
	case told && before.hash == hash:
		return false
	case told:
		d.told[of] = difference{hash, before.tenant}
		return true
	case d.tenants[tenant] >= maxDiffers:
		return false
	case d.told == nil:
		d.told, d.tenants = map[string]difference{}, map[string]int{}
	}
	d.told[of] = difference{hash, tenant}
	d.tenants[tenant]++
	return true
}

// Forget forgets what was told because of a tenant.
func (d *differs) Forget(tenant string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.told, func(_ string, told difference) bool { return told.tenant == tenant })
	delete(d.tenants, tenant)
}

// differsOf returns which different offers the operator was told of.
func differsOf(env *kind.Env) *differs { return kind.State[differs](env) }
