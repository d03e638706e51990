package provision

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// asCLI in the environment lets the test's program be kubectl-vc.
const asCLI = "SUPERPOOL_TEST_KUBECTL_VC"

// vc runs kubectl vc with the administrator's kubeconfig of the meta cluster, and returns what it prints.
func (w *world) vc(t *testing.T, args ...string) (out, said string, err error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], args...)
	var printed, told bytes.Buffer
	command.Stdout, command.Stderr = &printed, &told
	command.Env = append(os.Environ(), asCLI+"=1", "KUBECONFIG="+w.admin, "HTTPS_PROXY="+w.kubelet.network)
	err = command.Run()
	return printed.String(), told.String(), err
}

// serves says that the pool serves the tenant as it is now, as vc-scheduler does.
func (w *world) serves(t *testing.T) {
	t.Helper()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		vc := w.current(t)
		meta.SetStatusCondition(&vc.Status.Conditions, metav1.Condition{
			Type: tenancyv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: tenancyv1alpha1.ReasonConnected, ObservedGeneration: vc.Generation,
		})
		return w.client.Status().Update(t.Context(), vc)
	}))
}

// TestKubectlVC: a person makes, uses, changes and deletes a tenant by kubectl vc: what is refused changes nothing, dry runs
// neither, and what is waited for is said.
func TestKubectlVC(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Hour)
	beta := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "beta"}}
	out, said, err := w.vc(t, "create", "beta", "--service-cidr=10.98.0.0/16", "--dry-run=client", "-o", "yaml")
	require.NoError(t, err, said)
	made := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(out), made))
	require.Equal(t, "v1.37", made.Spec.ClusterVersionName, "the only one that there is")
	for _, test := range []struct {
		args []string
		out  string
		said string
	}{
		{args: []string{"create", "beta", "--dry-run=server"}, out: "virtualcluster.tenancy.x-k8s.io/beta created (server dry run)\n"},
		{args: []string{"create", "beta", "--expose=NodePort"}, said: "NodePort needs hosts"},
		{args: []string{"create", "beta", "--cluster-version=v1.37", "--kubeconfig-secret=beta"}, said: "--kubeconfig-secret is of a control plane that there is"},
		{args: []string{"create", "beta", "-f", "vc.yaml"}, said: "give the NAME of the tenant, or a file with --filename"},
		{args: []string{"pause", "beta"}, said: `virtualclusters.tenancy.x-k8s.io "beta" not found in namespace default: kubectl get virtualclusters -A`},
		{args: []string{"pause", "acme", "--dry-run=server"}, out: "virtualcluster.tenancy.x-k8s.io/acme paused (server dry run)\n"},
		{args: []string{"pause", "acme", "--dry-run=client"}, out: "virtualcluster.tenancy.x-k8s.io/acme paused (dry run)\n"},
		{args: []string{"upgrade", "acme"}, said: "--to is missing: kubectl get clusterversions"},
		{args: []string{"restore", "acme", "yesterday", "--yes"}, said: "name a Job of the tenant's root namespace"},
		{args: []string{"delete", "acme", "--dry-run=server"}, out: "virtualcluster.tenancy.x-k8s.io/acme deleted (server dry run)\n"},
	} {
		before := w.current(t).Generation
		out, said, err := w.vc(t, test.args...)
		require.Equal(t, test.said == "", err == nil, "%v: %s", test.args, said)
		require.Equal(t, test.out, out, "%v", test.args)
		require.Contains(t, said, test.said, "%v", test.args)
		require.Equal(t, before, w.current(t).Generation, "%v", test.args)
		require.True(t, apierrors.IsNotFound(w.client.Get(t.Context(), client.ObjectKeyFromObject(beta), beta)), "%v", test.args)
	}

	w.whole(t, "v1.37.2")
	w.usesCLI(t)
	version := &tenancyv1alpha1.ClusterVersion{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Name: "v1.37"}, version))
	later := &tenancyv1alpha1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Spec: version.Spec}
	later.Spec.ControllerManager.ExtraArgs = map[string]string{"v": "1"}
	require.NoError(t, w.client.Create(t.Context(), later))
	out, said, err = w.vc(t, "upgrade", "acme", "--to", "none")
	require.Error(t, err)
	require.Contains(t, said, "error: virtualcluster.tenancy.x-k8s.io/acme: There is no ClusterVersion none; what runs goes on")
	require.Empty(t, out)
	out, said, err = w.vc(t, "upgrade", "acme", "--to", "later")
	require.NoError(t, err, said)
	require.Equal(t, "virtualcluster.tenancy.x-k8s.io/acme upgraded\n", out)
	require.Contains(t, said, "all parts are as they are to be, of version v1.37.2")
	managers := &appsv1.Deployment{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.kubelet.namespace, Name: "kube-controller-manager"}, managers))
	require.Contains(t, managers.Spec.Template.Spec.Containers[0].Command, "--v=1")
	require.Equal(t, []int32{1, 1, 1}, []int32{managers.Status.Replicas, managers.Status.UpdatedReplicas, managers.Status.AvailableReplicas}, "it waited for the new one")

	_, said, err = w.vc(t, "delete", "acme")
	require.Error(t, err)
	require.Contains(t, said, "use --yes")
	out, said, err = w.vc(t, "delete", "acme", "--yes")
	require.NoError(t, err, said)
	require.Equal(t, "virtualcluster.tenancy.x-k8s.io/acme deleted\n", out)
	require.Contains(t, said, "nothing is left of it in super clusters")
}

// usesCLI uses a tenant by kubectl vc.
func (w *world) usesCLI(t *testing.T) {
	t.Helper()
	_, said, err := w.vc(t, "resume", "acme", "--timeout=2s")
	require.Error(t, err)
	require.Contains(t, said, "acme is not resumed after 2s: waiting for vc-scheduler")
	w.serves(t)
	out, said, err := w.vc(t, "resume", "acme")
	require.NoError(t, err, said)
	require.Equal(t, "virtualcluster.tenancy.x-k8s.io/acme unchanged\n", out)
	require.Contains(t, said, "the pool serves it")

	text, said, err := w.vc(t, "kubeconfig", "acme", "--username=anna", "--group=developers", "--for=10m")
	require.NoError(t, err, said)
	file := filepath.Join(t.TempDir(), "anna.kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	out, said, err = w.vc(t, "exec", "acme", "--", filepath.Join(w.kubelet.bin, "kubectl"), "--kubeconfig", file, "auth", "whoami", "-o", "yaml")
	require.NoError(t, err, said)
	review := &authenticationv1.SelfSubjectReview{}
	require.NoError(t, yaml.Unmarshal([]byte(out), review))
	require.Equal(t, "anna", review.Status.UserInfo.Username)
	require.Contains(t, review.Status.UserInfo.Groups, "developers")
	_, said, err = w.vc(t, "kubeconfig", "acme", "--username=anna", "--for=1m")
	require.Error(t, err)
	require.Contains(t, said, "--for 1m0s: use 10m0s to 8760h0m0s")

	out, said, err = w.vc(t, "exec", "acme", "--", filepath.Join(w.kubelet.bin, "kubectl"), "get", "namespace", "kube-system", "-o", "name")
	require.NoError(t, err, said)
	require.Equal(t, "namespace/kube-system\n", out)
	var ended *exec.ExitError
	_, _, err = w.vc(t, "exec", "acme", "--", "sh", "-c", "exit 3")
	require.ErrorAs(t, err, &ended)
	require.Equal(t, 3, ended.ExitCode())
}
