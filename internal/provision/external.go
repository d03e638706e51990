package provision

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/etcd"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/provision/secrets"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// clearedKeys is how many keys of an external store are deleted at a time, and clearedTimes how often in one reconcile:
	// others use it meanwhile.
	clearedKeys  = 500
	clearedTimes = 20
	// concurrentJoined is how many tenants ask an external store at a time: one that is silent is that of many.
	concurrentJoined = concurrentTenants / 2
	// settledTime is how long a root namespace is being deleted before what its tenant has in an external store is: no reconcile
	// that has seen it alive runs any more.
	settledTime = 15 * time.Second
	// waitsFor is the key of ConfigMap etcd that says why it is there yet, while its root namespace is being deleted.
	waitsFor = "deletion-waits-for"
)

// SharedEtcd asks and changes an external store. See etcd.Shared.
type SharedEtcd interface {
	ID(ctx context.Context) (string, error)
	Knows(ctx context.Context, user, prefix string) (bool, error)
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

// join makes the certificate by which an external store knows a control plane, once ConfigMap etcd names one.
func (r *Reconciler) join(ctx context.Context, plane *controlplane.ControlPlane, kept *certificates) error {
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
	secret, err := kept.Get(ctx, controlplane.ExternalClient)
	if err != nil {
		return err
	}
	wanted := pki.Certificate{User: controlplane.ExternalUser(plane.Tenant.UID), Validity: r.validity(plane.Tenant)}
	pair, err := kept.Issue(authorities.users, controlplane.ExternalClient, wanted, secret)
	if err != nil {
		return err
	}
	plane.External, plane.Trusted[controlplane.EtcdCA] = external, string(authorities.members)
	return kept.Keep(ctx, controlplane.ExternalClient, corev1.SecretTypeTLS, secret, secrets.DataOf(pair))
}

// renewExternal is join, with what a report says of it. again is shortened to when that certificate is due.
func (r *Reconciler) renewExternal(ctx context.Context, plane *controlplane.ControlPlane, kept *certificates, report *report, again *time.Duration) error {
	if err := r.join(ctx, plane, kept); err != nil {
		report.judge(err)
		return err
	}
	*again = kept.until(*again)
	report.ends = ptr.To(metav1.NewTime(kept.Ends()))
	return nil
}

// dialExternal connects to an external store as root.
func (r *Reconciler) dialExternal(ctx context.Context, external *controlplane.External) (SharedEtcd, error) {
	authorities, err := r.externalAuthorities(ctx, external.Secret)
	if err != nil {
		return nil, err
	}
	pair, err := authorities.users.IssueAt(r.Clock.Now(), pki.Certificate{User: etcd.Root, Validity: mendingPeriod})
	if err != nil {
		return nil, objects.Broken("Secret %s/%s issues no certificate: %v", r.Network.Manager, external.Secret, err)
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
	case errors.Is(err, etcd.ErrUntrusted):
		return invalid("The external etcd at %s shows a certificate that ca.crt of Secret %s/%s has not signed, or for another name", at, r.Network.Manager, external.Secret)
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
func (s *store) knowsExternal(ctx context.Context) (err error) {
	had := controlplane.HasExternal(s.servers)
	if s.told == nil && !had {
		had, err = s.read(ctx, controlplane.ExternalClient, &corev1.Secret{})
	}
	if err == nil && had && s.state.External == nil {
		err = objects.Broken("ConfigMap %s/%s does not say where the external etcd is which the control plane has: restore it", s.plane.Namespace, controlplane.Etcd)
	}
	return err
}

// wantedExternal returns the external store that the ClusterVersion names, nil for none, as that of which the ID is recorded.
func (s *store) wantedExternal() *controlplane.External {
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

// movable returns why an external store is not found where it is to be found from now on, the zero Reason where it is, or
// stays where it was: what runs goes on with the place of before.
func (s *store) movable(ctx context.Context) (tenancy.Reason, error) {
	wanted := s.wantedExternal()
	if wanted == nil || s.state.External == nil || equality.Semantic.DeepEqual(wanted, s.state.External) {
		return tenancy.Reason{}, nil
	}
	if !s.turn() {
		return othersAsk, nil
	}
	defer func() { <-s.joining }()
	c, err := s.dialExternal(ctx, wanted)
	if err != nil {
		return tenancy.Reason{}, err
	}
	defer c.Close()
	_, why := s.known(ctx, c, wanted)
	return why, nil
}

// tendExternal lets an external store know the tenant, and returns what it waits for then. What there is to delete later is
// said before it is made, and the ID when all is made: a store that has lost the tenant since has lost more.
func (s *store) tendExternal(ctx context.Context, external controlplane.External) (tenancy.Reason, error) {
	if s.told != nil && s.told.DeletionTimestamp != nil {
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf(
			"ConfigMap %s/%s, which says where the store is, was deleted: save it, take its finalizer out, and create it again", s.plane.Namespace, controlplane.Etcd)}, nil
	}
	if !s.turn() {
		return s.before(), nil
	}
	defer func() { <-s.joining }()
	c, err := s.dialExternal(ctx, &external)
	if err != nil {
		return tenancy.Reason{}, err
	}
	defer c.Close()
	id, why := s.known(ctx, c, &external)
	if why != (tenancy.Reason{}) {
		return why, nil
	}
	if why, err := s.admit(ctx, c, external, id); why != (tenancy.Reason{}) || err != nil {
		return why, err
	}
	if s.plane.External == nil || !slices.Equal(s.plane.External.Endpoints, external.Endpoints) || s.plane.External.Secret != external.Secret {
		if err := s.join(ctx, s.plane, s.keeping(ctx, s.plane.Namespace)); err != nil {
			return tenancy.Reason{}, err
		}
	}
	if s.plane.External == nil {
		return s.waits("what ConfigMap etcd says was changed just now"), nil
	}
	return tenancy.Reason{}, nil
}

// othersAsk is what a store waits for while others ask external ones.
var othersAsk = tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: "External etcds of other tenants are asked just now"}

// turn reports whether an external store may be asked now: the caller receives from joining when it was.
func (s *store) turn() bool {
	select {
	case s.joining <- struct{}{}:
		return true
	default:
		return false
	}
}

// before is what was said of the store before, the zero Reason where nothing was.
func (s *store) before() tenancy.Reason {
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
func (s *store) admit(ctx context.Context, c SharedEtcd, external controlplane.External, id string) (tenancy.Reason, error) {
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
func (s *store) tellExternal(ctx context.Context, external controlplane.External) error {
	state := s.state
	state.External, state.Version, state.New = &external, s.version(), false
	return s.tell(ctx, state)
}

// setupExternal adds the controller that releases external stores to a manager.
func (r *Reconciler) setupExternal(mgr manager.Manager) error {
	isDeleted := predicate.NewPredicateFuncs(func(told client.Object) bool {
		return told.GetDeletionTimestamp() != nil && controllerutil.ContainsFinalizer(told, controlplane.FinalizerExternal)
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("external-stores").For(&corev1.ConfigMap{}, builder.WithPredicates(isDeleted)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentJoined}).Complete(reconcile.Func(r.release))
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
	uid := types.UID(root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID])
	if told.DeletionTimestamp == nil || !controllerutil.ContainsFinalizer(told, controlplane.FinalizerExternal) {
		return reconcile.Result{}, nil
	}
	if root.DeletionTimestamp == nil { // the tenant lives
		return reconcile.Result{RequeueAfter: mendingPeriod}, nil
	}
	if settled := root.DeletionTimestamp.Add(settledTime).Sub(r.Clock.Now()); settled > 0 {
		return reconcile.Result{RequeueAfter: settled}, nil
	}
	external, why := controlplane.ExternalOf(told), ""
	switch {
	case root.Annotations[tenancyv1alpha1.AnnotationRootNamespace] != "true" || uid == "":
		why = "its namespace is not said to be a tenant's root namespace: take the finalizer out"
	case external == nil:
		why = "it does not say where the external etcd is: say it again, or take the finalizer out"
	default:
		why = r.clear(ctx, external, uid)
	}
	if why != "" {
		return reconcile.Result{RequeueAfter: storePeriod}, r.say(ctx, told, why)
	}
	controllerutil.RemoveFinalizer(told, controlplane.FinalizerExternal)
	if err := r.Client.Update(ctx, told); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("letting go of ConfigMap %s: %w", request.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}

// clear deletes what is a VirtualCluster's in an external store, and returns what it waits for, "" when nothing is left.
func (r *Reconciler) clear(ctx context.Context, external *controlplane.External, uid types.UID) string {
	failed := func(err error) string {
		klog.FromContext(ctx).Error(err, "Clearing an external store", "endpoints", external.Endpoints)
		return "the external etcd, which fails: the log of vc-manager says how"
	}
	c, err := r.dialExternal(ctx, external)
	if broken := (*objects.BrokenError)(nil); errors.As(err, &broken) {
		return err.Error()
	}
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	if _, why := r.known(ctx, c, external); why != (tenancy.Reason{}) {
		return why.Message
	}
	if err := c.Expel(ctx, controlplane.ExternalUser(uid)); err != nil {
		return failed(err)
	}
	for range clearedTimes {
		done, err := c.Clear(ctx, controlplane.ExternalPrefix(uid), clearedKeys)
		if err != nil {
			return failed(err)
		}
		if done {
			return ""
		}
	}
	return "the deletion of what it has in the external etcd, which goes on"
}

// say says in a ConfigMap what its deletion waits for: nobody else is left to say it.
func (r *Reconciler) say(ctx context.Context, told *corev1.ConfigMap, why string) error {
	if told.Data[waitsFor] == why {
		return nil
	}
	told.Data = labels.Merge(told.Data, map[string]string{waitsFor: why})
	if err := r.Client.Update(ctx, told); err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", client.ObjectKeyFromObject(told), err)
	}
	return nil
}
