package vnagent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/superpool/superpool/test/controlplane"
)

// TestRightsOfANode sets up vn-agents for two nodes of a real super cluster. The account of each lets its own kubelet
// serve it, and nothing else: who has one node has that one.
func TestRightsOfANode(t *testing.T) {
	t.Parallel()
	started, stop, err := controlplane.Start(controlplane.Options{})
	t.Cleanup(stop)
	require.NoError(t, err)
	super := started[0]
	admin, err := kubernetes.NewForConfig(super.Config)
	require.NoError(t, err)
	for _, name := range []string{"n1", "n2.example.com"} {
		_, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	setUp(t, super)
	setUp(t, super, "n1") // once more, as after a node has joined

	account := user{name: "system:serviceaccount:vc-manager:vn-agent-n1", groups: []string{"system:serviceaccounts", "system:serviceaccounts:vc-manager", "system:authenticated"}}
	for _, tc := range []struct {
		name string
		authorizationv1.ResourceAttributes
		want bool
	}{
		{name: "pods and logs", ResourceAttributes: onNode("get", "n1", "proxy"), want: true},
		{name: "exec", ResourceAttributes: onNode("create", "n1", "proxy"), want: true},
		{name: "summary", ResourceAttributes: onNode("get", "n1", "stats"), want: true},
		{name: "metrics", ResourceAttributes: onNode("get", "n1", "metrics"), want: true},
		{name: "logs of another node", ResourceAttributes: onNode("get", "n2.example.com", "proxy")},
		{name: "exec on another node", ResourceAttributes: onNode("create", "n2.example.com", "proxy")},
		{name: "metrics of another node", ResourceAttributes: onNode("get", "n2.example.com", "metrics")},
		{name: "exec on any node", ResourceAttributes: onNode("create", "", "proxy")},
		{name: "its Node", ResourceAttributes: onNode("get", "n1", "")},
		{name: "changes of its kubelet", ResourceAttributes: onNode("update", "n1", "proxy")},
		{name: "pods", ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods"}},
		{name: "exec by the API server", ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: "a-web", Name: "p"}},
		{name: "Secrets", ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: "vc-manager", Name: "vn-agent-tls"}},
		{name: "tokens of others", ResourceAttributes: authorizationv1.ResourceAttributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "vc-manager", Name: "vn-agent-n2.example.com"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: account.name, Groups: account.groups, ResourceAttributes: &tc.ResourceAttributes},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, tc.want, review.Status.Allowed, review.Status.Reason)
		})
	}
	t.Run("by the API server", func(t *testing.T) {
		t.Parallel()
		client := account.client(t, super.Config)
		_, err := client.CoreV1().RESTClient().Get().Resource("nodes").Name("n2.example.com").SubResource("proxy").Suffix("pods").DoRaw(t.Context())
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		_, err = client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=n2.example.com"})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
	t.Run("a kubelet takes no account of another node", func(t *testing.T) {
		t.Parallel()
		kubelet := user{name: "system:node:n1", groups: []string{"system:nodes", "system:authenticated"}}.client(t, super.Config)
		_, err := kubelet.CoreV1().ServiceAccounts("vc-manager").CreateToken(t.Context(), "vn-agent-n2.example.com", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
	t.Run("what belongs to the Node goes with it", func(t *testing.T) {
		t.Parallel()
		node, err := admin.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		require.NoError(t, err)
		role, err := admin.RbacV1().ClusterRoles().Get(t.Context(), "superpool:vn-agent:n1", metav1.GetOptions{})
		require.NoError(t, err)
		agent, err := admin.AppsV1().DaemonSets("vc-manager").Get(t.Context(), "vn-agent-n1", metav1.GetOptions{})
		require.NoError(t, err)
		want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: node.UID}}
		require.Equal(t, [][]metav1.OwnerReference{want, want}, [][]metav1.OwnerReference{role.OwnerReferences, agent.OwnerReferences})
	})
}

// setUp runs hack/setup-vn-agent.sh for nodes, or for all.
func setUp(t *testing.T, super *controlplane.ControlPlane, nodes ...string) {
	t.Helper()
	root, err := controlplane.Root()
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, super.KubeConfig, 0o600))
	command := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "setup-vn-agent.sh"), append([]string{"--kubeconfig", kubeconfig}, nodes...)...) //nolint:gosec // our own script
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
}

// user is somebody whom the administrator acts as.
type user struct {
	name   string
	groups []string
}

func (u user) client(t *testing.T, admin *rest.Config) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: u.name, Groups: u.groups}
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

// onNode is what a kubelet asks for, and the API server's proxy.
func onNode(verb, name, subresource string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes", Name: name, Subresource: subresource}
}
