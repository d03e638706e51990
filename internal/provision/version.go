package provision

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/tenancy"
)

// version returns the ClusterVersion that a VirtualCluster names, in the short form, or why there is none. The report says
// what of it is left out.
func (r *Reconciler) version(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report) (*tenancyv1alpha1.ClusterVersion, tenancy.Reason, error) {
	named, why, err := r.readVersion(ctx, vc.Spec.ClusterVersionName)
	if named == nil {
		return nil, why, err
	}
	report.knowsVersion = true
	if !controlplane.IsBundled(named) {
		return named, tenancy.Reason{}, nil
	}
	invalid := func(format string, values ...any) (*tenancyv1alpha1.ClusterVersion, tenancy.Reason, error) {
		return nil, tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf("ClusterVersion %s ", named.Name) + fmt.Sprintf(format, values...) + "; what runs goes on"}, nil
	}
	if r.BaseVersion == "" {
		return invalid("is written as StatefulSets: start vc-manager with --base-cluster-version, the name of one with images")
	}
	base, why, err := r.readVersion(ctx, r.BaseVersion)
	switch {
	case err != nil:
		return nil, why, err
	case base == nil:
		why.Message = fmt.Sprintf("ClusterVersion %s has images of --base-cluster-version of vc-manager: %s", named.Name, why.Message)
		return nil, why, nil
	case base.Spec.ExternalEtcd != nil:
		return invalid("has images of ClusterVersion %s (--base-cluster-version), which has none of etcd", base.Name)
	case controlplane.IsBundled(base):
		return invalid("has images of ClusterVersion %s (--base-cluster-version), which is written as StatefulSets, too", base.Name)
	}
	short, left, err := controlplane.Unbundle(named, base, skew.Ours()-skew.Minors, skew.Ours()+skew.Minors)
	if err != nil {
		return invalid("cannot be read: %v", err)
	}
	why = tenancy.Reason{}
	if len(left) > 0 {
		why = tenancy.Reason{Reason: tenancyv1alpha1.ReasonLeftOut, Message: "Left out of ClusterVersion " + named.Name + ": " + strings.Join(left, "; ")}
	}
	report.set(tenancyv1alpha1.ConditionTranslated, why)
	return short, tenancy.Reason{}, nil
}

// readVersion returns a ClusterVersion, or why there is none.
func (r *Reconciler) readVersion(ctx context.Context, name string) (*tenancyv1alpha1.ClusterVersion, tenancy.Reason, error) {
	version := &tenancyv1alpha1.ClusterVersion{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, version)
	switch {
	case apierrors.IsNotFound(err):
		return nil, tenancy.Reason{Reason: tenancyv1alpha1.ReasonClusterVersionNotFound, Message: fmt.Sprintf(
			"There is no ClusterVersion %s; what runs goes on: kubectl get clusterversions", name)}, nil
	case err != nil:
		return nil, tenancy.Reason{}, fmt.Errorf("getting ClusterVersion %s: %w", name, err)
	}
	return version, tenancy.Reason{}, nil
}
