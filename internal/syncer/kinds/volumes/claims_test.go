package volumes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/randfill"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/volumes"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// lostMark takes one of our marks off a super claim.
func lostMark(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	delete(claim.Annotations, tenancyv1alpha1.AnnotationUID)
	return claim
}

func deletedClaim(claim *corev1.PersistentVolumeClaim) {
	claim.DeletionTimestamp, claim.Finalizers = ptr.To(metav1.Now()), []string{"kubernetes.io/pvc-protection"}
}

// unused lets the tenant delete a claim with the finalizer of super cluster r1, which nobody else holds.
func unused(claim *corev1.PersistentVolumeClaim) {
	claim.DeletionTimestamp, claim.Finalizers = ptr.To(metav1.Now()), []string{"claim.tenancy.x-k8s.io/r1"}
}

// TestNextClaimStep goes through the table of states.
func TestNextClaimStep(t *testing.T) {
	t.Parallel()
	unknown := func(facts *volumes.ClaimFacts) { facts.Known = false }
	unready := func(facts *volumes.ClaimFacts) { facts.Ready = false }
	whole := func(facts *volumes.ClaimFacts) { facts.Whole = true }
	restores := func(missing string) func(*volumes.ClaimFacts) {
		return func(facts *volumes.ClaimFacts) { facts.Restores, facts.Missing = true, missing }
	}
	givenUp := func(facts *volumes.ClaimFacts) { facts.GivenUp = true }
	classless := func(givenUp bool) func(*volumes.ClaimFacts) {
		return func(facts *volumes.ClaimFacts) { facts.NoClass, facts.GivenUp = "fast", givenUp }
	}
	withVolumes := func(withVolumes ...*corev1.PersistentVolume) func(facts *volumes.ClaimFacts) {
		return func(facts *volumes.ClaimFacts) { facts.Volumes = withVolumes }
	}
	foreign := kindtest.SuperClaim("uid")
	tenancy.SetOwner(foreign, kindtest.ForeignOwners("uid")["another namespace"])
	terminating := kindtest.VolumeFor("uid", "pv")
	terminating.DeletionTimestamp = ptr.To(metav1.Now())
	for _, tc := range []struct {
		name          string
		tenant, super *corev1.PersistentVolumeClaim
		facts         func(facts *volumes.ClaimFacts)
		want          volumes.ClaimStep
		wantVolume    string
	}{
		{name: "nobody has it", want: volumes.ClaimStepForget},
		{name: "without a home", tenant: kindtest.TenantClaim("uid"), want: volumes.ClaimStepNone},
		{name: "without a home, and without a pool", tenant: kindtest.TenantClaim("uid"), facts: whole, want: volumes.ClaimStepCreate},
		{name: "without a home, and without a pool, and it names a volume", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("own")), facts: whole, want: volumes.ClaimStepNone},
		{name: "its home is elsewhere, without a pool", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2")), facts: whole, want: volumes.ClaimStepNone},
		{name: "its home is no super cluster", tenant: kindtest.TenantClaim("uid", kindtest.Home("R 2")), super: kindtest.SuperClaim("uid"), want: volumes.ClaimStepSync},
		{name: "its home is here", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), want: volumes.ClaimStepCreate},
		{name: "its home is here, where the namespace is not ready", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), facts: unready, want: volumes.ClaimStepNone},
		{name: "its home is elsewhere", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2")), want: volumes.ClaimStepNone},
		{name: "its home is here, and it is being deleted", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), deletedClaim), want: volumes.ClaimStepNone},
		{name: "its home is here, and it names a volume", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.BoundTo("own")), want: volumes.ClaimStepNone},
		{name: "its snapshot is here", tenant: kindtest.TenantClaim("uid"), facts: restores(""), want: volumes.ClaimStepChoose},
		{name: "its snapshot is here, and so is its home", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), facts: restores(""), want: volumes.ClaimStepCreate},
		{name: "its snapshot is elsewhere", tenant: kindtest.TenantClaim("uid"), facts: restores("VolumeSnapshot s"), want: volumes.ClaimStepNone},
		{name: "its snapshot is here, and its home elsewhere", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2")), facts: restores(""), want: volumes.ClaimStepNone},
		{name: "its snapshot is elsewhere, and its home here", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), facts: restores("VolumeSnapshot s"), want: volumes.ClaimStepWarnSource},
		{
			name: "its snapshot is nowhere, without a pool", tenant: kindtest.TenantClaim("uid"), want: volumes.ClaimStepWarnSource,
			facts: func(facts *volumes.ClaimFacts) {
				facts.Restores, facts.Missing, facts.Whole = true, "VolumeSnapshot s", true
			},
		},
		{name: "given up", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.Witnessed), facts: givenUp, want: volumes.ClaimStepTakeBack},
		{name: "given up, and its class is gone", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), facts: classless(true), want: volumes.ClaimStepTakeBack},
		{name: "given up, and taken back", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), want: volumes.ClaimStepNone, facts: func(facts *volumes.ClaimFacts) { facts.GivenUp, facts.TakenBack = true, true }},
		{name: "given up, and its namespace is not ready", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), want: volumes.ClaimStepTakeBack, facts: func(facts *volumes.ClaimFacts) { facts.GivenUp, facts.Ready = true, false }},
		{name: "given up, and deleted", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), unused), facts: givenUp, want: volumes.ClaimStepRelease},
		{name: "its namespace leaves", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), want: volumes.ClaimStepTakeBack, facts: func(facts *volumes.ClaimFacts) { facts.Leaves, facts.Ready = true, false }},
		{name: "its namespace leaves, and it is there without a volume", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), super: kindtest.SuperClaim("uid"), want: volumes.ClaimStepDelete, facts: func(facts *volumes.ClaimFacts) { facts.Leaves = true }},
		{name: "its namespace leaves, and it has a volume", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepSync, facts: func(facts *volumes.ClaimFacts) { facts.Leaves = true }},
		{name: "its class is gone", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), facts: classless(false), want: volumes.ClaimStepWarnClass},
		{name: "its class is gone, and it exists", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), super: kindtest.SuperClaim("uid"), facts: classless(false), want: volumes.ClaimStepSync},
		{name: "its class is gone, it exists, and is given up", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), super: kindtest.SuperClaim("uid"), facts: classless(true), want: volumes.ClaimStepGiveUp},
		{name: "its class is gone, and it is bound", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), facts: classless(true), want: volumes.ClaimStepSync},
		{name: "its snapshot is elsewhere, and it exists", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), super: kindtest.SuperClaim("uid"), facts: restores("VolumeSnapshot s"), want: volumes.ClaimStepSync},
		{name: "bound here, and the super claim is lost", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.BoundTo("r1.pv")), want: volumes.ClaimStepNone},
		{
			name: "bound here, and the super claim is lost, not the volume", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.BoundTo("r1.pv")),
			facts: withVolumes(kindtest.VolumeFor("uid", "pv")), want: volumes.ClaimStepRemoveVolume, wantVolume: "r1.pv",
		},

		{name: "made here", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), super: kindtest.SuperClaim("uid"), want: volumes.ClaimStepSync},
		{name: "made here, and the tenant took the home off", tenant: kindtest.TenantClaim("uid"), super: kindtest.SuperClaim("uid"), want: volumes.ClaimStepSync},
		{name: "made here, and the tenant wants another home", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2")), super: kindtest.SuperClaim("uid"), want: volumes.ClaimStepDelete},
		{name: "bound in the super cluster", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepSync},
		{name: "bound", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.BoundTo("r1.pv")), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepSync},
		{name: "bound, and the tenant wants another home", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2"), kindtest.BoundTo("r1.pv")), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepSync},
		{name: "bound elsewhere", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.BoundTo("r2.pv")), super: kindtest.SuperClaim("uid"), want: volumes.ClaimStepDelete},
		{name: "bound elsewhere and here", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2"), kindtest.BoundTo("r2.pv")), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepWarnUnused},
		{name: "bound to a volume of the tenant's and here", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("own")), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepWarnUnused},
		{name: "bound elsewhere and here, and gone", super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepKeep},
		{name: "bound elsewhere and here, and deleted", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("r2.pv"), unused), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepDelete},
		{name: "bound here, and the tenant wants another home", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2")), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepSync},
		{
			name: "phase Bound here, and the tenant wants another home", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2")), want: volumes.ClaimStepSync,
			super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv"), func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = "" }),
		},
		{name: "bound to a volume of this super cluster, which has none yet", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv")), super: kindtest.SuperClaim("uid"), want: volumes.ClaimStepSync},
		{name: "made again, and the earlier one is bound", tenant: kindtest.TenantClaim("new", kindtest.Home("r1")), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepKeep},
		{name: "bound to a volume of the tenant's", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.BoundTo("own")), super: kindtest.SuperClaim("uid"), want: volumes.ClaimStepDelete},
		{name: "being deleted", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv"), deletedClaim), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepSync},
		{name: "the super claim is being deleted", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv")), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv"), deletedClaim), want: volumes.ClaimStepNone},
		{name: "deleted, and a pod uses it", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv"), deletedClaim, kindtest.Witnessed), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepSync},
		{name: "deleted", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv"), unused), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepDelete},
		{name: "deleted before it had a volume", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), unused), super: kindtest.SuperClaim("uid"), want: volumes.ClaimStepDelete},
		{name: "deleted, and the super claim is being deleted", tenant: kindtest.TenantClaim("uid", unused), super: kindtest.SuperClaim("uid", deletedClaim), want: volumes.ClaimStepNone},
		{name: "deleted, and nothing is here", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), unused), want: volumes.ClaimStepRelease},
		{name: "deleted, a pod uses it, and nothing is here", tenant: kindtest.TenantClaim("uid", deletedClaim, kindtest.Witnessed), want: volumes.ClaimStepRelease},
		{name: "deleted before the namespace was ready", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), unused), facts: unready, want: volumes.ClaimStepRelease},
		{name: "it has our finalizer, and is to be created", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.Witnessed), want: volumes.ClaimStepCreate},
		{name: "it has our finalizer, and is to be created later", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.Witnessed), facts: unready, want: volumes.ClaimStepNone},
		{name: "it has our finalizer, and went elsewhere before it had a volume", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2"), kindtest.Witnessed), want: volumes.ClaimStepRelease},
		{name: "it has our finalizer, and the super claim was lost", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv"), kindtest.Witnessed), want: volumes.ClaimStepRelease},
		{name: "gone", super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepKeep},
		{name: "gone before it had a volume", super: kindtest.SuperClaim("uid"), want: volumes.ClaimStepDelete},
		{name: "gone, and the super claim is being deleted", super: kindtest.SuperClaim("uid", deletedClaim), want: volumes.ClaimStepNone},
		{name: "gone, or not in the cache", super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), facts: unknown, want: volumes.ClaimStepNone},
		{name: "made again", tenant: kindtest.TenantClaim("new", kindtest.Home("r1")), super: kindtest.SuperClaim("uid"), want: volumes.ClaimStepDelete},
		{name: "the name is another tenant's", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), super: foreign, want: volumes.ClaimStepWarnConflict},
		{name: "the name is another tenant's, and it has our finalizer", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.Witnessed), super: foreign, want: volumes.ClaimStepWarnConflict},
		{name: "the name is another tenant's, and it is deleted", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), unused), super: foreign, want: volumes.ClaimStepRelease},
		{name: "the name is another tenant's, and it went elsewhere", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2"), kindtest.Witnessed), super: foreign, want: volumes.ClaimStepRelease},
		{name: "made again and deleted, and the earlier one is bound", tenant: kindtest.TenantClaim("new", kindtest.Home("r1"), unused), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), want: volumes.ClaimStepRelease},
		{name: "another tenant's alone", super: foreign, want: volumes.ClaimStepNone},

		{name: "its volume is there", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv")), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), facts: withVolumes(kindtest.VolumeFor("uid", "pv")), want: volumes.ClaimStepSync},
		{
			name: "a volume of the claim before is there, too", tenant: kindtest.TenantClaim("uid"), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")),
			facts: withVolumes(kindtest.VolumeFor("uid", "pv"), kindtest.VolumeFor("old", "old")), want: volumes.ClaimStepRemoveVolume, wantVolume: "r1.old",
		},
		{name: "both are gone, its volume is not", facts: withVolumes(kindtest.VolumeFor("uid", "pv")), want: volumes.ClaimStepRemoveVolume, wantVolume: "r1.pv"},
		{
			name: "its volume is not gone, and nobody knows the claim", want: volumes.ClaimStepRemoveVolume, wantVolume: "r1.pv",
			facts: func(facts *volumes.ClaimFacts) {
				facts.Volumes, facts.Known = []*corev1.PersistentVolume{kindtest.VolumeFor("uid", "pv")}, false
			},
		},
		{name: "its volume is being deleted", facts: withVolumes(terminating), want: volumes.ClaimStepForget},
		{
			name: "the volume of another tenant's claim", super: foreign, facts: withVolumes(kindtest.VolumeFor("uid", "pv")),
			want: volumes.ClaimStepRemoveVolume, wantVolume: "r1.pv",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			facts := &volumes.ClaimFacts{SuperCluster: "r1", Owner: kindtest.OwnerOf(""), Known: true, Ready: true}
			if tc.facts != nil {
				tc.facts(facts)
			}
			step, volume := volumes.NextClaimStep(tc.tenant, tc.super, facts)
			require.Equal(t, tc.want.String(), step.String())
			require.Equal(t, tc.wantVolume, ptr.Deref(volume, corev1.PersistentVolume{}).Name)
		})
	}
	require.Equal(t, "unknown", volumes.ClaimStep(-1).String())
}

// TestSuperClaim: what of a tenant's claim goes down.
func TestSuperClaim(t *testing.T) {
	t.Parallel()
	created := &corev1.PersistentVolumeClaim{}
	volumes.SuperClaim(kindtest.TenantClaim("uid", kindtest.BoundTo("own")), created)
	require.Empty(t, cmp.Diff(kindtest.TenantClaim("uid").Spec, created.Spec), "the tenant names no volume")
	require.Empty(t, created.Status)

	existing := kindtest.SuperClaim("uid", kindtest.BoundTo("pv"))
	want := existing.DeepCopy()
	want.Spec.Resources.Requests = builders.Resources("storage", "5Gi")
	volumes.SuperClaim(kindtest.TenantClaim("uid", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Resources.Requests = builders.Resources("storage", "5Gi", "cpu", "1")
		claim.Spec.StorageClassName, claim.Spec.VolumeName = ptr.To("other"), "own"
	}), existing)
	require.Empty(t, cmp.Diff(want, existing), "the size alone is changed")
}

// TestTenantVolume: what the tenant sees of a volume.
func TestTenantVolume(t *testing.T) {
	t.Parallel()
	bound := kindtest.SuperClaim("uid", kindtest.BoundTo("pvc-1"))
	volume := &corev1.PersistentVolume{}
	volumes.TenantVolume(volume, "r1", kindtest.TenantClaim("uid"), bound, corev1.PersistentVolumeReclaimRetain)
	require.Empty(t, cmp.Diff(&corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "r1.pvc-1",
			Labels:      map[string]string{"tenancy.x-k8s.io/virtualvolume": "true", "tenancy.x-k8s.io/superclusterid": "r1"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "tenancy.x-k8s.io/syncer"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: builders.Resources("storage", "2Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: "fast", PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "web", Name: "data", UID: "uid"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/tenancy.x-k8s.io/super-clusters/r1/pvc-1"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "tenancy.x-k8s.io/superclusterid", Operator: corev1.NodeSelectorOpIn, Values: []string{"r1"}}},
			}}}},
		},
	}, volume))

	// The tenant's controller has bound it, the volume has grown, and the tenant has taken our mark off.
	volume.UID, volume.Labels, volume.Spec.ClaimRef.ResourceVersion = "volume-uid", map[string]string{"own": "1"}, "7"
	want := volume.DeepCopy()
	want.Labels = map[string]string{"own": "1", "tenancy.x-k8s.io/virtualvolume": "true", "tenancy.x-k8s.io/superclusterid": "r1"}
	want.Spec.Capacity = builders.Resources("storage", "4Gi")
	bound.Status.Capacity = builders.Resources("storage", "4Gi", "cpu", "1")
	before := volume.Labels
	volumes.TenantVolume(volume, "r1", kindtest.TenantClaim("uid"), bound, "")
	require.Empty(t, cmp.Diff(want, volume))
	require.Equal(t, map[string]string{"own": "1"}, before, "maps of caches are not changed")
}

// TestTenantClaimStatus: sizes and the conditions of a growing volume go up, the tenant's own conditions stay.
func TestTenantClaimStatus(t *testing.T) {
	t.Parallel()
	is := func(kind corev1.PersistentVolumeClaimConditionType, message string) corev1.PersistentVolumeClaimCondition {
		return corev1.PersistentVolumeClaimCondition{Type: kind, Status: corev1.ConditionTrue, Message: message}
	}
	super := kindtest.SuperClaim("uid", kindtest.BoundTo("pv"))
	super.Status.Conditions = []corev1.PersistentVolumeClaimCondition{is("Unknown", ""), is(corev1.PersistentVolumeClaimResizing, strings.Repeat("x", 40000))}
	super.Status.AllocatedResources = builders.Resources("storage", "8Gi")
	super.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": "ControllerResizeInProgress", "other": "x"}
	tenant := kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv"))
	tenant.Status.Capacity = builders.Resources("storage", "1Gi")
	tenant.Status.Conditions = []corev1.PersistentVolumeClaimCondition{is("Own", ""), is(corev1.PersistentVolumeClaimFileSystemResizePending, "")}
	volumes.TenantClaimStatus(super, tenant)
	require.Empty(t, cmp.Diff(builders.Resources("storage", "2Gi"), tenant.Status.Capacity))
	require.Empty(t, cmp.Diff(builders.Resources("storage", "8Gi"), tenant.Status.AllocatedResources))
	require.Equal(t, map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": "ControllerResizeInProgress"}, tenant.Status.AllocatedResourceStatuses)
	require.Len(t, tenant.Status.Conditions, 2)
	require.EqualValues(t, "Own", tenant.Status.Conditions[0].Type)
	require.Equal(t, corev1.PersistentVolumeClaimResizing, tenant.Status.Conditions[1].Type)
	require.LessOrEqual(t, len(tenant.Status.Conditions[1].Message), tenancy.MaxConditionMessage)
}

// FuzzSuperClaim lets a tenant write anything into a claim. What goes down names no volume, and what the shipped policy
// allows with one class names no other object either.
func FuzzSuperClaim(f *testing.F) {
	f.Add([]byte{}, `{"spec":{"volumeName":"v","dataSource":{"kind":"PersistentVolumeClaim","name":"x"},"selector":{}}}`)
	f.Add([]byte{}, `{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"x"}},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		claim := &corev1.PersistentVolumeClaim{}
		if len(data) > 0 {
			randfill.NewFromGoFuzz(data).NilChance(0.3).NumElements(0, 3).MaxDepth(8).Fill(&claim.Spec)
		}
		if err := json.Unmarshal([]byte(text), claim); err != nil {
			return
		}
		checkSuperClaim(t, claim)
	})
}

// TestSuperClaimOfAnySpec is FuzzSuperClaim with specs that are random and the same every time.
func TestSuperClaimOfAnySpec(t *testing.T) {
	t.Parallel()
	for seed := range int64(200) {
		claim := &corev1.PersistentVolumeClaim{}
		randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).MaxDepth(8).Fill(&claim.Spec)
		checkSuperClaim(t, claim)
	}
}

func checkSuperClaim(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	untouched := claim.DeepCopy()
	created := &corev1.PersistentVolumeClaim{}
	volumes.SuperClaim(claim, created)
	existing := kindtest.SuperClaim("uid", kindtest.BoundTo("pv"))
	volumes.SuperClaim(claim, existing)
	bound := kindtest.SuperClaim("uid", kindtest.BoundTo("pv"))
	bound.Status = claim.Status
	volumes.TenantVolume(&corev1.PersistentVolume{}, "r1", claim, bound, "")
	status := claim.DeepCopy()
	volumes.TenantClaimStatus(bound, status)
	require.Empty(t, cmp.Diff(untouched, claim), "the tenant's claim was changed")
	require.Empty(t, created.Spec.VolumeName)
	require.Equal(t, "pv", existing.Spec.VolumeName)
	require.Equal(t, "fast", *existing.Spec.StorageClassName)
	allows := kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.PersistentVolumeClaims, spec.Pods.StorageClasses = 1, []string{"fast"}
	})
	if refusals := policy.Check(allows, created, policy.Facts{}); len(refusals) == 0 {
		require.Nil(t, created.Spec.DataSource)
		require.Nil(t, created.Spec.DataSourceRef)
		require.Nil(t, created.Spec.Selector)
		require.Equal(t, "fast", *created.Spec.StorageClassName)
	}
}

// TestClaimDeletionsAreProven lets caches show one thing and API servers another: no data is deleted but what both
// agree on.
func TestClaimDeletionsAreProven(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection refused")
	claimed := func(claim *corev1.PersistentVolumeClaim) []client.Object { return []client.Object{claim} }
	foreignClaim := kindtest.SuperClaim("uid")
	tenancy.SetOwner(foreignClaim, kindtest.ForeignOwners("uid")["another namespace"])
	for _, tc := range []struct {
		name string
		// tenant, super and volume are what the caches show.
		tenant, super *corev1.PersistentVolumeClaim
		volume        *corev1.PersistentVolume
		// inTenant and inSuper are what the API servers have. inSuper nil stands for what the cache shows.
		inTenant, inSuper []client.Object
		// otherTenant and otherSuper are whether another control plane answers.
		otherTenant, otherSuper bool
		readErr                 error
		want                    []string
		wantWait, wantKept      bool
		wantEvent               string
	}{
		{name: "an orphan", super: kindtest.SuperClaim("uid"), want: []string{"super data"}},
		{name: "an orphan whose name has another claim", super: kindtest.SuperClaim("uid"), inTenant: claimed(kindtest.TenantClaim("new")), want: []string{"super data"}},
		{name: "a claim that the cache does not show", super: kindtest.SuperClaim("uid"), inTenant: claimed(kindtest.TenantClaim("uid")), wantWait: true},
		{name: "an orphan of which another control plane says so", super: kindtest.SuperClaim("uid"), otherTenant: true, wantWait: true},
		{name: "an orphan of a tenant that does not answer", super: kindtest.SuperClaim("uid"), readErr: broken},
		{
			name: "a claim that is bound elsewhere", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("r2.pv")), super: kindtest.SuperClaim("uid"),
			inTenant: claimed(kindtest.TenantClaim("uid", kindtest.BoundTo("r2.pv"))), want: []string{"super data"},
		},
		{
			name: "a claim that is bound elsewhere and here", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("r2.pv"), kindtest.Witnessed), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")),
			inTenant: claimed(kindtest.TenantClaim("uid", kindtest.BoundTo("r2.pv"), kindtest.Witnessed)), wantEvent: kind.ReasonVolumeUnused,
		},
		{
			name: "a claim that is to go elsewhere, and that the cache does not show to be bound here", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2")), super: kindtest.SuperClaim("uid"),
			inTenant: claimed(kindtest.TenantClaim("uid", kindtest.Home("r2"))), inSuper: claimed(kindtest.SuperClaim("uid", kindtest.BoundTo("pv"))), wantWait: true,
		},
		{
			name: "an orphan that the cache does not show to be bound", super: kindtest.SuperClaim("uid"), inSuper: claimed(kindtest.SuperClaim("uid", kindtest.BoundTo("pv"))),
			wantKept: true,
		},
		{name: "an orphan with a volume", super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), wantKept: true},
		{name: "an orphan with a volume, whose name has another claim", super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), inTenant: claimed(kindtest.TenantClaim("new")), wantKept: true},
		{name: "an orphan with a volume of which another control plane says so", super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")), otherTenant: true, wantWait: true},
		{
			name: "a claim with a volume that the tenant deletes", tenant: kindtest.TenantClaim("uid", unused), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")),
			inTenant: claimed(kindtest.TenantClaim("uid", unused)), want: []string{"super data"},
		},
		{
			name: "a claim with a volume that the tenant deletes and a pod uses, as the cache does not show", tenant: kindtest.TenantClaim("uid", unused), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")),
			inTenant: claimed(kindtest.TenantClaim("uid", deletedClaim, kindtest.Witnessed)), wantWait: true,
		},
		{
			name: "a claim with a volume that was restored while the tenant deleted it", tenant: kindtest.TenantClaim("uid", unused), super: kindtest.SuperClaim("uid", kindtest.BoundTo("pv")),
			inTenant: claimed(kindtest.TenantClaim("uid", kindtest.Witnessed)), wantWait: true,
		},
		{name: "an orphan that is gone", super: kindtest.SuperClaim("uid"), inSuper: []client.Object{}},
		{name: "an orphan that was made again", super: kindtest.SuperClaim("uid"), inSuper: claimed(kindtest.SuperClaim("new")), inTenant: claimed(kindtest.TenantClaim("new")), wantWait: true},
		{name: "an orphan whose name is now another owner's", super: kindtest.SuperClaim("uid"), inSuper: claimed(foreignClaim), wantWait: true},
		{
			name: "a claim that was to go elsewhere, and is bound here", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2")), super: kindtest.SuperClaim("uid"),
			inTenant: claimed(kindtest.TenantClaim("uid", kindtest.Home("r2"), kindtest.BoundTo("r1.pv"))), wantWait: true,
		},
		{name: "a volume whose claims are gone", volume: kindtest.VolumeFor("uid", "pv"), want: []string{"tenant r1.pv"}},
		{name: "a volume whose super claim the cache does not show", volume: kindtest.VolumeFor("uid", "pv"), inSuper: claimed(kindtest.SuperClaim("uid", kindtest.BoundTo("pv"))), wantWait: true},
		{name: "a volume whose super claim was made again", volume: kindtest.VolumeFor("uid", "pv"), inSuper: claimed(kindtest.SuperClaim("new", kindtest.BoundTo("pv"))), want: []string{"tenant r1.pv"}},
		{name: "a volume whose super claim has lost a mark", volume: kindtest.VolumeFor("uid", "pv"), inSuper: claimed(lostMark(kindtest.SuperClaim("uid", kindtest.BoundTo("pv")))), wantWait: true},
		{
			name: "a claim that is to be released, and whose super claim has lost a mark", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), unused),
			inTenant: claimed(kindtest.TenantClaim("uid", kindtest.Home("r1"), unused)), inSuper: claimed(lostMark(kindtest.SuperClaim("uid"))), wantWait: true,
		},
		{name: "a volume of which another super cluster says so", volume: kindtest.VolumeFor("uid", "pv"), otherSuper: true, wantWait: true},
		{
			name: "a volume of a claim that another tenant would be needed for", tenant: kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv")), volume: kindtest.VolumeFor("uid", "pv"),
			inTenant: claimed(kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv"))), want: []string{"tenant r1.pv"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			var deleted []string
			control := func(name string, uid types.UID, readErr error, objects ...client.Object) client.Client {
				return kindtest.Answering(kindtest.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
					Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
						if readErr != nil {
							return readErr
						}
						return inner.Get(ctx, key, object, options...)
					},
					Delete: func(_ context.Context, _ client.WithWatch, object client.Object, options ...client.DeleteOption) error {
						applied := (&client.DeleteOptions{}).ApplyOptions(options)
						require.Equal(t, object.GetUID(), *applied.Preconditions.UID)
						if name == "super" {
							require.Equal(t, "999", *applied.Preconditions.ResourceVersion, "that of the live read")
						}
						deleted = append(deleted, name+" "+object.GetName())
						return nil
					},
				}).Build(), uid)
			}
			inTenant, inSuper := kindtest.TenantUID, kindtest.SuperUID
			if tc.otherTenant {
				inTenant = "other"
			}
			if tc.otherSuper {
				inSuper = "other"
			}
			if tc.inSuper == nil && tc.super != nil {
				tc.inSuper = claimed(tc.super.DeepCopy())
			}
			p.Tenant.Client = control("tenant", inTenant, tc.readErr, tc.inTenant...)
			p.Env.Super = control("super", inSuper, nil, tc.inSuper...)
			if tc.tenant != nil {
				p.TenantCache[kind.Claim] = []client.Object{tc.tenant}
			}
			if tc.super != nil {
				p.SuperCache[kind.Claim] = []client.Object{tc.super}
			}
			if tc.volume != nil {
				p.TenantCache[kind.Volume] = []client.Object{tc.volume}
			}
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Claim, Namespace: "web", Name: "data"}
			require.Contains(t, p.Kind(kind.Claim).Keys(), key)
			_, err := p.Kind(kind.Claim).Reconcile(t.Context(), key, 0)
			wait := &engine.WaitError{}
			require.Equal(t, tc.wantWait, errors.As(err, &wait), "%v", err)
			if !tc.wantWait {
				require.ErrorIs(t, err, tc.readErr)
			}
			require.Equal(t, tc.want, deleted)
			kept := &corev1.PersistentVolumeClaim{}
			require.NoError(t, client.IgnoreNotFound(p.Env.Super.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "data"}, kept)))
			require.Equal(t, tc.wantKept, kept.Labels["tenancy.x-k8s.io/kept"] == "true")
			if tc.wantEvent != "" {
				require.Contains(t, <-p.Events.Events, tc.wantEvent)
			}
		})
	}
}

// claims lets the tenant have a claim, as its cache shows.
func claims(t *testing.T, p *kindtest.Pool, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(claim).Build(), kindtest.TenantUID)
	claimShown(t, p)
}

// claimShown lets the tenant's cache show its claim web/data, and returns that.
func claimShown(t *testing.T, p *kindtest.Pool) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	err := p.Tenant.Client.Get(t.Context(), client.ObjectKey{Namespace: "web", Name: "data"}, claim)
	require.NoError(t, client.IgnoreNotFound(err))
	p.TenantCache[kind.Claim] = nil
	if err == nil {
		p.TenantCache[kind.Claim] = []client.Object{claim}
	}
	return claim
}

// TestAWitnessOfClaims: a claim has our finalizer before the super cluster has anything for it, and until it has
// nothing any more.
func TestAWitnessOfClaims(t *testing.T) {
	t.Parallel()
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Claim, Namespace: "web", Name: "data"}
	super := client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "data"}
	pooled := func(claim *corev1.PersistentVolumeClaim) *kindtest.Pool {
		p := kindtest.Governed(t, interceptor.Funcs{})
		p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Limits.PersistentVolumeClaims, spec.Pods.StorageClasses = 1, []string{"fast"}
			spec.Limits.Storage = resource.MustParse("1Gi")
		}))
		claims(t, p, claim)
		return p
	}
	reconcile := func(p *kindtest.Pool) error {
		_, err := p.Kind(kind.Claim).Reconcile(t.Context(), key, 0)
		return err
	}

	// The tenant has written the claim since, or deleted it: nothing is made.
	p := pooled(kindtest.TenantClaim("uid", kindtest.Home("r1")))
	later := claimShown(t, p).DeepCopy()
	later.Labels = map[string]string{"a": "b"}
	require.NoError(t, p.Tenant.Client.Update(t.Context(), later))
	wait := &engine.WaitError{}
	require.ErrorAs(t, reconcile(p), &wait)
	require.NoError(t, p.Tenant.Client.Delete(t.Context(), later))
	require.ErrorAs(t, reconcile(p), &wait)
	require.True(t, apierrors.IsNotFound(p.SuperClient.Get(t.Context(), super, &corev1.PersistentVolumeClaim{})))

	p = pooled(kindtest.TenantClaim("uid", kindtest.Home("r1")))
	require.NoError(t, reconcile(p))
	made := &corev1.PersistentVolumeClaim{}
	require.NoError(t, p.SuperClient.Get(t.Context(), super, made))
	require.Equal(t, []string{"claim.tenancy.x-k8s.io/r1"}, claimShown(t, p).Finalizers)

	// The tenant deletes it, which holds more than goes down: it stays until the super claim is gone.
	large := claimShown(t, p).DeepCopy()
	large.Labels = map[string]string{}
	for i := range 6000 {
		large.Labels[fmt.Sprintf("key-%d", i)] = "value"
	}
	require.NoError(t, p.Tenant.Client.Update(t.Context(), large))
	require.NoError(t, p.Tenant.Client.Delete(t.Context(), claimShown(t, p)))
	claimShown(t, p)
	require.ErrorAs(t, reconcile(p), &wait, "the cache does not show the super claim")
	p.SuperCache[kind.Claim] = []client.Object{made}
	require.True(t, p.HasData())
	require.NoError(t, reconcile(p))
	require.True(t, apierrors.IsNotFound(p.SuperClient.Get(t.Context(), super, &corev1.PersistentVolumeClaim{})))
	require.NotEmpty(t, claimShown(t, p).UID)
	p.SuperCache[kind.Claim] = nil
	require.True(t, p.HasData(), "a claim waits for this super cluster, whose session must not end")
	released := kind.Change{Kind: kind.Claim, Side: kind.TenantSide, Tenant: kindtest.ClusterKey, Old: claimShown(t, p)}
	require.NoError(t, reconcile(p))
	require.Empty(t, claimShown(t, p).UID)
	require.False(t, p.HasData())
	require.Contains(t, p.Env.Changed(released), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"})

	// The super claim has another owner: it does not hold the tenant's, and stays.
	p = pooled(kindtest.TenantClaim("uid", kindtest.Home("r1"), unused))
	tenancy.SetOwner(made, kindtest.ForeignOwners("uid")["another namespace"])
	made.ResourceVersion = ""
	require.NoError(t, p.SuperClient.Create(t.Context(), made))
	p.SuperCache[kind.Claim] = []client.Object{made}
	require.NoError(t, reconcile(p))
	require.Empty(t, claimShown(t, p).UID)
	require.NoError(t, p.SuperClient.Get(t.Context(), super, made))

	// One from before there were finalizers gets ours, unless it is being deleted.
	p = pooled(kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv")))
	p.SuperCache[kind.Claim] = []client.Object{kindtest.SuperClaim("uid")}
	require.NoError(t, client.IgnoreNotFound(reconcile(p)))
	require.Equal(t, []string{"claim.tenancy.x-k8s.io/r1"}, claimShown(t, p).Finalizers)
}

// TestLostVolumes: a super claim that lost its volume is told of once.
func TestLostVolumes(t *testing.T) {
	t.Parallel()
	p := kindtest.Governed(t, interceptor.Funcs{})
	p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.PersistentVolumeClaims, spec.Pods.StorageClasses = 1, []string{"fast"}
		spec.Limits.Storage = resource.MustParse("1Gi")
	}))
	claims(t, p, kindtest.TenantClaim("uid", kindtest.BoundTo("r1.pv"), kindtest.Witnessed))
	p.SuperCache[kind.Claim] = []client.Object{kindtest.SuperClaim("uid", kindtest.BoundTo("pv"), func(claim *corev1.PersistentVolumeClaim) { claim.Status.Phase = corev1.ClaimLost })}
	require.NoError(t, p.SuperClient.Create(t.Context(), p.SuperCache[kind.Claim][0].DeepCopyObject().(client.Object)))
	for range 3 {
		_, err := p.Kind(kind.Claim).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Claim, Namespace: "web", Name: "data"}, 0)
		require.NoError(t, err)
	}
	told := p.Told()
	require.Len(t, told, 1, "that the super cluster chose a volume is no refusal")
	require.Contains(t, told[0], kind.ReasonVolumeLost)
}

// TestKeptClaims: the operator is told how many a tenant has, however many those are, and the tenant where it has
// another claim of that name.
func TestKeptClaims(t *testing.T) {
	t.Parallel()
	p := kindtest.Governed(t, interceptor.Funcs{})
	meta, clock := record.NewFakeRecorder(10), testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	p.Env.MetaRecorder, p.Env.Clock, p.Env.VirtualNode = meta, clock, func() *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1"}} }
	claims(t, p, kindtest.TenantClaim("new", kindtest.Home("r1")))
	keep := func(count int) {
		p.SuperCache[kind.Claim] = nil
		for i := range count {
			p.SuperCache[kind.Claim] = append(p.SuperCache[kind.Claim], kindtest.SuperClaim("uid", kindtest.BoundTo("pv"), func(claim *corev1.PersistentVolumeClaim) {
				claim.Labels = map[string]string{"tenancy.x-k8s.io/kept": "true"}
				if i > 0 {
					claim.Name = fmt.Sprint("data-", i)
				}
			}))
		}
	}
	reconciler := p.Kind(kind.Claim)
	for _, tc := range []struct {
		name   string
		passes time.Duration
		count  int
		want   string
	}{
		{name: "one", count: 1, want: "Warning ClaimKept 1 of PersistentVolumeClaims with label tenancy.x-k8s.io/cluster=" + kindtest.ClusterKey + " are kept, as "},
		{name: "more, at once", count: 5, passes: time.Second},
		{name: "more, after a minute", count: 5, passes: time.Minute, want: "Warning ClaimKept 5 of "},
		{name: "as many", count: 5, passes: time.Minute},
		{name: "as many, after an hour", count: 5, passes: time.Hour, want: "Warning ClaimKept 5 of "},
	} {
		clock.SetTime(clock.Now().Add(tc.passes))
		keep(tc.count)
		for _, claim := range p.SuperCache[kind.Claim] {
			_, err := reconciler.Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Claim, Namespace: "web", Name: claim.GetName()}, 0)
			require.NoError(t, err)
		}
		if tc.want == "" {
			require.Empty(t, meta.Events, tc.name)
			continue
		}
		require.Len(t, meta.Events, 1, tc.name)
		require.Contains(t, <-meta.Events, tc.want, tc.name)
	}
	told := p.Told()
	require.Len(t, told, 1)
	require.Contains(t, told[0], kind.ReasonConflict)
}

// alone lets a super cluster be the only one.
type alone struct{ assign.Assignments }

func (alone) Whole() bool { return true }

// TestClaimsWithoutAPool: without a pool nobody chooses a home, and claims go down all the same.
func TestClaimsWithoutAPool(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		p := kindtest.Governed(t, interceptor.Funcs{})
		p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Limits.PersistentVolumeClaims, spec.Pods.StorageClasses = 1, []string{"fast"}
			spec.Limits.Storage = resource.MustParse("1Gi")
		}))
		if whole {
			p.Env.Assignments = alone{p.Env.Assignments}
		}
		claims(t, p, kindtest.TenantClaim("uid"))
		_, err := p.Kind(kind.Claim).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Claim, Namespace: "web", Name: "data"}, 0)
		require.NoError(t, err)
		err = p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "data"}, &corev1.PersistentVolumeClaim{})
		require.Equal(t, whole, err == nil, "%v", err)
	}
}

// TestPodsWaitForClaims: no super pod is created before the claims of its tenant pod are there, by their owners.
func TestPodsWaitForClaims(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		tenant   *corev1.PersistentVolumeClaim
		super    *corev1.PersistentVolumeClaim
		wantWait string
	}{
		{name: "no claim", wantWait: "claim data, which does not exist"},
		{name: "not there yet", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), wantWait: "claim data, which is not there yet"},
		{name: "without a home", tenant: kindtest.TenantClaim("uid"), wantWait: "claim data, for which no super cluster is chosen"},
		{name: "elsewhere", tenant: kindtest.TenantClaim("uid", kindtest.Home("r2")), wantWait: "claim data, which is in super cluster r2"},
		{name: "bound elsewhere", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1"), kindtest.BoundTo("r2.pv")), wantWait: "claim data, which is in super cluster r2"},
		{name: "that of an earlier claim", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), super: kindtest.SuperClaim("old"), wantWait: "claim data, which is not there yet"},
		{name: "there", tenant: kindtest.TenantClaim("uid", kindtest.Home("r1")), super: kindtest.SuperClaim("uid")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.Governed(t, interceptor.Funcs{})
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Pods.Volumes = append(spec.Pods.Volumes, "persistentVolumeClaim")
			}))
			pod := kindtest.TenantPod(func(pod *corev1.Pod) {
				pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
				pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
				}}}
			})
			p.TenantCache[kind.Pod] = []client.Object{pod}
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
			if tc.tenant != nil {
				p.TenantCache[kind.Claim] = []client.Object{tc.tenant}
			}
			if tc.super != nil {
				p.SuperCache[kind.Claim] = []client.Object{tc.super}
				require.Contains(t, p.Env.Changed(kind.Change{Kind: kind.Claim, Side: kind.SuperSide, Current: tc.super}), key, "the claim wakes the pod")
			}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
			created := p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: pod.Name}, &corev1.Pod{})
			if tc.wantWait != "" {
				require.ErrorContains(t, err, tc.wantWait)
				require.True(t, apierrors.IsNotFound(created))
				return
			}
			require.NoError(t, err)
			require.NoError(t, created)
		})
	}
}

// TestVolumeOfAnotherClaim: a super claim bound to a volume that another claim has waits, and the tenant is told once.
func TestVolumeOfAnotherClaim(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		ref  *corev1.ObjectReference
		want int
	}{
		{name: "another's", ref: &corev1.ObjectReference{Namespace: "x", Name: "y", UID: "other-uid"}, want: 1},
		{name: "nobody's yet"},
		{name: "about to be bound", ref: &corev1.ObjectReference{Namespace: kindtest.ClusterKey + "-web", Name: "data"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.Governed(t, interceptor.Funcs{})
			p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
				spec.Limits.PersistentVolumeClaims, spec.Pods.StorageClasses = 1, []string{"fast"}
				spec.Limits.Storage = resource.MustParse("1Gi")
			}))
			claims(t, p, kindtest.TenantClaim("uid", kindtest.Witnessed))
			p.SuperCache[kind.Claim] = []client.Object{kindtest.SuperClaim("uid", kindtest.BoundTo("pv"))}
			require.NoError(t, p.SuperClient.Create(t.Context(), p.SuperCache[kind.Claim][0].DeepCopyObject().(client.Object)))
			volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{ClaimRef: tc.ref}}
			require.NoError(t, p.SuperClient.Create(t.Context(), volume))
			wait := &engine.WaitError{}
			for range 3 {
				_, err := p.Kind(kind.Claim).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Claim, Namespace: "web", Name: "data"}, 0)
				require.ErrorAs(t, err, &wait)
			}
			told := p.Told()
			require.Len(t, told, tc.want)
			for _, text := range told {
				require.Contains(t, text, "Conflict Super cluster r1")
				require.NotContains(t, text, "other-uid")
			}
		})
	}
}
