package stores

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/tenancy"
)

// Obstacle returns why a control plane cannot become what its ClusterVersion says now, the zero Reason when it can.
// Before an upgrade to another minor version it makes a backup, which is an obstacle until it is whole.
func (s *Store) Obstacle(ctx context.Context, backups *Backups) (why tenancy.Reason, err error) {
	if why = s.preflight(); why == (tenancy.Reason{}) {
		why, err = s.movable(ctx)
	}
	if why == (tenancy.Reason{}) && err == nil {
		why, err = backups.beforeUpgrade(ctx)
	}
	return why, err
}

// preflight is Obstacle without what others have to be asked for.
func (s *Store) preflight() tenancy.Reason {
	why, plane, wanted, pods := "", s.plane, s.Members(), s.state.Pods
	isExternal, exists := s.state.External != nil, s.told != nil || s.set.ResourceVersion != "" || s.servers.ResourceVersion != ""
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
		why = cmp.Or(controlplane.MissingFile(plane.Version), s.upgradable(), s.lacks)
	}
	if why == "" {
		return tenancy.Reason{}
	}
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf("ClusterVersion %s: %s; what runs goes on", plane.Version.Name, why)}
}

// upgradable returns why a control plane cannot get the version of Kubernetes that is wanted now, "" when it can: up
// one minor version at a time, and up the next one when all parts have this one. A patch may be taken back, and a
// version that never ran. What was restored is of a version of its own, which no part has.
func (s *Store) upgradable() string {
	plane := s.plane
	all, notYet := version.ParseSemantic(plane.Tenant.Status.Version)
	from, unknown := version.ParseSemantic(s.version())
	if !s.HasServed() && s.state.Generation > 0 {
		all, notYet = from, unknown
	}
	if unknown != nil { // somebody has deleted them
		from, unknown = all, notYet
	}
	to, err := version.ParseSemantic(plane.Version.Spec.KubernetesVersion)
	switch {
	case err != nil:
		return fmt.Sprintf("spec.kubernetesVersion: %v", err)
	case unknown != nil || notYet != nil && s.servers.Status.AvailableReplicas == 0: // no API server has ever run
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

// ChangesMinor reports whether the version of Kubernetes that is wanted is of another minor version than what is
// stored, or one of the two is not known.
func (s *Store) ChangesMinor() bool {
	before, err := version.ParseSemantic(s.version())
	after, others := version.ParseSemantic(s.plane.Version.Spec.KubernetesVersion)
	return err != nil || others != nil || !sameMinor(before, after)
}

// beforeUpgrade returns what an upgrade to another minor version waits for: a backup that is made for it, not older
// than freshTime; any of the store where no member is ready for long, for the upgrade may mend that. None is being made
// then, as it would be one of another version than it says.
func (b *Backups) beforeUpgrade(ctx context.Context) (tenancy.Reason, error) {
	to := b.store.plane.Version.Spec.KubernetesVersion
	if b.store.plane.Version.Spec.Backup == nil || !b.store.HasServed() || !b.store.ChangesMinor() {
		return tenancy.Reason{}, nil
	}
	if !b.runs() {
		hasAny, hasOwn := b.has(to)
		if hasOwn {
			return tenancy.Reason{}, nil
		}
		if _, isDown, err := b.store.readyMember(ctx); err != nil || isDown && hasAny {
			return tenancy.Reason{}, err
		}
	}
	_, why, err := b.makeAt(ctx, b.store.stores.clock.Now(), to)
	if why == (tenancy.Reason{}) && err == nil {
		why = b.waitsFor(&b.made[0])
	}
	why.Message = "A backup comes before the upgrade, unless spec.backup is taken out of the ClusterVersion: " + why.Message
	return why, err
}

// has reports whether there is a backup of a store, and one that was made just now for its upgrade to a version.
func (b *Backups) has(to string) (hasAny, hasOwn bool) {
	for i := range b.made {
		job := &b.made[i]
		became, at := b.outcomeOf(job)
		if became == complete && controlplane.WrittenBy(job) == b.store.version() && controlplane.GenerationOf(job) == b.store.state.Generation {
			hasAny = true
			hasOwn = hasOwn || controlplane.IsBefore(job, to) && b.store.stores.clock.Now().Before(at.Add(freshTime))
		}
	}
	return hasAny, hasOwn
}
