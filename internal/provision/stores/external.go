package stores

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/etcd"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/provision/secrets"
	"github.com/superpool/superpool/internal/tenancy"
)

// externalAuthorities are who signs the certificates of an external store's users, and, in PEM, who those of its
// members.
type externalAuthorities struct {
	users   *pki.Authority
	members []byte
}

// externalAuthorities reads those in a Secret of vc-manager's namespace.
func (ss *Stores) externalAuthorities(ctx context.Context, name string) (*externalAuthorities, error) {
	secret, at := &corev1.Secret{}, types.NamespacedName{Namespace: ss.manager, Name: name}
	err := ss.reader.Get(ctx, at, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, objects.Broken("There is no Secret %s, of type %s, which has the authorities of the external etcd: create it", at, controlplane.ExternalSecretType)
	case err != nil:
		return nil, fmt.Errorf("getting Secret %s: %w", at, err)
	case secret.Type != controlplane.ExternalSecretType: // others in that namespace are for something else
		return nil, objects.Broken("Secret %s is of type %s: make it anew, of type %s", at, secret.Type, controlplane.ExternalSecretType)
	}
	read := &externalAuthorities{}
	if read.users, err = pki.ParseAuthority(secrets.PairOf(secret)); err != nil {
		return nil, objects.Broken("Secret %s holds no authority: %v", at, err)
	}
	if read.members, err = pki.Bundle(secret.Data[controlplane.ServingCAKey]); err != nil {
		return nil, objects.Broken("Secret %s holds no certificate in key %s: %v", at, controlplane.ServingCAKey, err)
	}
	return read, nil
}

// Join makes the certificate by which an external store knows a control plane, once a record names one, whatever
// becomes of the rest: what runs needs it. plane says then where the store is, and whom API servers trust as it. For
// another store it does nothing.
func (ss *Stores) Join(ctx context.Context, plane *controlplane.ControlPlane, record *Record, kept *secrets.Keeper) error {
	external := record.external()
	if external == nil {
		return nil
	}
	return ss.certify(ctx, plane, external, kept)
}

// certify is Join for an external store that is recorded.
func (ss *Stores) certify(ctx context.Context, plane *controlplane.ControlPlane, external *controlplane.External, kept *secrets.Keeper) error {
	authorities, err := ss.externalAuthorities(ctx, external.Secret)
	if err != nil {
		return err
	}
	secret, err := kept.Get(ctx, controlplane.ExternalClient)
	if err != nil {
		return err
	}
	wanted := pki.Certificate{User: controlplane.ExternalUser(plane.Tenant.UID), Validity: controlplane.Validity(plane.Tenant, ss.validity)}
	pair, err := kept.Issue(authorities.users, controlplane.ExternalClient, wanted, secret)
	if err != nil {
		return err
	}
	plane.External, plane.Trusted[controlplane.EtcdCA] = external, string(authorities.members)
	return kept.Keep(ctx, controlplane.ExternalClient, corev1.SecretTypeTLS, secret, secrets.DataOf(pair))
}

// dialExternal connects to an external store as root.
func (ss *Stores) dialExternal(ctx context.Context, external *controlplane.External) (SharedEtcd, error) {
	authorities, err := ss.externalAuthorities(ctx, external.Secret)
	if err != nil {
		return nil, err
	}
	pair, err := authorities.users.IssueAt(ss.clock.Now(), pki.Certificate{User: etcd.Root, Validity: objects.MendingPeriod})
	if err != nil {
		return nil, objects.Broken("Secret %s/%s issues no certificate: %v", ss.manager, external.Secret, err)
	}
	shown, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("reading what was issued just now: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{shown}}
	config.RootCAs.AppendCertsFromPEM(authorities.members)
	return ss.dialShared(external.Endpoints, config)
}

// known returns why an external store is not the one whose ID is given, or cannot be used, and that ID where none is
// given.
func (ss *Stores) known(ctx context.Context, c SharedEtcd, external *controlplane.External) (id string, why tenancy.Reason) {
	id, err := c.ID(ctx)
	invalid := func(format string, values ...any) (string, tenancy.Reason) {
		return "", tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf(format, values...)}
	}
	at := strings.Join(external.Endpoints, ",")
	switch {
	case errors.Is(err, etcd.ErrOpen):
		return invalid("The external etcd at %s knows no users, and each tenant would read all others: etcdctl user add root --no-password && etcdctl user grant-role root root && etcdctl auth enable", at)
	case errors.Is(err, etcd.ErrNotRoot):
		return invalid("The external etcd at %s does not take what Secret %s/%s signs for user root: it needs --client-cert-auth, and tls.crt of the Secret in --trusted-ca-file", at, ss.manager, external.Secret)
	case errors.Is(err, etcd.ErrUntrusted):
		return invalid("The external etcd at %s shows a certificate that ca.crt of Secret %s/%s has not signed, or for another name", at, ss.manager, external.Secret)
	case errors.Is(err, etcd.ErrMixed):
		return invalid("At %s are members of more than one etcd", at)
	case err != nil:
		klog.FromContext(ctx).V(1).Info("An external store does not answer", "endpoints", external.Endpoints, "err", err)
		return "", tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf("The external etcd at %s does not answer vc-manager", at)}
	case external.ID != "" && external.ID != id:
		return invalid("At %s is another etcd, of ID %s, than the one with the tenant's objects, of ID %s", at, id, external.ID)
	}
	return id, tenancy.Reason{}
}

// knowsExternal returns an error where a control plane has an external store, and its ConfigMap does not say which one.
func (s *Store) knowsExternal(ctx context.Context) (err error) {
	had := controlplane.HasExternal(s.servers)
	if s.told == nil && !had {
		had, err = s.read(ctx, controlplane.ExternalClient, &corev1.Secret{})
	}
	if err == nil && had && s.state.External == nil {
		err = objects.Broken("ConfigMap %s/%s does not say where the external etcd is which the control plane has: restore it", s.plane.Namespace, controlplane.Etcd)
	}
	return err
}

// wantedExternal returns the external store that the ClusterVersion names, nil for none, as that of which the ID is
// recorded.
func (s *Store) wantedExternal() *controlplane.External {
	wanted := s.plane.Version.Spec.ExternalEtcd
	if wanted == nil {
		return nil
	}
	external := &controlplane.External{Endpoints: slices.Sorted(slices.Values(wanted.Endpoints)), Secret: wanted.SecretName}
	if s.state.External != nil {
		external.ID = s.state.External.ID
	}
	return external
}

// movable returns why an external store is not found where it is to be found from now on, the zero Reason where it is,
// or stays where it was: what runs goes on with the place of before.
func (s *Store) movable(ctx context.Context) (tenancy.Reason, error) {
	wanted := s.wantedExternal()
	if wanted == nil || s.state.External == nil || equality.Semantic.DeepEqual(wanted, s.state.External) {
		return tenancy.Reason{}, nil
	}
	if !s.turn() {
		return othersAsk, nil
	}
	defer func() { <-s.stores.asking }()
	c, err := s.stores.dialExternal(ctx, wanted)
	if err != nil {
		return tenancy.Reason{}, err
	}
	defer c.Close()
	_, why := s.stores.known(ctx, c, wanted)
	return why, nil
}

// tendExternal lets an external store know the tenant, and returns what it waits for then. What there is to delete
// later is said before it is made, and the ID when all is made: a store that has lost the tenant since has lost more.
func (s *Store) tendExternal(ctx context.Context, external controlplane.External) (tenancy.Reason, error) {
	if s.told != nil && s.told.DeletionTimestamp != nil {
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf(
			"ConfigMap %s/%s, which says where the store is, was deleted: save it, take its finalizer out, and create it again", s.plane.Namespace, controlplane.Etcd)}, nil
	}
	if !s.turn() {
		return s.before(), nil
	}
	defer func() { <-s.stores.asking }()
	c, err := s.stores.dialExternal(ctx, &external)
	if err != nil {
		return tenancy.Reason{}, err
	}
	defer c.Close()
	id, why := s.stores.known(ctx, c, &external)
	if why != (tenancy.Reason{}) {
		return why, nil
	}
	if why, err := s.admit(ctx, c, external, id); why != (tenancy.Reason{}) || err != nil {
		return why, err
	}
	if s.plane.External == nil || !slices.Equal(s.plane.External.Endpoints, external.Endpoints) || s.plane.External.Secret != external.Secret {
		return tenancy.Reason{}, s.stores.certify(ctx, s.plane, s.state.External, s.stores.keeper(s.plane.Namespace))
	}
	return tenancy.Reason{}, nil
}

// othersAsk is what a store waits for while others ask external ones.
var othersAsk = tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "External etcds of other tenants are asked just now"}

// turn reports whether an external store may be asked now: the caller receives from asking when it was.
func (s *Store) turn() bool {
	select {
	case s.stores.asking <- struct{}{}:
		return true
	default:
		return false
	}
}

// before is what was said of the store before, the zero Reason where nothing was.
func (s *Store) before() tenancy.Reason {
	said := meta.FindStatusCondition(s.plane.Tenant.Status.Conditions, tenancyv1alpha1.ConditionEtcdReady)
	switch {
	case s.plane.External == nil, s.state.External == nil, s.state.External.ID == "": // it may not know the tenant yet
		return othersAsk
	case said == nil || said.Status != metav1.ConditionFalse:
		return tenancy.Reason{}
	default:
		return tenancy.Reason{Reason: said.Reason, Message: said.Message}
	}
}

// admit lets a store know the tenant that never did, and returns why one does not know it that did.
func (s *Store) admit(ctx context.Context, c SharedEtcd, external controlplane.External, id string) (tenancy.Reason, error) {
	user, prefix := controlplane.ExternalUser(s.plane.Tenant.UID), controlplane.ExternalPrefix(s.plane.Tenant.UID)
	silent := func(err error) (tenancy.Reason, error) {
		klog.FromContext(ctx).Error(err, "Asking an external store for its users", "namespace", s.plane.Namespace)
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "The external etcd does not say what it knows of the tenant"}, nil
	}
	if external.ID == "" {
		if err := s.tellExternal(ctx, external); err != nil {
			return tenancy.Reason{}, err
		}
		if err := c.Admit(ctx, user, prefix); err != nil {
			return silent(err)
		}
	}
	switch knows, err := c.Knows(ctx, user, prefix); {
	case err != nil:
		return silent(err)
	case !knows:
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf(
			"The external etcd does not know user %s any more, as it was made: has it lost more? To have the user made again: kubectl -n %s patch configmap etcd --type=merge -p '{\"data\": {\"external-id\": \"\"}}'",
			user, s.plane.Namespace)}, nil
	}
	external.ID = id
	return tenancy.Reason{}, s.tellExternal(ctx, external)
}

// tellExternal lets the ConfigMap say where the store is.
func (s *Store) tellExternal(ctx context.Context, external controlplane.External) error {
	state := s.state
	state.External, state.Version, state.New = &external, s.version(), false
	return s.tell(ctx, state)
}
