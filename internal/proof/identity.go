package proof

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespaces lists the namespaces of a control plane, as clients of client-go do.
type Namespaces interface {
	List(ctx context.Context, options metav1.ListOptions) (*corev1.NamespaceList, error)
}

// Identify returns the UID of a control plane's namespace kube-system, which identifies it, and the resource version
// that it is at. Every API server creates that namespace, and refuses to delete it. A restored backup, and a copy of
// its etcd, have the same UID.
func Identify(ctx context.Context, namespaces Namespaces) (types.UID, string, error) {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, metav1.NamespaceSystem)
	list, err := namespaces.List(ctx, metav1.ListOptions{FieldSelector: only.String()})
	if err != nil {
		return "", "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	for i := range list.Items {
		if list.Items[i].Name == metav1.NamespaceSystem {
			return list.Items[i].UID, list.ResourceVersion, nil
		}
	}
	return "", "", fmt.Errorf("reading namespace %s: there is none", metav1.NamespaceSystem)
}

// By returns the namespaces that reader reads, which must be without a cache.
func By(reader client.Reader) Namespaces { return namespaces{reader} }

type namespaces struct{ reader client.Reader }

// List implements Namespaces.
func (n namespaces) List(ctx context.Context, options metav1.ListOptions) (*corev1.NamespaceList, error) {
	list := &corev1.NamespaceList{}
	return list, n.reader.List(ctx, list, &client.ListOptions{Raw: &options})
}
