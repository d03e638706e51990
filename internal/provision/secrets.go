package provision

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
)

// secrets keeps the certificates of one control plane in Secrets of its root namespace. An authority is made before
// anything that it signs: all that runs trusts it, and one that is gone is not made anew. Only rotate replaces one.
type secrets struct {
	client client.Client
	// reader reads without a cache: Secrets of others are no business of this process.
	reader    client.Reader
	namespace string
	now       time.Time
	// pool is the pool's authority, with what identify found wrong with it.
	pool poolAuthority
	// authorities are those of the control plane, by name.
	authorities map[string]*authority
	// due is when the first of the certificates is to be made anew, and issued when the last one was.
	due, issued time.Time
	// ends is when the first of the certificates ends.
	ends time.Time
}

// secrets returns those of a namespace.
func (r *Reconciler) secrets(ctx context.Context, namespace string) *secrets {
	return &secrets{client: r.Client, reader: r.Reader, namespace: namespace, now: r.Clock.Now(), pool: r.poolAuthority(ctx)}
}

// until returns the time until the first of the certificates is to be made anew, at most so long, and less where somebody
// has to mend something: nobody tells when.
func (s *secrets) until(most time.Duration) time.Duration {
	if s.pool.err != nil {
		most = min(most, mendingPeriod)
	}
	if s.due.IsZero() {
		return most
	}
	return min(most, max(time.Second, s.due.Sub(s.now)))
}

// brokenError is the error for what vc-manager does not replace, because others trust or have made it.
type brokenError struct{ why string }

// Error implements error.
func (e *brokenError) Error() string { return e.why }

// broken returns a brokenError.
func broken(format string, values ...any) error { return &brokenError{fmt.Sprintf(format, values...)} }

// ungrantedError is the error for a namespace whose Secrets vc-manager may not read, not yet or not any more:
// vc-scheduler lets it, in root namespaces and beside VirtualClusters. Once it may read them it may do all that it does
// there.
type ungrantedError struct {
	namespace string
	// err is what the meta cluster answered.
	err error
}

// Error implements error.
func (e *ungrantedError) Error() string {
	return fmt.Sprintf("Waiting for vc-scheduler, which lets vc-manager into namespace %s: %v", e.namespace, e.err)
}

// Unwrap returns what the meta cluster answered.
func (e *ungrantedError) Unwrap() error { return e.err }

// get returns a Secret, nil for none. One that is not vc-manager's is an error.
func (s *secrets) get(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.reader.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err): // no admission is asked of what is read
		return nil, &ungrantedError{s.namespace, err}
	case err != nil:
		return nil, fmt.Errorf("getting Secret %s/%s: %w", s.namespace, name, err)
	case !controlplane.IsManaged(secret):
		return nil, broken("Secret %s/%s is not vc-manager's. If a control plane runs, import it (spec.kubeconfigSecretRef); else rename or delete the Secret", s.namespace, name)
	}
	return secret, nil
}

// create makes a Secret that does not exist. Where another process was faster its own is not used.
func (s *secrets) create(ctx context.Context, name string, kind corev1.SecretType, data map[string][]byte, owners ...metav1.OwnerReference) error {
	secret := &corev1.Secret{Type: kind, Data: data, ObjectMeta: metav1.ObjectMeta{
		Namespace: s.namespace, Name: name, Labels: controlplane.Labels(controlplane.Credentials), OwnerReferences: owners,
	}}
	if err := s.client.Create(ctx, secret); err != nil {
		return fmt.Errorf("creating Secret %s/%s: %w", s.namespace, name, err)
	}
	return nil
}

// update replaces the data and the owners of a Secret if they are others.
func (s *secrets) update(ctx context.Context, secret *corev1.Secret, data map[string][]byte, owners ...metav1.OwnerReference) error {
	if maps.EqualFunc(secret.Data, data, bytes.Equal) && slices.Equal(secret.OwnerReferences, owners) {
		return nil
	}
	changed := secret.DeepCopy()
	changed.Data, changed.OwnerReferences = data, owners
	if err := s.client.Update(ctx, changed); err != nil { // its resource version is that of what was read
		return fmt.Errorf("replacing Secret %s/%s: %w", s.namespace, secret.Name, err)
	}
	return nil
}

// authority returns an authority. It makes one if there is none, and isNew: nothing that one has signed is there.
func (s *secrets) authority(ctx context.Context, name string, isNew bool) (*authority, error) {
	secret, err := s.get(ctx, name)
	if err != nil {
		return nil, err
	}
	var made *pki.Authority
	var pair *pki.Pair
	switch {
	case secret == nil && !isNew:
		return nil, broken("Secret %s/%s is gone, and all that runs trusts the authority that it held: restore it", s.namespace, name)
	case secret == nil:
		made, pair, err = s.newAuthority(name)
	case name == controlplane.ServiceAccounts && len(secret.Data[corev1.TLSCertKey]) == 0: // tokens know the key alone
		made, pair, err = s.certified(secret)
	default:
		read, err := readAuthority(secret)
		if err != nil {
			return nil, broken("Secret %s/%s holds no authority, and all that runs trusts the one that it held: %v", s.namespace, name, err)
		}
		return read, nil
	}
	if err != nil {
		return nil, err
	}
	return &authority{signs: made}, s.keep(ctx, name, corev1.SecretTypeTLS, secret, dataOf(pair))
}

// certified returns the authority of the key of service accounts in a Secret without a certificate.
func (s *secrets) certified(secret *corev1.Secret) (*pki.Authority, *pki.Pair, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(secret.Data[corev1.TLSPrivateKeyKey])
	key, isKey := parsed.(crypto.Signer)
	if err != nil || !isKey {
		return nil, nil, broken("Secret %s/%s holds no private key, and all tokens are signed by the one that it held", s.namespace, secret.Name)
	}
	return s.authorityOf(secret.Name, key, secret.CreationTimestamp.Time)
}

// certificate makes a pair anew when it is due. secret is that of the one that there is, nil for none.
func (s *secrets) certificate(
	ctx context.Context, by *pki.Authority, wanted controlplane.Certificate, secret *corev1.Secret, plane *controlplane.ControlPlane,
) error {
	pair, err := s.issue(by, wanted.Name, wanted.Wanted, secret)
	if err != nil {
		return err
	}
	data := dataOf(pair)
	if err := addKubeconfig(data, plane, wanted.Name, pair); err != nil {
		return err
	}
	return s.keep(ctx, wanted.Name, corev1.SecretTypeTLS, secret, data)
}

// keep creates a Secret, or replaces the one that was read, nil for none.
func (s *secrets) keep(ctx context.Context, name string, kind corev1.SecretType, secret *corev1.Secret, data map[string][]byte, owners ...metav1.OwnerReference) error {
	if secret == nil {
		return s.create(ctx, name, kind, data, owners...)
	}
	return s.update(ctx, secret, data, owners...)
}

// issue returns the pair of a Secret, nil for none, or another one where that is due.
func (s *secrets) issue(by *pki.Authority, name string, wanted pki.Certificate, secret *corev1.Secret) (*pki.Pair, error) {
	pair := &pki.Pair{}
	if secret != nil {
		pair = pairOf(secret)
	}
	at, why := by.Due(pair, wanted, s.now)
	if why != "" {
		var err error
		if pair, err = by.IssueAt(s.now, wanted); err != nil {
			return nil, broken("Certificate %s cannot be issued: %v", name, err)
		}
		if at, why = by.Due(pair, wanted, s.now); why != "" {
			return nil, broken("Certificate %s, issued just now, is none: %s", name, why)
		}
	}
	if s.due.IsZero() || at.Before(s.due) {
		s.due = at
	}
	issued, end := pki.Life(pair)
	if issued.After(s.issued) {
		s.issued = issued
	}
	if s.ends.IsZero() || end.Before(s.ends) {
		s.ends = end
	}
	return pair, nil
}

// addKubeconfig adds what besides a pair lies in the Secret of a user: a kubeconfig. That of the controller manager
// names the files of its pair, so that it reads them again. The administrator's holds its own, once it is known where it
// leads.
func addKubeconfig(data map[string][]byte, plane *controlplane.ControlPlane, user string, pair *pki.Pair) (err error) {
	switch user {
	case controlplane.ManagerUser:
		data[controlplane.KubeconfigKey], err = plane.ManagerKubeconfig()
	case tenancyv1alpha1.SecretAdminKubeconfig:
		if at, _ := plane.Endpoint(); at.URL() != "" {
			data[tenancyv1alpha1.DefaultKubeconfigKey], err = pki.Kubeconfig(plane.Namespace, at.URL(), []byte(plane.Trusted[controlplane.CA]), "kubernetes-admin", pair)
		}
	}
	return err //nolint:wrapcheck // it says what it did
}

// serverOf returns where the kubeconfig in a Secret leads, "" where there is none.
func serverOf(secret *corev1.Secret) string {
	if secret == nil {
		return ""
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[tenancyv1alpha1.DefaultKubeconfigKey])
	if err != nil {
		return ""
	}
	return config.Host
}

func pairOf(secret *corev1.Secret) *pki.Pair {
	return &pki.Pair{Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
}

func dataOf(pair *pki.Pair) map[string][]byte {
	return map[string][]byte{corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key}
}

// ensure makes all Secrets of a control plane that are missing or due. What is wrong with one authority keeps nobody
// from what others issue.
func (s *secrets) ensure(ctx context.Context, plane *controlplane.ControlPlane, validity time.Duration) error {
	wanted, err := plane.Certificates(validity)
	if err != nil {
		return broken("%v", err)
	}
	var errs []error
	there, signed := map[string]*corev1.Secret{}, map[string]bool{}
	for i := range wanted {
		secret, err := s.get(ctx, wanted[i].Name)
		signed[wanted[i].Authority] = signed[wanted[i].Authority] || secret != nil || err != nil
		if err != nil {
			errs = append(errs, err)
			continue
		}
		there[wanted[i].Name] = secret
	}
	s.authorities = map[string]*authority{}
	for _, name := range controlplane.Authorities() {
		users := name
		if name == controlplane.ServiceAccounts { // there are tokens where there are users
			users = controlplane.CA
		}
		read, err := s.authority(ctx, name, !signed[users])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.authorities[name] = read
	}
	s.tellTrusted(plane) // kubeconfigs have it
	if err := errors.Join(errs...); err != nil && !signed[controlplane.CA] {
		return err // the first certificate is signed when all that signs is there
	}
	for i := range wanted {
		secret, read := there[wanted[i].Name]
		if by := s.authorities[wanted[i].Authority]; by != nil && read {
			errs = append(errs, s.certificate(ctx, by.signs, wanted[i], secret, plane))
		}
	}
	s.tellTrusted(plane)
	return errors.Join(errs...)
}
