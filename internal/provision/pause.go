package provision

import (
	"context"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/provision/stores"
	"github.com/superpool/superpool/internal/tenancy"
)

// pause scales a control plane to nothing, each program when those that ask it have ended. Volumes and all objects stay:
// the stages make of them what was there before. It needs no ClusterVersion.
func (r *Reconciler) pause(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report) error {
	said := "nothing of its control plane runs"
	for _, condition := range conditionTypes {
		if condition != tenancyv1alpha1.ConditionCertificatesValid {
			report.set(condition, tenancy.Reason{Reason: tenancyv1alpha1.ReasonPaused, Message: "It ends with the tenant's pause"})
		}
	}
	waits, err := r.objects().EndAll(ctx, vc.Status.ClusterNamespace)
	if err != nil {
		return err
	}
	if waits != "" {
		said = "waiting for the end of " + waits
	}
	report.set(tenancyv1alpha1.ConditionUpToDate, tenancy.Reason{Reason: tenancyv1alpha1.ReasonPaused, Message: "The tenant is paused: " + said})
	return nil
}

// revive is Revive of a store, with what a report says of it.
func (r *Reconciler) revive(ctx context.Context, store *stores.Store, report *report) error {
	why, isKept, err := store.Revive(ctx)
	if err == nil && isKept {
		report.set(tenancyv1alpha1.ConditionEtcdReady, why)
	}
	return err
}
