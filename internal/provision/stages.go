package provision

import (
	"cmp"
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/tenancy"
)

// stage is a part of a control plane that is made, or changed, when the parts before are whole.
type stage struct {
	// condition is what tells of it, and name what others wait for.
	condition, name string
	// again is after how long it is looked at again while it is not whole, where no event tells that it is.
	again time.Duration
	// objects returns what is applied before the next one: the stages before may change what that is.
	objects func() []client.Object
	// make applies its objects and returns what it waits for then.
	make func(context.Context) (tenancy.Reason, error)
}

// stages returns the parts of a control plane in the order in which they are made and upgraded: no program is older
// than one that asks it. The store has so many members.
func (r *Reconciler) stages(plane *controlplane.ControlPlane, store *store, members int32) []stage {
	deployed := func(objects func() []client.Object) func(context.Context) (tenancy.Reason, error) {
		return func(ctx context.Context) (tenancy.Reason, error) { return r.deploy(ctx, objects()) }
	}
	ofStore := func() []client.Object {
		objects := []client.Object{plane.ExposedService()}   // begin applies it
		if store.isPast() || store.wantedExternal() != nil { // they are not applied over those of another one
			return objects
		}
		return append(plane.Etcd(store.state), objects...)
	}
	servers := func() []client.Object { return plane.APIServer(members) }
	return []stage{
		{tenancyv1alpha1.ConditionEtcdReady, controlplane.Etcd, storePeriod, ofStore, store.make},
		{tenancyv1alpha1.ConditionAPIServerReady, controlplane.APIServer, patrolPeriod, servers, deployed(servers)},
		{tenancyv1alpha1.ConditionControllerManagerReady, controlplane.ControllerManager, patrolPeriod, plane.ControllerManager, deployed(plane.ControllerManager)},
	}
}

// begin applies the Service of the API servers, if the meta cluster takes that and all parts that are to be made or
// changed. It returns why it does not. The Service comes first, as nothing else tells whether its node port is free.
func (r *Reconciler) begin(ctx context.Context, plane *controlplane.ControlPlane, stages []stage) (string, error) {
	if why := r.refused(ctx, stages); why != "" {
		return why, nil
	}
	_, err := r.objects().Apply(ctx, plane.ExposedService())
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) { // by a quota, or a webhook
		return err.Error(), nil
	}
	return "", err
}

// refused returns why the meta cluster refuses something of the first stage that is to be applied now, or of one after
// it, "" where it takes all or the first one has nothing to apply. Nothing is written. What else may be wrong is said
// when it is applied.
func (r *Reconciler) refused(ctx context.Context, stages []stage) string {
	for at, stage := range stages {
		hasNew := false
		for _, object := range stage.objects() {
			isNew, why := r.objects().Refused(ctx, object)
			if why != "" {
				return why
			}
			hasNew = hasNew || isNew
		}
		if at == 0 && !hasNew {
			break
		}
	}
	return ""
}

// deploy applies the objects of a stage, one of which is a Deployment, and returns what it waits for then.
func (r *Reconciler) deploy(ctx context.Context, wanted []client.Object) (why tenancy.Reason, err error) {
	for _, object := range wanted {
		live, err := r.objects().Apply(ctx, object)
		if err != nil {
			return tenancy.Reason{}, err
		}
		if deployment, is := live.(*appsv1.Deployment); is {
			why = lacks(deployment, objects.ReplicasOf(object.(*appsv1.Deployment).Spec.Replicas)) //nolint:forcetypeassert // of one kind
		}
	}
	return why, nil
}

// preflight returns why a control plane cannot become what is wanted now, the zero Reason when it can.
func preflight(store *store) tenancy.Reason {
	why, plane, wanted, pods := "", store.plane, store.wanted(), store.state.Pods
	isExternal, exists := store.state.External != nil, store.told != nil || store.set.ResourceVersion != "" || store.servers.ResourceVersion != ""
	switch {
	case plane.Version.Spec.ExternalEtcd == nil && isExternal:
		why = "the control plane has an external etcd, and keeps it: give externalEtcd"
	case plane.Version.Spec.ExternalEtcd != nil && exists && !isExternal:
		why = "the control plane has an etcd of its own, and keeps it: give etcd"
	case plane.Version.Spec.ExternalEtcd != nil && plane.Tenant.Status.Version != "" && !isExternal:
		why = fmt.Sprintf("nothing says which etcd the control plane has: restore ConfigMap %s/%s", plane.Namespace, controlplane.Etcd)
	case wanted != 1 && wanted != controlplane.MaxMembers:
		why = fmt.Sprintf("etcd has 1 replica or %d", controlplane.MaxMembers)
	case wanted < pods:
		why = fmt.Sprintf("etcd has %d pods, which do not become fewer: it is to have %d replicas", pods, controlplane.MaxMembers)
	default:
		why = cmp.Or(controlplane.MissingFile(plane.Version), upgradable(store), store.files.lacks)
	}
	if why == "" {
		return tenancy.Reason{}
	}
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf("ClusterVersion %s: %s; what runs goes on", plane.Version.Name, why)}
}

// upgradable returns why a control plane cannot get the version of Kubernetes that is wanted now, "" when it can: up one
// minor version at a time, and up the next one when all parts have this one. A patch may be taken back, and a version
// that never ran. What was restored is of a version of its own, which no part has.
func upgradable(store *store) string {
	plane := store.plane
	all, notYet := version.ParseSemantic(plane.Tenant.Status.Version)
	from, unknown := version.ParseSemantic(store.version())
	if !store.hasServed() && store.state.Generation > 0 {
		all, notYet = from, unknown
	}
	if unknown != nil { // somebody has deleted them
		from, unknown = all, notYet
	}
	to, err := version.ParseSemantic(plane.Version.Spec.KubernetesVersion)
	switch {
	case err != nil:
		return fmt.Sprintf("spec.kubernetesVersion: %v", err)
	case unknown != nil || notYet != nil && store.servers.Status.AvailableReplicas == 0: // no API server has ever run
		return outside(to, skew.Ours()-skew.Minors)
	case sameMinor(to, from):
		return ""
	case to.LessThan(from):
		return fmt.Sprintf("API servers of v%s may have written what those of v%s do not read", from, to)
	case to.Major() != from.Major() || to.Minor() > from.Minor()+1:
		return fmt.Sprintf("from v%s it goes up to v%d.%d first, and not to v%s", from, from.Major(), from.Minor()+1, to)
	case notYet != nil || !sameMinor(all, from):
		return fmt.Sprintf("not all parts have v%s, which comes before v%s: name a version of v%d.%d until they do", from, to, from.Major(), from.Minor())
	}
	return outside(to, 0)
}

// outside says that control planes of a version are not made here, "" where they are. The oldest minor version is that
// of new ones: others go up from where they are.
func outside(to *version.Version, oldest uint) string {
	if newest := skew.Ours() + skew.Minors; to.Major() != 1 || to.Minor() < oldest || to.Minor() > newest {
		return fmt.Sprintf("spec.kubernetesVersion: this vc-manager makes v1.%d to v1.%d, and not v%s", skew.Ours()-skew.Minors, newest, to)
	}
	return ""
}

func sameMinor(a, b *version.Version) bool { return a.Major() == b.Major() && a.Minor() == b.Minor() }

// lacks says what a Deployment waits for, the zero Reason when all its pods are there, as they are to be, and ready.
// wanted is how many it is to have, whoever has scaled it since.
func lacks(deployment *appsv1.Deployment, wanted int32) tenancy.Reason {
	why, status := "", deployment.Status
	pods := fmt.Sprintf("kubectl -n %s get pods -l app.kubernetes.io/name=%s", deployment.Namespace, deployment.Name)
	switch {
	case status.ObservedGeneration < deployment.Generation:
		why = deployment.Name + " was changed just now"
	case status.UpdatedReplicas < wanted:
		why = fmt.Sprintf("%d of %d pods of %s are as they are to be: %s", status.UpdatedReplicas, wanted, deployment.Name, pods)
	case status.AvailableReplicas < wanted:
		why = fmt.Sprintf("%d of %d pods of %s are ready: %s", status.AvailableReplicas, wanted, deployment.Name, pods)
	case status.Replicas > wanted:
		why = fmt.Sprintf("%d pods of %s are about to end", status.Replicas-wanted, deployment.Name)
	default:
		return tenancy.Reason{}
	}
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: why}
}
