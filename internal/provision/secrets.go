package provision

import (
	"context"
	"crypto"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/provision/secrets"
	"github.com/superpool/superpool/internal/provision/stores"
)

// certificates keeps those of one control plane in Secrets of its root namespace. An authority is made before anything
// that it signs: all that runs trusts it, and one that is gone is not made anew. Only rotate replaces one.
type certificates struct {
	*secrets.Keeper
	// pool is the pool's authority, with what identify found wrong with it.
	pool poolAuthority
	// authorities are those of the control plane, by name.
	authorities map[string]*authority
}

// keeper keeps the Secrets of a namespace.
func (r *Reconciler) keeper(namespace string) *secrets.Keeper {
	return &secrets.Keeper{Client: r.Client, Reader: r.Reader, Namespace: namespace, Now: r.Clock.Now()}
}

// keeping returns the certificates of a namespace.
func (r *Reconciler) keeping(ctx context.Context, namespace string) *certificates {
	return &certificates{Keeper: r.keeper(namespace), pool: r.poolAuthority(ctx)}
}

// until returns the time until the first of the certificates is to be made anew, at most so long, and less where somebody
// has to mend something: nobody tells when.
func (s *certificates) until(most time.Duration) time.Duration {
	if s.pool.err != nil {
		most = min(most, mendingPeriod)
	}
	return s.Until(most)
}

// authority returns an authority. It makes one if there is none, and isNew: nothing that one has signed is there.
func (s *certificates) authority(ctx context.Context, name string, isNew bool) (*authority, error) {
	secret, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	var made *pki.Authority
	var pair *pki.Pair
	switch {
	case secret == nil && !isNew:
		return nil, objects.Broken("Secret %s/%s is gone, and all that runs trusts the authority that it held: restore it", s.Namespace, name)
	case secret == nil:
		made, pair, err = s.newAuthority(name)
	case name == controlplane.ServiceAccounts && len(secret.Data[corev1.TLSCertKey]) == 0: // tokens know the key alone
		made, pair, err = s.certified(secret)
	default:
		read, err := readAuthority(secret)
		if err != nil {
			return nil, objects.Broken("Secret %s/%s holds no authority, and all that runs trusts the one that it held: %v", s.Namespace, name, err)
		}
		return read, nil
	}
	if err != nil {
		return nil, err
	}
	return &authority{signs: made}, s.Keep(ctx, name, corev1.SecretTypeTLS, secret, secrets.DataOf(pair))
}

// certified returns the authority of the key of service accounts in a Secret without a certificate.
func (s *certificates) certified(secret *corev1.Secret) (*pki.Authority, *pki.Pair, error) {
	parsed, err := keyutil.ParsePrivateKeyPEM(secret.Data[corev1.TLSPrivateKeyKey])
	key, isKey := parsed.(crypto.Signer)
	if err != nil || !isKey {
		return nil, nil, objects.Broken("Secret %s/%s holds no private key, and all tokens are signed by the one that it held", s.Namespace, secret.Name)
	}
	return s.authorityOf(secret.Name, key, secret.CreationTimestamp.Time)
}

// certificate makes a pair anew when it is due. secret is that of the one that there is, nil for none.
func (s *certificates) certificate(
	ctx context.Context, by *pki.Authority, wanted controlplane.Certificate, secret *corev1.Secret, plane *controlplane.ControlPlane,
) error {
	pair, err := s.Issue(by, wanted.Name, wanted.Wanted, secret)
	if err != nil {
		return err
	}
	data := secrets.DataOf(pair)
	if err := addKubeconfig(data, plane, wanted.Name, pair); err != nil {
		return err
	}
	return s.Keep(ctx, wanted.Name, corev1.SecretTypeTLS, secret, data)
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

// ensure makes all Secrets of a control plane that are missing or due. What is wrong with one authority keeps nobody
// from what others issue.
func (s *certificates) ensure(ctx context.Context, plane *controlplane.ControlPlane, validity time.Duration) error {
	wanted, err := plane.Certificates(validity)
	if err != nil {
		return objects.Broken("%v", err)
	}
	var errs []error
	there, signed := map[string]*corev1.Secret{}, map[string]bool{}
	for i := range wanted {
		secret, err := s.Get(ctx, wanted[i].Name)
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

// renewExternal reads which store a control plane has, and is Join for an external one, with what a report says of it.
// again is shortened to when that certificate is due.
func (r *Reconciler) renewExternal(
	ctx context.Context, plane *controlplane.ControlPlane, kept *certificates, report *report, again *time.Duration,
) (*stores.Record, error) {
	record, err := r.Stores.Record(ctx, plane.Namespace)
	if err == nil {
		err = r.Stores.Join(ctx, plane, record, kept.Keeper)
	}
	if err != nil {
		report.judge(err)
		return nil, err //nolint:wrapcheck // it says what it did
	}
	*again = kept.until(*again)
	report.ends = ptr.To(metav1.NewTime(kept.Ends()))
	return record, nil
}
