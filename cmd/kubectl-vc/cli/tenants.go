package cli

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// Named returns how a VirtualCluster is named behind a verb.
func Named(vc *tenancyv1alpha1.VirtualCluster) string { return vc.Name + " -n " + vc.Namespace }

// VirtualCluster returns the one of that name.
func VirtualCluster(ctx context.Context, cluster client.Reader, namespace, name string) (*tenancyv1alpha1.VirtualCluster, error) {
	vc := &tenancyv1alpha1.VirtualCluster{}
	err := cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, vc)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w in namespace %s: kubectl get virtualclusters -A", err, namespace)
	}
	if err != nil {
		return nil, fmt.Errorf("getting the VirtualCluster: %w", err)
	}
	return vc, nil
}

// VirtualClusters returns all of them.
func VirtualClusters(ctx context.Context, cluster client.Reader, options ...client.ListOption) ([]tenancyv1alpha1.VirtualCluster, error) {
	list := &tenancyv1alpha1.VirtualClusterList{}
	if err := cluster.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing VirtualClusters: %w", err)
	}
	return list.Items, nil
}

// RootOf returns the root namespace of a tenant.
func RootOf(vc *tenancyv1alpha1.VirtualCluster) string {
	return cmp.Or(vc.Status.ClusterNamespace, tenancy.ClusterKey(vc))
}

// RootsOf returns the names of tenants by their root namespaces.
func RootsOf(tenants []tenancyv1alpha1.VirtualCluster) map[string]string {
	named := map[string]string{}
	for i := range tenants {
		named[RootOf(&tenants[i])] = client.ObjectKeyFromObject(&tenants[i]).String()
	}
	return named
}
