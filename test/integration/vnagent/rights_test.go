package vnagent_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
	started, stop, err := controlplane.Start(controlplane.Options{Role: controlplane.Super})
	t.Cleanup(stop)
	require.NoError(t, err)
	super := started[0]
	admin, err := kubernetes.NewForConfig(super.Config)
	require.NoError(t, err)
	for _, name := range []string{"n1", "n2.example.com", "7"} { // a name may look like a number
		createNode(t, admin, name)
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
			status := account.may(t, admin, tc.ResourceAttributes)
			require.Equal(t, tc.want, status.Allowed, status.Reason)
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
	t.Run("by the API server, of its own node", func(t *testing.T) {
		t.Parallel()
		client := withToken(t, admin, super.Config, "vn-agent-n1")
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.ErrorContains(c, proxied(t, client, http.MethodGet), refusal)
		}, 30*time.Second, 50*time.Millisecond, "the policy is not in force")
		node, err := admin.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		require.NoError(t, err)
		// A kubelet may write any address. This one is the only kind that the proxy does not connect to.
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
		_, err = user{name: "system:node:n1", groups: []string{"system:nodes", "system:authenticated"}}.client(t, super.Config).
			CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.ErrorContains(t, proxied(t, admin, http.MethodGet), "address not allowed", "it takes the address that the node says")
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			err := proxied(t, client, method)
			require.True(t, apierrors.IsForbidden(err), "%s: %v", method, err)
			require.ErrorContains(t, err, refusal, method)
		}
		for _, verb := range []string{"get", "create"} {
			require.True(t, account.may(t, admin, onNode(verb, "n1", "proxy")).Allowed, "its kubelet lets it in all the same")
		}
	})
	t.Run("a kubelet takes no account of another node", func(t *testing.T) {
		t.Parallel()
		pod, err := admin.CoreV1().Pods("vc-manager").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "vn-agent-n1"},
			Spec: corev1.PodSpec{
				NodeName: "n1", ServiceAccountName: "vn-agent-n1",
				Containers: []corev1.Container{{Name: "vn-agent", Image: "vn-agent"}},
				// As admission adds it where controllers run.
				Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
				}}}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		take := func(node, account string) error {
			kubelet := user{name: "system:node:" + node, groups: []string{"system:nodes", "system:authenticated"}}.client(t, super.Config)
			_, err := kubelet.CoreV1().ServiceAccounts("vc-manager").CreateToken(t.Context(), account, &authenticationv1.TokenRequest{
				Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
			}, metav1.CreateOptions{})
			return err
		}
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.NoError(c, take("n1", "vn-agent-n1"))
		}, 30*time.Second, 50*time.Millisecond, "it takes that of its own pod")
		for _, tc := range []struct{ node, account string }{{"n1", "vn-agent-n2.example.com"}, {"n2.example.com", "vn-agent-n1"}} {
			err := take(tc.node, tc.account)
			require.True(t, apierrors.IsForbidden(err), "%v: %v", tc, err)
		}
	})
	t.Run("what is named after the Node belongs to it", func(t *testing.T) {
		t.Parallel()
		node, err := admin.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		require.NoError(t, err)
		serviceAccount, err := admin.CoreV1().ServiceAccounts("vc-manager").Get(t.Context(), "vn-agent-n1", metav1.GetOptions{})
		require.NoError(t, err)
		role, err := admin.RbacV1().ClusterRoles().Get(t.Context(), "superpool:vn-agent:n1", metav1.GetOptions{})
		require.NoError(t, err)
		binding, err := admin.RbacV1().ClusterRoleBindings().Get(t.Context(), "superpool:vn-agent:n1", metav1.GetOptions{})
		require.NoError(t, err)
		agent, err := admin.AppsV1().DaemonSets("vc-manager").Get(t.Context(), "vn-agent-n1", metav1.GetOptions{})
		require.NoError(t, err)
		want := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: node.UID}}
		for _, object := range []metav1.Object{serviceAccount, role, binding, agent} {
			require.Equal(t, want, object.GetOwnerReferences(), "%T", object)
		}
	})
	t.Run("a name that is no label value", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("n", 64)
		createNode(t, admin, long)
		output, err := runSetUp(t, super, long)
		require.Error(t, err)
		require.Contains(t, output, "longer than 63 characters")
	})
}

// refusal is what the policy of manifests/vn-agent/node says.
const refusal = "is for its kubelet"

// proxied asks the API server's proxy of n1 for pods.
func proxied(t *testing.T, client kubernetes.Interface, method string) error {
	t.Helper()
	return client.CoreV1().RESTClient().Verb(method).Resource("nodes").Name("n1").SubResource("proxy").Suffix("pods").Do(t.Context()).Error()
}

func createNode(t *testing.T, admin kubernetes.Interface, name string) {
	t.Helper()
	_, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// setUp runs hack/setup-vn-agent.sh for nodes, or for all.
func setUp(t *testing.T, super *controlplane.ControlPlane, nodes ...string) {
	t.Helper()
	output, err := runSetUp(t, super, nodes...)
	require.NoError(t, err, output)
}

func runSetUp(t *testing.T, super *controlplane.ControlPlane, nodes ...string) (string, error) {
	t.Helper()
	root, err := controlplane.Root()
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, super.KubeConfig, 0o600))
	command := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "setup-vn-agent.sh"), append([]string{"--kubeconfig", kubeconfig}, nodes...)...) //nolint:gosec // our own script
	output, err := command.CombinedOutput()
	return string(output), err
}

// withToken returns a client with a token of a service account.
func withToken(t *testing.T, admin kubernetes.Interface, config *rest.Config, account string) kubernetes.Interface {
	t.Helper()
	token, err := admin.CoreV1().ServiceAccounts("vc-manager").CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
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

// may returns what a kubelet hears that asks the API server for a right of u.
func (u user) may(t *testing.T, admin kubernetes.Interface, attributes authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	t.Helper()
	review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: u.name, Groups: u.groups, ResourceAttributes: &attributes},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return review.Status
}

// onNode is what a kubelet asks for, and the API server's proxy.
func onNode(verb, name, subresource string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes", Name: name, Subresource: subresource}
}
