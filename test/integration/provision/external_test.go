package provision

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/test/controlplane/launch"
)

// external is an etcd that others use too.
type external struct {
	url       string
	authority *pki.Authority
}

// newExternal starts one that asks nobody yet who he is.
func newExternal(t *testing.T, k *kubelet) *external {
	t.Helper()
	authority, err := pki.NewAuthority("etcd")
	require.NoError(t, err)
	return startExternal(t, authority, k.bin, k.folder, k.first+"250")
}

// startExternal is newExternal for one at an address of this machine, whose certificate an authority signs, with more
// flags.
func startExternal(t *testing.T, authority *pki.Authority, bin, folder, address string, flags ...string) *external {
	t.Helper()
	e := &external{url: "https://" + net.JoinHostPort(address, "2379"), authority: authority}
	file := filepath.Join(t.TempDir(), "etcd")
	served, err := authority.Issue(pki.Certificate{User: "etcd", IPs: []net.IP{net.ParseIP(address)}})
	require.NoError(t, err)
	require.NoError(t, served.Write(file))
	require.NoError(t, os.WriteFile(file+"-ca.crt", authority.Certificate(), 0o600))
	process, err := launch.Run(folder, "external-etcd", append([]string{
		filepath.Join(bin, "etcd"), "--data-dir=" + t.TempDir(), "--unsafe-no-fsync", "--log-level=warn", "--listen-client-urls=" + e.url, "--advertise-client-urls=" + e.url,
		"--listen-peer-urls=http://" + net.JoinHostPort(address, "2380"), "--initial-advertise-peer-urls=http://" + net.JoinHostPort(address, "2380"),
		"--initial-cluster=default=http://" + net.JoinHostPort(address, "2380"),
		"--client-cert-auth", "--cert-file=" + file + ".crt", "--key-file=" + file + ".key", "--trusted-ca-file=" + file + "-ca.crt",
	}, flags...))
	require.NoError(t, err)
	t.Cleanup(process.Kill)
	return e
}

// enable lets it know its users, of whom there is root alone, and returns a client of root.
func (e *external) enable(t *testing.T) *clientv3.Client {
	t.Helper()
	root := e.root(t)
	_, err := root.UserAddWithOptions(t.Context(), "root", "", &clientv3.UserAddOptions{NoPassword: true})
	require.NoError(t, err)
	_, err = root.UserGrantRole(t.Context(), "root", "root")
	require.NoError(t, err)
	_, err = root.AuthEnable(t.Context())
	require.NoError(t, err)
	return root
}

// as returns a client that shows a certificate.
func (e *external) as(t *testing.T, pair *pki.Pair) *clientv3.Client {
	t.Helper()
	shown, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	require.NoError(t, err)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{shown}}
	config.RootCAs.AppendCertsFromPEM(e.authority.Certificate())
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.url}, TLS: config, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() }) // nobody is asked any more
	return c
}

// root returns a client of user root.
func (e *external) root(t *testing.T) *clientv3.Client {
	t.Helper()
	pair, err := e.authority.Issue(pki.Certificate{User: "root"})
	require.NoError(t, err)
	return e.as(t, pair)
}

// keys returns how many keys there are from one to another.
func keys(t *testing.T, c *clientv3.Client, from, to string) int64 {
	t.Helper()
	found, err := c.Get(t.Context(), from, clientv3.WithRange(to), clientv3.WithCountOnly())
	require.NoError(t, err)
	return found.Count
}

// TestAnExternalStore: the objects of a tenant are in an etcd that others use too, below a prefix of its own. Its API servers
// read nothing else there, and when it is deleted, while vc-manager does not run, nothing of it is left, and all of others.
func TestAnExternalStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Hour, filepath.Join("testdata", "external.yaml"))
	e := newExternal(t, w.kubelet)
	root := e.root(t)
	pair, err := e.authority.Pair()
	require.NoError(t, err)
	w.says(t, "There is no Secret vc-manager/external-etcd, of type tenancy.x-k8s.io/external-etcd")
	require.NoError(t, w.client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "external-etcd"}, Type: "tenancy.x-k8s.io/external-etcd",
		Data: map[string][]byte{corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key, "ca.crt": e.authority.Certificate()},
	}))
	w.says(t, "does not answer vc-manager") // example.org
	w.change(t, func(version *tenancyv1alpha1.ClusterVersionSpec) { version.ExternalEtcd.Endpoints = []string{e.url} })
	w.says(t, "knows no users, and each tenant would read all others")
	e.enable(t)

	uid := string(w.current(t).UID)
	prefix, behind := "/superpool/"+uid+"/", "/superpool/"+uid+"0" // the first key behind all that begin with the prefix
	others := []string{"/registry/secret", "/superpool/" + uid, behind, behind + "/secret", "/superpool/" + uid + "-2/secret"}
	for _, key := range others {
		_, err := root.Put(t.Context(), key, "another's")
		require.NoError(t, err)
	}
	w.whole(t, "v1.37.2")
	w.remember(t, "kept")
	require.Positive(t, keys(t, root, prefix, behind))
	require.Equal(t, keys(t, root, prefix, behind)+int64(len(others)), keys(t, root, "\x00", "\x00"), "nothing lies elsewhere")

	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(w.kubelet.first+"251", "2379")) // a member whose machine hangs
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() }) // nobody is connected any more
	w.change(t, func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.ExternalEtcd.Endpoints = []string{e.url, "https://" + silent.Addr().String()}
	})
	require.Eventually(t, func() bool {
		servers := &appsv1.Deployment{}
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.kubelet.namespace, Name: "kube-apiserver"}, servers))
		return slices.ContainsFunc(servers.Spec.Template.Spec.Containers[0].Command, func(flag string) bool { return strings.Contains(flag, silent.Addr().String()) })
	}, patience, tick, "one member that is silent holds nothing up")
	w.whole(t, "v1.37.2")

	secret := &corev1.Secret{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.kubelet.namespace, Name: "external-etcd-client"}, secret))
	tenant := e.as(t, &pki.Pair{Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]})
	require.Positive(t, keys(t, tenant, prefix, behind))
	for _, key := range others {
		_, err := tenant.Get(t.Context(), key)
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, key)
		_, err = tenant.Put(t.Context(), key, "")
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, key)
		_, err = tenant.Delete(t.Context(), key)
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied, key)
	}
	_, err = tenant.Get(t.Context(), "", clientv3.WithPrefix())
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	_, err = tenant.UserGrantRole(t.Context(), "superpool-"+uid, "root")
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)

	version := &tenancyv1alpha1.ClusterVersion{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: "v1.37"}, version))
	version.Spec.Etcd = tenancyv1alpha1.ComponentTemplate{Image: "etcd"}
	require.ErrorContains(t, w.client.Update(t.Context(), version), "give etcd, or externalEtcd in its place")
	version.Spec.ExternalEtcd = nil
	require.NoError(t, w.client.Update(t.Context(), version))
	require.Eventually(t, func() bool { return strings.Contains(w.upToDate(t), "has an external etcd, and keeps it") }, patience, tick)
	w.remembers(t, "kept")

	w.manager.Kill()
	require.NoError(t, w.client.Delete(t.Context(), w.current(t)))
	require.NoError(t, w.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.kubelet.namespace}}))
	told := &corev1.ConfigMap{}
	require.Eventually(t, func() bool {
		require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.kubelet.namespace, Name: "etcd"}, told))
		return told.DeletionTimestamp != nil && len(w.kubelet.pids()) == 0
	}, patience, tick, "the root namespace waits")
	require.Positive(t, keys(t, root, prefix, behind))
	w.manager, err = w.start()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(w.client.Get(context.WithoutCancel(t.Context()), client.ObjectKey{Name: w.kubelet.namespace}, &corev1.Namespace{}))
	}, patience, tick, "the root namespace ends")
	require.Zero(t, keys(t, root, prefix, behind))
	require.EqualValues(t, len(others), keys(t, root, "\x00", "\x00"), "all of others is there")
	_, err = root.UserGet(t.Context(), "superpool-"+uid)
	require.ErrorIs(t, err, rpctypes.ErrUserNotFound)
	_, err = root.RoleGet(t.Context(), "superpool-"+uid)
	require.ErrorIs(t, err, rpctypes.ErrRoleNotFound)
}

// says waits until what holds a control plane up is said.
func (w *world) says(t *testing.T, what string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, condition := range w.current(t).Status.Conditions {
			if strings.Contains(condition.Message, what) {
				return meta.IsStatusConditionFalse(w.current(t).Status.Conditions, tenancyv1alpha1.ConditionUpToDate)
			}
		}
		return false
	}, patience, tick, "%s", what)
}

// TestTheSampleOfAnExternalStore: it is what the test applies, under another name.
func TestTheSampleOfAnExternalStore(t *testing.T) {
	t.Parallel()
	sample, applied := &tenancyv1alpha1.ClusterVersion{}, &tenancyv1alpha1.ClusterVersion{}
	for file, version := range map[string]*tenancyv1alpha1.ClusterVersion{
		filepath.Join("..", "..", "..", "manifests", "samples", "clusterversion-external.yaml"): sample, filepath.Join("testdata", "external.yaml"): applied,
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		first, _, _ := strings.Cut(string(text), "\n---\n")
		require.NoError(t, yaml.UnmarshalStrict([]byte(first), version))
	}
	require.Equal(t, sample.Spec, applied.Spec)
}
