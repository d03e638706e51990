package provision

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
)

const (
	// servingCAName is the name of the ConfigMap with the authority of vn-agents' serving certificates, beside the Secret
	// with the authority of tenants' identities (controlplane.VNAgentCA). Both are the operator's.
	servingCAName = "vn-agent-serving-ca"
	// agentSuffix is added to the name of a VirtualCluster that is imported for that of the Secret with what its API
	// server shows to vn-agents.
	agentSuffix = "-vn-agent"
)

// agents are what tenants and vn-agents know each other by.
type agents struct {
	// clients signs the identities of tenants, and serving is the authority of vn-agents, in PEM.
	clients *pki.Authority
	serving []byte
}

// agents returns what the pool's vn-agents are known by, nil where the pool has none.
func (r *Reconciler) agents(ctx context.Context) (*agents, error) {
	if r.AgentsNamespace == "" {
		return nil, nil //nolint:nilnil // none is an answer
	}
	secret := &corev1.Secret{}
	name := types.NamespacedName{Namespace: r.AgentsNamespace, Name: controlplane.VNAgentCA}
	if err := r.Reader.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil //nolint:nilnil // none is an answer
		}
		return nil, fmt.Errorf("getting Secret %s: %w", name, err)
	}
	clients, err := pki.ParseAuthority(pairOf(secret))
	if err != nil {
		return nil, broken("Secret %s holds no authority: %v", name, err)
	}
	serving := &corev1.ConfigMap{}
	name.Name = servingCAName
	if err := r.Reader.Get(ctx, name, serving); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, broken("ConfigMap %s is missing, which holds the authority of vn-agents beside Secret %s", name, controlplane.VNAgentCA)
		}
		return nil, fmt.Errorf("getting ConfigMap %s: %w", name, err)
	}
	authority := []byte(serving.Data[controlplane.ServingCAKey])
	if _, err := certutil.ParseCertsPEM(authority); err != nil {
		return nil, broken("ConfigMap %s holds no certificate in key %s: %v", name, controlplane.ServingCAKey, err)
	}
	return &agents{clients: clients, serving: authority}, nil
}

// identify keeps what the API server of a tenant that is imported shows to vn-agents, in a Secret beside its
// VirtualCluster. again becomes when that is looked at. Where the pool has no vn-agents there is nothing to say.
func (r *Reconciler) identify(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report, again *time.Duration) error {
	if r.AgentsNamespace == "" {
		return nil
	}
	*again = patrolPeriod // nobody tells when the pool has some
	agents, err := r.agents(ctx)
	if agents == nil && err == nil {
		return nil
	}
	if err == nil {
		kept := &secrets{client: r.Client, reader: r.Reader, namespace: vc.Namespace, now: r.Clock.Now(), agents: agents}
		wanted := controlplane.Certificate{Name: vc.Name + agentSuffix, Wanted: controlplane.VNAgentClient(vc.Status.ClusterNamespace)}
		wanted.Wanted.Validity = r.Validity
		err = kept.identity(ctx, wanted, ownerOf(vc))
		*again = kept.until(*again)
	}
	report.judge(err)
	return err
}
