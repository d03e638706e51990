package provision

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// TestAuthorities: all authorities of a control plane are replaced, while vc-manager is killed again and again. Clients that
// know the old ones alone, by certificate or token, are refused at no time before they are to be, and a watch goes on; then
// they are.
func TestAuthorities(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Hour)
	w.whole(t, "v1.37.2")
	w.remember(t, "before")
	byCertificate := w.tenantConfig(t)
	authority := w.authority(t)
	byToken := rest.AnonymousClientConfig(byCertificate)
	byToken.Dial, byToken.BearerToken = byCertificate.Dial, w.token(t)
	calls := map[string]*caller{"a certificate": newCaller(t, byCertificate), "a token": newCaller(t, byToken)}
	watched := w.watched(t, byCertificate)

	calm := w.killed(t)
	require.NoError(t, w.update(t, func(spec *tenancyv1alpha1.VirtualClusterSpec) {
		spec.RotateAfter = &metav1.Time{Time: time.Now().Truncate(time.Second)}
	}))
	w.rotated(t, metav1.ConditionFalse, "2 of 3: the new authorities issue, and those of before are trusted until spec.distrustAfter, which is not set")
	t.Logf("vc-manager was killed %d times", calm())
	require.NotEqual(t, authority, w.authority(t))

	w.remember(t, "between")
	require.Eventually(t, func() bool {
		_, isThere, err := watched.GetByKey("default/between")
		return err == nil && isThere
	}, patience, tick, "a watch of before goes on")
	newer := w.tenantConfig(t)
	newer.CAData = w.authority(t)
	calls["a new certificate, who trusts the new one alone"] = newCaller(t, newer)
	newest := rest.AnonymousClientConfig(newer)
	newest.Dial, newest.BearerToken = newer.Dial, w.token(t)
	calls["a new token"] = newCaller(t, newest)
	require.Eventually(t, func() bool { // a controller manager has to be elected first
		published, isThere, err := watched.GetByKey("default/kube-root-ca.crt")
		if err != nil || !isThere {
			return false
		}
		certificates, err := certutil.ParseCertsPEM([]byte(published.(*corev1.ConfigMap).Data["ca.crt"]))
		return err == nil && len(certificates) == 2
	}, patience, tick, "pods are told of both")
	w.requireLogs(t)
	for name, by := range calls {
		by.requireAnswers(t, name)
	}

	require.NoError(t, w.update(t, func(spec *tenancyv1alpha1.VirtualClusterSpec) {
		spec.DistrustAfter = &metav1.Time{Time: time.Now().Add(2 * time.Second)}
	}))
	w.rotated(t, metav1.ConditionTrue, "")
	w.whole(t, "v1.37.2")
	require.Error(t, calls["a certificate"].wasRefused())
	require.Error(t, calls["a token"].wasRefused())
	calls["a new token"].requireAnswers(t, "a new token")
	calls["a new certificate, who trusts the new one alone"].requireAnswers(t, "a new certificate")
	byCertificate.CAData, byToken.CAData = newer.CAData, newer.CAData
	for _, config := range []*rest.Config{byCertificate, byToken} {
		_, err := newAPI(t, config).CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{})
		require.True(t, apierrors.IsUnauthorized(err), "%v", err)
	}
	w.remembers(t, "before", "between")
}

// authority returns the certificate of the authority that signs what the tenant's users and servers show.
func (w *world) authority(t *testing.T) []byte {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "ca"}, secret))
	return secret.Data[corev1.TLSCertKey]
}

// tenantConfig returns that of the administrator of the control plane, by the kubeconfig as it is now.
func (w *world) tenantConfig(t *testing.T) *rest.Config {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "acme-kubeconfig"}, secret))
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	require.NoError(t, err)
	config.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { // whatever leads there
		return w.kubelet.dial(ctx, "kube-apiserver."+root+".svc:6443")
	}
	return config
}

// token returns one of a service account that may do everything.
func (w *world) token(t *testing.T) string {
	t.Helper()
	api := w.tenant(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	_, err := api.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{})
	require.True(t, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "robot"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}}
	binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "robot"}}
	_, err = api.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	require.True(t, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](7200)}}
	answer, err := api.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "robot", request, metav1.CreateOptions{})
	require.NoError(t, err)
	return answer.Status.Token
}

// watched returns the ConfigMaps of the tenant, which an informer keeps with one client.
func (w *world) watched(t *testing.T, config *rest.Config) cache.Store {
	t.Helper()
	informers := informers.NewSharedInformerFactoryWithOptions(newAPI(t, config), 0, informers.WithNamespace("default"))
	informer := informers.Core().V1().ConfigMaps().Informer()
	informers.StartWithContext(t.Context())
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced))
	t.Cleanup(informers.Shutdown)
	return informer.GetStore()
}

// rotated waits until a condition says how far authorities are replaced.
func (w *world) rotated(t *testing.T, status metav1.ConditionStatus, message string) {
	t.Helper()
	require.Eventually(t, func() bool {
		condition := meta.FindStatusCondition(w.current(t).Status.Conditions, tenancyv1alpha1.ConditionRotated)
		return condition != nil && condition.Status == status && condition.Message == message
	}, 2*patience, tick, "%s: %s", status, message)
}

// newAPI returns a client with connections of its own.
func newAPI(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config, dial := rest.CopyConfig(config), config.Dial
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dial(ctx, network, address)
	} // transports are shared by it
	api, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return api
}

// caller asks a control plane again and again, with a connection for each question.
type caller struct {
	mu sync.Mutex
	// refused is the first answer by which one side said that it does not know the other, and answers how many there were
	// without an error.
	refused error
	answers int
}

// newCaller returns one that asks until the test ends.
func newCaller(t *testing.T, config *rest.Config) *caller {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Timeout = 5 * time.Second
	c, api := &caller{}, newAPI(t, config)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			utilnet.CloseIdleConnectionsFor(api.CoreV1().RESTClient().(*rest.RESTClient).Client.Transport)
			_, err := api.CoreV1().ConfigMaps("default").Get(ctx, "before", metav1.GetOptions{})
			c.heard(err)
			select {
			case <-ctx.Done():
			case <-time.After(tick):
			}
		}
	}()
	return c
}

func (c *caller) heard(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var unknown x509.UnknownAuthorityError
	switch {
	case err == nil:
		c.answers++
	case c.refused == nil && (apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || errors.As(err, &unknown)):
		c.refused = err
	}
}

func (c *caller) wasRefused() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

func (c *caller) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers
}

// requireAnswers demands that another question is answered, and none was refused.
func (c *caller) requireAnswers(t *testing.T, by string) {
	t.Helper()
	before := c.count()
	require.Eventually(t, func() bool { return c.count() > before || c.wasRefused() != nil }, patience, tick, by)
	require.NoError(t, c.wasRefused(), by)
}
