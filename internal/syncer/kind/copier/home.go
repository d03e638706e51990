package copier

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// ReasonNamespaceNotPlaced: a Service of type LoadBalancer, or an Ingress, is published nowhere, because its namespace
// is placed in no super cluster. It needs a ResourceQuota, whose Events and conditions say what that waits for.
const ReasonNamespaceNotPlaced = "NamespaceNotPlaced"

// homePatience is how old an object is before its tenant is told that nothing says where its namespace is: vc-scheduler
// places a new one meanwhile.
const homePatience = 30 * time.Second

// Home declares objects that are in one super cluster only, the home of their namespace, which tells the tenant their
// status.
type Home[T client.Object] struct {
	// Only returns whether an object is one of those. It is asked of objects of either side.
	Only func(object T) bool
	// IsMeant returns whether an annotation may be meant for those who publish an object. One that does not go down may
	// be what keeps callers away, so no object is made without it, and an existing one keeps the one that it has.
	IsMeant func(domain, key string) bool
	// Elsewhere returns what super clusters that are not the home have in its place; nil: nothing.
	Elsewhere func(rules *kind.Rules, tenantObject T) T
	// Allowed returns whether a super cluster may have a tenant's object at all. The status of one that it may not have
	// is not written: it may be that of a controller of the tenant's own.
	Allowed func(rules *policy.Policy, tenantObject T) bool
	// Tell sets the status of tenantObject to that of superObject, an empty one if there is none.
	Tell func(superObject, tenantObject T)
}

// reconcileHome reconciles an object that is in one super cluster only. Where that is to have it, down copies it:
//
//	home      existing super object   in this super cluster           status of the tenant's
//	here      any                     the object                      that of the super object
//	elsewhere any                     what is elsewhere, or nothing   is left alone
//	nowhere   any                     what is elsewhere, or nothing   empty
//	unknown   such an object          the object                      is left alone
//	unknown   none, or another        what is elsewhere, or nothing   is left alone
//
// Before something is taken away, and before anything is written to the tenant, a live read confirms the home.
func (c *Copier[T]) reconcileHome(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject, superObject T, inSuper bool, waited time.Duration) error {
	home, err := c.Env.Assignments.Home(ctx, key.Tenant, key.Namespace)
	if err != nil {
		return fmt.Errorf("reading the home of namespace %s: %w", key.Namespace, err)
	}
	isThere := inSuper && c.Home.Only(superObject)
	switch {
	case home == assign.HomeHere, home == assign.HomeUnknown && isThere:
		err = c.down(ctx, tenant, key, tenantObject, superObject, inSuper, waited)
	case isThere:
		c.drift.Delete(key)
		err = c.away(ctx, tenant, key, tenantObject, superObject, waited)
	case c.Home.Elsewhere != nil:
		err = c.down(ctx, tenant, key, c.Home.Elsewhere(tenant.Rules(), tenantObject), superObject, inSuper, waited)
	default:
		c.Env.Settle(key)
	}
	if told := c.tell(ctx, tenant, key, tenantObject, superObject, home, isThere); err == nil {
		err = told
	}
	if told := c.tellNowhere(ctx, tenant, key, tenantObject, home, isThere); err == nil {
		err = told
	}
	return err
}

// tellNowhere tells the tenant that an object waits for its namespace to be placed. Of the super clusters that see it,
// one does. Where the tenant holds nothing at all none sees it: its ResourceQuotas alone say why.
func (c *Copier[T]) tellNowhere(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject T, home assign.Home, isThere bool) error {
	waits := home == assign.HomeUnknown && !isThere && c.Env.Clock.Since(tenantObject.GetCreationTimestamp().Time) >= homePatience
	if home != assign.HomeNowhere && !waits || !c.Home.Allowed(tenant.Policy.Get(), tenantObject) {
		c.Env.Warnings.Clear(ofHome(key))
		return nil
	}
	speaks, err := c.Env.Assignments.Speaks(ctx, key.Tenant)
	if err != nil {
		return fmt.Errorf("reading what tenant %s holds: %w", key.Tenant, err)
	}
	if speaks {
		c.Env.WarnAbout(tenant, ofHome(key), tenantObject, ReasonNamespaceNotPlaced, fmt.Sprintf(
			"Nothing is published: namespace %s is placed in no super cluster. It needs a ResourceQuota, whose Events say what it waits for", key.Namespace))
	}
	return nil
}

// ofHome is what is said of where an object is published.
func ofHome(key engine.Key) kind.Topic { return kind.Topic{Key: key, Of: "home"} }

// unlisted returns the annotations of a tenant's object that are meant for those who publish it, and do not go down.
func (c *Copier[T]) unlisted(tenant *kind.Tenant, tenantObject T) []string {
	if c.Home == nil || !c.Home.Only(tenantObject) {
		return nil
	}
	return Unlisted(tenantObject, c.Copy.Name, tenant.Rules(), c.Home.IsMeant)
}

// isPublished returns whether a super object is one that only the home has.
func (c *Copier[T]) isPublished(superObject T) bool { return c.Home != nil && c.Home.Only(superObject) }

// mayPublish returns whether an object may become one that only the home has, or is published already, and otherwise
// records an Event.
func (c *Copier[T]) mayPublish(tenant *kind.Tenant, key engine.Key, tenantObject T, published bool) bool {
	left := c.unlisted(tenant, tenantObject)
	if published || len(left) == 0 {
		return true
	}
	c.Env.WarnOnce(tenant, key, tenantObject, tenancy.ReasonPolicyForbids, fmt.Sprintf("Super cluster %s: %s", c.Env.ID, policy.Words(tenant.Policy.Get(), []policy.Refusal{{
		Field: "metadata.annotations", Message: kind.SomeOf(left) + " not allowed: traffic.annotations does not list what is asked of controllers, and nothing is published without it",
	}})))
	return false
}

// away takes from this super cluster what only the home has, which is another.
func (c *Copier[T]) away(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject, superObject T, waited time.Duration) error {
	if c.Home.Elsewhere == nil {
		return c.takeAway(ctx, tenant, key, superObject)
	}
	if _, err := c.confirmAway(ctx, key); err != nil {
		return err
	}
	return c.down(ctx, tenant, key, c.Home.Elsewhere(tenant.Rules(), tenantObject), superObject, true, waited)
}

// confirmAway returns the Proof that the home of a key is another super cluster.
func (c *Copier[T]) confirmAway(ctx context.Context, key engine.Key) (proof.Proof, error) {
	_, proven, err := c.Env.Assignments.ConfirmHome(ctx, key.Tenant, key.Namespace)
	switch {
	case err != nil:
		return proof.Proof{}, fmt.Errorf("confirming the home of namespace %s: %w", key.Namespace, kind.Unproven(err))
	case !proven.Holds():
		return proof.Proof{}, engine.Waitf("the cache of NamespacePlacements")
	}
	return proven, nil
}

// takeAway deletes a super object that only the home has, which is another super cluster.
func (c *Copier[T]) takeAway(ctx context.Context, tenant *kind.Tenant, key engine.Key, superObject T) error {
	proven, err := c.confirmAway(ctx, key)
	if err != nil {
		return err
	}
	if !c.isOfTenant(tenant, key, superObject) || superObject.GetDeletionTimestamp() != nil {
		return nil
	}
	c.Env.Settle(key)
	return c.Env.Remove(ctx, c.Env.Super, c.Copy.Name, "delete", superObject, nil, proven)
}

// tell writes the status that the tenant is to see, if that is for this super cluster to do.
func (c *Copier[T]) tell(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject, superObject T, home assign.Home, isThere bool) error {
	if home != assign.HomeHere && home != assign.HomeNowhere {
		return nil
	}
	from := c.New()
	if home == assign.HomeHere && isThere && kind.CarriesOwner(superObject, tenant.Owner(key.Namespace, tenantObject.GetUID())) && superObject.GetDeletionTimestamp() == nil {
		from = superObject
	} else if !c.Home.Allowed(tenant.Policy.Get(), tenantObject) {
		return nil
	}
	desired, ok := tenantObject.DeepCopyObject().(T)
	if !ok {
		return fmt.Errorf("copy of %T has another type", tenantObject)
	}
	c.Home.Tell(from, desired)
	if kind.Equal(tenantObject, desired) {
		return nil
	}
	live, _, err := c.Env.Assignments.ConfirmHome(ctx, key.Tenant, key.Namespace)
	switch {
	case err != nil:
		return fmt.Errorf("confirming the home of namespace %s: %w", key.Namespace, kind.Unproven(err))
	case live != home:
		return engine.Waitf("the cache of NamespacePlacements")
	}
	// With the resource version of the cache, what another home has written meanwhile stands. The patch has the status
	// alone: caches do not hold all of an object.
	patch := client.MergeFromWithOptions(tenantObject, client.MergeFromWithOptimisticLock{})
	return c.Env.Done(ctx, c.Copy.Name, "status", client.IgnoreNotFound(tenant.Client.Status().Patch(ctx, desired, patch)))
}

// Unlisted returns the annotations of an object that are meant for the super cluster and do not go down, sorted.
func Unlisted(object metav1.Object, kindName string, rules *kind.Rules, isMeant func(domain, key string) bool) []string {
	var left []string
	for key := range object.GetAnnotations() {
		domain, _, found := strings.Cut(key, "/")
		if found && isMeant(domain, key) && !rules.Annotation(kind.ResourceOf(kindName), key) {
			left = append(left, key)
		}
	}
	slices.Sort(left)
	return left
}
