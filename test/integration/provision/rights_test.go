package provision

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/superpool/superpool/internal/grants"
	"github.com/superpool/superpool/test/controlplane"
)

// grant runs what vc-scheduler grants, with the rights that are shipped for it, until the test ends.
func (w *world) grant(t *testing.T, meta *controlplane.ControlPlane) {
	t.Helper()
	account, err := controlplane.Account(t.Context(), meta, "base/vc-scheduler-rbac.yaml", "vc-manager", "vc-scheduler")
	require.NoError(t, err)
	w.asScheduler, err = client.New(account.Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	mgr, err := ctrl.NewManager(account.Config, ctrl.Options{
		Scheme: controlplane.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	require.NoError(t, err)
	granter := &grants.Controller{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), SyncerNamespace: "vc-manager", Clock: clock.RealClock{}}
	require.NoError(t, granter.SetupWithManager(mgr))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
}

// TestRights: vc-manager reads and writes what is a tenant's in its root namespace, and its own beside the
// VirtualCluster. Who takes it has nothing of the meta cluster's, nor of what others have beside VirtualClusters, and
// who takes vc-scheduler does not get what it grants.
func TestRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Hour)
	require.Eventually(t, func() bool { return w.upToDate(t) == "Waiting for etcd" }, patience, tick)
	ctx := t.Context()
	secret := func(namespace, name string, kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: kind}
	}
	for _, theirs := range []*corev1.Secret{secret("kube-system", "theirs", ""), secret("default", "theirs", ""), secret(root, "theirs", "")} {
		require.NoError(t, w.client.Create(ctx, theirs))
	}
	foreground := []client.DeleteOption{client.DryRunAll, client.PropagationPolicy(metav1.DeletePropagationForeground)}
	set := func(namespace string) client.Object {
		pods := map[string]string{"a": "b"}
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}, Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pods}, Replicas: ptr.To[int32](0),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pods}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		}}
	}
	token := secret("default", "acme-vn-agent", corev1.SecretTypeServiceAccountToken)
	token.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	manager := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "vc-manager", Name: "vc-manager"}
	itself := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "vc-manager", Name: "vc-scheduler"}
	bind := func(namespace, role string, subjects ...rbacv1.Subject) client.Object {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tried"}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
	}
	m, s := w.asManager, w.asScheduler
	own := secret(root, "own", corev1.SecretTypeTLS)
	own.Data = map[string][]byte{corev1.TLSCertKey: nil, corev1.TLSPrivateKeyKey: nil}
	require.Eventually(t, func() bool {
		isRefused := apierrors.IsForbidden(s.Create(ctx, bind("kube-system", "superpool:control-planes", manager), client.DryRunAll))
		return isRefused && apierrors.IsForbidden(m.Create(ctx, token, client.DryRunAll))
	}, patience, tick, "policies are in force")
	for _, tc := range []struct {
		name string
		try  func() error
		// refusal is what the answer says, "" where it is done.
		refusal string
	}{
		{"a Secret of a root namespace", func() error { return m.Get(ctx, client.ObjectKey{Namespace: root, Name: "ca"}, &corev1.Secret{}) }, ""},
		{"one more there", func() error { return m.Create(ctx, own, client.DryRunAll) }, ""},
		{"a StatefulSet there", func() error { return m.Create(ctx, set(root), client.DryRunAll) }, ""},
		{"a pod there that may become root", func() error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: "own"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			return w.client.Create(ctx, pod)
		}, "violates PodSecurity"},
		{"its kubeconfig beside a VirtualCluster", func() error {
			return client.IgnoreNotFound(m.Get(ctx, client.ObjectKey{Namespace: "default", Name: "acme-kubeconfig"}, &corev1.Secret{}))
		}, ""},
		{"the authority of vn-agents", func() error {
			return m.Get(ctx, client.ObjectKey{Namespace: "vc-manager", Name: "vn-agent-client-ca"}, &corev1.Secret{})
		}, ""},
		{"a Secret of the meta cluster", func() error {
			return m.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "theirs"}, &corev1.Secret{})
		}, "cannot get resource"},
		{"all Secrets", func() error { return m.List(ctx, &corev1.SecretList{}) }, "cannot list resource"},
		{"all of a root namespace", func() error { return m.List(ctx, &corev1.SecretList{}, client.InNamespace(root)) }, "cannot list resource"},
		{"a ConfigMap of the meta cluster", func() error {
			return m.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "extension-apiserver-authentication"}, &corev1.ConfigMap{})
		}, "cannot get resource"},
		{"pods of others", func() error { return m.List(ctx, &corev1.PodList{}, client.InNamespace("default")) }, "cannot list resource"},
		{"a StatefulSet of others", func() error { return m.Create(ctx, set("default")) }, "cannot create resource"},
		{"a Secret for others", func() error { return m.Create(ctx, secret("kube-system", "own", "")) }, "cannot create resource"},
		{"another's Secret beside a VirtualCluster", func() error {
			return m.Get(ctx, client.ObjectKey{Namespace: "default", Name: "theirs"}, &corev1.Secret{})
		}, "cannot get resource"},
		{"that one, overwritten", func() error { return m.Update(ctx, secret("default", "theirs", "")) }, "is not vc-manager's"},
		{"that one, as a deletion shows it", func() error { return m.Delete(ctx, secret("default", "theirs", ""), foreground...) }, "is not vc-manager's"},
		{"another's, in a root namespace", func() error { return m.Update(ctx, secret(root, "theirs", "")) }, "is not vc-manager's"},
		{"a token of another's service account", func() error { return m.Create(ctx, token) }, "no Secrets of this type"},
		{"a grant by vc-manager", func() error { return m.Create(ctx, bind(root, "superpool:control-planes", manager)) }, "cannot create resource"},

		{"what vc-manager has in a root namespace", func() error { return s.Create(ctx, bind(root, "superpool:control-planes", manager), client.DryRunAll) }, ""},
		{"the same for nobody", func() error { return s.Create(ctx, bind(root, "superpool:control-planes"), client.DryRunAll) }, ""},
		{"the same for vc-scheduler", func() error { return s.Create(ctx, bind(root, "superpool:control-planes", itself)) }, "is for the service account vc-manager"},
		{"for both", func() error { return s.Create(ctx, bind(root, "superpool:control-planes", manager, itself)) }, "is for the service account vc-manager"},
		{"for a user of that name", func() error {
			return s.Create(ctx, bind(root, "superpool:control-planes", rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "vc-manager"}))
		}, "is for the service account vc-manager"},
		{"elsewhere", func() error { return s.Create(ctx, bind("kube-system", "superpool:control-planes", manager)) }, "is for root namespaces"},
		{"what vc-manager has beside VirtualClusters", func() error {
			return s.Create(ctx, bind("default", "superpool:tenant-credentials", manager), client.DryRunAll)
		}, ""},
		{"the same for vc-scheduler, beside VirtualClusters", func() error { return s.Create(ctx, bind("default", "superpool:tenant-credentials", itself)) }, "is for the service account vc-manager"},
		{"itself, in what is granted", func() error {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"subjects": [{"kind": "ServiceAccount", "namespace": "vc-manager", "name": "vc-scheduler"}]}`))
			return s.Patch(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: "superpool:control-planes"}}, patch)
		}, "is for the service account vc-manager"},
		{"another ClusterRole", func() error { return s.Create(ctx, bind(root, "cluster-admin", manager)) }, "attempting to grant RBAC permissions not currently held"},
		{"everywhere", func() error {
			return s.Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "tried"}, Subjects: []rbacv1.Subject{manager}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "superpool:control-planes"},
			})
		}, "cannot create resource"},
		{"a Role to write Secrets", func() error {
			return s.Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: "tried"}, Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"ca"}, Verbs: []string{"update"},
			}}})
		}, "attempting to grant RBAC permissions not currently held"},
		{"a Secret by vc-scheduler", func() error { return s.Create(ctx, secret(root, "tried", "")) }, "cannot create resource"},
	} {
		err := tc.try()
		if tc.refusal == "" {
			require.NoError(t, err, tc.name)
			continue
		}
		require.ErrorContains(t, err, tc.refusal, tc.name)
		require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%s: %v", tc.name, err)
	}
}
