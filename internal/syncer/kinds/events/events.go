// Package events writes the Events of super objects to their tenants.
package events

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// eventSource is a kind of synced objects whose Events come up.
type eventSource struct {
	// name is that of the Spec by which they are watched, and kind that of the objects.
	name, kind string
	// involved is what Events call it.
	involved schema.GroupKind
}

// sourceOf returns by what the Events about objects of a kind are watched, false if they stay.
func sourceOf(spec *kind.Spec) (eventSource, bool) {
	if spec.Involved.Kind == "" {
		return eventSource{}, false
	}
	name := kind.Event
	if family, of, found := strings.Cut(spec.Name, ":"); found {
		name += ":" + of
	} else if family != kind.Pod {
		name += "-of-" + family
	}
	return eventSource{name: name, kind: spec.Name, involved: spec.Involved}, true
}

// With returns specs, and one for the Events of each whose Events come up. Each has an informer of its own: API
// servers select Events by one kind, and a super cluster has many others. The reconciler of those of pods is that of
// all.
func With(specs []kind.Spec) []kind.Spec {
	for i := range specs {
		source, told := sourceOf(&specs[i])
		if !told {
			continue
		}
		spec := source.spec()
		if source.name == kind.Event {
			spec.New = func(env *kind.Env) engine.Kind { return &Events{env: env} }
		}
		specs = append(specs, spec)
	}
	return specs
}

// isOf returns whether a source is that of an object, of which Events may leave out the version. API servers select
// Events by the name of the kind, which several groups may have.
func (s eventSource) isOf(object *corev1.ObjectReference) bool {
	group, _, grouped := strings.Cut(object.APIVersion, "/")
	return object.APIVersion == "" || grouped && group == s.involved.Group || !grouped && s.involved.Group == ""
}

// spec returns the Spec by which the Events of a source are watched.
func (s eventSource) spec() kind.Spec {
	return kind.Spec{
		Name: s.name, Scope: kind.ScopeUp, Aside: true, Last: true, Super: &kind.Watch{Object: &corev1.Event{}, Fields: "involvedObject.kind=" + s.involved.Kind},
		Wakes: map[string]func(*kind.Env, kind.Change) []engine.Key{s.name: func(env *kind.Env, change kind.Change) []engine.Key {
			if change.Current == nil {
				return nil
			}
			key, ours := EventKey(env.SuperCache, change.Current)
			if !ours {
				return nil
			}
			return []engine.Key{key}
		}},
	}
}

// eventAge is how old an Event may be to be written to the tenant: a syncer that starts does not write old ones again.
const eventAge = 5 * time.Minute

// eventArrives is how old an Event may be that comes before its object: an older one is about one that is gone, and
// waits for nothing. Clocks of super clusters may go wrong by as much.
const eventArrives = 30 * time.Second

const (
	// superReasonScheduled is the reason of a scheduler's Event whose message ends with the name of a node.
	superReasonScheduled = "Scheduled"
	// superReasonFailedScheduling is that of one which says what nodes are like.
	superReasonFailedScheduling = "FailedScheduling"
	// superReasonPreempted is that of one which names a pod of another tenant.
	superReasonPreempted = "Preempted"
	// superReasonNotTriggerScaleUp is that of an autoscaler's which says what nodes would be like.
	superReasonNotTriggerScaleUp = "NotTriggerScaleUp"
	// superReasonTriggeredScaleUp is that of one which names groups of nodes.
	superReasonTriggeredScaleUp = "TriggeredScaleUp"
	// superReasonNominated is that of Karpenter's, which names nodes.
	superReasonNominated = "Nominated"
)

// Events writes the super cluster's Events about super objects to the tenants, with one write for each change of a
// super Event: kubelets and schedulers bound their rate, and the engine the workers for one tenant. A key's name is
// that of the super Event.
type Events struct{ env *kind.Env }

var _ engine.Kind = &Events{}

// Name implements engine.Kind.
func (e *Events) Name() string { return kind.Event }

// Keys implements engine.Kind. Patrol repairs no Events.
func (e *Events) Keys() []engine.Key { return nil }

// EventKey returns the key of a super Event. It returns false if no tenant owns its namespace.
func EventKey(superCache kind.Cache, superEvent client.Object) (engine.Key, bool) {
	superNamespace, exists, _ := kind.Get[*corev1.Namespace](superCache, kind.Namespace, "", superEvent.GetNamespace())
	if !exists {
		return engine.Key{}, false
	}
	owner, ours := tenancy.GetOwner(superNamespace)
	return engine.Key{Tenant: owner.ClusterKey, Kind: kind.Event, Namespace: owner.Namespace, Name: superEvent.GetName()}, ours
}

// TenantEvent returns the tenant's Event for superEvent, which is about the super object of tenantObject.
func TenantEvent(superEvent *corev1.Event, tenantObject client.Object, superCluster string) *corev1.Event {
	event := superEvent.DeepCopy()
	about := &superEvent.InvolvedObject
	owner := tenancy.Owner{Namespace: tenantObject.GetNamespace(), UID: tenantObject.GetUID()}
	event.ObjectMeta = metav1.ObjectMeta{Namespace: owner.Namespace, Name: superEvent.Name + "." + superCluster}
	event.InvolvedObject = corev1.ObjectReference{
		APIVersion: cmp.Or(about.APIVersion, "v1"), Kind: about.Kind, Namespace: owner.Namespace, Name: tenantObject.GetName(), UID: owner.UID, FieldPath: about.FieldPath,
	}
	event.Related = nil
	event.Message = eventWords(event, tenancy.NewRewriter(superEvent.Namespace, about.UID, owner), superCluster)
	if event.Source.Host != "" {
		event.Source.Host = tenancy.NodeName(superCluster, event.Source.Host)
	}
	if event.ReportingInstance != "" {
		event.ReportingInstance = superCluster
	}
	return event
}

// eventWords returns what a tenant may know of the message of a super Event.
func eventWords(event *corev1.Event, rewriter tenancy.Rewriter, superCluster string) string {
	switch message := rewriter.Rewrite(event.Message); event.Reason {
	case superReasonScheduled:
		if before, node, found := strings.Cut(message, " to "); found {
			return before + " to " + tenancy.NodeName(superCluster, node)
		}
		return message
	case superReasonFailedScheduling, superReasonNotTriggerScaleUp:
		return tenancy.SchedulingWords(event.Message)
	case superReasonTriggeredScaleUp, superReasonNominated:
		return "The super cluster adds nodes for it"
	case superReasonPreempted:
		return "Another pod of the super cluster needs its room"
	default:
		return message
	}
}

// aboutAdded returns whether an Event is about a container that the tenant's pod lacks: admission in the super cluster
// has added it (package podspec).
func aboutAdded(superEvent *corev1.Event, tenantObject client.Object) bool {
	pod, isPod := tenantObject.(*corev1.Pod)
	list, name, found := strings.Cut(strings.TrimSuffix(superEvent.InvolvedObject.FieldPath, "}"), "{")
	if !isPod || !found {
		return false
	}
	names := func(container corev1.Container) bool { return container.Name == name }
	switch list {
	case "spec.containers":
		return !slices.ContainsFunc(pod.Spec.Containers, names)
	case "spec.initContainers":
		return !slices.ContainsFunc(pod.Spec.InitContainers, names)
	case "spec.ephemeralContainers":
		return !slices.ContainsFunc(pod.Spec.EphemeralContainers, func(container corev1.EphemeralContainer) bool { return container.Name == name })
	}
	return true
}

// arrives returns whether the object that an Event is about, which a cache lacks, may still come; synced is whether the
// cache is filled.
func (e *Events) arrives(superEvent *corev1.Event, synced bool) bool {
	return !synced || e.env.Clock.Since(lastSeen(superEvent)) < eventArrives
}

// Reconcile implements engine.Kind.
func (e *Events) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	tenant := e.env.Tenant(key.Tenant)
	superEvent, source := e.find(key)
	if tenant == nil || superEvent == nil || e.env.Clock.Since(lastSeen(superEvent)) > eventAge {
		return 0, nil
	}
	superObject, synced := e.env.SuperCache.Get(source.kind, superEvent.Namespace, superEvent.InvolvedObject.Name)
	switch {
	case superObject == nil && waited < kind.QuietTime && e.arrives(superEvent, synced):
		return 0, engine.Waitf("the object that an Event is about")
	case superObject == nil || superEvent.InvolvedObject.UID != superObject.GetUID():
		return 0, nil
	}
	tenantObject := e.about(tenant, key, superEvent, source.kind, superObject)
	if tenantObject == nil {
		return 0, nil
	}
	event := TenantEvent(superEvent, tenantObject, e.env.ID)
	if len(validation.IsDNS1123Subdomain(event.Name)) > 0 {
		return 0, nil
	}
	return 0, e.write(ctx, tenant, event)
}

// about returns the tenant's object that an Event about superObject is for, nil if it is for none.
func (e *Events) about(tenant *kind.Tenant, key engine.Key, superEvent *corev1.Event, kind string, superObject client.Object) client.Object {
	owner, _ := tenancy.GetOwner(superObject)
	about, ours := e.env.SuperKey(kind, superObject)
	if !ours || !tenant.Owns(owner, key.Namespace) {
		return nil
	}
	if strings.Contains(superEvent.Message, tenancy.TokenSecret(about.Name, owner.UID)) {
		return nil // the kubelet tried to mount the Secret before kind token created it; kind.ReasonFailedToken reports failures of that
	}
	tenantObject, _ := tenant.Cache.Get(kind, key.Namespace, about.Name)
	if tenantObject == nil || tenantObject.GetUID() != owner.UID || aboutAdded(superEvent, tenantObject) {
		return nil
	}
	return tenantObject
}

// find returns the super Event of a key, and what it is about, nil if there is none.
func (e *Events) find(key engine.Key) (*corev1.Event, eventSource) {
	specs := e.env.Specs()
	for i := range specs {
		source, told := sourceOf(&specs[i])
		if !told {
			continue
		}
		event, exists, _ := kind.Get[*corev1.Event](e.env.SuperCache, source.name, tenancy.SuperNamespace(key.Tenant, key.Namespace), key.Name)
		if exists && source.isOf(&event.InvolvedObject) {
			return event, source
		}
	}
	return nil, eventSource{}
}

// write creates an Event in the tenant, or updates the one that an earlier write created.
func (e *Events) write(ctx context.Context, tenant *kind.Tenant, event *corev1.Event) error {
	err := tenant.Client.Create(ctx, event.DeepCopy())
	if !apierrors.IsAlreadyExists(err) {
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil // the namespace is terminating, or admission in the tenant refuses the Event
		}
		return e.env.Done(ctx, kind.Event, "create", err)
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
	return e.env.Done(ctx, kind.Event, "update", tenant.Client.Update(ctx, desired))
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
