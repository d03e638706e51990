package provision

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/secrets"
)

// operator is who gives and takes what vn-agents and tenants know each other by.
type operator struct {
	*bed
	clients   *pki.Authority
	authority *corev1.Secret
	serving   *corev1.ConfigMap
}

// newPool returns a bed, as newBed does, whose pool can have vn-agents.
func newPool(t *testing.T, change func(*tenancyv1alpha1.VirtualCluster), more ...client.Object) *operator {
	t.Helper()
	o := &operator{bed: newBed(t, change, more...)}
	o.reconciler.AgentsNamespace = "vc-manager"
	o.authority = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "vn-agent-client-ca"}}
	o.sign()
	pair, err := mustAuthority(t).Pair()
	require.NoError(t, err)
	o.serving = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "vn-agent-serving-ca"}, Data: map[string]string{"ca.crt": string(pair.Certificate)},
	}
	return o
}

func mustAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	authority, err := pki.NewAuthority("one of the same name")
	require.NoError(t, err)
	return authority
}

// sign changes the authority of tenants to a new one of the same name.
func (o *operator) sign() {
	o.t.Helper()
	o.clients = mustAuthority(o.t)
	pair, err := o.clients.Pair()
	require.NoError(o.t, err)
	o.authority.Data = secrets.DataOf(pair)
}

// leaf returns the certificate in a Secret.
func leaf(t *testing.T, secret *corev1.Secret) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	require.NoError(t, err)
	return pair.Leaf
}

// requireIdentity demands that a Secret has what vn-agents know the tenant by, and what it knows them by.
func (o *operator) requireIdentity(secret *corev1.Secret) {
	o.t.Helper()
	certificate, roots := leaf(o.t, secret), x509.NewCertPool()
	pair, err := o.clients.Pair()
	require.NoError(o.t, err)
	require.True(o.t, roots.AppendCertsFromPEM(pair.Certificate))
	_, err = certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: certificate.NotBefore.Add(time.Minute), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(o.t, err)
	require.Equal(o.t, "CN="+root+",O=superpool:tenants", certificate.Subject.String())
	require.Equal(o.t, o.serving.Data["ca.crt"], string(secret.Data["ca.crt"]))
}

// valid returns condition CertificatesValid as status: message, "" for none.
func (b *bed) valid() string {
	b.t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
	condition := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionCertificatesValid)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + ": " + condition.Message
}

// asks returns the files by which the API server and vn-agents know each other.
func (b *bed) asks() (files []string) {
	b.t.Helper()
	servers := workload(controlplane.APIServer).(*appsv1.Deployment)
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKeyFromObject(servers), servers))
	for _, flag := range servers.Spec.Template.Spec.Containers[0].Command {
		if name, file, _ := strings.Cut(flag, "=/etc/kubernetes/pki/"); strings.HasPrefix(name, "--kubelet-c") {
			files = append(files, file)
		}
	}
	return files
}

var (
	asksAgents = []string{"kubelet-ca.crt", "kubelet-client.crt", "kubelet-client.key"}
	asksNobody = []string{"ca.crt"}
)

func imported(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.ClusterVersionName = "" }

// TestIdentityOfAnImportedTenant: what its API server shows to vn-agents lies beside its VirtualCluster, and is renewed.
func TestIdentityOfAnImportedTenant(t *testing.T) {
	t.Parallel()
	o := newPool(t, imported)
	require.Equal(t, patrolPeriod, o.reconcile().RequeueAfter)
	require.Zero(t, o.writes, "the pool has no vn-agents yet")

	o.create(o.authority)
	o.reconcile()
	require.Equal(t, "False: ConfigMap vc-manager/vn-agent-serving-ca is missing, which holds the authority of vn-agents beside Secret vn-agent-client-ca", o.valid())
	o.create(o.serving)
	o.reconcile()
	first := o.secret("default", "acme-vn-agent")
	o.requireIdentity(first)
	require.Equal(t, "acme", first.OwnerReferences[0].Name, "it ends with the VirtualCluster")
	require.Equal(t, "True: ", o.valid())
	missing, _ := o.conditions()
	require.Empty(t, missing)
	writes := o.writes
	o.reconcile()
	require.Equal(t, writes, o.writes)

	o.clock.SetTime(o.clock.Now().Add(20*24*time.Hour - 8*time.Minute)) // two thirds of its life are over within patrolPeriod
	require.Less(t, o.reconcile().RequeueAfter, patrolPeriod)
	o.clock.SetTime(o.clock.Now().Add(patrolPeriod))
	o.reconcile()
	second := o.secret("default", "acme-vn-agent")
	o.requireIdentity(second)
	require.NotEqual(t, leaf(t, first).SerialNumber, leaf(t, second).SerialNumber)

	o.authority.Data[corev1.TLSPrivateKeyKey] = []byte("a typo")
	o.update(o.authority)
	o.reconcile()
	require.Equal(t, time.Minute, o.reconcile().RequeueAfter, "nobody tells when it is mended")
	require.Contains(t, o.valid(), "False: Secret vc-manager/vn-agent-client-ca holds no authority: ")
	o.delete(o.authority)
	o.reconcile()
	require.Equal(t, time.Minute, o.reconcile().RequeueAfter)
	require.Contains(t, o.valid(), "False: There is no Secret vn-agent-client-ca any more")
	require.Equal(t, second.Data, o.secret("default", "acme-vn-agent").Data)

	o.delete(o.secret("default", "acme-vn-agent"))
	o.reconcile()
	require.Empty(t, o.valid(), "the pool has no vn-agents any more")
}

// TestIdentityIsNobodysElse: a Secret of that name that is not vc-manager's stays.
func TestIdentityIsNobodysElse(t *testing.T) {
	t.Parallel()
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "acme-vn-agent"}, Data: map[string][]byte{"ca.crt": []byte("mine")}}
	o := newPool(t, imported, theirs)
	o.reconcile()
	require.Empty(t, o.valid(), "nobody needs the name")
	o.create(o.authority, o.serving)
	o.reconcile()
	require.Equal(t, "False: Secret default/acme-vn-agent is not vc-manager's, which keeps there what the tenant's API server shows to vn-agents: rename or delete it", o.valid())
	require.Equal(t, theirs.Data, o.secret("default", "acme-vn-agent").Data)
}

// TestIdentityIsOfTheRootNamespace: nothing is given out for a root namespace that is another VirtualCluster's.
func TestIdentityIsOfTheRootNamespace(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*tenancyv1alpha1.VirtualCluster){"imported": imported, "provisioned": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newPool(t, change)
			o.create(o.authority, o.serving)
			namespace := &corev1.Namespace{}
			require.NoError(t, o.reconciler.Client.Get(t.Context(), client.ObjectKey{Name: root}, namespace))
			namespace.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID] = "another"
			o.update(namespace)
			o.reconcile()
			for _, secret := range []string{"acme-vn-agent", "acme-kubeconfig"} {
				require.False(t, o.has("default", secret), secret)
			}
			require.False(t, o.has(root, "kubelet-client"))
			require.Equal(t, time.Minute, o.reconcile().RequeueAfter)
			if change != nil {
				require.Equal(t, "False: Namespace "+root+" exists and was not made for this VirtualCluster: delete or rename one of them", o.valid())
				o.delete(o.authority)
				o.reconcile()
				require.Empty(t, o.valid(), "nobody needs it")
				return
			}
			missing, message := o.conditions()
			require.Equal(t, map[string]string{"UpToDate": "KeyConflict"}, missing)
			require.Contains(t, message, root)
		})
	}
}

// TestIdentityOfAControlPlane: its API server shows itself to vn-agents once there are some, and goes on to where what
// signs its identity is gone, until the operator says that the pool has none.
func TestIdentityOfAControlPlane(t *testing.T) {
	t.Parallel()
	o := newPool(t, nil)
	o.whole()
	require.False(t, o.has(root, "kubelet-client"))
	require.Equal(t, asksNobody, o.asks())

	o.create(o.serving, o.authority)
	o.reconcile()
	known := o.secret(root, "kubelet-client")
	o.requireIdentity(known)
	require.Equal(t, asksAgents, o.asks())
	require.Equal(t, "True: ", o.valid())

	o.delete(o.authority)
	o.reconcile()
	require.Equal(t, time.Minute, o.reconcile().RequeueAfter)
	require.Equal(t, known.Data, o.secret(root, "kubelet-client").Data)
	require.Equal(t, "False: There is no Secret vn-agent-client-ca any more, which signs what vn-agents know the tenant by: restore it, or delete Secret "+root+"/kubelet-client", o.valid())
	require.Equal(t, asksAgents, o.asks())

	o.delete(known)
	o.reconcile()
	require.Equal(t, "True: ", o.valid())
	require.Equal(t, asksNobody, o.asks())
	require.False(t, o.has(root, "kubelet-client"))
}

// TestAPoolWithoutAuthority: whatever is wrong with what signs tenants' identities, control planes are made and changed,
// and what they show to vn-agents stays as it is.
func TestAPoolWithoutAuthority(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*operator)
		// fails is what reading the authority returns.
		fails error
		want  string
	}{
		"a key that is none":        {change: func(o *operator) { o.authority.Data["tls.key"] = []byte("a typo") }, want: "False: Secret vc-manager/vn-agent-client-ca holds no authority"},
		"another's key":             {change: func(o *operator) { key := o.authority.Data["tls.key"]; o.sign(); o.authority.Data["tls.key"] = key }, want: "False: Secret vc-manager/vn-agent-client-ca holds no authority"},
		"too many certificates":     {change: func(o *operator) { o.serving.Data["ca.crt"] = strings.Repeat(o.serving.Data["ca.crt"], 200) }, want: "holds no certificate in key ca.crt: it has "},
		"no certificate":            {change: func(o *operator) { o.serving.Data = nil }, want: "False: ConfigMap vc-manager/vn-agent-serving-ca holds no certificate in key ca.crt"},
		"an authority that ended":   {change: func(o *operator) { o.authority.Data = secrets.DataOf(ended(o.t)) }, want: "False: Certificate kubelet-client, issued just now, is none"},
		"it may not be read":        {fails: apierrors.NewForbidden(corev1.Resource("secrets"), "vn-agent-client-ca", nil), want: "False: getting Secret vc-manager/vn-agent-client-ca: "},
		"it cannot be read":         {fails: apierrors.NewInternalError(context.DeadlineExceeded), want: "Unknown: getting Secret vc-manager/vn-agent-client-ca: "},
		"it cannot be read in time": {fails: context.DeadlineExceeded, want: "Unknown: getting Secret vc-manager/vn-agent-client-ca: "},
	} {
		for _, isThere := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", for one that has an identity", false: ", for one that has none"}[isThere], func(t *testing.T) {
				t.Parallel()
				o := newPool(t, nil)
				o.create(o.serving, o.authority)
				asks, known := asksNobody, map[string][]byte(nil)
				if isThere {
					o.whole()
					asks, known = asksAgents, o.secret(root, "kubelet-client").Data
				}
				if tc.change != nil {
					tc.change(o)
					o.update(o.authority)
					o.update(o.serving)
				}
				if tc.fails != nil {
					o.reads(tc.fails)
				}
				if !isThere {
					for _, part := range []string{controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager} {
						o.reconcile()
						o.ready(part)
					}
				}
				o.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.ControllerManager.Image = "newer" })
				o.reconcile()
				require.Equal(t, time.Minute, o.reconcile().RequeueAfter, "nobody tells when it is mended")
				require.Contains(t, o.valid(), tc.want)
				missing, _ := o.conditions()
				require.Equal(t, "Progressing", missing["ControllerManagerReady"], "it goes on")
				require.Equal(t, asks, o.asks())
				require.Equal(t, isThere, o.has(root, "kubelet-client"))
				if isThere {
					require.Equal(t, known, o.secret(root, "kubelet-client").Data)
				}
			})
		}
	}
}

// ended returns an authority whose certificate has ended.
func ended(t *testing.T) *pki.Pair {
	t.Helper()
	key, err := pki.NewKey()
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour), KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)
	return &pki.Pair{Certificate: pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: certificate}), Key: encoded}
}

// reads makes reading the pool's Secret fail, until err is nil.
func (o *operator) reads(err error) {
	inner := o.reconciler.Reader.(client.WithWatch)
	o.reconciler.Reader = interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if key == client.ObjectKeyFromObject(o.authority) {
				return err
			}
			return c.Get(ctx, key, object, options...)
		},
	})
}

// TestIdentityWhileItIsUnknown: a read that fails once takes nothing from anybody, and tells nobody to delete something.
func TestIdentityWhileItIsUnknown(t *testing.T) {
	t.Parallel()
	o := newPool(t, imported)
	o.create(o.serving, o.authority)
	o.reconcile()
	known := o.secret("default", "acme-vn-agent").Data
	before := o.reconciler.Reader
	o.reads(context.DeadlineExceeded)
	o.reconcile()
	require.Equal(t, "Unknown: getting Secret vc-manager/vn-agent-client-ca: context deadline exceeded", o.valid())
	require.Equal(t, known, o.secret("default", "acme-vn-agent").Data)
	o.reconciler.Reader = before
	o.reconcile()
	require.Equal(t, "True: ", o.valid())
	require.Equal(t, known, o.secret("default", "acme-vn-agent").Data)
}

// TestIdentityIsUnknownBesides: another refusal does not hide that it is.
func TestIdentityIsUnknownBesides(t *testing.T) {
	t.Parallel()
	o := newPool(t, func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.ClusterVersionName = "v1.38" })
	o.reads(context.DeadlineExceeded)
	o.reconcile()
	require.Equal(t, "Unknown: getting Secret vc-manager/vn-agent-client-ca: context deadline exceeded", o.valid())
	missing, _ := o.conditions()
	require.Equal(t, map[string]string{"UpToDate": "ClusterVersionNotFound"}, missing)
}

// TestRotationOfThePool: another authority of tenants, another one of vn-agents, and another key of the pair make the
// identity anew, of either kind of tenant.
func TestRotationOfThePool(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change          func(*tenancyv1alpha1.VirtualCluster)
		namespace, name string
	}{
		"imported":    {imported, "default", "acme-vn-agent"},
		"provisioned": {nil, root, "kubelet-client"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newPool(t, tc.change)
			o.create(o.serving, o.authority)
			o.reconcile()
			first := o.secret(tc.namespace, tc.name)
			o.requireIdentity(first)

			next, err := mustAuthority(t).Pair()
			require.NoError(t, err)
			o.serving.Data["ca.crt"] += string(next.Certificate)
			with := o.serving.DeepCopy()
			with.Data["ca.crt"] += string(next.Key) // which no tenant gets
			o.update(with)
			o.serving.ResourceVersion = with.ResourceVersion
			o.reconcile()
			second := o.secret(tc.namespace, tc.name)
			o.requireIdentity(second)
			require.Equal(t, first.Data["tls.crt"], second.Data["tls.crt"])

			o.sign()
			o.update(o.authority)
			o.reconcile()
			third := o.secret(tc.namespace, tc.name)
			o.requireIdentity(third)
			require.NotEqual(t, first.Data["tls.key"], third.Data["tls.key"])

			third.Data["tls.key"] = first.Data["tls.key"]
			o.update(third)
			o.reconcile()
			o.requireIdentity(o.secret(tc.namespace, tc.name))
			require.Equal(t, "True: ", o.valid())
		})
	}
}

// TestProvisionedLater: what the API server that was imported showed to vn-agents goes when the control plane is
// vc-manager's, and comes back with it. One that vc-manager has not made for this VirtualCluster stays.
func TestProvisionedLater(t *testing.T) {
	t.Parallel()
	o := newPool(t, imported)
	o.create(o.serving, o.authority)
	o.reconcile()
	named := func(name string) {
		vc := &tenancyv1alpha1.VirtualCluster{}
		require.NoError(t, o.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "acme"}, vc))
		vc.Spec.ClusterVersionName = name
		o.update(vc)
	}
	named("v1.38")
	o.reconcile()
	require.True(t, o.has("default", "acme-vn-agent"), "there is no such ClusterVersion")
	named("v1.37")
	o.reconcile()
	require.True(t, o.has("default", "acme-vn-agent"), "the control plane is not whole")
	o.whole()
	require.False(t, o.has("default", "acme-vn-agent"))
	o.requireIdentity(o.secret(root, "kubelet-client"))
	require.Equal(t, asksAgents, o.asks())

	named("")
	o.reconcile()
	mine := o.secret("default", "acme-vn-agent")
	o.requireIdentity(mine)
	require.Equal(t, "True: ", o.valid())

	named("v1.37")
	for name, change := range map[string]func(*corev1.Secret){
		"of somebody else":                       func(secret *corev1.Secret) { secret.Labels = nil },
		"of another VirtualCluster of that name": func(secret *corev1.Secret) { secret.OwnerReferences[0].UID = "another" },
		"of nobody":                              func(secret *corev1.Secret) { secret.OwnerReferences = nil },
	} {
		theirs := o.secret("default", "acme-vn-agent")
		theirs.Labels, theirs.OwnerReferences = maps.Clone(mine.Labels), slices.Clone(mine.OwnerReferences)
		change(theirs)
		o.update(theirs)
		o.reconcile()
		require.True(t, o.has("default", "acme-vn-agent"), name)
	}
}

// TestAPauseWithoutAuthority: a tenant is paused, and goes on, when what signs its identity is gone.
func TestAPauseWithoutAuthority(t *testing.T) {
	t.Parallel()
	o := newPool(t, nil)
	o.create(o.serving, o.authority)
	o.whole()
	o.delete(o.authority)
	o.pause(true, true)
	for _, part := range []string{controlplane.ControllerManager, controlplane.APIServer, controlplane.Etcd} {
		o.reconcile()
		o.ended(part)
	}
	o.reconcile()
	require.Equal(t, []int32{0, 0, 0}, o.sizes())
	require.Contains(t, o.valid(), "False: There is no Secret vn-agent-client-ca any more")
	o.pause(false, false)
	for _, part := range []string{controlplane.Etcd, controlplane.APIServer, controlplane.ControllerManager} {
		o.reconcile()
		o.ready(part)
	}
	o.reconcile()
	require.Equal(t, []int32{1, 1, 1}, o.sizes())
	require.Equal(t, asksAgents, o.asks())
}
