package tenants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/identities"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/tenancy"
)

const probeTimeout = 10 * time.Second

// probe returns the UID and the resource version of a control plane, see proof.Identify, within probeTimeout.
func probe(ctx context.Context, config *rest.Config) (types.UID, string, error) {
	api, err := corev1client.NewForConfig(config)
	if err != nil {
		return "", "", fmt.Errorf("making a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return proof.Identify(ctx, api.Namespaces()) //nolint:wrapcheck // it names what was read
}

// AskVersion is Controller.Version. It asks the control plane, for probeTimeout.
func AskVersion(ctx context.Context, config *rest.Config) (skew.Version, error) {
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return skew.Version{}, fmt.Errorf("making a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	said, err := api.ServerVersionWithContext(ctx)
	if err != nil {
		return skew.Version{}, fmt.Errorf("reading the version: %w", err)
	}
	return skew.Said(said) //nolint:wrapcheck // it says what was read
}

// recognize returns nil when uid identifies the control plane that the tenant has had so far, and a final
// ControlPlaneChanged when it does not. For a tenant that has had none, Lifecycle.Recognize decides. A control plane
// that is somebody else's is a final DuplicateControlPlane.
func (c *Controller) recognize(ctx context.Context, tenant *Tenant, uid types.UID) error {
	vc := &tenancyv1alpha1.VirtualCluster{}
	if err := c.Client.Get(ctx, tenant.VirtualCluster, vc); err == nil && vc.UID == tenant.UID && vc.Status.ControlPlaneUID == uid {
		first, err := c.identities.First(ctx, identities.OfVirtualCluster(vc, uid), uid)
		if first == nil || err != nil {
			return err
		}
	}
	// The cached object has another UID, or none: the stored one counts.
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Reader.Get(ctx, tenant.VirtualCluster, vc); err != nil {
			return fmt.Errorf("getting the VirtualCluster: %w", err)
		}
		switch current := vc.Status.ControlPlaneUID; {
		case vc.UID != tenant.UID:
			return errors.New("the VirtualCluster was deleted and created again")
		case current == uid:
			return c.keep(ctx, tenant, vc, uid)
		case current != "":
			return controlPlaneChanged(tenant, uid, current)
		}
		first, err := c.identities.First(ctx, identities.OfVirtualCluster(vc, uid), uid)
		if err != nil {
			return err
		}
		if first != nil {
			return duplicate(tenant, first)
		}
		if err := c.Lifecycle.Recognize(ctx, vc, uid); err != nil {
			return err
		}
		return c.keep(ctx, tenant, vc, uid) // another may have recorded the UID at the same moment
	})
}

// keep returns nil if the control plane whose UID a VirtualCluster records is its own by live reads, else it withdraws
// the record.
func (c *Controller) keep(ctx context.Context, tenant *Tenant, vc *tenancyv1alpha1.VirtualCluster, uid types.UID) error {
	first, err := c.identities.FirstLive(ctx, identities.OfVirtualCluster(vc, uid), uid)
	if first == nil || err != nil {
		return err
	}
	if err := c.Lifecycle.Withdraw(ctx, vc); err != nil {
		return err
	}
	return duplicate(tenant, first)
}

// duplicate is the error of a kubeconfig that leads to a control plane which is somebody else's.
func duplicate(tenant *Tenant, first *identities.Claim) error {
	message := fmt.Sprintf("%s is %s already. A control plane is one thing: no program of the pool touches it for this VirtualCluster, and nothing of the other changes. %s",
		tenant.Config.Host, first.Holder, first.Ends())
	return &engage.Failure{Final: true, Reason: tenancy.Reason{Reason: tenancyv1alpha1.ReasonDuplicateControlPlane, Message: message}}
}

// controlPlaneChanged is the error of a kubeconfig that leads to another control plane than before.
func controlPlaneChanged(tenant *Tenant, uid, previous types.UID) error {
	message := fmt.Sprintf("%s is another control plane: its namespace kube-system has UID %s, and the one before had %s. vc-scheduler and the syncers leave the tenant's objects as they are. "+
		"To let it take the place of the other within two minutes, and remove all that the other runs in super clusters: "+
		`kubectl -n %s patch virtualcluster %s --subresource=status --type=merge -p '{"status":{"controlPlaneUID":null}}'`,
		tenant.Config.Host, uid, previous, tenant.VirtualCluster.Namespace, tenant.VirtualCluster.Name)
	return &engage.Failure{Final: true, Reason: tenancy.Reason{Reason: tenancyv1alpha1.ReasonControlPlaneChanged, Message: message}}
}
