package pods

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// podPair is a pod as the caches of both sides have it, nil where there is none, and the facts about it.
type podPair struct {
	tenant              *kind.Tenant
	key                 engine.Key
	tenantPod, superPod *corev1.Pod
	facts               Facts
	// claimFailed is the reason of failedchoice why the claim that facts.MissingClaim names will not be here, "" for
	// one that waiting may bring.
	claimFailed string
}

// superName returns the name of the super pod.
func (p *podPair) superName() client.ObjectKey {
	return client.ObjectKey{Namespace: tenancy.SuperNamespace(p.key.Tenant, p.key.Namespace), Name: p.key.Name}
}

// owner returns the owner that the super pod of the tenant pod carries.
func (p *podPair) owner() tenancy.Owner {
	return p.tenant.Owner(p.key.Namespace, p.tenantPod.UID)
}
