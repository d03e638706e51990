package tokens

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// tokenPair is a pod on both sides and its Secret, as the caches show them; nil where there is none.
type tokenPair struct {
	tenant              *kind.Tenant
	key                 engine.Key
	pod                 types.NamespacedName
	owner               tenancy.Owner
	tenantPod, superPod *corev1.Pod
	secret              *corev1.Secret
}

// newTokenPair returns the pair of a key, without its objects.
func newTokenPair(tenant *kind.Tenant, key engine.Key) *tokenPair {
	pod, uid, _ := strings.Cut(key.Name, "/")
	return &tokenPair{
		tenant: tenant, key: key, pod: types.NamespacedName{Namespace: key.Namespace, Name: pod}, owner: tenant.Owner(key.Namespace, types.UID(uid)),
	}
}

// secretName returns the name of the Secret in the super cluster.
func (p *tokenPair) secretName() types.NamespacedName {
	return types.NamespacedName{
		Namespace: tenancy.SuperNamespace(p.key.Tenant, p.key.Namespace), Name: tenancy.TokenSecret(p.pod.Name, p.owner.UID),
	}
}
