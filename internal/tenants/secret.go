package tenants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// readSecret returns the kubeconfig of a VirtualCluster, or why there is none.
func (c *Controller) readSecret(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) ([]byte, tenancy.Reason, error) {
	name, keys := SecretOf(vc)
	if name.Namespace == "" {
		return nil, tenancy.Reason{Reason: tenancyv1alpha1.ReasonConnecting, Message: "Waiting for the root namespace"}, nil
	}
	secret := &corev1.Secret{}
	if err := c.Reader.Get(ctx, name, secret); err != nil {
		if !apierrors.IsNotFound(err) {
			return nil, tenancy.Reason{}, fmt.Errorf("getting Secret %s: %w", name, err)
		}
		message := fmt.Sprintf("Secret %s does not exist: it must hold the tenant's kubeconfig in key %q", name, keys[0])
		return nil, tenancy.Reason{Reason: tenancyv1alpha1.ReasonSecretNotFound, Message: message}, nil
	}
	for _, key := range keys {
		if data, exists := secret.Data[key]; exists {
			return data, tenancy.Reason{}, nil
		}
	}
	message := fmt.Sprintf("Secret %s has no key %q, which must hold the tenant's kubeconfig: its keys are %q",
		name, keys[0], slices.Sorted(maps.Keys(secret.Data)))
	return nil, tenancy.Reason{Reason: tenancyv1alpha1.ReasonSecretNotFound, Message: message}, nil
}

// SecretOf returns where a VirtualCluster's kubeconfig lies: the Secret, without a namespace when that is not known
// yet, and the data keys to try.
func SecretOf(vc *tenancyv1alpha1.VirtualCluster) (types.NamespacedName, []string) {
	if ref := vc.Spec.KubeconfigSecretRef; ref != nil {
		key := ref.Key
		if key == "" {
			key = tenancyv1alpha1.DefaultKubeconfigKey
		}
		return types.NamespacedName{Namespace: vc.Namespace, Name: ref.Name}, []string{key}
	}
	return types.NamespacedName{Namespace: vc.Status.ClusterNamespace, Name: tenancyv1alpha1.SecretAdminKubeconfig},
		[]string{tenancyv1alpha1.DefaultKubeconfigKey, tenancyv1alpha1.SecretAdminKubeconfig}
}

// secretIndex is the name of the cache's index of VirtualClusters by their kubeconfig Secret, as <namespace>/<name>.
const secretIndex = "kubeconfigSecret"

// indexSecret is the client.IndexerFunc of secretIndex.
func indexSecret(object client.Object) []string {
	vc, ok := object.(*tenancyv1alpha1.VirtualCluster)
	if !ok {
		return nil
	}
	secret, _ := SecretOf(vc)
	if secret.Namespace == "" {
		return nil // no root namespace yet: the write of status.clusterNamespace is an event of its own
	}
	return []string{secret.String()}
}

// ofSecret returns the VirtualClusters whose kubeconfig lies in a Secret. It reads secretIndex: most Secrets of a meta
// cluster belong to no tenant.
func (c *Controller) ofSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	return ofIndex(ctx, c.Client, secretIndex, client.ObjectKeyFromObject(secret).String())
}

// ofIndex returns the VirtualClusters that an index of the cache has for a value.
func ofIndex(ctx context.Context, reader client.Reader, index, value string) []reconcile.Request {
	var list tenancyv1alpha1.VirtualClusterList
	if err := reader.List(ctx, &list, client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy); err != nil {
		if !errors.Is(err, context.Canceled) {
			klog.FromContext(ctx).Error(err, "Finding VirtualClusters", "index", index, "value", value)
		}
		return nil
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}

// rootIndex is the name of the cache's index of VirtualClusters by their root namespace.
const rootIndex = "rootNamespace"

// indexRoot is the client.IndexerFunc of rootIndex.
func indexRoot(object client.Object) []string {
	vc, ok := object.(*tenancyv1alpha1.VirtualCluster)
	if !ok || vc.Status.ClusterNamespace == "" {
		return nil
	}
	return []string{vc.Status.ClusterNamespace}
}

// OfRoot returns the VirtualCluster of a root namespace, if there is one. It reads an index that Controller gives to
// the manager's cache, whose client reader is.
func OfRoot(ctx context.Context, reader client.Reader, namespace string) []reconcile.Request {
	return ofIndex(ctx, reader, rootIndex, namespace)
}
