package controlplane

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/test/modcache"
)

// MetaCRDs returns the CRDs of a meta cluster: ours, and Clusters of Cluster API.
func MetaCRDs(ctx context.Context) ([]string, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return MetaCRDsOf(ctx, root)
}

// MetaCRDsOf is MetaCRDs with ours of another source tree: the folder of its go.mod.
func MetaCRDsOf(ctx context.Context, source string) ([]string, error) {
	clusterAPI, err := modcache.Dir(ctx, "sigs.k8s.io/cluster-api")
	if err != nil {
		return nil, fmt.Errorf("looking for the CRDs of Cluster API: %w", err)
	}
	return []string{filepath.Join(source, "manifests", "crds"), filepath.Join(clusterAPI, "core", "config", "crd", "bases", "cluster.x-k8s.io_clusters.yaml")}, nil
}

// Create creates objects one after the other, as far as it comes.
func Create(ctx context.Context, admin client.Client, objects ...client.Object) error {
	for _, object := range objects {
		if err := admin.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// CreateNode creates a Node with its status, as a kubelet would. The status is a patch: controllers write to it
// already.
func CreateNode(ctx context.Context, admin client.Client, node *corev1.Node) error {
	node = node.DeepCopy()
	node.UID = ""
	status := node.Status
	if err := Create(ctx, admin, node); err != nil {
		return err
	}
	created := node.DeepCopy()
	node.Status = status
	if err := admin.Status().Patch(ctx, node, client.MergeFrom(created)); err != nil {
		return fmt.Errorf("writing the status of Node %s: %w", node.Name, err)
	}
	return nil
}
