// Package secrets keeps pairs, and what else is secret, in Secrets of the meta cluster.
package secrets

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/objects"
)

// Keeper keeps Secrets of one namespace, for one reconcile. It is for one goroutine.
type Keeper struct {
	Client client.Client
	// Reader reads without a cache: Secrets of others are no business of this process.
	Reader    client.Reader
	Namespace string
	// Now is when certificates are issued that are due then.
	Now time.Time

	// issued is when the last of the certificates was issued that Issue has seen, ends when the first of them ends, and
	// due when the first of them is to be made anew.
	issued, ends, due time.Time
}

// Issued returns when the last of the certificates was issued that Issue has seen, the zero time where it has seen
// none.
func (k *Keeper) Issued() time.Time { return k.issued }

// Ends returns when the first of the certificates ends that Issue has seen, the zero time where it has seen none.
func (k *Keeper) Ends() time.Time { return k.ends }

// Until returns the time until the first of the certificates that Issue has seen is to be made anew: a second at least,
// and at most so long.
func (k *Keeper) Until(most time.Duration) time.Duration {
	if k.due.IsZero() {
		return most
	}
	return min(most, max(time.Second, k.due.Sub(k.Now)))
}

// UngrantedError is the error for a namespace whose Secrets vc-manager may not read, not yet or not any more:
// vc-scheduler lets it, in root namespaces and beside VirtualClusters. Once it may read them it may do all that it does
// there.
type UngrantedError struct {
	namespace string
	// err is what the meta cluster answered.
	err error
}

// Error implements error.
func (e *UngrantedError) Error() string {
	return fmt.Sprintf("Waiting for vc-scheduler, which lets vc-manager into namespace %s: %v", e.namespace, e.err)
}

// Unwrap returns what the meta cluster answered.
func (e *UngrantedError) Unwrap() error { return e.err }

// Get returns a Secret, nil for none. One that is not vc-manager's is a BrokenError, and one that may not be read an
// UngrantedError.
func (k *Keeper) Get(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := k.Reader.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err): // no admission is asked of what is read
		return nil, &UngrantedError{k.Namespace, err}
	case err != nil:
		return nil, fmt.Errorf("getting Secret %s/%s: %w", k.Namespace, name, err)
	case !controlplane.IsManaged(secret) && strings.HasSuffix(name, tenancyv1alpha1.SuffixAgent): // of a tenant that is imported
		return nil, objects.Broken("Secret %s/%s is not vc-manager's, which keeps there what the tenant's API server shows to vn-agents: rename or delete it", k.Namespace, name)
	case !controlplane.IsManaged(secret):
		return nil, objects.Broken("Secret %s/%s is not vc-manager's. If a control plane runs, import it (spec.kubeconfigSecretRef); else rename or delete the Secret", k.Namespace, name)
	}
	return secret, nil
}

// create makes a Secret that does not exist. Where another process was faster its own is not used.
func (k *Keeper) create(ctx context.Context, name string, kind corev1.SecretType, data map[string][]byte, owners ...metav1.OwnerReference) error {
	secret := &corev1.Secret{Type: kind, Data: data, ObjectMeta: metav1.ObjectMeta{
		Namespace: k.Namespace, Name: name, Labels: controlplane.Labels(controlplane.Credentials), OwnerReferences: owners,
	}}
	if err := k.Client.Create(ctx, secret); err != nil {
		return fmt.Errorf("creating Secret %s/%s: %w", k.Namespace, name, err)
	}
	return nil
}

// Update replaces the data and the owners of a Secret if they are others.
func (k *Keeper) Update(ctx context.Context, secret *corev1.Secret, data map[string][]byte, owners ...metav1.OwnerReference) error {
	if maps.EqualFunc(secret.Data, data, bytes.Equal) && slices.Equal(secret.OwnerReferences, owners) {
		return nil
	}
	changed := secret.DeepCopy()
	changed.Data, changed.OwnerReferences = data, owners
	if err := k.Client.Update(ctx, changed); err != nil { // its resource version is that of what was read
		return fmt.Errorf("replacing Secret %s/%s: %w", k.Namespace, secret.Name, err)
	}
	return nil
}

// Keep creates a Secret, or replaces the one that was read, nil for none.
func (k *Keeper) Keep(ctx context.Context, name string, kind corev1.SecretType, secret *corev1.Secret, data map[string][]byte, owners ...metav1.OwnerReference) error {
	if secret == nil {
		return k.create(ctx, name, kind, data, owners...)
	}
	return k.Update(ctx, secret, data, owners...)
}

// Issue returns the pair of a Secret, nil for none, or another one where that is due.
func (k *Keeper) Issue(by *pki.Authority, name string, wanted pki.Certificate, secret *corev1.Secret) (*pki.Pair, error) {
	pair := &pki.Pair{}
	if secret != nil {
		pair = PairOf(secret)
	}
	at, why := by.Due(pair, wanted, k.Now)
	if why != "" {
		var err error
		if pair, err = by.IssueAt(k.Now, wanted); err != nil {
			return nil, objects.Broken("Certificate %s cannot be issued: %v", name, err)
		}
		if at, why = by.Due(pair, wanted, k.Now); why != "" {
			return nil, objects.Broken("Certificate %s, issued just now, is none: %s", name, why)
		}
	}
	if k.due.IsZero() || at.Before(k.due) {
		k.due = at
	}
	issued, end := pki.Life(pair)
	if issued.After(k.issued) {
		k.issued = issued
	}
	if k.ends.IsZero() || end.Before(k.ends) {
		k.ends = end
	}
	return pair, nil
}

// PairOf returns the pair in a Secret of type TLS, which may be none.
func PairOf(secret *corev1.Secret) *pki.Pair {
	return &pki.Pair{Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
}

// DataOf returns what a Secret of type TLS has of a pair.
func DataOf(pair *pki.Pair) map[string][]byte {
	return map[string][]byte{corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key}
}
