package provision

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/etcd"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// clearedKeys is how many keys of an external store are deleted at a time, and clearedTimes how often in one reconcile:
	// others use it meanwhile.
	clearedKeys  = 500
	clearedTimes = 20
	// waitsFor is the key of ConfigMap etcd that says why it is there yet, while its root namespace is being deleted.
	waitsFor = "deletion-waits-for"
)

// SharedEtcd asks and changes an external store. See etcd.Shared.
type SharedEtcd interface {
	ID(ctx context.Context) (string, error)
	Admit(ctx context.Context, user, prefix string) error
	Expel(ctx context.Context, user string) error
	Clear(ctx context.Context, prefix string, most int64) (bool, error)
	Close()
}

// DialShared connects to an external store.
func DialShared(endpoints []string, config *tls.Config) (SharedEtcd, error) {
	return etcd.DialShared(endpoints, config) //nolint:wrapcheck // it says what it did
}

// externalAuthorities are who signs the certificates of an external store's users, and, in PEM, who those of its members.
type externalAuthorities struct {
	users   *pki.Authority
	members []byte
}

// externalAuthorities reads those in a Secret of vc-manager's namespace.
func (r *Reconciler) externalAuthorities(ctx context.Context, name string) (*externalAuthorities, error) {
	secret, at := &corev1.Secret{}, types.NamespacedName{Namespace: r.Network.Manager, Name: name}
	err := r.Reader.Get(ctx, at, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, broken("There is no Secret %s, of type %s, which has the authorities of the external etcd: create it", at, controlplane.ExternalSecretType)
	case err != nil:
		return nil, fmt.Errorf("getting Secret %s: %w", at, err)
	case secret.Type != controlplane.ExternalSecretType: // others in that namespace are for something else
		return nil, broken("Secret %s is of type %s: make it anew, of type %s", at, secret.Type, controlplane.ExternalSecretType)
	}
	read := &externalAuthorities{}
	if read.users, err = pki.ParseAuthority(pairOf(secret)); err != nil {
		return nil, broken("Secret %s holds no authority: %v", at, err)
	}
	if read.members, err = bundle(secret.Data[controlplane.ServingCAKey]); err != nil {
		return nil, broken("Secret %s holds no certificate in key %s: %v", at, controlplane.ServingCAKey, err)
	}
	return read, nil
}

// join makes the certificate by which an external store knows a control plane, once ConfigMap etcd names one.
func (r *Reconciler) join(ctx context.Context, plane *controlplane.ControlPlane, kept *secrets) error {
	told, at := &corev1.ConfigMap{}, types.NamespacedName{Namespace: plane.Namespace, Name: controlplane.Etcd}
	if err := r.Reader.Get(ctx, at, told); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("getting ConfigMap %s: %w", at, err)
	}
	external := controlplane.ExternalOf(told)
	if external == nil || !controlplane.IsManaged(told) {
		return nil
	}
	authorities, err := r.externalAuthorities(ctx, external.Secret)
	if err != nil {
		return err
	}
	secret, err := kept.get(ctx, controlplane.ExternalClient)
	if err != nil {
		return err
	}
	wanted := pki.Certificate{User: controlplane.ExternalUser(plane.Tenant.UID), Validity: r.validity(plane.Tenant)}
	pair, err := kept.issue(authorities.users, controlplane.ExternalClient, wanted, secret)
	if err != nil {
		return err
	}
	plane.External, plane.Trusted[controlplane.EtcdCA] = external, string(authorities.members)
	return kept.keep(ctx, controlplane.ExternalClient, corev1.SecretTypeTLS, secret, dataOf(pair))
}

// dialExternal connects to an external store as root.
func (r *Reconciler) dialExternal(ctx context.Context, external *controlplane.External) (SharedEtcd, error) {
	authorities, err := r.externalAuthorities(ctx, external.Secret)
	if err != nil {
		return nil, err
	}
	pair, err := authorities.users.IssueAt(r.Clock.Now(), pki.Certificate{User: etcd.Root, Validity: mendingPeriod})
	if err != nil {
		return nil, broken("Secret %s/%s issues no certificate: %v", r.Network.Manager, external.Secret, err)
	}
	shown, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("reading what was issued just now: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{shown}}
	config.RootCAs.AppendCertsFromPEM(authorities.members)
	return r.DialShared(external.Endpoints, config)
}

// known returns why an external store is not the one whose ID is given, or cannot be used, and that ID where none is given.
func (r *Reconciler) known(ctx context.Context, c SharedEtcd, external *controlplane.External) (id string, why tenancy.Reason) {
	id, err := c.ID(ctx)
	invalid := func(format string, values ...any) (string, tenancy.Reason) {
		return "", tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf(format, values...)}
	}
	at := strings.Join(external.Endpoints, ",")
	switch {
	case errors.Is(err, etcd.ErrOpen):
		return invalid("The external etcd at %s knows no users, and each tenant would read all others: etcdctl user add root --no-password && etcdctl user grant-role root root && etcdctl auth enable", at)
	case errors.Is(err, etcd.ErrNotRoot):
		return invalid("The external etcd at %s does not take what Secret %s/%s signs for user root: it needs --client-cert-auth, and tls.crt of the Secret in --trusted-ca-file", at, r.Network.Manager, external.Secret)
	case err != nil:
		klog.FromContext(ctx).V(1).Info("An external store does not answer", "endpoints", external.Endpoints, "err", err)
		return "", tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf("The external etcd at %s does not answer vc-manager", at)}
	case external.ID != "" && external.ID != id:
		return invalid("At %s is another etcd, of ID %s, than the one with the tenant's objects, of ID %s", at, id, external.ID)
	}
	return id, tenancy.Reason{}
}

// tendExternal lets an external store know the tenant, and returns what it waits for then. What there is to delete later is
// said before it is made.
func (s *store) tendExternal(ctx context.Context, external controlplane.External) (tenancy.Reason, error) {
	if s.told != nil && s.told.DeletionTimestamp != nil {
		return s.waits("ConfigMap etcd is being deleted"), nil
	}
	c, err := s.dialExternal(ctx, &external)
	if err != nil {
		return tenancy.Reason{}, err
	}
	defer c.Close()
	id, why := s.known(ctx, c, &external)
	if why != (tenancy.Reason{}) {
		return why, nil
	}
	external.ID = id
	state := s.state
	state.External, state.Version, state.New = &external, s.version(), false
	if err := s.tell(ctx, state); err != nil {
		return tenancy.Reason{}, err
	}
	uid := s.plane.Tenant.UID
	if err := c.Admit(ctx, controlplane.ExternalUser(uid), controlplane.ExternalPrefix(uid)); err != nil {
		klog.FromContext(ctx).Error(err, "Making a user of an external store", "namespace", s.plane.Namespace)
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "The external etcd does not make the tenant a user yet"}, nil
	}
	if s.plane.External != nil && slices.Equal(s.plane.External.Endpoints, external.Endpoints) && s.plane.External.Secret == external.Secret {
		return tenancy.Reason{}, nil
	}
	return tenancy.Reason{}, s.join(ctx, s.plane, s.secrets(ctx, s.plane.Namespace))
}

// setupExternal adds the controller that releases external stores to a manager.
func (r *Reconciler) setupExternal(mgr manager.Manager) error {
	isDeleted := predicate.NewPredicateFuncs(func(told client.Object) bool {
		return told.GetDeletionTimestamp() != nil && controllerutil.ContainsFinalizer(told, controlplane.FinalizerExternal)
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("external-stores").For(&corev1.ConfigMap{}, builder.WithPredicates(isDeleted)).Complete(reconcile.Func(r.release))
	if err != nil {
		return fmt.Errorf("building the controller of external stores: %w", err)
	}
	return nil
}

// release deletes what is a tenant's in an external store, once the root namespace is being deleted whose ConfigMap names
// the store: its user first, so that nobody writes behind it. Whose it is, the namespace says and no ConfigMap: others may
// write one like it.
func (r *Reconciler) release(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	told, root := &corev1.ConfigMap{}, &corev1.Namespace{}
	err := r.Reader.Get(ctx, request.NamespacedName, told)
	if err == nil {
		err = r.Reader.Get(ctx, types.NamespacedName{Name: request.Namespace}, root)
	}
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // it names what was read
	}
	external, uid := controlplane.ExternalOf(told), types.UID(root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID])
	switch {
	case told.DeletionTimestamp == nil || !controlplane.IsManaged(told) || !controllerutil.ContainsFinalizer(told, controlplane.FinalizerExternal):
		return reconcile.Result{}, nil
	case root.DeletionTimestamp == nil || root.Annotations[tenancyv1alpha1.AnnotationRootNamespace] != "true" || uid == "" || external == nil:
		return reconcile.Result{RequeueAfter: mendingPeriod}, nil // the tenant lives
	}
	why, err := r.clear(ctx, external, uid)
	if err != nil {
		why = err.Error()
	}
	if why != "" {
		return reconcile.Result{RequeueAfter: storePeriod}, errors.Join(err, r.say(ctx, told, why))
	}
	controllerutil.RemoveFinalizer(told, controlplane.FinalizerExternal)
	if err := r.Client.Update(ctx, told); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("letting go of ConfigMap %s: %w", request.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}

// clear deletes what is a VirtualCluster's in an external store, and returns what it waits for, "" when nothing is left.
func (r *Reconciler) clear(ctx context.Context, external *controlplane.External, uid types.UID) (string, error) {
	c, err := r.dialExternal(ctx, external)
	if broken := (*brokenError)(nil); errors.As(err, &broken) {
		return err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, why := r.known(ctx, c, external); why != (tenancy.Reason{}) {
		return why.Message, nil
	}
	user := controlplane.ExternalUser(uid)
	if err := c.Expel(ctx, user); err != nil {
		return "", err //nolint:wrapcheck // it says what it did
	}
	for range clearedTimes {
		done, err := c.Clear(ctx, controlplane.ExternalPrefix(uid), clearedKeys)
		switch {
		case err != nil:
			return "", err //nolint:wrapcheck // as above
		case done: // again: a reconcile that has begun before may have made it
			return "", c.Expel(ctx, user) //nolint:wrapcheck // as above
		}
	}
	return "the deletion of what it has in the external etcd, which goes on", nil
}

// say says in a ConfigMap what its deletion waits for: nobody else is left to say it.
func (r *Reconciler) say(ctx context.Context, told *corev1.ConfigMap, why string) error {
	if told.Data[waitsFor] == why {
		return nil
	}
	told.Data[waitsFor] = why
	if err := r.Client.Update(ctx, told); err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", client.ObjectKeyFromObject(told), err)
	}
	return nil
}
