package controlplane_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/controlplane/launch"
)

// TestStart starts two real API servers at once: each is its own, with its own CA.
func TestStart(t *testing.T) {
	t.Parallel()
	crds, err := controlplane.SuperpoolCRDs()
	require.NoError(t, err)
	started, stop, err := controlplane.Start(
		controlplane.Options{CRDs: []string{crds}}, controlplane.Options{ServiceClusterIPRange: "10.1.0.0/16", DisableAdmission: []string{"ResourceQuota"}},
	)
	t.Cleanup(stop)
	require.NoError(t, err)
	require.Len(t, started, 2)
	meta, err := kubernetes.NewForConfig(started[0].Config)
	require.NoError(t, err)
	other, err := kubernetes.NewForConfig(started[1].Config)
	require.NoError(t, err)

	t.Run("the CRDs are installed", func(t *testing.T) {
		t.Parallel()
		resources, err := meta.Discovery().ServerResourcesForGroupVersion("tenancy.x-k8s.io/v1alpha1")
		require.NoError(t, err)
		require.NotEmpty(t, resources.APIResources)
		_, err = other.Discovery().ServerResourcesForGroupVersion("tenancy.x-k8s.io/v1alpha1")
		require.True(t, apierrors.IsNotFound(err))
	})
	t.Run("Services have addresses of the range", func(t *testing.T) {
		t.Parallel()
		service, err := other.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Regexp(t, `^10\.1\.`, service.Spec.ClusterIP)
	})
	t.Run("the kubeconfig is the administrator's", func(t *testing.T) {
		t.Parallel()
		config, err := clientcmd.RESTConfigFromKubeConfig(started[1].KubeConfig)
		require.NoError(t, err)
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Contains(t, review.Status.UserInfo.Groups, "system:masters")
	})
	t.Run("one's administrator is nobody for the other", func(t *testing.T) {
		t.Parallel()
		config := *started[0].Config
		config.Host, config.CAData = started[1].Config.Host, started[1].Config.CAData
		stranger, err := kubernetes.NewForConfig(&config)
		require.NoError(t, err)
		_, err = stranger.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsUnauthorized(err), "%v", err)
	})
	t.Run("a service account has its own rights alone", func(t *testing.T) {
		t.Parallel()
		account, err := controlplane.Account(t.Context(), started[0], "base/vc-scheduler-rbac.yaml", "vc-manager", "vc-scheduler")
		require.NoError(t, err)
		client, err := kubernetes.NewForConfig(account.Config)
		require.NoError(t, err)
		_, err = client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		_, err = client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
}

// TestStartAgain kills etcd and the API server and starts them again, as a bed's restart does: objects, certificates
// and tokens are as before.
func TestStartAgain(t *testing.T) {
	t.Parallel()
	root, err := controlplane.Root()
	require.NoError(t, err)
	ports, release, err := launch.ReservePorts()
	require.NoError(t, err)
	t.Cleanup(release)
	plane := &launch.ControlPlane{
		Name: "r1", Folder: t.TempDir(), Bin: filepath.Join(root, "bin"), Address: "127.0.0.1", Ports: ports, SharePorts: true,
		ServiceCIDR: "10.96.0.0/12",
	}
	running := map[launch.Program]*launch.Process{}
	t.Cleanup(func() {
		for _, process := range running {
			process.Kill()
		}
	})
	start := func(program launch.Program) {
		t.Helper()
		started, err := plane.Start(t.Context(), program)
		for _, process := range started {
			running[program] = process
		}
		require.NoError(t, err)
	}
	start(launch.Etcd)
	start(launch.APIServer)
	config, err := clientcmd.BuildConfigFromFlags("", plane.KubeconfigFile())
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ctx := t.Context()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "account"}}
	_, err = client.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "account", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)

	running[launch.Etcd].Kill()
	start(launch.Etcd)
	running[launch.APIServer].Kill()
	start(launch.APIServer)
	review, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token},
	}, metav1.CreateOptions{})
	require.NoError(t, err, "the kubeconfig of before is valid")
	require.True(t, review.Status.Authenticated, review.Status.Error)
	require.Equal(t, "system:serviceaccount:default:account", review.Status.User.Username)
}
