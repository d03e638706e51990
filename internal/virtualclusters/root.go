package virtualclusters

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsecurity "k8s.io/pod-security-admission/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// RootOwner returns the VirtualCluster that a root namespace was made for, false for any other namespace.
func RootOwner(namespace client.Object) (types.NamespacedName, bool) {
	owner := annotatedOwner(namespace)
	return owner, owner.Name != "" && namespace.GetAnnotations()[tenancyv1alpha1.AnnotationRootNamespace] == "true"
}

// CheckRoot returns why a VirtualCluster has no root namespace that can be used, the zero Reason when it has. What reader
// returns must be up to date.
func CheckRoot(ctx context.Context, reader client.Reader, vc *tenancyv1alpha1.VirtualCluster) (tenancy.Reason, error) {
	key := tenancy.ClusterKey(vc)
	root := &corev1.Namespace{}
	err := reader.Get(ctx, client.ObjectKey{Name: key}, root)
	if apierrors.IsNotFound(err) {
		return waitingForRoot(key), nil
	}
	if err != nil {
		return tenancy.Reason{}, fmt.Errorf("getting the root namespace %s: %w", key, err)
	}
	return rootConflict(vc, root), nil
}

// rootConflict returns why an existing namespace cannot be the root namespace of a VirtualCluster, the zero Reason when
// it is.
func rootConflict(vc *tenancyv1alpha1.VirtualCluster, root *corev1.Namespace) tenancy.Reason {
	var message string
	switch owner := annotatedOwner(root); {
	case ownsRoot(vc, root) && root.DeletionTimestamp.IsZero():
		return tenancy.Reason{}
	case ownsRoot(vc, root):
		message = fmt.Sprintf("Namespace %s is being deleted: vc-scheduler creates it again afterwards", root.Name)
	case owner.Name == "":
		message = fmt.Sprintf("Namespace %s exists and was not made for this VirtualCluster: delete or rename one of them", root.Name)
	default:
		message = fmt.Sprintf("Namespace %s belongs to VirtualCluster %s with UID %s", root.Name, owner,
			root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID])
	}
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonKeyConflict, Message: message}
}

// waitingForRoot is why a VirtualCluster whose root namespace does not exist is not connected.
func waitingForRoot(key string) tenancy.Reason {
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonConnecting, Message: "Waiting for the root namespace " + key}
}

func newRoot(vc *tenancyv1alpha1.VirtualCluster, key string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: key,
		// The pods of vc-manager need no more, and who may make workloads here gets no node by it.
		Labels: map[string]string{podsecurity.EnforceLevelLabel: string(podsecurity.LevelRestricted)},
		Annotations: map[string]string{
			tenancyv1alpha1.AnnotationRootNamespace:           "true",
			tenancyv1alpha1.AnnotationVirtualClusterNamespace: vc.Namespace,
			tenancyv1alpha1.AnnotationVirtualClusterName:      vc.Name,
			tenancyv1alpha1.AnnotationVirtualClusterUID:       string(vc.UID),
		},
	}}
}

func ownsRoot(vc *tenancyv1alpha1.VirtualCluster, root *corev1.Namespace) bool {
	return root.Annotations[tenancyv1alpha1.AnnotationRootNamespace] == "true" &&
		root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID] == string(vc.UID)
}

func annotatedOwner(root client.Object) types.NamespacedName {
	annotations := root.GetAnnotations()
	return types.NamespacedName{
		Namespace: annotations[tenancyv1alpha1.AnnotationVirtualClusterNamespace],
		Name:      annotations[tenancyv1alpha1.AnnotationVirtualClusterName],
	}
}
