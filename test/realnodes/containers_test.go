//go:build realnodes

package realnodes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/fieldpath"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// accountDir is the mount path of a container's service account token.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// TestAccountOfAContainer runs kubectl in a container with the default token mount: the tenant's API server responds,
// and authenticates the pod's service account.
func TestAccountOfAContainer(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "account", 1)
	pod := tenant.create(t, namespace, newPod(t, "p", "exec sleep 3600"))
	tenant.run(t, namespace, "cp", filepath.Join(root(t), "bin", "kubectl"), "p:/tmp/kubectl")

	inContainer := fmt.Sprintf("/tmp/kubectl --server https://kubernetes.default.svc --certificate-authority %[1]s/ca.crt --token $(cat %[1]s/token) ", accountDir)
	var review struct {
		Status struct {
			UserInfo struct {
				Username string
				Extra    map[string][]string
			}
		}
	}
	output := tenant.run(t, namespace, "exec", "p", "--", "sh", "-c", inContainer+"auth whoami -o json")
	require.NoError(t, json.Unmarshal([]byte(output), &review), output)
	require.Equal(t, "system:serviceaccount:account:default", review.Status.UserInfo.Username)
	require.Equal(t, []string{string(pod.UID)}, review.Status.UserInfo.Extra["authentication.kubernetes.io/pod-uid"])
	require.Equal(t, []string{pod.Spec.NodeName}, review.Status.UserInfo.Extra["authentication.kubernetes.io/node-name"])
	// By its IP address, as rest.InClusterConfig connects.
	require.Equal(t, "system:serviceaccount:account:default\n", tenant.run(t, namespace, "exec", "p", "--", "/tmp/kubectl", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}{'\\n'}"))

	// The tenant's RBAC authorizes the requests: forbidden before the binding, allowed after it.
	refused, err := tenant.try(t, namespace, "exec", "p", "--", "sh", "-c", inContainer+"get pods")
	require.Error(t, err)
	require.Contains(t, refused, `User "system:serviceaccount:account:default" cannot list resource "pods"`)
	tenant.run(t, namespace, "create", "rolebinding", "view", "--clusterrole=view", "--serviceaccount=account:default")
	require.Equal(t, "pod/p\n", tenant.run(t, namespace, "exec", "p", "--", "sh", "-c", inContainer+"get pods -n account -o name"))

	// A super cluster does not accept the token: another API server has issued it.
	token := strings.TrimSpace(tenant.run(t, namespace, "exec", "p", "--", "cat", accountDir+"/token"))
	shown := func(server *cluster) error {
		config := rest.AnonymousClientConfig(server.config)
		config.BearerToken = token
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		_, err = client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err
	}
	require.NoError(t, shown(tenant))
	for _, other := range []string{"r1", "r2", tenant2(t).name} {
		err := shown(connect(t, other))
		require.True(t, apierrors.IsUnauthorized(err), "%s: %v", other, err)
	}
}

// TestWordsOfTheTenant checks that a container's environment and files hold the tenant's names, and none of the super
// cluster's.
func TestWordsOfTheTenant(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "words", 1)
	first := tenant.service(t, namespace, "first-service")
	pod := newPod(t, "p", "exec sleep 3600")
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{
		{Name: "MY_NAMESPACE", ValueFrom: field("metadata.namespace")},
		{Name: "MY_NAME", ValueFrom: field("metadata.name")},
		{Name: "MY_UID", ValueFrom: field("metadata.uid")},
		{Name: "MY_NODE", ValueFrom: field("spec.nodeName")},
		{Name: "NODE_AGAIN", Value: "on $(MY_NODE)"},
		{Name: "MY_IP", ValueFrom: field("status.podIP")},
		{Name: "MY_LABEL", ValueFrom: field("metadata.labels['app']")},
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "words", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
		{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
		{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		{Path: "annotations", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}},
		{Path: "restarted", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['kubectl.kubernetes.io/restartedAt']"}},
	}}}}}
	pod.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "noon"}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "words", MountPath: "/words"}}
	pod = tenant.create(t, namespace, pod)

	environment := fields(tenant.run(t, namespace, "exec", "p", "--", "env"))
	api, err := tenant.client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	require.NoError(t, err)
	require.Subset(t, environment, []string{
		"MY_NAMESPACE=words", "MY_NAME=p", "MY_LABEL=p", "MY_IP=" + pod.Status.PodIP, "HOSTNAME=p",
		"MY_NODE=" + pod.Spec.NodeName, "NODE_AGAIN=on " + pod.Spec.NodeName,
		"KUBERNETES_SERVICE_HOST=" + api.Spec.ClusterIP, "KUBERNETES_SERVICE_PORT=443",
		"FIRST_SERVICE_SERVICE_HOST=" + first.Spec.ClusterIP, "FIRST_SERVICE_SERVICE_PORT=80",
	})
	require.NotContains(t, environment, "MY_NODE=node-1", "what the super cluster calls it")
	for what, got := range map[string]string{
		"MY_UID=" + string(pod.UID):      strings.Join(environment, "\n"),
		"words":                          tenant.run(t, namespace, "exec", "p", "--", "cat", accountDir+"/namespace", "/words/namespace"),
		"search words.svc.cluster.local": tenant.run(t, namespace, "exec", "p", "--", "cat", "/etc/resolv.conf"),
	} {
		t.Run(what, func(t *testing.T) { require.Contains(t, got, what) })
	}
	all := tenant.run(t, namespace, "exec", "p", "--", "sh", "-c", "env; cat /words/* /etc/resolv.conf /etc/hosts /etc/hostname "+accountDir+"/namespace")
	require.NotContains(t, all, "vc-sample")

	// The files of a downward API volume hold the tenant's labels and annotations, and are updated with them.
	shows := func(file, want string) {
		t.Helper()
		eventually(t, "file "+file+" shows "+want, func(context.Context) (bool, error) {
			return tenant.run(t, namespace, "exec", "p", "--", "cat", "/words/"+file) == want, nil
		})
	}
	shows("labels", fieldpath.FormatMap(pod.Labels))
	shows("annotations", fieldpath.FormatMap(pod.Annotations))
	shows("restarted", "noon")
	tenant.run(t, namespace, "label", "pod", "p", "kubernetes.io/color=blue", "app=other", "--overwrite")
	tenant.run(t, namespace, "annotate", "pod", "p", "kubectl.kubernetes.io/restartedAt=night", "--overwrite")
	pod, err = tenant.client.CoreV1().Pods(namespace).Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "blue", pod.Labels["kubernetes.io/color"])
	shows("labels", fieldpath.FormatMap(pod.Labels))
	shows("annotations", fieldpath.FormatMap(pod.Annotations))
	shows("restarted", "night")
}

// TestServices places the pods of a Service in both super clusters, and connects to it from both.
func TestServices(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace, other := tenant.namespace(t, "services", 2), tenant.namespace(t, "services-other", 1)
	service := tenant.service(t, namespace, "web")
	var pods []*corev1.Pod
	clusters := sets.New[string]()
	for _, name := range []string{"web-1", "web-2"} {
		pod := newWebPod(t, name)
		pod.Labels["app"] = "web"
		pod = tenant.create(t, namespace, pod)
		pods = append(pods, pod)
		clusters.Insert(pod.Labels[schedulerv1alpha1.LabelSuperCluster])
	}
	require.Equal(t, []string{"r1", "r2"}, sets.List(clusters), "two slices are spread over both super clusters")
	asking := tenant.create(t, other, newWebPod(t, "asking"))

	for _, tc := range []struct {
		from *corev1.Pod
		host string
	}{
		{from: pods[0], host: service.Spec.ClusterIP},
		{from: pods[1], host: service.Spec.ClusterIP},
		{from: asking, host: service.Spec.ClusterIP},
		{from: pods[0], host: "web"},
		{from: pods[1], host: "web.services"},
		{from: asking, host: "web.services.svc"},
		{from: asking, host: "web.services.svc.cluster.local"},
	} {
		t.Run(fmt.Sprintf("from %s to %s", tc.from.Name, tc.host), func(t *testing.T) {
			eventually(t, "both pods answer", func(context.Context) (bool, error) {
				return tenant.dial(t, tc.from, tc.host, 80).Equal(sets.New("web-1", "web-2")), nil
			})
		})
	}
	t.Run("a name alone is of the own namespace", func(t *testing.T) {
		output, err := tenant.try(t, other, "exec", "asking", "--", "/agnhost", "connect", "--timeout=5s", "web:80")
		require.Error(t, err)
		require.Contains(t, output, "DNS")
		tenant.run(t, other, "exec", "asking", "--", "/agnhost", "connect", "--timeout=5s", "web.services:80")
	})
	t.Run("pods of two super clusters reach each other", func(t *testing.T) {
		require.Equal(t, []string{"web-2"}, sets.List(tenant.dial(t, pods[0], pods[1].Status.PodIP, 8080)))
		require.Equal(t, []string{"web-1"}, sets.List(tenant.dial(t, pods[1], pods[0].Status.PodIP, 8080)))
	})
}

// service creates a Service that selects the pods whose label app is its name.
func (c *cluster) service(t *testing.T, namespace, name string) *corev1.Service {
	t.Helper()
	service, err := c.client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return service
}

// dial returns the names of the pods that respond when a web pod requests /hostname of a host ten times. The API server
// asks it to: whom a tenant lets in besides is its own API server alone.
func (c *cluster) dial(t *testing.T, from *corev1.Pod, host string, port int) sets.Set[string] {
	t.Helper()
	query := url.Values{"host": {host}, "port": {fmt.Sprint(port)}, "protocol": {"http"}, "request": {"hostname"}, "tries": {"10"}}
	answer := c.run(t, from.Namespace, "get", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/dial?%s", from.Namespace, from.Name, query.Encode()))
	var dialed struct{ Responses []string }
	require.NoError(t, json.Unmarshal([]byte(answer), &dialed), answer)
	return sets.New(dialed.Responses...)
}
