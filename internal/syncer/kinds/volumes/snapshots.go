package volumes

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
	"github.com/superpool/superpool/internal/syncpolicy"
	"github.com/superpool/superpool/internal/tenancy"
)

// snapshotDefinition is the name of the CustomResourceDefinition of VolumeSnapshots.
const snapshotDefinition = "volumesnapshots." + claimhome.SnapshotGroup

// ReasonSnapshotLost: a snapshot that was taken is not in its super cluster any more. Nobody takes it again: it would
// hold other data.
const ReasonSnapshotLost = "SnapshotLost"

// ReasonSnapshotKept: a super snapshot that was taken has no snapshot in its tenant, and nobody has seen the tenant
// delete that. It stays until the operator deletes it in the super cluster. The Event is on the virtual Node, one for
// all of a tenant, with their number.
const ReasonSnapshotKept = "SnapshotKept"

func newSnapshot() *unstructured.Unstructured {
	return kind.UnstructuredOf(claimhome.SnapshotGroup, "v1", "VolumeSnapshot")
}

// snapshots are copied to their home, once their claim is there. Their contents stay in the super cluster: these name
// its disks.
func snapshots() copier.Copy[*unstructured.Unstructured] {
	return copier.Copy[*unstructured.Unstructured]{
		Name: kind.Snapshot, New: newSnapshot, Scope: kind.ScopeTenant,
		Translate: copier.Plain(func(tenantSnapshot, superSnapshot *unstructured.Unstructured) {
			labels := superSnapshot.GetLabels()
			delete(labels, tenancyv1alpha1.LabelKept)
			superSnapshot.SetLabels(labels)
			SuperSnapshot(tenantSnapshot, superSnapshot)
		}),
		Gone: func(ctx context.Context, tenant *kind.Tenant, name types.NamespacedName, live *unstructured.Unstructured, is func() bool) (proof.Proof, bool, error) {
			return kind.LacksOrUnserved(ctx, tenant.ControlPlane(), snapshotDefinition, name, live, is)
		},
	}
}

// SnapshotSpec is that of VolumeSnapshots.
func SnapshotSpec() kind.Spec {
	spec := copier.Spec(snapshots())
	spec.Involved = newSnapshot().GroupVersionKind().GroupKind()
	spec.Aside, spec.Rewatch, spec.Tenant.Optional, spec.Super.Optional = true, true, true, true
	spec.Wanted, spec.Remains, spec.LacksData = wantsSnapshots, (*kind.Env).Witnesses, superLacksSnapshots
	spec.Wakes = map[string]func(*kind.Env, kind.Change) []engine.Key{kind.Claim: claimWakesSnapshots}
	spec.New = func(env *kind.Env) engine.Kind {
		made := &Snapshots{env: env, copier: copier.New(env, snapshots())}
		env.OnForget(made.copier.Forget)
		return made
	}
	return spec
}

// wantsSnapshots returns whether a tenant has to do with snapshots: its policy allows any, or some are here.
func wantsSnapshots(e *kind.Env, tenant *kind.Tenant) bool {
	return len(tenant.Policy.Get().Spec().Offers.VolumeSnapshotClasses) > 0 || len(e.SuperCache.Index(kind.Snapshot, kind.IndexTenant, tenant.Key)) > 0
}

// claimWakesSnapshots enqueues the tenant's snapshots of a super claim that was created.
func claimWakesSnapshots(env *kind.Env, change kind.Change) []engine.Key {
	owner, ours := kind.OwnerOfNew(&change)
	tenant := env.Tenant(owner.ClusterKey)
	if !ours || tenant == nil {
		return nil
	}
	var keys []engine.Key
	for _, object := range tenant.Cache.InNamespace(kind.Snapshot, owner.Namespace) {
		if snapshot, ok := object.(*unstructured.Unstructured); ok && text(snapshot, "spec", "source", "persistentVolumeClaimName") == change.Current.GetName() {
			keys = append(keys, engine.Key{Tenant: owner.ClusterKey, Kind: kind.Snapshot, Namespace: owner.Namespace, Name: snapshot.GetName()})
		}
	}
	return keys
}

// snapshotWakesClaims enqueues the tenant's claims that are to be restored from a snapshot, once that is there, on
// either side.
func snapshotWakesClaims(env *kind.Env, change kind.Change) []engine.Key {
	at, snapshot := change.Tenant, change.Object()
	namespace := snapshot.GetNamespace()
	if change.Side == kind.SuperSide {
		owner, _ := tenancy.GetOwner(snapshot)
		at, namespace = owner.ClusterKey, owner.Namespace
	}
	tenant := env.Tenant(at)
	if tenant == nil || change.Current == nil || change.Old != nil && change.Old != change.Current {
		return nil
	}
	var keys []engine.Key
	for _, object := range tenant.Cache.InNamespace(kind.Claim, namespace) {
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok && claim.Spec.VolumeName == "" && claimhome.Snapshot(claim) == snapshot.GetName() {
			keys = append(keys, engine.Key{Tenant: at, Kind: kind.Claim, Namespace: namespace, Name: claim.Name})
		}
	}
	return keys
}

// missingSnapshot says that a snapshot of a tenant is not in this super cluster, "" if it is. synced is false if a
// cache may yet show it.
func missingSnapshot(e *kind.Env, tenant *kind.Tenant, namespace, name string) (missing string, synced bool) {
	_, superSynced := e.SuperCache.Get(kind.Snapshot, tenancy.SuperNamespace(tenant.Key, namespace), name)
	switch {
	case name == "":
		return "", true
	case !wantsSnapshots(e, tenant):
		return fmt.Sprintf("VolumeSnapshot %s: offers.volumeSnapshotClasses of its TenantPolicy allows none", name), superSynced
	}
	tenantSnapshot, exists, synced := kind.Get[*unstructured.Unstructured](tenant.Cache, kind.Snapshot, namespace, name)
	switch {
	case !exists:
		return fmt.Sprintf("VolumeSnapshot %s, which does not exist", name), synced && superSynced
	case !kind.IsDown(e, tenant, kind.Snapshot, tenantSnapshot, name):
		return fmt.Sprintf("VolumeSnapshot %s, which is not there", name), synced && superSynced
	}
	return "", synced && superSynced
}

// text returns the text at a path, "" if there is none.
func text(object *unstructured.Unstructured, path ...string) string {
	found, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
	value, _ := found.(string)
	return value
}

// SuperSnapshot sets the spec of a new superSnapshot to that of tenantSnapshot: that of an existing one cannot change,
// and its class may be the super cluster's default. A content that it names is the policy's to refuse.
func SuperSnapshot(tenantSnapshot, superSnapshot *unstructured.Unstructured) {
	if superSnapshot.GetUID() != "" {
		return
	}
	source, spec := map[string]any{}, map[string]any{}
	for _, field := range [...]string{"persistentVolumeClaimName", "volumeSnapshotContentName"} {
		if name := text(tenantSnapshot, "spec", "source", field); name != "" {
			source[field] = name
		}
	}
	if class := text(tenantSnapshot, "spec", "volumeSnapshotClassName"); class != "" {
		spec["volumeSnapshotClassName"] = class
	}
	spec["source"] = source
	superSnapshot.Object["spec"] = spec
}

// TenantSnapshotStatus sets the status of tenantSnapshot to what it is told of superSnapshot: no content, which the
// tenant does not have, and no more of an error than its words, in which words replaces names of the super cluster.
func TenantSnapshotStatus(superSnapshot, tenantSnapshot *unstructured.Unstructured, words func(string) string) {
	status := map[string]any{}
	from, _, _ := unstructured.NestedMap(superSnapshot.Object, "status")
	if ready, ok := from["readyToUse"].(bool); ok {
		status["readyToUse"] = ready
	}
	for _, field := range [...]string{"creationTime", "restoreSize"} {
		switch value := from[field].(type) {
		case string, int64:
			status[field] = value
		}
	}
	if failure, ok := from["error"].(map[string]any); ok {
		told := map[string]any{}
		if message, ok := failure["message"].(string); ok {
			told["message"] = tenancy.Cut(words(message), tenancy.MaxEventNote)
		}
		if at, ok := failure["time"].(string); ok {
			told["time"] = at
		}
		status["error"] = told
	}
	if len(status) > 0 {
		tenantSnapshot.Object["status"] = status
	}
}

// wasTaken returns whether the status of a tenant's snapshot says that it exists, or has existed.
func wasTaken(tenantSnapshot *unstructured.Unstructured) bool {
	ready, _, _ := unstructured.NestedBool(tenantSnapshot.Object, "status", "readyToUse")
	return ready || text(tenantSnapshot, "status", "creationTime") != ""
}

// Snapshots syncs VolumeSnapshots: down to the home of their claim, and their status up.
type Snapshots struct {
	env    *kind.Env
	copier *copier.Copier[*unstructured.Unstructured]
}

var _ engine.Kind = &Snapshots{}

// Name implements engine.Kind.
func (s *Snapshots) Name() string { return kind.Snapshot }

// Keys implements engine.Kind.
func (s *Snapshots) Keys() []engine.Key { return s.env.Keys(kind.Snapshot) }

// Reconcile implements engine.Kind.
//
//	tenant's snapshot                     super snapshot      what is done
//	none, or another UID                  was taken           keep it: label, Event (live read)
//	none, or another UID                  was not taken       delete it (proof: live read)
//	being deleted, held by syncers alone  exists              delete it (proof: live read)
//	being deleted, held by others         exists              nothing
//	is to be in no super cluster          exists              delete it (proof: live read), by copier
//	has our finalizer, and none is awaited  none of its UID   our finalizer goes (proof: live read)
//	exists                                another owner's     warn, by copier
//	exists                                exists              our finalizer, labels and annotations down, status up
//	its home is another super cluster     -                   nothing
//	was taken, home here                  -                   Event and status that it is lost (live read)
//	was not taken, its claim is here      -                   its home is written, our finalizer, then it is created
//	was not taken, without such a claim   -                   Event
func (s *Snapshots) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	tenant := s.env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil
	}
	superName := types.NamespacedName{Namespace: tenancy.SuperNamespace(key.Tenant, key.Namespace), Name: key.Name}
	tenantSnapshot, _, synced := kind.Get[*unstructured.Unstructured](tenant.Cache, kind.Snapshot, key.Namespace, key.Name)
	superSnapshot, _, superSynced := kind.Get[*unstructured.Unstructured](s.env.SuperCache, kind.Snapshot, superName.Namespace, superName.Name)
	if !synced || !superSynced {
		return 0, nil // session.filled and engine.Patrol enqueue this key again once the caches are synced
	}
	// One that the tenant deletes is let go, whatever it holds.
	if tenantSnapshot != nil && tenantSnapshot.GetDeletionTimestamp() == nil && !s.env.Bounded(tenant, key, tenantSnapshot, policy.ExcessOfEntries(tenantSnapshot)) {
		return 0, nil
	}
	if s.followsOne(tenant, tenantSnapshot, superSnapshot) {
		return 0, s.env.AwaitEnd(tenant, key, tenantSnapshot, waited)
	}
	if copied, err := s.isCopied(ctx, tenant, key, tenantSnapshot, superSnapshot); err != nil || !copied {
		return 0, err
	}
	if _, err := s.copier.Reconcile(ctx, key, waited); err != nil || tenantSnapshot == nil || policy.ExcessOfEntries(tenantSnapshot) != "" {
		return 0, err
	}
	if !isSnapshotFor(tenant, superSnapshot, tenantSnapshot) || superSnapshot.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	desired := tenantSnapshot.DeepCopy()
	TenantSnapshotStatus(superSnapshot, desired, func(message string) string {
		return strings.ReplaceAll(message, superName.Namespace, key.Namespace)
	})
	return 0, s.up(ctx, tenant, tenantSnapshot, desired)
}

// followsOne returns whether a snapshot is to be here once the super snapshot of an earlier one of its name has ended.
// Each may be nil.
func (s *Snapshots) followsOne(tenant *kind.Tenant, tenantSnapshot, superSnapshot *unstructured.Unstructured) bool {
	if tenantSnapshot == nil || superSnapshot == nil || superSnapshot.GetDeletionTimestamp() == nil || tenant.IsFor(superSnapshot, tenantSnapshot) {
		return false
	}
	owner, owned := tenancy.GetOwner(superSnapshot)
	home := tenantSnapshot.GetAnnotations()[schedulerv1alpha1.AnnotationSuperCluster]
	return owned && tenant.Owns(owner, tenantSnapshot.GetNamespace()) && s.isAwaited(tenant, tenantSnapshot) && (home != "" || s.isClaimHere(tenant, tenantSnapshot))
}

// isCopied returns whether what is to be done about a snapshot, nil on a side that has none, is the copier's. It does
// what is not, and what is to be done before.
func (s *Snapshots) isCopied(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantSnapshot, superSnapshot *unstructured.Unstructured) (bool, error) {
	isHere := isSnapshotFor(tenant, superSnapshot, tenantSnapshot)
	switch {
	case !isHere && s.isReleased(tenant, tenantSnapshot):
		return false, s.env.Release(ctx, tenant, kind.Snapshot, snapshotDefinition, tenantSnapshot, newSnapshot())
	case superSnapshot != nil:
		if stays, err := s.stays(ctx, tenant, key, tenantSnapshot, superSnapshot); err != nil || !stays {
			return false, err
		}
	case tenantSnapshot != nil && !kind.IgnoresSync(tenantSnapshot):
		if begins, err := s.begins(ctx, tenant, key, tenantSnapshot); err != nil || !begins {
			return false, err
		}
	}
	if tenantSnapshot == nil || kind.IgnoresSync(tenantSnapshot) || superSnapshot != nil && !isHere {
		return true, nil
	}
	return true, s.env.Adopt(ctx, tenant, kind.Snapshot, tenantSnapshot)
}

// isSnapshotFor is Tenant.IsFor for snapshots, each of which may be nil.
func isSnapshotFor(tenant *kind.Tenant, superSnapshot, tenantSnapshot *unstructured.Unstructured) bool {
	return superSnapshot != nil && tenantSnapshot != nil && tenant.IsFor(superSnapshot, tenantSnapshot)
}

// isReleased returns whether a tenant's snapshot, which may be nil, has our finalizer for nothing, as long as the super
// cluster has nothing for it: it is to have no super snapshot here. Its home is written before our finalizer (begins).
func (s *Snapshots) isReleased(tenant *kind.Tenant, tenantSnapshot *unstructured.Unstructured) bool {
	if tenantSnapshot == nil {
		return false
	}
	home := tenantSnapshot.GetAnnotations()[schedulerv1alpha1.AnnotationSuperCluster]
	return (home != s.env.ID || !s.isAwaited(tenant, tenantSnapshot)) && s.env.Witnesses(tenantSnapshot)
}

// isAwaited returns whether a tenant's snapshot may be to have a super snapshot here.
func (s *Snapshots) isAwaited(tenant *kind.Tenant, tenantSnapshot *unstructured.Unstructured) bool {
	home := tenantSnapshot.GetAnnotations()[schedulerv1alpha1.AnnotationSuperCluster]
	return tenantSnapshot.GetDeletionTimestamp() == nil && !kind.IgnoresSync(tenantSnapshot) && (home == "" || home == s.env.ID) && wantsSnapshots(s.env, tenant)
}

// isClaimHere returns whether the claim of a tenant's snapshot without home is in this super cluster.
func (s *Snapshots) isClaimHere(tenant *kind.Tenant, tenantSnapshot *unstructured.Unstructured) bool {
	missing, here := s.missingClaim(tenant, tenantSnapshot, "")
	return missing == "" && here
}

// stays returns whether a super snapshot is the copier's. One whose tenant's snapshot is missing, nil, replaced or
// being deleted is not: it is deleted, or kept.
func (s *Snapshots) stays(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantSnapshot, superSnapshot *unstructured.Unstructured) (bool, error) {
	owner, owned := tenancy.GetOwner(superSnapshot)
	if !owned || !tenant.Owns(owner, key.Namespace) {
		return true, nil
	}
	if superSnapshot.GetDeletionTimestamp() != nil {
		return false, nil // its end enqueues the key
	}
	found := tenantSnapshot != nil && tenantSnapshot.GetUID() == owner.UID
	becomes := kind.FateOf(tenantSnapshot, found, holdsSnapshot(superSnapshot))
	switch {
	case becomes == kind.FateStays:
		return found && tenantSnapshot.GetDeletionTimestamp() == nil, nil
	case becomes == kind.FateKept && kind.IsKept(superSnapshot):
		if tenantSnapshot != nil {
			s.env.WarnOnce(tenant, key, tenantSnapshot, kind.ReasonConflict, fmt.Sprintf(
				"Super cluster %s keeps an earlier snapshot of this name, whose deletion it has not seen: ask the operator to delete that", s.env.ID))
		}
		s.env.TellKept(key, superSnapshot, ReasonSnapshotKept, "VolumeSnapshot")
		return false, nil
	}
	current, live := newSnapshot(), newSnapshot()
	return false, s.env.End(ctx, tenant, key, snapshotDefinition, current, live, func(found bool, owner tenancy.Owner) kind.Fate {
		return kind.FateOf(live, found && live.GetUID() == owner.UID, holdsSnapshot(current))
	})
}

// holdsSnapshot returns whether a super snapshot has, or had, data.
func holdsSnapshot(superSnapshot *unstructured.Unstructured) bool {
	return text(superSnapshot, "status", "boundVolumeSnapshotContentName") != "" || wasTaken(superSnapshot)
}

// up writes the status of the tenant's snapshot where it differs.
func (s *Snapshots) up(ctx context.Context, tenant *kind.Tenant, tenantSnapshot, desired *unstructured.Unstructured) error {
	if syncpolicy.Equal(tenantSnapshot.Object["status"], desired.Object["status"]) {
		return nil
	}
	patch := client.MergeFromWithOptions(tenantSnapshot, client.MergeFromWithOptimisticLock{})
	return s.env.Done(ctx, kind.Snapshot, "status", client.IgnoreNotFound(tenant.Client.Status().Patch(ctx, desired, patch)))
}

// begins returns whether the snapshot, which has no super snapshot here, is to be taken in this super cluster: its
// claim is here, and the tenant's snapshot names this home. That is written before anything is created, so that a claim
// of the same name elsewhere begins no second one.
func (s *Snapshots) begins(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantSnapshot *unstructured.Unstructured) (bool, error) {
	home := tenantSnapshot.GetAnnotations()[schedulerv1alpha1.AnnotationSuperCluster]
	switch {
	case tenantSnapshot.GetDeletionTimestamp() != nil, home != "" && home != s.env.ID:
		return false, nil
	case home != "" && wasTaken(tenantSnapshot):
		return false, s.lost(ctx, tenant, key, tenantSnapshot)
	case !wantsSnapshots(s.env, tenant):
		return false, nil // it is watched until its finalizer of ours is gone
	}
	placed, err := s.env.NamespacePlaced(ctx, tenant, key.Namespace)
	if err != nil || !placed {
		return false, err
	}
	if _, synced := tenant.Cache.Get(kind.Claim, key.Namespace, ""); !synced {
		return false, nil
	}
	missing, here := s.missingClaim(tenant, tenantSnapshot, home)
	switch {
	case missing != "":
		return false, s.tellMissing(ctx, tenant, key, tenantSnapshot, home, missing)
	case !here:
		return false, nil // the super claim's creation enqueues the key
	case !s.fits(tenant, key, tenantSnapshot):
		return false, nil // the patrol looks again
	case home == "":
		return false, chooseHere(ctx, s.env, tenant, kind.Snapshot, tenantSnapshot)
	}
	return true, nil
}

// snapshotsPerStorage is how often the claims of a namespace may be in its snapshots. These stay when claims go, and
// others may come, and no quota of a super cluster knows their size.
const snapshotsPerStorage = 10

// fits returns whether the snapshots of a super namespace hold no more than their bound together with a new one, and
// otherwise records an Event. Those that begin at the same time are not in each other's sum.
func (s *Snapshots) fits(tenant *kind.Tenant, key engine.Key, tenantSnapshot *unstructured.Unstructured) bool {
	superNamespace := tenancy.SuperNamespace(key.Tenant, key.Namespace)
	sum := s.bytesOfClaim(superNamespace, tenantSnapshot) // its status is the tenant's to write
	for _, object := range s.env.SuperCache.InNamespace(kind.Snapshot, superNamespace) {
		if snapshot, ok := object.(*unstructured.Unstructured); ok {
			sum = min(sum+s.bytes(superNamespace, snapshot), slice.MaxAmount)
		}
	}
	rules := tenant.Policy.Get()
	storage := rules.Spec().Limits.Storage
	if sum <= snapshotsPerStorage*slice.Bytes(storage) {
		return true
	}
	s.env.WarnOnce(tenant, key, tenantSnapshot, kind.ReasonTenantLimit, fmt.Sprintf(
		"Super cluster %s: the snapshots of this namespace would hold %s with this one, and may hold %d times %s, limits.storage of TenantPolicy %s: delete some",
		s.env.ID, resource.NewQuantity(sum, resource.BinarySI), snapshotsPerStorage, storage.String(), rules.Name()))
	return false
}

// bytes returns the size of a super snapshot: that of its claim until it is taken.
func (s *Snapshots) bytes(superNamespace string, snapshot *unstructured.Unstructured) int64 {
	size, _, _ := unstructured.NestedFieldNoCopy(snapshot.Object, "status", "restoreSize")
	switch size := size.(type) {
	case int64:
		return min(max(size, 0), slice.MaxAmount)
	case string:
		if quantity, err := resource.ParseQuantity(size); err == nil {
			return slice.Bytes(quantity)
		}
	}
	return s.bytesOfClaim(superNamespace, snapshot)
}

// bytesOfClaim returns the size of the claim of a snapshot, 0 where that is gone.
func (s *Snapshots) bytesOfClaim(superNamespace string, snapshot *unstructured.Unstructured) int64 {
	claim, exists, _ := kind.Get[*corev1.PersistentVolumeClaim](s.env.SuperCache, kind.Claim, superNamespace, text(snapshot, "spec", "source", "persistentVolumeClaimName"))
	if !exists {
		return 0
	}
	return max(slice.Bytes(claim.Spec.Resources.Requests[corev1.ResourceStorage]), slice.Bytes(claim.Status.Capacity[corev1.ResourceStorage]))
}

// missingClaim says why a snapshot with that home can begin in no super cluster, "" if it can in one; here is whether
// its claim is in this one.
func (s *Snapshots) missingClaim(tenant *kind.Tenant, tenantSnapshot *unstructured.Unstructured, home string) (missing string, here bool) {
	name := text(tenantSnapshot, "spec", "source", "persistentVolumeClaimName")
	tenantClaim, exists, _ := kind.Get[*corev1.PersistentVolumeClaim](tenant.Cache, kind.Claim, tenantSnapshot.GetNamespace(), name)
	switch {
	case wasTaken(tenantSnapshot):
		return "it was taken before, and names no super cluster where it is", false
	case name == "":
		return "it names no claim", false
	case !exists:
		return fmt.Sprintf("claim %s does not exist", name), false
	}
	switch at := claimhome.Of(tenantClaim); {
	case at == "" && !s.env.Assignments.Whole():
		return fmt.Sprintf("claim %s is in no super cluster yet", name), false
	case at != "" && at != s.env.ID && home == s.env.ID:
		return fmt.Sprintf("claim %s is in super cluster %s", name, at), false
	case at != "" && at != s.env.ID:
		return "", false
	}
	return "", kind.IsDown(s.env, tenant, kind.Claim, tenantClaim, name)
}

// tellMissing tells the tenant why a snapshot waits. Of one that has no home, the home of its namespace does, which is
// one.
func (s *Snapshots) tellMissing(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantSnapshot *unstructured.Unstructured, home, missing string) error {
	if home == "" {
		at, err := s.env.Assignments.Home(ctx, key.Tenant, key.Namespace)
		if err != nil {
			return fmt.Errorf("reading the home of namespace %s: %w", key.Namespace, err)
		}
		if at != assign.HomeHere {
			return nil
		}
	}
	wanted := newSnapshot()
	SuperSnapshot(tenantSnapshot, wanted)
	if s.env.Permits(tenant, key, tenantSnapshot, wanted, nil, policy.Facts{}) { // what it forbids, as a content, cannot come
		s.env.WarnOnce(tenant, key, tenantSnapshot, kind.ReasonFailedCreate, fmt.Sprintf("Super cluster %s: the snapshot waits: %s", s.env.ID, missing))
	}
	return nil
}

// chooseHere makes this super cluster the home of a tenant's object, if that is still as the cache has it.
func chooseHere(ctx context.Context, e *kind.Env, tenant *kind.Tenant, kindName string, tenantObject client.Object) error {
	return client.IgnoreNotFound(e.Patch(ctx, tenant, kindName, "choose", tenantObject, func(desired client.Object) {
		annotations := desired.GetAnnotations()
		kind.SetEntry(&annotations, schedulerv1alpha1.AnnotationSuperCluster, e.ID)
		desired.SetAnnotations(annotations)
	}))
}

// lost says in the tenant that a snapshot is gone, after a live read of the super cluster.
func (s *Snapshots) lost(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantSnapshot *unstructured.Unstructured) error {
	if err := s.env.ProveNotHere(ctx, tenant, kind.Snapshot, snapshotDefinition, tenantSnapshot, newSnapshot()); err != nil {
		return err
	}
	message := fmt.Sprintf("The snapshot no longer exists in super cluster %s, and what it held is gone", s.env.ID)
	s.env.WarnOnce(tenant, key, tenantSnapshot, ReasonSnapshotLost, message)
	desired := tenantSnapshot.DeepCopy()
	status, _ := desired.Object["status"].(map[string]any)
	if status == nil {
		return nil
	}
	if text(desired, "status", "error", "message") != message {
		status["error"] = map[string]any{"message": message, "time": s.env.Clock.Now().UTC().Format(time.RFC3339)}
	}
	status["readyToUse"] = false
	return s.up(ctx, tenant, tenantSnapshot, desired)
}

// superLacksSnapshots is Spec.LacksData for snapshots.
func superLacksSnapshots(ctx context.Context, e *kind.Env, namespace string) (proof.Proof, bool, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(newSnapshot().GroupVersionKind())
	proven, lacks, err := e.SuperCluster().LacksAll(ctx, list, client.InNamespace(namespace), client.HasLabels{tenancyv1alpha1.LabelCluster})
	if !apierrors.IsNotFound(err) {
		return proven, lacks, err //nolint:wrapcheck // it names what was read
	}
	return kind.LacksDefinition(ctx, e.SuperCluster(), snapshotDefinition)
}
