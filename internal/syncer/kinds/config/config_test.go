package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/config"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func TestConfigs(t *testing.T) {
	t.Parallel()
	account := &corev1.ServiceAccount{Secrets: []corev1.ObjectReference{{Name: "super-token"}}}
	config.SuperServiceAccount(&corev1.ServiceAccount{
		Secrets: []corev1.ObjectReference{{Name: "tenant-token"}}, AutomountServiceAccountToken: ptr.To(true),
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
	}, account)
	require.Empty(t, cmp.Diff(&corev1.ServiceAccount{
		Secrets: []corev1.ObjectReference{{Name: "super-token"}}, AutomountServiceAccountToken: ptr.To(false),
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
	}, account))

	secret := &corev1.Secret{Data: map[string][]byte{"gone": nil}}
	content := &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{"a": []byte("1")}, Immutable: ptr.To(true)}
	config.SuperSecret(content, secret)
	require.Empty(t, cmp.Diff(content, secret))
	config.SuperSecret(&corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": []byte("t")}}, secret)
	require.Empty(t, cmp.Diff(&corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"token": []byte("t")}}, secret))

	configMap := &corev1.ConfigMap{Data: map[string]string{"gone": ""}}
	config.SuperConfigMap(&corev1.ConfigMap{BinaryData: map[string][]byte{"a": []byte("1")}}, configMap)
	require.Empty(t, cmp.Diff(&corev1.ConfigMap{BinaryData: map[string][]byte{"a": []byte("1")}}, configMap))
}

// TestTokenSecret lets a tenant have a token of a service account in a Secret, as for a program that cannot renew its
// own.
func TestTokenSecret(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	p.TenantCache[kind.Secret] = []client.Object{&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "ci-token", UID: "secret-uid", Annotations: map[string]string{corev1.ServiceAccountNameKey: "ci", corev1.ServiceAccountUIDKey: "ci-uid"},
		},
		Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte("of the tenant")},
	}}
	_, err := p.Kind(kind.Secret).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Secret, Namespace: "web", Name: "ci-token"}, 0)
	require.NoError(t, err)
	got := &corev1.Secret{}
	require.NoError(t, p.SuperClient.Get(t.Context(), types.NamespacedName{Namespace: kindtest.ClusterKey + "-web", Name: "ci-token"}, got))
	require.Equal(t, corev1.SecretTypeOpaque, got.Type)
	require.Equal(t, "of the tenant", string(got.Data[corev1.ServiceAccountTokenKey]))
	require.NotContains(t, got.Annotations, corev1.ServiceAccountNameKey, "the super cluster's controllers would look for it")
}
