//go:build attacks

package attacks_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestCredentials: what its own control plane gives to a tenant, where it means nothing.
func TestCredentials(t *testing.T) {
	p := connect(t)
	namespace, super := p.attacker.sole(t, "credentials")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "root"}}
	p.attacker.create(t, account)
	elsewhere := []*cluster{p.meta, p.supers[0], p.supers[1], p.neighbour.cluster}
	attack(t, "certificate", beside, func(t *testing.T) {
		for _, at := range elsewhere {
			config := rest.AnonymousClientConfig(at.config)
			config.CertData, config.KeyData = p.attacker.config.CertData, p.attacker.config.KeyData
			config.CertFile, config.KeyFile = p.attacker.config.CertFile, p.attacker.config.KeyFile
			require.True(t, apierrors.IsUnauthorized(listing(t, config)), at.name)
		}
	}, func(t *testing.T) {
		require.NoError(t, listing(t, p.attacker.config))
	})
	attack(t, "token", beside, func(t *testing.T) {
		token := p.attacker.token(t, account)
		for _, at := range elsewhere {
			refusedToken(t, at, token)
		}
	}, func(t *testing.T) {
		config := rest.AnonymousClientConfig(p.attacker.config)
		config.BearerToken = p.attacker.token(t, account)
		require.False(t, apierrors.IsUnauthorized(listing(t, config)))
	})
	bind := func(t *testing.T, name, role string, subject rbacv1.Subject) {
		t.Helper()
		to := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
		p.attacker.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: to, Subjects: []rbacv1.Subject{subject}})
		p.attacker.create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: to, Subjects: []rbacv1.Subject{subject}})
	}
	attack(t, "roles", beside, func(t *testing.T) {
		superNamespace := p.attacker.superNamespace(namespace)
		bind(t, "super-root", "cluster-admin", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: superNamespace, Name: account.Name})
		bind(t, "own-root", "cluster-admin", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account.Name})
		// What is made after them has come down, so they would have too.
		p.attacker.runs(t, newPod(t, namespace, "root", `serviceAccountName: root`))
		var bindings rbacv1.RoleBindingList
		require.NoError(t, super.List(t.Context(), &bindings, client.InNamespace(superNamespace)))
		require.Empty(t, bindings.Items)
		for _, resource := range []string{"pods", "secrets", "rolebindings", "networkpolicies", "resourcequotas"} {
			require.False(t, super.may(t, superNamespace, account.Name, superNamespace, resource), resource)
			require.False(t, super.may(t, superNamespace, account.Name, "kube-system", resource), resource)
		}
	}, func(t *testing.T) {
		bind(t, "own-view", "view", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "viewer"})
		eventually(t, "the account may read pods", func(context.Context) (bool, any) {
			return p.attacker.may(t, namespace, "viewer", namespace, "pods"), nil
		})
	})
}

// listing lists namespaces, and returns why not.
func listing(t *testing.T, config *rest.Config) error {
	t.Helper()
	api, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = api.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 1})
	return err
}

// token returns a token of a service account for the API server of its cluster.
func (c *cluster) token(t *testing.T, account *corev1.ServiceAccount) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	require.NoError(t, c.SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token
}

// may returns whether a service account may list a resource in a namespace of a cluster.
func (c *cluster) may(t *testing.T, of, account, namespace, resource string) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + of + ":" + account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + of, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: resource},
	}}
	require.NoError(t, c.Create(t.Context(), review))
	return review.Status.Allowed
}
