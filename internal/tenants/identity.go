package tenants

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

const probeTimeout = 10 * time.Second

// otherControlPlane is the error of a kubeconfig that leads elsewhere than before.
type otherControlPlane struct {
	host       string
	vc         types.NamespacedName
	uid, known types.UID
}

func (o otherControlPlane) Error() string {
	return fmt.Sprintf("%s is another control plane: its namespace kube-system has UID %s, and the one before had %s. Nothing of the tenant is touched. "+
		"To let it take the place of the other within two minutes, and remove all that the other runs in super clusters: "+
		`kubectl -n %s patch virtualcluster %s --subresource=status --type=merge -p '{"status":{"controlPlaneUID":null}}'`,
		o.host, o.uid, o.known, o.vc.Namespace, o.vc.Name)
}

// probe returns the UID of a control plane's namespace kube-system, within probeTimeout, which stands for the control plane. Every API server makes that
// namespace, and lets nobody delete it.
func probe(ctx context.Context, config *rest.Config) (types.UID, error) {
	api, err := corev1client.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	// Of the API server's cache: the UID never changes, and nothing of its database is read for it.
	namespace, err := api.Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{ResourceVersion: "0"})
	if err != nil {
		return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return namespace.UID, nil
}

// recognize returns nil when uid stands for the control plane that the tenant has had so far, and otherControlPlane when it does not. Of a
// tenant that has had none it is written down.
func (r *Registry) recognize(ctx context.Context, tenant *Tenant, uid types.UID) error {
	vc := &tenancyv1alpha1.VirtualCluster{}
	if err := r.Client.Get(ctx, tenant.VirtualCluster, vc); err == nil && vc.UID == tenant.UID && vc.Status.ControlPlaneUID == uid {
		return nil
	}
	// The cache does not know it: what is stored counts.
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := r.Reader.Get(ctx, tenant.VirtualCluster, vc); err != nil {
			return fmt.Errorf("getting the VirtualCluster: %w", err)
		}
		switch known := vc.Status.ControlPlaneUID; {
		case vc.UID != tenant.UID:
			return errors.New("the VirtualCluster was made anew")
		case known == uid:
			return nil
		case known != "":
			return otherControlPlane{tenant.Config.Host, tenant.VirtualCluster, uid, known}
		case !r.ReportStatus:
			return errors.New("it is not said yet which control plane is the tenant's")
		}
		before := vc.DeepCopy()
		vc.Status.ControlPlaneUID = uid
		if err := r.Client.Status().Patch(ctx, vc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return err
		}
		if vc.Status.ControlPlaneUID != uid {
			return errors.New("the meta cluster does not keep status.controlPlaneUID: apply the CRDs of this version (kubectl apply -k manifests/crds)")
		}
		return nil
	})
}
