package tenants

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/builders"
)

// hosted is a VirtualCluster without a Secret of its own: the kubeconfig lies in its root namespace.
func hosted(name, rootNamespace string) *tenancyv1alpha1.VirtualCluster {
	vc := builders.VirtualCluster(name)
	vc.Spec.KubeconfigSecretRef, vc.Status.ClusterNamespace = nil, rootNamespace
	return vc
}

// keyed is a VirtualCluster that names the key of its Secret.
func keyed(name, key string) *tenancyv1alpha1.VirtualCluster {
	vc := builders.VirtualCluster(name)
	vc.Spec.KubeconfigSecretRef.Key = key
	return vc
}

func secret(namespace, name, key string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: []byte(key)}}
}

func TestReadSecret(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		vc          *tenancyv1alpha1.VirtualCluster
		secret      *corev1.Secret
		want        string
		wantReason  string
		wantMessage string
	}{
		{name: "the default key", vc: builders.VirtualCluster("a"), secret: secret("default", "a", "value"), want: "value"},
		{name: "a key of its own", vc: keyed("a", "config"), secret: secret("default", "a", "config"), want: "config"},
		{
			name: "the default key where another is named", vc: keyed("a", "config"), secret: secret("default", "a", "value"),
			wantReason: tenancyv1alpha1.ReasonSecretNotFound, wantMessage: `Secret default/a has no key "config", which must hold the tenant's kubeconfig: its keys are ["value"]`,
		},
		{
			name: "a Secret of another namespace", vc: builders.VirtualCluster("a"), secret: secret("other", "a", "value"),
			wantReason: tenancyv1alpha1.ReasonSecretNotFound, wantMessage: `Secret default/a does not exist: it must hold the tenant's kubeconfig in key "value"`,
		},
		{name: "hosted, our key", vc: hosted("a", "root"), secret: secret("root", "admin-kubeconfig", "value"), want: "value"},
		{name: "hosted, the old key", vc: hosted("a", "root"), secret: secret("root", "admin-kubeconfig", "admin-kubeconfig"), want: "admin-kubeconfig"},
		{
			name: "hosted, without a root namespace yet", vc: hosted("a", ""), secret: secret("default", "admin-kubeconfig", "value"),
			wantReason: tenancyv1alpha1.ReasonConnecting, wantMessage: "Waiting for the root namespace",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, tc.secret)
			got, trouble, err := h.readSecret(t.Context(), tc.vc)
			require.NoError(t, err)
			require.Equal(t, []string{tc.want, tc.wantReason, tc.wantMessage}, []string{string(got), trouble.Reason, trouble.Message})
		})
	}
}

// TestReadSecretOfADeadMetaCluster: no answer says nothing about the Secret, so the connection that there is must stay.
func TestReadSecretOfADeadMetaCluster(t *testing.T) {
	t.Parallel()
	h := newHarness(t, secret("default", "a", "value"))
	h.Reader = interceptor.NewClient(h.Client.(client.WithWatch), interceptor.Funcs{Get: func(
		context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption,
	) error {
		return errors.New("connection refused")
	}})
	_, trouble, err := h.readSecret(t.Context(), builders.VirtualCluster("a"))
	require.EqualError(t, err, "getting Secret default/a: connection refused")
	require.Empty(t, trouble)
}

func TestOfRootNamespace(t *testing.T) {
	t.Parallel()
	root := builders.Namespace("root")
	require.Empty(t, ofRootNamespace(t.Context(), root), "most namespaces are nobody's root")
	root.Annotations = map[string]string{
		tenancyv1alpha1.AnnotationRootNamespace: "true", tenancyv1alpha1.AnnotationVirtualClusterNamespace: "default", tenancyv1alpha1.AnnotationVirtualClusterName: "a",
	}
	want := []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "default", Name: "a"}}}
	require.Empty(t, cmp.Diff(want, ofRootNamespace(t.Context(), root)))
}

// TestResolve: what a tenant's work depends on is in the identity of its connection, and nothing else is.
func TestResolve(t *testing.T) {
	t.Parallel()
	resolve := func(change func(*tenancyv1alpha1.VirtualCluster), token string) (*Tenant, string) {
		h := newHarness(t, secretWith("a", token))
		vc := builders.VirtualCluster("a")
		change(vc)
		tenant, identity, trouble, err := h.resolve(t.Context(), vc)
		require.NoError(t, err)
		require.Empty(t, trouble)
		return tenant, identity
	}
	before, identity := resolve(func(*tenancyv1alpha1.VirtualCluster) {}, "t1")
	require.Equal(t, []any{"cluster.local", types.UID("uid-a"), "t1"}, []any{before.ClusterDomain, before.UID, before.Config.BearerToken})
	for name, tc := range map[string]struct {
		change func(*tenancyv1alpha1.VirtualCluster)
		token  string
		same   bool
	}{
		"nothing":                {change: func(*tenancyv1alpha1.VirtualCluster) {}, same: true},
		"a label":                {change: func(vc *tenancyv1alpha1.VirtualCluster) { vc.Labels = map[string]string{"team": "a"} }, same: true},
		"a condition":            {change: func(vc *tenancyv1alpha1.VirtualCluster) { vc.Status.Conditions = []metav1.Condition{{Type: "Ready"}} }, same: true},
		"the default domain":     {change: func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.ClusterDomain = "cluster.local" }, same: true},
		"the token":              {change: func(*tenancyv1alpha1.VirtualCluster) {}, token: "t2"},
		"another object":         {change: func(vc *tenancyv1alpha1.VirtualCluster) { vc.UID = "new" }},
		"the domain":             {change: func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.ClusterDomain = "a.local" }},
		"the ranges of Services": {change: func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.ServiceCIDRs = []string{"10.96.0.0/12"} }},
		"opaque prefixes":        {change: func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.OpaqueMetaPrefixes = []string{"a.io/"} }},
		"transparent prefixes":   {change: func(vc *tenancyv1alpha1.VirtualCluster) { vc.Spec.TransparentMetaPrefixes = []string{"a.io/"} }},
	} {
		token := tc.token
		if token == "" {
			token = "t1"
		}
		_, got := resolve(tc.change, token)
		require.Equal(t, tc.same, got == identity, name)
	}
}

// TestReconcileWithoutAMetaCluster: a read that fails is an error, and stops nothing.
func TestReconcileWithoutAMetaCluster(t *testing.T) {
	t.Parallel()
	h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
	h.Client = interceptor.NewClient(h.Client.(client.WithWatch), interceptor.Funcs{Get: func(
		context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption,
	) error {
		return errors.New("connection refused")
	}})
	_, err := h.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "a"}})
	require.EqualError(t, err, "getting the VirtualCluster: connection refused")
}
