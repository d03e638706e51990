package kinds

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// KindEvent is the kind of Events about super pods. They are synced up only.
const KindEvent = "event"

func eventSpec() Spec {
	return Spec{
		Name: KindEvent, Scope: ScopeUp, Super: &Watch{Object: &corev1.Event{}, Fields: "involvedObject.kind=Pod"},
		Wakes: map[string]func(*Env, Change) []engine.Key{KindEvent: func(env *Env, change Change) []engine.Key {
			if change.Current == nil {
				return nil
			}
			key, ours := EventKey(env.SuperCache, change.Current)
			if !ours {
				return nil
			}
			return []engine.Key{key}
		}},
		New: func(env *Env) engine.Kind { return &Events{env: env} },
	}
}

// eventAge is how old an Event may be to be written to the tenant: a syncer that starts does not write old ones again.
const eventAge = 5 * time.Minute

// reasonScheduled is the reason of a scheduler's Event whose message ends with the name of a node.
const reasonScheduled = "Scheduled"

// Events writes the super cluster's Events about super pods to the tenants, with one write for each change of a super
// Event: kubelets and schedulers bound their rate, and the engine the workers for one tenant. A key's name is that of
// the super Event.
type Events struct{ env *Env }

var _ engine.Kind = &Events{}

// Name implements engine.Kind.
func (e *Events) Name() string { return KindEvent }

// Keys implements engine.Kind. Patrol repairs no Events.
func (e *Events) Keys() []engine.Key { return nil }

// EventKey returns the key of a super Event. It returns false if no tenant owns its namespace.
func EventKey(superCache Cache, superEvent client.Object) (engine.Key, bool) {
	superNamespace, exists, _ := get[*corev1.Namespace](superCache, KindNamespace, "", superEvent.GetNamespace())
	if !exists {
		return engine.Key{}, false
	}
	owner, ours := tenancy.GetOwner(superNamespace)
	return engine.Key{Tenant: owner.ClusterKey, Kind: KindEvent, Namespace: owner.Namespace, Name: superEvent.GetName()}, ours
}

// TenantEvent returns the tenant's Event for superEvent, which is about the super pod of tenantPod.
func TenantEvent(superEvent *corev1.Event, tenantPod *corev1.Pod, superCluster string) *corev1.Event {
	event := superEvent.DeepCopy()
	event.ObjectMeta = metav1.ObjectMeta{Namespace: tenantPod.Namespace, Name: superEvent.Name + "." + superCluster}
	event.InvolvedObject = corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: tenantPod.Namespace, Name: tenantPod.Name, UID: tenantPod.UID, FieldPath: superEvent.InvolvedObject.FieldPath,
	}
	event.Related = nil
	event.Message = rewriterFor(tenantPod, superEvent.Namespace, superEvent.InvolvedObject.UID).Rewrite(event.Message)
	if before, node, found := strings.Cut(event.Message, " to "); found && event.Reason == reasonScheduled {
		event.Message = before + " to " + tenancy.NodeName(superCluster, node)
	}
	if event.Source.Host != "" {
		event.Source.Host = tenancy.NodeName(superCluster, event.Source.Host)
	}
	if event.ReportingInstance != "" {
		event.ReportingInstance = superCluster
	}
	return event
}

// Reconcile implements engine.Kind.
func (e *Events) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	tenant := e.env.Tenant(key.Tenant)
	superNamespace := tenancy.SuperNamespace(key.Tenant, key.Namespace)
	superEvent, exists, _ := get[*corev1.Event](e.env.SuperCache, KindEvent, superNamespace, key.Name)
	if tenant == nil || !exists || e.env.Clock.Since(lastSeen(superEvent)) > eventAge {
		return 0, nil
	}
	superPod, exists, _ := get[*corev1.Pod](e.env.SuperCache, KindPod, superNamespace, superEvent.InvolvedObject.Name)
	if !exists && waited < quietTime {
		return 0, engine.Waitf("the pod that an Event is about")
	}
	owner, ours := tenancy.GetOwner(orEmpty(superPod, exists))
	if !ours || !tenant.owns(owner, key.Namespace) || superEvent.InvolvedObject.UID != superPod.UID {
		return 0, nil
	}
	tenantPod, exists, _ := get[*corev1.Pod](tenant.Cache, KindPod, key.Namespace, superPod.Name)
	if strings.Contains(superEvent.Message, tenancy.TokenSecret(superPod.Name, owner.UID)) {
		return 0, nil // the kubelet tried to mount the Secret before kind token created it; ReasonFailedToken reports failures of that
	}
	event := TenantEvent(superEvent, orEmpty(tenantPod, exists), e.env.ID)
	if !exists || tenantPod.UID != owner.UID || len(validation.IsDNS1123Subdomain(event.Name)) > 0 {
		return 0, nil
	}
	return 0, e.write(ctx, tenant, event)
}

// write creates an Event in the tenant, or updates the one that an earlier write created.
func (e *Events) write(ctx context.Context, tenant *Tenant, event *corev1.Event) error {
	err := tenant.Client.Create(ctx, event.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil // the namespace is terminating, or admission in the tenant refuses the Event
		}
		return e.env.done(ctx, KindEvent, "create", err)
	}
	live := &corev1.Event{}
	if err := tenant.Client.Get(ctx, client.ObjectKeyFromObject(event), live); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("reading an Event of the tenant: %w", err))
	}
	if live.InvolvedObject.UID != event.InvolvedObject.UID || live.Source != event.Source {
		return nil // another component's Event
	}
	desired := event.DeepCopy()
	desired.ObjectMeta, desired.TypeMeta = live.ObjectMeta, live.TypeMeta
	if equality.Semantic.DeepEqual(live, desired) {
		return nil
	}
	return e.env.done(ctx, KindEvent, "update", tenant.Client.Update(ctx, desired))
}

// lastSeen returns the latest time in an Event.
func lastSeen(event *corev1.Event) time.Time {
	last := event.CreationTimestamp.Time
	times := []time.Time{event.LastTimestamp.Time, event.EventTime.Time}
	if event.Series != nil {
		times = append(times, event.Series.LastObservedTime.Time)
	}
	for _, at := range times {
		if at.After(last) {
			last = at
		}
	}
	return last
}
