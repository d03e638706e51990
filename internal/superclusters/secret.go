package superclusters

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubeconfig"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// kubeconfigSuffix ends the name of Cluster API's kubeconfig Secrets.
	kubeconfigSuffix = "-kubeconfig"
	// demoKubeconfigKey is the data key in a Secret that has the Cluster's own name.
	demoKubeconfigKey = "admin-kubeconfig"
)

// readSecret returns how to reach the super cluster of a Cluster, and the kubeconfig that it was parsed from, or why
// there is none.
func (c *Controller) readSecret(ctx context.Context, cluster types.NamespacedName) (*rest.Config, []byte, tenancy.Reason, error) {
	data, reason, err := c.findKubeconfig(ctx, cluster)
	if err != nil || reason != (tenancy.Reason{}) {
		return nil, nil, reason, err
	}
	config, err := kubeconfig.Parse(data)
	if err != nil {
		return nil, nil, tenancy.Reason{Reason: ReasonInvalidKubeconfig, Message: err.Error()}, nil //nolint:nilerr // a state of the Cluster: no retry mends it
	}
	return config, data, tenancy.Reason{}, nil
}

// findKubeconfig reads either of the two Secrets that may hold the kubeconfig of a Cluster.
func (c *Controller) findKubeconfig(ctx context.Context, cluster types.NamespacedName) ([]byte, tenancy.Reason, error) {
	places := []struct{ secret, key string }{
		{cluster.Name + kubeconfigSuffix, tenancyv1alpha1.DefaultKubeconfigKey},
		{cluster.Name, demoKubeconfigKey},
	}
	var found []string
	for _, place := range places {
		secret := &corev1.Secret{}
		err := c.Reader.Get(ctx, types.NamespacedName{Namespace: cluster.Namespace, Name: place.secret}, secret)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, tenancy.Reason{}, fmt.Errorf("getting Secret %s/%s: %w", cluster.Namespace, place.secret, err)
		}
		if data, exists := secret.Data[place.key]; exists {
			return data, tenancy.Reason{}, nil
		}
		found = append(found, fmt.Sprintf("Secret %s has only the keys %q", place.secret, slices.Sorted(maps.Keys(secret.Data))))
	}
	message := fmt.Sprintf("the kubeconfig is neither in Secret %s, key %s, nor in Secret %s, key %s, of namespace %s",
		places[0].secret, places[0].key, places[1].secret, places[1].key, cluster.Namespace)
	if len(found) > 0 {
		message += ": " + strings.Join(found, "; ")
	}
	return nil, tenancy.Reason{Reason: ReasonSecretNotFound, Message: message}, nil
}

// ofSecret returns the existing Clusters whose kubeconfig may lie in a Secret. Most Secrets of a meta cluster belong to
// no Cluster, and reconciling a name without a Cluster costs live reads.
func (c *Controller) ofSecret(ctx context.Context, secret client.Object) []reconcile.Request {
	kind := c.kind.Load()
	if kind == nil {
		return nil // clusterWatch enqueues every Cluster when it starts
	}
	names := []string{secret.GetName()}
	if name, ok := strings.CutSuffix(secret.GetName(), kubeconfigSuffix); ok && name != "" {
		names = append(names, name)
	}
	var requests []reconcile.Request
	for _, name := range names {
		cluster := &metav1.PartialObjectMetadata{}
		cluster.SetGroupVersionKind(*kind)
		key := types.NamespacedName{Namespace: secret.GetNamespace(), Name: name}
		if err := c.Client.Get(ctx, key, cluster); !apierrors.IsNotFound(err) {
			requests = append(requests, reconcile.Request{NamespacedName: key}) // when the read failed, Reconcile returns the error
		}
	}
	return requests
}
