package volumes_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/kinds/volumes"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestEveryFieldOfClaimSpecDown holds what becomes of each field of a tenant's claim in its super cluster.
func TestEveryFieldOfClaimSpecDown(t *testing.T) {
	t.Parallel()
	kindtest.EveryField(t, "claim.fields", func(seed int64) (before, after corev1.PersistentVolumeClaimSpec) {
		claim, superClaim := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
		kindtest.Fill(seed, &claim.Spec)
		volumes.SuperClaim(claim, superClaim)
		return claim.Spec, superClaim.Spec
	})
}

// TestEveryFieldOfClaimStatusUp holds what tenants see of each field of the status of a super claim.
func TestEveryFieldOfClaimStatusUp(t *testing.T) {
	t.Parallel()
	kindtest.EveryField(t, "claimstatus.fields", func(seed int64) (before, after corev1.PersistentVolumeClaimStatus) {
		claim, superClaim := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
		kindtest.Fill(seed, &superClaim.Status)
		superClaim.Status.Capacity = builders.Resources("storage", "1Gi", "other", "1")
		superClaim.Status.AllocatedResources = builders.Resources("storage", "2Gi", "other", "1")
		superClaim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: "", "other": ""}
		for i := range superClaim.Status.Conditions[:len(superClaim.Status.Conditions)/2] {
			superClaim.Status.Conditions[i].Type = corev1.PersistentVolumeClaimResizing
		}
		volumes.TenantClaimStatus(superClaim, claim)
		return superClaim.Status, claim.Status
	})
}
