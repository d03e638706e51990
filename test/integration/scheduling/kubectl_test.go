package scheduling

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	kubectlvc "github.com/superpool/superpool/cmd/kubectl-vc/app"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
)

// operator is who runs kubectl vc, with the rights that its help names and no others.
type operator struct{ kubeconfig string }

func (w *world) operator(t *testing.T) *operator {
	t.Helper()
	const name = "pool-operator"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "patch"}},
		{APIGroups: []string{schedulerv1alpha1.GroupVersion.Group}, Resources: []string{"namespaceplacements"}, Verbs: []string{"list", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
		{APIGroups: []string{tenancyv1alpha1.GroupVersion.Group}, Resources: []string{"virtualclusters"}, Verbs: []string{"get", "list"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	for _, object := range []client.Object{role, binding} { // the tests share them
		require.NoError(t, client.IgnoreAlreadyExists(w.meta.Create(t.Context(), object)))
	}
	o := &operator{kubeconfig: filepath.Join(t.TempDir(), "meta.kubeconfig")}
	require.NoError(t, os.WriteFile(o.kubeconfig, w.metaPlane.KubeConfig, 0o600))
	require.Eventually(t, func() bool { // the API server has seen the rights
		_, _, code := o.vc(t, "pool")
		return code == 0
	}, patience, tick, "the operator may list nodes and namespaceplacements")
	return o
}

// vc runs kubectl vc, and returns what it prints and says, and its exit code. Nobody answers what it asks.
func (o *operator) vc(t *testing.T, args ...string) (printed, said string, code int) {
	t.Helper()
	var out, told bytes.Buffer
	command := kubectlvc.NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &told})
	command.SetArgs(slices.Insert(args, 1, "--kubeconfig", o.kubeconfig, "--as", "pool-operator", "-n", metav1.NamespaceDefault))
	err := command.ExecuteContext(t.Context())
	if err != nil {
		told.WriteString(err.Error())
	}
	return out.String(), told.String(), cli.ExitCode(err)
}

// does runs kubectl vc, and holds that it prints what is wanted and nothing else.
func (o *operator) does(t *testing.T, want string, args ...string) {
	t.Helper()
	printed, said, code := o.vc(t, args...)
	require.Zero(t, code, "%v: %s", args, said)
	require.Equal(t, want, printed, "%v", args)
}

// status returns what kubectl vc pool says of a super cluster.
func (o *operator) status(t *testing.T, id string) (status []string, namespaces []string) {
	t.Helper()
	printed, said, code := o.vc(t, "pool", id, "-o", "json")
	require.Zero(t, code, said)
	var report struct {
		SuperClusters []struct {
			Status   []string
			Holdings []struct{ Tenant, Namespace string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(printed), &report))
	require.Len(t, report.SuperClusters, 1)
	for _, holding := range report.SuperClusters[0].Holdings {
		namespaces = append(namespaces, holding.Tenant+" "+holding.Namespace)
	}
	return report.SuperClusters[0].Status, namespaces
}

// putBack makes all super clusters as they are without an operator when the test ends, however it does.
func (w *world) putBack(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		for id := range w.supers {
			w.changeNode(t, id, func(node *corev1.Node) {
				node.Spec.Unschedulable = false
				node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "maintenance" })
			})
		}
	})
}

// TestPoolByKubectl: an operator sees the pool, and cordons, drains and undrains a super cluster by kubectl vc, with the rights
// that its help names.
func TestPoolByKubectl(t *testing.T) {
	w := shared
	w.run(t)
	w.putBack(t)
	o := w.operator(t)
	log := filepath.Join(t.TempDir(), "log")
	printed, said, code := o.vc(t, "drain", "--all", "--one-by-one", "--each", "echo $SUPERCLUSTER >>"+log)
	require.Zero(t, code, said)
	require.Equal(t, "node/r1 drained\nnode/r1 undrained\nnode/r2 drained\nnode/r2 undrained\n", printed)
	ran, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "r1\nr2\n", string(ran))
	require.True(t, w.superClustersReady(t), "both are in use again")

	here, there := w.placedIn(t, "by-kubectl", "100m", "100Mi")
	w.superQuota(t, here, "by-kubectl", "100m", "100Mi")
	status, namespaces := o.status(t, here)
	require.Equal(t, []string{"Ready"}, status)
	require.Equal(t, []string{"default/tenant by-kubectl"}, namespaces)
	for verb, want := range map[string]string{
		"pool " + here:       "default/tenant by-kubectl 1 100m 100Mi",
		"pool":               here + " Ready 100m/100 0%",
		"list":               "tenant - Ready 1/1 100m/100m 100Mi/100Mi",
		"list -A":            "default tenant - Ready 1/1",
		"describe tenant":    "by-kubectl: 1 of 1 slice, quota cpu=100m memory=100Mi",
		"pool node/" + here:  "default/tenant by-kubectl 1 100m 100Mi",
		"top":                here + " 1 cpu 100 ? 100m 0% 0",
		"top tenants":        "default/tenant 1/1 cpu 100m 100m 0% 0",
		"__complete drain r": "r1 r2 :4",
	} {
		printed, said, code := o.vc(t, strings.Fields(verb)...)
		require.Zero(t, code, said)
		require.Contains(t, strings.Join(strings.Fields(printed), " "), want, verb)
	}

	for _, dry := range []string{"client", "server"} {
		for _, verb := range []string{"cordon", "drain"} {
			_, said, code := o.vc(t, verb, here, "--dry-run="+dry)
			require.Zero(t, code, said)
		}
	}
	status, _ = o.status(t, here)
	require.Equal(t, []string{"Ready"}, status, "dry runs write nothing")
	o.does(t, "node/"+here+" cordoned\n", "cordon", here)
	status, _ = o.status(t, here)
	require.Equal(t, []string{"Ready", "cordoned"}, status)
	o.does(t, "node/"+here+" uncordoned\n", "uncordon", here)
	o.does(t, "node/"+here+" unchanged\n", "uncordon", here)

	_, said, code = o.vc(t, "drain", here, "--timeout=0s")
	require.Equal(t, 1, code, "the syncer has not answered yet")
	require.Contains(t, said, "it goes on to be drained")
	w.wantShown(t, "by-kubectl", `{"`+there+`":1}`)
	w.superQuota(t, here, "by-kubectl", "0", "0") // the syncer's answer
	o.does(t, "node/"+here+" drained\n", "drain", here, "--timeout="+patience.String())
	status, namespaces = o.status(t, here)
	require.Equal(t, []string{"Ready", "Drained"}, status)
	require.Empty(t, namespaces)
	o.does(t, "node/"+here+" undrained\n", "undrain", here)
	w.wantDrained(t, here, "")
}

// TestADrainByKubectlThatDoesNotFit: what would not fit elsewhere is said before anything is written.
func TestADrainByKubectlThatDoesNotFit(t *testing.T) {
	w := shared
	w.run(t)
	w.putBack(t)
	w.placedIn(t, "large-kubectl-1", "60", "1Gi")
	here, _ := w.placedIn(t, "large-kubectl-2", "60", "1Gi")
	o := w.operator(t)
	printed, said, code := o.vc(t, "drain", here, "--dry-run=client")
	require.Equal(t, 3, code, said)
	require.Contains(t, printed, "large-kubectl-2 waits for cpu=60")
	_, said, code = o.vc(t, "drain", here)
	require.Equal(t, 1, code, said)
	require.Contains(t, said, "large-kubectl-2 waits for cpu=60")
	require.Contains(t, said, "nothing was changed")
	node := &corev1.Node{}
	require.NoError(t, w.meta.Get(t.Context(), types.NamespacedName{Name: here}, node))
	require.False(t, slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Effect == corev1.TaintEffectNoExecute }))
}
