package dynamic

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
	"github.com/superpool/superpool/internal/syncpolicy"
	"github.com/superpool/superpool/internal/tenancy"
)

// A SyncPolicy with scope Namespaces raises objects: what is in the super namespaces of a tenant, and is no copy, comes
// up to the namespaces that these are for, by the rules of Offers.

// ReasonNotRaised: an object of a super namespace, which a SyncPolicy lets up, does not come up. On a tenant's
// namespace: the tenant's API server refuses it. On the virtual Node: it names super namespaces of other tenants, or
// looks like a list.
const ReasonNotRaised = "NotRaised"

// notTheirs is offerPair.hidden of what is in a super namespace that is not, or no longer, that of the tenant's
// namespace.
const notTheirs = "the super namespace is not that of the tenant's namespace"

// word matches what may be the name of a namespace in a text.
var word = regexp.MustCompile(`[a-z0-9](?:[-a-z0-9]*[a-z0-9])?`)

// raises returns whether the objects of a row have namespaces.
func (row *offered) raises() bool { return row.custom != nil && row.custom.Rules.Raises() }

// nameOf returns the name of an object in keys.
func (row *offered) nameOf(namespace, name string) string {
	if !row.raises() {
		return name
	}
	return namespace + "/" + name
}

// split returns the namespace and the name that nameOf has joined.
func (row *offered) split(name string) (namespace, base string) {
	if !row.raises() {
		return "", name
	}
	namespace, base, _ = strings.Cut(name, "/")
	return namespace, base
}

// isCopy returns whether a super object is a copy of a tenant's, or was made with ownership marks, wherever.
func isCopy(superObject client.Object) bool {
	return tenancy.HasMarks(superObject)
}

// tenantName returns the name of the tenant's object.
func (p *offerPair) tenantName() types.NamespacedName {
	namespace, name := p.row.split(p.key.Name)
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// superName returns the name of the super object.
func (p *offerPair) superName() types.NamespacedName {
	name := p.tenantName()
	if p.row.raises() {
		name.Namespace = tenancy.SuperNamespace(p.key.Tenant, name.Namespace)
	}
	return name
}

// allWakes returns Spec.Wakes of a row.
func (row *offered) allWakes() map[string]func(*kind.Env, kind.Change) []engine.Key {
	if !row.raises() {
		return map[string]func(*kind.Env, kind.Change) []engine.Key{row.name: row.wakes}
	}
	return map[string]func(*kind.Env, kind.Change) []engine.Key{row.name: row.wakesRaised, kind.Namespace: row.wakesOfNamespace}
}

// wakesRaised enqueues an object of a tenant, or of a super namespace.
func (row *offered) wakesRaised(env *kind.Env, change kind.Change) []engine.Key {
	object := change.Object()
	if change.Side == kind.TenantSide {
		name := row.nameOf(object.GetNamespace(), object.GetName())
		customsOf(env).creating.cancel(row.reserveKey(change.Tenant, name)) // the cache shows it
		return []engine.Key{offerKey(change.Tenant, row.name, name)}
	}
	superNamespace, exists, _ := kind.Get[*corev1.Namespace](env.SuperCache, kind.Namespace, "", object.GetNamespace())
	if !exists {
		return nil // that of the namespace, or none, enqueues it: it may be the operator's
	}
	owner, owned := tenancy.GetOwner(superNamespace)
	tenant := env.Tenant(owner.ClusterKey)
	if name := row.nameOf(owner.Namespace, object.GetName()); owned && tenant != nil && row.may(tenant, name) {
		return []engine.Key{offerKey(tenant.Key, row.name, name)}
	}
	return nil
}

// wakesOfNamespace enqueues what is in a namespace of a tenant that has come or gone on either side.
func (row *offered) wakesOfNamespace(env *kind.Env, change kind.Change) []engine.Key {
	owner := tenancy.Owner{ClusterKey: change.Tenant, Namespace: change.Object().GetName()}
	if change.Side == kind.SuperSide {
		owned := false
		if owner, owned = tenancy.GetOwner(change.Object()); !owned {
			return nil
		}
	}
	if change.Side == kind.SuperSide && !change.CreatedOrDeleted() {
		if before, _ := tenancy.GetOwner(change.Old); before == owner {
			return nil
		}
	} else if !change.CreatedOrDeleted() {
		return nil
	}
	tenant := env.Tenant(owner.ClusterKey)
	if tenant == nil {
		return nil
	}
	var keys []engine.Key
	for _, objects := range [][]client.Object{
		env.SuperCache.InNamespace(row.name, tenancy.SuperNamespace(tenant.Key, owner.Namespace)), tenant.Cache.InNamespace(row.name, owner.Namespace),
	} {
		for _, object := range objects {
			if name := row.nameOf(owner.Namespace, object.GetName()); row.may(tenant, name) {
				keys = append(keys, offerKey(tenant.Key, row.name, name))
			}
		}
	}
	return keys
}

// raisable returns the names of the objects of a row that may come up to a tenant.
func raisable(e *kind.Env, tenant *kind.Tenant, row *offered) []string {
	var names []string
	for _, superNamespace := range e.SuperCache.Index(kind.Namespace, kind.IndexTenant, tenant.Key) {
		owner, owned := tenancy.GetOwner(superNamespace)
		if !owned || !tenant.Owns(owner, owner.Namespace) {
			continue
		}
		for _, object := range e.SuperCache.InNamespace(row.name, superNamespace.GetName()) {
			if name := row.nameOf(owner.Namespace, object.GetName()); !isCopy(object) && row.may(tenant, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// raise puts in place of the super object of a pair what of it may come up: nothing of a copy, and the tenant's names
// of its namespaces. It returns false where the tenant's object stays as it is, and tells why.
func (o *Offers) raise(pair *offerPair) bool {
	namespace, exists, _ := kind.Get[*corev1.Namespace](pair.tenant.Cache, kind.Namespace, "", pair.tenantName().Namespace)
	superNamespace, _ := o.env.SuperCache.Get(kind.Namespace, "", pair.superName().Namespace)
	if !exists || superNamespace == nil || !kind.CarriesOwner(superNamespace, pair.tenant.Owner(namespace.Name, namespace.UID)) {
		pair.elsewhere = true
		return true
	}
	superObject, ok := pair.superObject.(*unstructured.Unstructured)
	if !ok || isCopy(superObject) {
		pair.superObject = nil
		return true
	}
	if !pair.row.may(pair.tenant, pair.key.Name) {
		return true
	}
	if superObject.Object["items"] != nil {
		o.notRaised(pair, superObject, "it has a field items at its root, and cannot be told from a list")
		return false
	}
	part := pair.row.custom.Rules.Raised(superObject.Object)
	rules, size := pair.row.custom.Rules, syncpolicy.Size(part)
	if most := rules.Spec.Limits.Bytes.Value(); size > most {
		o.env.WarnOnce(pair.tenant, pair.key, namespace, kind.ReasonTenantLimit, fmt.Sprintf(
			"Super cluster %s: %s %s has %d bytes there, and does not come up: at most %d are allowed (limits.bytes of SyncPolicy %s)",
			o.env.ID, pair.row.title, pair.tenantName().Name, size, most, rules.Name))
		return false
	}
	foreign := ""
	translated, ok := syncpolicy.Texts(part, func(text string) string {
		return word.ReplaceAllStringFunc(text, func(name string) string { return o.tenantsWord(pair.tenant, name, &foreign) })
	}).(map[string]any)
	word.ReplaceAllStringFunc(pair.tenantName().Name, func(name string) string { return o.tenantsWord(pair.tenant, name, &foreign) })
	if foreign != "" {
		o.notRaised(pair, superObject, fmt.Sprintf("it names namespace %s, which is not the tenant's. Let fields.stay of SyncPolicy %s leave that out", foreign, rules.Name))
		return false
	}
	if ok {
		pair.superObject = &unstructured.Unstructured{Object: syncpolicy.Identified(translated, superObject.Object)}
	}
	return true
}

// tenantsWord returns a word of a super object as a tenant may read it: with the tenant's namespaces in place of its
// super namespaces, which may be parts of a name, as in <super namespace>-tls. Where it names another namespace, or has
// a super namespace of another tenant as a part, foreign is set to that.
func (o *Offers) tenantsWord(tenant *kind.Tenant, name string, foreign *string) string {
	if whole, exists, _ := kind.Get[*corev1.Namespace](o.env.SuperCache, kind.Namespace, "", name); exists {
		if owner, owned := tenancy.GetOwner(whole); owned && tenant.Owns(owner, owner.Namespace) {
			return owner.Namespace
		}
		*foreign = name
		return name
	}
	var read strings.Builder
	for len(name) > 0 {
		part, owner := o.superNamespaceIn(name)
		switch {
		case part == "":
			part, _, _ = strings.Cut(name, "-")
			read.WriteString(part)
		case tenant.Owns(owner, owner.Namespace):
			read.WriteString(owner.Namespace)
		default:
			*foreign = part
			read.WriteString(part)
		}
		name = name[len(part):]
		if strings.HasPrefix(name, "-") {
			read.WriteByte('-')
			name = name[1:]
		}
	}
	return read.String()
}

// superNamespaceIn returns the longest super namespace of a tenant with which a name begins, up to its end or a hyphen,
// and whose it is; "" if there is none.
func (o *Offers) superNamespaceIn(name string) (string, tenancy.Owner) {
	for end := min(len(name), validation.DNS1123LabelMaxLength); end > 0; end-- {
		if end < len(name) && name[end] != '-' {
			continue
		}
		if named, exists, _ := kind.Get[*corev1.Namespace](o.env.SuperCache, kind.Namespace, "", name[:end]); exists {
			if owner, owned := tenancy.GetOwner(named); owned {
				return name[:end], owner
			}
		}
	}
	return "", tenancy.Owner{}
}

// notRaised tells the operator, on the virtual Node, that an object of a super namespace does not come up.
func (o *Offers) notRaised(pair *offerPair, superObject client.Object, why string) {
	if o.env.MetaRecorder == nil || o.env.VirtualNode == nil {
		return
	}
	node := o.env.VirtualNode()
	if node == nil || !differsOf(o.env).isNew(strings.Join([]string{pair.row.name, pair.key.Tenant, pair.key.Name, ReasonNotRaised}, "/"), why, pair.tenant.Key) {
		return
	}
	o.env.MetaRecorder.Event(node, corev1.EventTypeWarning, ReasonNotRaised, tenancy.Cut(fmt.Sprintf(
		"%s %s/%s of super cluster %s does not come up to %s: %s",
		pair.row.title, superObject.GetNamespace(), superObject.GetName(), o.env.ID, pair.tenant.Key, why), tenancy.MaxEventNote))
}

// reserveKey is the key under which what is being created of a kind counts for a tenant.
func (row *offered) reserveKey(tenant, name string) engine.Key {
	return engine.Key{Tenant: tenant, Kind: row.name, Name: name}
}

// limitKey is the key of the warning that a namespace lacks objects.
func (p *offerPair) limitKey() engine.Key {
	return offerKey(p.key.Tenant, p.row.name, p.tenantName().Namespace+"/")
}

// reserve returns whether an object may be created within the limit of its SyncPolicy, and otherwise tells the tenant
// on its namespace. It counts all objects of the kind that the tenant's cache shows, and creations that it does not
// show yet. What finds no room is tried again by patrol.
func (o *Offers) reserve(pair *offerPair) bool {
	namespace, exists, _ := kind.Get[*corev1.Namespace](pair.tenant.Cache, kind.Namespace, "", pair.tenantName().Namespace)
	if !exists || namespace.DeletionTimestamp != nil {
		return false
	}
	rules := pair.row.custom.Rules
	shown := len(pair.tenant.Cache.List(pair.row.name))
	isShown := func(name string) bool {
		at, base := pair.row.split(name)
		object, _ := pair.tenant.Cache.Get(pair.row.name, at, base)
		return object != nil
	}
	if !customsOf(o.env).creating.reserve(pair.row.reserveKey(pair.key.Tenant, pair.key.Name), shown, isShown, int(rules.Spec.Limits.Objects), o.env.Clock.Now()) {
		o.env.WarnOnce(pair.tenant, pair.limitKey(), namespace, kind.ReasonTenantLimit, fmt.Sprintf(
			"Super cluster %s has objects of kind %s for this namespace that do not come up: %d may, in all namespaces together, and as many are here (limits.objects of SyncPolicy %s)",
			o.env.ID, rules.Kind.Kind, rules.Spec.Limits.Objects, rules.Name))
		return false
	}
	return true
}

// raised ends what reserve began, and tells the tenant if its API server refused the object.
func (o *Offers) raised(pair *offerPair, err error) {
	if err == nil {
		o.env.Warnings.Clear(pair.limitKey())
		return
	}
	customsOf(o.env).creating.cancel(pair.row.reserveKey(pair.key.Tenant, pair.key.Name))
	o.refusedHere(pair, err)
}

// refusedHere tells the tenant, on its namespace, that its API server refused an object.
func (o *Offers) refusedHere(pair *offerPair, err error) {
	namespace, exists, _ := kind.Get[*corev1.Namespace](pair.tenant.Cache, kind.Namespace, "", pair.tenantName().Namespace)
	if !exists || !engine.IsRefusal(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return
	}
	o.env.WarnOnce(pair.tenant, pair.key, namespace, ReasonNotRaised, fmt.Sprintf(
		"%s %s of super cluster %s does not come up, or not as it is there: this API server refuses it: %v", pair.row.title, pair.tenantName().Name, o.env.ID, err))
}

// writeRaised writes a tenant's object: by its subresource status where the tenant has one and only status differs. The
// same is written ever more rarely where it does not stay.
func (o *Offers) writeRaised(ctx context.Context, pair *offerPair, tenantObject, desired client.Object) error {
	before, isUntyped := tenantObject.(*unstructured.Unstructured)
	after, ok := desired.(*unstructured.Unstructured)
	if !isUntyped || !ok {
		return fmt.Errorf("%T is not unstructured", tenantObject)
	}
	alike := before.DeepCopy()
	delete(alike.Object, "status")
	if told, exists := after.Object["status"]; exists {
		alike.Object["status"] = told
	}
	of := copier.Attempt{Key: pair.key, Up: true, Status: equality.Semantic.DeepEqual(alike.Object, after.Object)}
	if !customsOf(o.env).attempts.May(of, pair.note.Hash, o.env.Clock.Now()) {
		return nil
	}
	if of.Status {
		err := pair.tenant.Client.Status().Update(ctx, after.DeepCopy())
		if !apierrors.IsNotFound(err) {
			return o.wrote(ctx, pair, "status", err)
		}
	}
	return o.wrote(ctx, pair, "update", client.IgnoreNotFound(pair.tenant.Client.Update(ctx, after)))
}

// wrote ends an attempt of writeRaised. One that met a newer version is made again at once.
func (o *Offers) wrote(ctx context.Context, pair *offerPair, operation string, err error) error {
	if apierrors.IsConflict(err) {
		customsOf(o.env).attempts.Drop(pair.key)
	}
	o.refusedHere(pair, err)
	return o.env.Done(ctx, pair.row.name, operation, err)
}

// notTheirs proves that the super namespace of a pair is not that of the tenant's namespace, or is gone.
func (o *Offers) notTheirs(ctx context.Context, pair *offerPair) (proof.Proof, error) {
	live := &corev1.Namespace{}
	namespace, exists, _ := kind.Get[*corev1.Namespace](pair.tenant.Cache, kind.Namespace, "", pair.tenantName().Namespace)
	proven, lacks, err := o.env.SuperCluster().Lacks(ctx, types.NamespacedName{Name: pair.superName().Namespace}, live, func() bool {
		owner, owned := tenancy.GetOwner(live)
		return owned && pair.tenant.Owns(owner, pair.tenantName().Namespace) && (!exists || owner.UID == namespace.UID)
	})
	switch {
	case err != nil:
		return proof.Proof{}, kind.Unproven(err)
	case !lacks:
		return proof.Proof{}, engine.Waitf("the cache of super namespaces")
	}
	return proven, nil
}
