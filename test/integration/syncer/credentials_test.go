package syncer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/controlplane"
)

// TestCredentials: the tenant's credentials and then the program's own are replaced while the syncer runs, as
// docs/operating.md says: new ones are written, and the old ones are refused from then on. Neither has the rights of
// kinds that no pod needs, as a role of a version before: that costs these kinds alone.
func TestCredentials(t *testing.T) {
	crds, err := controlplane.SuperpoolCRDs()
	require.NoError(t, err)
	without := []string{"ResourceQuota"} // nobody fills the status of quotas
	started, stop, err := controlplane.Start(
		controlplane.Options{Role: controlplane.Super, CRDs: []string{crds}, DisableAdmission: without, ServiceClusterIPRange: superServices},
		controlplane.Options{Role: controlplane.Tenant, DisableAdmission: without, ServiceClusterIPRange: tenantServices},
	)
	t.Cleanup(stop)
	require.NoError(t, err)
	super, tenant := newAccount(t, started[0], "superpool-system", "syncer"), newAccount(t, started[1], "kube-system", "superpool")
	create(t, super.admin, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "supercluster-info"}, Data: map[string]string{"id": "single"}})
	for _, file := range []string{"supercluster/syncer.yaml", "single/rbac.yaml"} {
		_, err = controlplane.Account(t.Context(), started[0], file, super.namespace, super.name)
		require.NoError(t, err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "superpool:syncer"}}
	await.Change(t, super.admin, role, func(role *rbacv1.ClusterRole) {
		count := len(role.Rules)
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.APIGroups, "policy") })
		require.Less(t, len(role.Rules), count)
	})
	create(t, tenant.admin, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: tenant.name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "coordination.k8s.io", "events.k8s.io", "scheduling.k8s.io", "storage.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies", "servicecidrs"}, Verbs: []string{"*"}},
	}})
	create(t, tenant.admin, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: tenant.name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tenant.name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant.namespace, Name: tenant.name}},
	})
	ofTenant, ofSuper := tenant.kubeconfig(t, "old"), super.kubeconfig(t, "old")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vc-1"},
		Data:       map[string][]byte{tenancyv1alpha1.DefaultKubeconfigKey: ofTenant},
	}
	create(t, super.admin, secret)
	vc := &tenancyv1alpha1.VirtualCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vc-1"},
		Spec:       tenancyv1alpha1.VirtualClusterSpec{KubeconfigSecretRef: &tenancyv1alpha1.SecretKeyRef{Name: secret.Name}},
	}
	create(t, super.admin, vc)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, ofSuper, 0o600))
	startSingle(t, file)

	create(t, tenant.admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	synced := func(name string) {
		t.Helper()
		create(t, tenant.admin, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}})
		eventually(t, func() error {
			if err := super.admin.Get(t.Context(), client.ObjectKeyFromObject(vc), vc); err != nil {
				return err
			}
			key := client.ObjectKey{Namespace: tenancy.SuperNamespace(vc.Status.ClusterNamespace, "web"), Name: name}
			return super.admin.Get(t.Context(), key, &corev1.ConfigMap{})
		})
	}
	synced("before")

	renewed := tenant.kubeconfig(t, "new")
	await.Change(t, super.admin, secret, func(secret *corev1.Secret) {
		secret.Data[tenancyv1alpha1.DefaultKubeconfigKey] = renewed
	})
	tenant.revoke(t, "old", ofTenant)
	synced("tenant")

	require.NoError(t, os.WriteFile(file, super.kubeconfig(t, "new"), 0o600))
	super.revoke(t, "old", ofSuper)
	synced("super")
}

// account is a service account of a control plane, whose tokens are revoked one by one.
type account struct {
	plane           *controlplane.ControlPlane
	admin           client.Client
	namespace, name string
}

func newAccount(t *testing.T, plane *controlplane.ControlPlane, namespace, name string) *account {
	t.Helper()
	admin, err := client.New(plane.Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})))
	create(t, admin, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	return &account{plane: plane, admin: admin, namespace: namespace, name: name}
}

// kubeconfig returns one with a token that holds as long as the Secret of that name is there.
func (a *account) kubeconfig(t *testing.T, secret string) []byte {
	t.Helper()
	bound := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: secret}}
	create(t, a.admin, bound)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret, UID: bound.UID},
	}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.name}}
	require.NoError(t, a.admin.SubResource("token").Create(t.Context(), of, request))
	config, err := clientcmd.Load(a.plane.KubeConfig)
	require.NoError(t, err)
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	}
	written, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return written
}

// revoke deletes the Secret of the token of a kubeconfig, and waits until the API server, which remembers tokens for
// some seconds, refuses it.
func (a *account) revoke(t *testing.T, secret string, kubeconfig []byte) {
	t.Helper()
	require.NoError(t, a.admin.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: secret}}))
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	old, err := client.New(config, client.Options{Scheme: controlplane.Scheme(), Mapper: a.admin.RESTMapper()})
	require.NoError(t, err)
	eventually(t, func() error {
		if err := old.List(t.Context(), &corev1.NamespaceList{}); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the old token gives: %w", err)
		}
		return nil
	})
}
