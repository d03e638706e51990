package namespaces

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// standing is what the reconciles of the objects in a namespace read of the namespace on either side.
type standing struct {
	// uid is that of the tenant's namespace, "" if there is none.
	uid types.UID
	// superUID is that of the super namespace, "" if there is none. The others are of it: what its API server admits
	// is by level, the Pod Security Standard.
	superUID    types.UID
	owner       tenancy.Owner
	content     assign.Content
	terminating bool
	level       string
}

// standingOf returns the standing of a namespace by the caches. superNamespace is nil if there is none.
func standingOf(env *kind.Env, key engine.Key, superNamespace *corev1.Namespace) standing {
	now := standing{uid: sides{env}.NamespaceUID(key.Tenant, key.Name)}
	if superNamespace != nil {
		now.superUID, now.content, now.terminating = superNamespace.UID, contentOf(superNamespace), superNamespace.DeletionTimestamp != nil
		now.owner, _ = tenancy.GetOwner(superNamespace)
		now.level = superNamespace.Labels[labelPodSecurity]
	}
	return now
}

// standings holds, of each namespace of a tenant, the standing that the objects in it were enqueued for last. A tenant
// may say at any rate that its namespace is gone and back, with all that is in it, so events enqueue the namespace
// alone: its reconcile, which takes of the tenant's share, enqueues the rest. What changes and changes back before the
// reconcile is left to patrol. It is safe for concurrent use.
type standings struct{ engine.Memo[standing] }

func standingsOf(env *kind.Env) *standings { return kind.State[standings](env) }

// changes notes the standing of a namespace, and returns whether it was another one.
func (s *standings) changes(key engine.Key, now standing) (changes bool) {
	s.Update(key, func(before standing, _ bool) (standing, bool) {
		changes = before != now
		return now, now != standing{}
	})
	return changes
}
