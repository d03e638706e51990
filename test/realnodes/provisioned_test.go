//go:build realnodes

package realnodes_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// TestATenantComesAndGoes: a VirtualCluster that names a ClusterVersion is a tenant whose pods run, whose logs are read, and
// which leaves nothing when it is deleted.
func TestATenantComesAndGoes(t *testing.T) {
	const name = "fresh"
	meta := connect(t, "meta")
	began := time.Now()
	meta.apply(t, "default", fmt.Sprintf(`
apiVersion: tenancy.x-k8s.io/v1alpha1
kind: VirtualCluster
metadata: {name: fresh, namespace: default}
spec:
  clusterVersionName: v1.37
  serviceCIDRs: [10.100.0.0/16]
  serviceNodePortRange: 32500-32599
  exposure: {type: NodePort, hosts: [%q], nodePort: 30444}
`, addressOfNode(t, meta, "node-1")))
	t.Cleanup(func() { // where it failed before
		output, err := meta.command(context.WithoutCancel(t.Context()), t, "default", "delete", "virtualcluster", name, "--ignore-not-found", "--timeout=180s").CombinedOutput()
		if err != nil {
			t.Errorf("%s", output)
		}
	})
	meta.run(t, "default", "wait", "virtualcluster/"+name, "--for=condition=Ready", "--timeout=120s")
	tenant := meta.tenantOf(t, name)
	const namespace = "first" // it ends with the tenant
	tenant.room(t, namespace)
	pod := tenant.create(t, namespace, newPod(t, "hello", "echo hello; exec sleep 3600"))
	t.Logf("a pod runs on %s %.0f s after the VirtualCluster was applied", pod.Spec.NodeName, time.Since(began).Seconds())
	eventually(t, "its logs are read", func(context.Context) (bool, error) { // an API server closes its connections once when it has a certificate for vn-agents
		said, err := tenant.try(t, namespace, "logs", "hello")
		return err == nil && said == "hello\n", nil
	})

	key := meta.run(t, "default", "get", "virtualcluster", name, "-o", "jsonpath={.status.clusterNamespace}")
	volumes := filepath.Join(bed(t), "nodes", "meta", "var", "local-path-provisioner", "*_"+key+"_*")
	var left []string
	eventually(t, "there are the volume of etcd, and that of its backups", func(context.Context) (made bool, err error) {
		left, err = filepath.Glob(volumes)
		return len(left) == 2, err
	})
	deleted := time.Now()
	meta.run(t, "default", "delete", "virtualcluster", name, "--timeout=120s")
	// The API server takes the minute that it has to end, and the meta cluster looks again by and by.
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), interval, 2*patience, true, func(ctx context.Context) (bool, error) {
		var err error
		if left, err = filepath.Glob(volumes); err != nil || len(left) > 0 {
			return false, err
		}
		if _, err := meta.client.CoreV1().Namespaces().Get(ctx, key, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return false, err
		}
		all, err := meta.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range all.Items {
			if claim := all.Items[i].Spec.ClaimRef; claim != nil && claim.Namespace == key {
				return false, nil
			}
		}
		for _, super := range []string{"r1", "r2"} {
			namespaces, err := connect(t, super).client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: "tenancy.x-k8s.io/cluster=" + key})
			if err != nil || len(namespaces.Items) > 0 {
				return false, err
			}
		}
		_, err = meta.client.CoreV1().Secrets("default").Get(ctx, name+"-kubeconfig", metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignoreDeleted(err)
	}), "nothing of it is left")
	t.Logf("nothing of it is left %.0f s after it was deleted", time.Since(deleted).Seconds())
}

// room makes a namespace with a quota for one pod.
func (c *cluster) room(t testing.TB, namespace string) {
	t.Helper()
	c.apply(t, namespace, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %s, annotations: {scheduler.tenancy.x-k8s.io/slice: '{"cpu": "50m", "memory": "50Mi"}'}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: test}
spec: {hard: {cpu: 50m, memory: 50Mi}}
`, namespace))
}

// apply applies objects, those without a namespace in this one.
func (c *cluster) apply(t testing.TB, namespace, objects string) {
	t.Helper()
	command := c.kubectl(t, namespace, "apply", "-f", "-")
	command.Stdin = strings.NewReader(objects)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// tenantOf returns a tenant by the kubeconfig that vc-manager hands out.
func (c *cluster) tenantOf(t testing.TB, name string) *cluster {
	t.Helper()
	content, err := base64.StdEncoding.DecodeString(c.run(t, "default", "get", "secret", name+"-kubeconfig", "-o", "jsonpath={.data.value}"))
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), name+".kubeconfig")
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return connectBy(t, name, file)
}

// TestAControlPlaneIsClosed: the API server that vc-manager made calls what its tenant writes into a Node. It reaches
// vn-agents, and neither the meta cluster's API server nor nodes and pods there. It is not parallel: TestDrills lets
// other pods of vc-manager run.
func TestAControlPlaneIsClosed(t *testing.T) {
	meta, tenant := connect(t, "meta"), connect(t, provisioned)
	server, err := url.Parse(meta.config.Host)
	require.NoError(t, err)
	manager, err := meta.client.CoreV1().Pods("vc-manager").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=vc-manager"})
	require.NoError(t, err)
	require.NotEmpty(t, manager.Items)
	service, err := meta.client.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	require.NoError(t, err)
	for node, agent := range vnAgents(t) {
		require.NoError(t, tenant.calls(t, agent), "the vn-agent of %s is reached", node)
	}
	for name, at := range map[string]string{
		"the meta cluster's API server": server.Host,
		"its Service":                   net.JoinHostPort(service.Spec.ClusterIP, "443"),
		"a kubelet of the meta cluster": net.JoinHostPort(addressOfNode(t, meta, "node-1"), "10250"),
		"vc-manager":                    net.JoinHostPort(manager.Items[0].Status.PodIP, "8443"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, tenant.calls(t, at), context.DeadlineExceeded, "it does not answer")
		})
	}
}

// calls lets the API server call an address as that of a kubelet, and returns what becomes of it: nil where somebody there
// answers.
func (c *cluster) calls(t *testing.T, at string) error {
	t.Helper()
	host, text, err := net.SplitHostPort(at)
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	node, err := c.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "forged-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, ignoreDeleted(c.client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), node.Name, metav1.DeleteOptions{})))
	})
	status := fmt.Appendf(nil, `{"status": {"addresses": [{"type": "InternalIP", "address": %q}], "daemonEndpoints": {"kubeletEndpoint": {"Port": %d}}}}`, host, port)
	_, err = c.client.CoreV1().Nodes().PatchStatus(t.Context(), node.Name, status)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = c.client.CoreV1().RESTClient().Get().Resource("nodes").Name(node.Name).SubResource("proxy").Suffix("healthz").DoRaw(ctx)
	return err
}
