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
	fields := kindtest.ReadFields(t, "claim.fields")
	for seed := range int64(kindtest.Samples) {
		claim, superClaim := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
		kindtest.Fill(seed, &claim.Spec)
		volumes.SuperClaim(claim, superClaim)
		fields.Pair(claim.Spec, superClaim.Spec)
	}
	kindtest.Check[corev1.PersistentVolumeClaimSpec](t, fields)
}

// TestEveryFieldOfClaimStatusUp holds what tenants see of each field of the status of a super claim.
func TestEveryFieldOfClaimStatusUp(t *testing.T) {
	t.Parallel()
	fields := kindtest.ReadFields(t, "claimstatus.fields")
	for seed := range int64(kindtest.Samples) {
		claim, superClaim := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
		kindtest.Fill(seed, &superClaim.Status)
		superClaim.Status.Capacity = builders.Resources("storage", "1Gi", "other", "1")
		superClaim.Status.AllocatedResources = builders.Resources("storage", "2Gi", "other", "1")
		superClaim.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: "", "other": ""}
		for i := range superClaim.Status.Conditions[:len(superClaim.Status.Conditions)/2] {
			superClaim.Status.Conditions[i].Type = corev1.PersistentVolumeClaimResizing
		}
		volumes.TenantClaimStatus(superClaim, claim)
		fields.Pair(superClaim.Status, claim.Status)
	}
	kindtest.Check[corev1.PersistentVolumeClaimStatus](t, fields)
}
