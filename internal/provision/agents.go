package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/provision/secrets"
)

const (
	// clientCAName is the name of the Secret with the authority of tenants' identities, and servingCAName that of the
	// ConfigMap with the authorities of vn-agents' serving certificates. Both are the operator's.
	clientCAName  = "vn-agent-client-ca"
	servingCAName = "vn-agent-serving-ca"
)

// poolAuthority is by what tenants and vn-agents know each other, as it was read for one reconcile:
//
//	none     neither clients nor err: the pool has no vn-agents
//	good     clients and serving
//	broken   err is a brokenError: the operator has to mend it
//	unknown  err is any other: it could not be read
//
// Nothing waits for a good one: until then a tenant's API server shows what it has.
type poolAuthority struct {
	// clients signs the identities of tenants, and serving has the authorities of vn-agents, in PEM.
	clients *pki.Authority
	serving []byte
	err     error
}

// isNone reports whether there is no authority.
func (p *poolAuthority) isNone() bool { return p.clients == nil && p.err == nil }

// poolAuthority reads the pool's authority.
func (r *Reconciler) poolAuthority(ctx context.Context) poolAuthority {
	if r.AgentsNamespace == "" {
		return poolAuthority{}
	}
	secret, config := &corev1.Secret{}, &corev1.ConfigMap{}
	name := types.NamespacedName{Namespace: r.AgentsNamespace, Name: clientCAName}
	if err := r.Reader.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return poolAuthority{}
		}
		return poolAuthority{err: fmt.Errorf("getting Secret %s: %w", name, err)}
	}
	clients, err := pki.ParseAuthority(secrets.PairOf(secret))
	if err != nil {
		return poolAuthority{err: objects.Broken("Secret %s holds no authority: %v", name, err)}
	}
	name.Name = servingCAName
	if err := r.Reader.Get(ctx, name, config); err != nil {
		if apierrors.IsNotFound(err) {
			return poolAuthority{err: objects.Broken("ConfigMap %s is missing, which holds the authority of vn-agents beside Secret %s", name, clientCAName)}
		}
		return poolAuthority{err: fmt.Errorf("getting ConfigMap %s: %w", name, err)}
	}
	serving, err := pki.Bundle([]byte(config.Data[controlplane.ServingCAKey]))
	if err != nil {
		return poolAuthority{err: objects.Broken("ConfigMap %s holds no certificate in key %s: %v", name, controlplane.ServingCAKey, err)}
	}
	return poolAuthority{clients: clients, serving: serving}
}

// identity returns by what vn-agents know a tenant: its cluster key.
func (r *Reconciler) identity(vc *tenancyv1alpha1.VirtualCluster) pki.Certificate {
	return pki.Certificate{User: vc.Status.ClusterNamespace, Groups: []string{tenancyv1alpha1.OrganisationTenants}, Validity: controlplane.Validity(vc, r.Validity)}
}

// identify keeps the Secret with what a tenant's API server shows to vn-agents, and with their authorities, and returns
// whether there is one. It writes only while the pool's authority is good, and else leaves in s.pool.err what it is
// instead, nil for one that nobody misses.
func (s *certificates) identify(ctx context.Context, name string, wanted pki.Certificate, owners ...metav1.OwnerReference) (bool, error) {
	secret, err := s.Get(ctx, name)
	if foreign := (*objects.BrokenError)(nil); errors.As(err, &foreign) && s.pool.isNone() {
		return false, nil // the name is free for anybody
	}
	if err != nil {
		return false, err
	}
	isThere := secret != nil && len(secret.Data[controlplane.ServingCAKey]) > 0
	if isThere && s.pool.isNone() {
		s.pool.err = objects.Broken("There is no Secret %s any more, which signs what vn-agents know the tenant by: restore it, or delete Secret %s/%s", clientCAName, s.Namespace, name)
	}
	if s.pool.clients == nil {
		return isThere, nil
	}
	var pair *pki.Pair
	if pair, s.pool.err = s.Issue(s.pool.clients, name, wanted, secret); pair == nil { // it has ended
		return isThere, nil
	}
	data := secrets.DataOf(pair)
	data[controlplane.ServingCAKey] = s.pool.serving
	return true, s.Keep(ctx, name, corev1.SecretTypeTLS, secret, data, owners...)
}

// identifyImported keeps what the API server of a tenant that is imported shows to vn-agents, in a Secret beside its
// VirtualCluster. again is shortened to when that is due. There is nothing to say where the pool has no vn-agents.
func (r *Reconciler) identifyImported(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, report *report, again *time.Duration) error {
	kept := r.keeping(ctx, vc.Namespace)
	isThere, err := kept.identify(ctx, vc.Name+tenancyv1alpha1.SuffixAgent, r.identity(vc), ownerOf(vc))
	*again = kept.until(*again)
	if isThere || err != nil || kept.pool.err != nil {
		report.judge(errors.Join(err, kept.pool.err))
	}
	return err
}

// forget deletes the Secret of identifyImported, which a control plane of vc-manager does without. One that vc-manager
// has not made for this VirtualCluster stays.
func (r *Reconciler) forget(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) error {
	secret, name := &corev1.Secret{}, types.NamespacedName{Namespace: vc.Namespace, Name: vc.Name + tenancyv1alpha1.SuffixAgent}
	err := r.Reader.Get(ctx, name, secret)
	if err == nil && controlplane.IsManaged(secret) && slices.Contains(secret.OwnerReferences, ownerOf(vc)) {
		err = r.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Secret %s: %w", name, err)
	}
	return nil
}
