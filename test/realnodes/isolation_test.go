//go:build realnodes

package realnodes_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// vnAgents returns the addresses of vn-agents by the names of a tenant's Nodes, from the status of a tenant's Nodes.
func vnAgents(t testing.TB) map[string]string {
	t.Helper()
	nodes, err := tenant1(t).client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	agents := map[string]string{}
	for _, node := range nodes.Items {
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				agents[node.Name] = net.JoinHostPort(address.Address, strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)))
			}
		}
	}
	require.NotEmpty(t, agents)
	return agents
}

// twins are pods of two tenants whose namespaces and names are the same, in one super cluster.
type twins struct {
	namespace string
	mine      *corev1.Pod
	others    *corev1.Pod
	// agent is the vn-agent of the node where all of them run.
	agent string
	// superNamespace and othersSuperNamespace are the names of their super namespaces.
	superNamespace, othersSuperNamespace string
}

// newTwins creates a pod in each tenant, on one node.
func newTwins(t *testing.T, namespace string) *twins {
	t.Helper()
	mine, others := tenant1(t), tenant2(t)
	for _, tenant := range []*cluster{mine, others} {
		tenant.namespace(t, namespace, 2) // a slice in each super cluster
	}
	script := func(tenant *cluster) string {
		return fmt.Sprintf("echo this is %[1]s; echo %[1]s >/tmp/whose; exec sleep 3600", tenant.name)
	}
	const id, node = "r1", "r1.node-1"
	on := func(tenant *cluster) *corev1.Pod {
		pod := newPod(t, "p-1", script(tenant))
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		return tenant.create(t, namespace, pod)
	}
	result := &twins{namespace: namespace, mine: on(mine), others: on(others)}
	require.Equal(t, []string{node, node}, []string{result.mine.Spec.NodeName, result.others.Spec.NodeName})
	result.agent = vnAgents(t)[node]
	result.superNamespace, result.othersSuperNamespace = certificateName(t, mine.name)+"-"+namespace, certificateName(t, others.name)+"-"+namespace
	for _, super := range []string{result.superNamespace, result.othersSuperNamespace} {
		connect(t, id).run(t, super, "get", "pod", result.mine.Name)
	}
	return result
}

// TestTenantsAreApart reads pods of the same name in both tenants with kubectl: each gets its own.
func TestTenantsAreApart(t *testing.T) {
	t.Parallel()
	pods := newTwins(t, "twins")
	for _, tenant := range []*cluster{tenant1(t), tenant2(t)} {
		require.Equal(t, "this is "+tenant.name+"\n", tenant.run(t, pods.namespace, "logs", pods.mine.Name))
		require.Equal(t, tenant.name+"\n", tenant.run(t, pods.namespace, "exec", pods.mine.Name, "--", "cat", "/tmp/whose"))
	}
}

// TestVNAgentRefuses sends requests to a vn-agent directly, as anyone can who reaches its port. In each case the same
// request with the tenant's own certificate or names succeeds.
func TestVNAgentRefuses(t *testing.T) {
	t.Parallel()
	pods := newTwins(t, "refused")
	authority := readPair(t, filepath.Join(bed(t), "pki", "vn-agent-client-ca"))
	mine := tenant1(t).name
	own := readPair(t, filepath.Join(bed(t), "pki", mine, "kubelet-client"))
	me, other := certificateName(t, mine), certificateName(t, tenant2(t).name)
	inAnHour, aMinuteAgo := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	logs := fmt.Sprintf("/containerLogs/%s/%s/main", pods.namespace, pods.mine.Name)
	whose := fmt.Sprintf("/run/%s/%s/main?cmd=cat+/tmp/whose", pods.namespace, pods.mine.Name)

	t.Run("twin: the own certificate", func(t *testing.T) {
		require.Equal(t, answer{200, "this is " + mine + "\n"}, ask(t, pods.agent, own, http.MethodGet, logs))
		require.Equal(t, answer{200, mine + "\n"}, ask(t, pods.agent, own, http.MethodPost, whose))
	})
	t.Run("twin: a certificate made here", func(t *testing.T) {
		made := makePair(t, me, tenancyv1alpha1.OrganisationTenants, inAnHour, authority)
		require.Equal(t, answer{200, "this is " + mine + "\n"}, ask(t, pods.agent, made, http.MethodGet, logs))
	})
	for name, shown := range map[string]*tls.Certificate{
		"no certificate":                    nil,
		"self-signed, of the other's name":  makePair(t, other, tenancyv1alpha1.OrganisationTenants, inAnHour, nil),
		"self-signed, of the own name":      makePair(t, me, tenancyv1alpha1.OrganisationTenants, inAnHour, nil),
		"expired":                           makePair(t, me, tenancyv1alpha1.OrganisationTenants, aMinuteAgo, authority),
		"without the organisation":          makePair(t, me, "", inAnHour, authority),
		"of administrators":                 makePair(t, me, "system:masters", inAnHour, authority),
		"of the tenant's own CA":            makePair(t, me, tenancyv1alpha1.OrganisationTenants, inAnHour, readPair(t, filepath.Join(bed(t), "pki", mine, "ca"))),
		"the super cluster's administrator": readPair(t, filepath.Join(bed(t), "pki", "r1", "admin")),
		"vn-agent's own":                    readPair(t, filepath.Join(bed(t), "pki", "r1-vn-agent")),
	} {
		t.Run(name, func(t *testing.T) {
			for _, agent := range vnAgents(t) {
				for method, path := range map[string]string{http.MethodGet: logs, http.MethodPost: whose, http.MethodHead: "/pods"} {
					got := ask(t, agent, shown, method, path, identityHeaders(me))
					require.Equal(t, http.StatusUnauthorized, got.code, path)
					require.NotContains(t, got.body, "vc-sample")
				}
				require.Equal(t, answer{200, "ok"}, ask(t, agent, shown, http.MethodGet, "/healthz"))
			}
		})
	}
}

// TestVNAgentGivesNothingOfOthers requests another tenant's pods with a tenant's certificate.
func TestVNAgentGivesNothingOfOthers(t *testing.T) {
	t.Parallel()
	pods := newTwins(t, "others")
	mine, others := tenant1(t).name, tenant2(t)
	only := others.create(t, others.namespace(t, "only-others", 1), newPod(t, "only", "echo secret of "+others.name+"; exec sleep 3600"))
	own, theirs := readPair(t, filepath.Join(bed(t), "pki", mine, "kubelet-client")), readPair(t, filepath.Join(bed(t), "pki", others.name, "kubelet-client"))
	name := pods.mine.Name

	t.Run("twin: the other gets it", func(t *testing.T) {
		require.Equal(t, answer{200, "secret of " + others.name + "\n"}, ask(t, vnAgents(t)[only.Spec.NodeName], theirs, http.MethodGet, "/containerLogs/only-others/only/main"))
	})
	t.Run("names of others", func(t *testing.T) {
		absent := ask(t, pods.agent, own, http.MethodGet, "/containerLogs/nobody/nobody/main")
		require.Equal(t, http.StatusNotFound, absent.code)
		for _, names := range []string{"only-others/only", pods.othersSuperNamespace + "/" + name, pods.superNamespace + "/" + name, "kube-system/coredns", certificateName(t, others.name) + "-only-others/only"} {
			for _, agent := range []string{pods.agent, vnAgents(t)[only.Spec.NodeName]} {
				require.Equal(t, absent, ask(t, agent, own, http.MethodGet, "/containerLogs/"+names+"/main"), names)
				for _, path := range []string{"/exec/" + names + "/main?command=id&output=1", "/attach/" + names + "/main?output=1", "/portForward/" + names, "/run/" + names + "/main?cmd=id"} {
					require.Equal(t, absent, ask(t, agent, own, http.MethodPost, path, upgrade), path)
				}
			}
		}
		uid := func(of *corev1.Pod) string {
			return fmt.Sprintf("/run/%s/%s/%s/main?cmd=cat+/tmp/whose", pods.namespace, name, of.UID)
		}
		require.Equal(t, absent, ask(t, pods.agent, own, http.MethodPost, uid(pods.others)))
		require.Equal(t, answer{200, mine + "\n"}, ask(t, pods.agent, own, http.MethodPost, uid(pods.mine)))
	})
	t.Run("headers have no effect", func(t *testing.T) {
		for _, forged := range []string{certificateName(t, others.name), "system:admin"} {
			got := ask(t, pods.agent, own, http.MethodGet, fmt.Sprintf("/containerLogs/%s/%s/main", pods.namespace, name), identityHeaders(forged))
			require.Equal(t, answer{200, "this is " + mine + "\n"}, got)
		}
		got := ask(t, pods.agent, own, http.MethodGet, fmt.Sprintf("/containerLogs/%s/%s/main", pods.namespace, name), func(r *http.Request) { r.Header.Set("X-Large", strings.Repeat("x", 4<<20)) })
		require.Contains(t, []int{http.StatusRequestHeaderFieldsTooLarge, 0}, got.code, "oversized headers")
		require.NotContains(t, got.body, "this is")
	})
	t.Run("paths", func(t *testing.T) {
		for _, path := range []string{
			"/containerLogs/%[1]s/../%[2]s/%[3]s/main", "/containerLogs/../containerLogs/%[2]s/%[3]s/main", "//containerLogs/%[1]s/%[3]s/main", "/containerLogs//%[1]s/%[3]s/main",
			"/containerLogs/%[1]s//%[3]s/main", "/containerLogs/%[1]s%%2f%[3]s/main", "/containerLogs/%[1]s%%2F..%%2F%[2]s/%[3]s/main", "/containerLogs/%[1]s/%%2e%%2e/%[2]s/%[3]s/main",
			"/containerLogs/%[1]s/..%%2f..%%2f%[2]s/%[3]s/main", "/containerLogs/%[1]s/%[3]s/main/", "/containerLogs/%[1]s/%[3]s/main/../../../../logs/", "/containerLogs/%[1]s/%%252e%%252e/main",
			"/%%63ontainerLogs/%[1]s/%[3]s/main", "/containerLogs/%[1]s\\..\\%[2]s/%[3]s/main", "/containerLogs/%[1]s/%[3]s/main;x", "/logs/", "/logs/../pods", "/runningpods/", "/configz", "/debug/pprof/", "/metrics",
			"/stats/", "/stats/%[1]s/%[3]s/main", "/checkpoint/%[1]s/%[3]s/main", "/pods/", "/metrics/resource/..", "/spec", "/",
		} {
			path = fmt.Sprintf(path, pods.namespace, pods.othersSuperNamespace, name)
			code, body := askRaw(t, pods.agent, own, path)
			require.Contains(t, []int{http.StatusNotFound, http.StatusBadRequest}, code, path)
			require.NotContains(t, body, "this is", path)
		}
		code, body := askRaw(t, pods.agent, own, fmt.Sprintf("/containerLogs/%s/%s/main", pods.namespace, name))
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, "this is "+mine)
	})
	t.Run("lists", func(t *testing.T) {
		leaks := []string{others.name, "only-others", string(only.UID), string(pods.others.UID), certificateName(t, mine), certificateName(t, others.name)}
		for _, path := range []string{"/pods", "/stats/summary", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes"} {
			// A kubelet has metrics of a new container only after some seconds.
			eventually(t, path+" holds the own pod", func(context.Context) (bool, error) {
				got := ask(t, pods.agent, own, http.MethodGet, path)
				require.Equal(t, http.StatusOK, got.code)
				for _, leak := range leaks {
					require.NotContains(t, got.body, leak, path)
				}
				return path == "/metrics/probes" || strings.Contains(got.body, name) && strings.Contains(got.body, pods.namespace), nil
			})
		}
	})
}

// TestLongestNamespace uses a namespace of 63 characters, for which the syncer has to shorten the super namespace's
// name.
func TestLongestNamespace(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, strings.Repeat("long-name-", 6)+"end", 1)
	require.Len(t, namespace, 63)
	tenant.create(t, namespace, newPod(t, "p", "echo hello; exec sleep 3600"))
	require.Equal(t, "hello\n", tenant.run(t, namespace, "logs", "p"))
	require.Equal(t, namespace, tenant.run(t, namespace, "exec", "p", "--", "cat", accountDir+"/namespace"))
}

// certificateName returns the common name of the client certificate of a tenant's API server: its cluster key.
func certificateName(t testing.TB, tenant string) string {
	t.Helper()
	return readPair(t, filepath.Join(bed(t), "pki", tenant, "kubelet-client")).Leaf.Subject.CommonName
}

// readPair reads FILE.crt and FILE.key.
func readPair(t testing.TB, file string) *tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(file+".crt", file+".key")
	require.NoError(t, err)
	return &pair
}

// makePair returns a client certificate that authority has signed; without one it is self-signed.
func makePair(t *testing.T, name, organisation string, until time.Time, authority *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if organisation != "" {
		template.Subject.Organization = []string{organisation}
	}
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// answer is the code and body of a response; the code is 0 where the connection was closed instead.
type answer struct {
	code int
	body string
}

func upgrade(r *http.Request) {
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	r.Header.Set("X-Stream-Protocol-Version", "v4.channel.k8s.io")
}

// identityHeaders holds every header by which a Kubernetes server may identify a user.
func identityHeaders(name string) func(*http.Request) {
	return func(r *http.Request) {
		for key, value := range map[string]string{
			"Authorization": "Bearer " + name, "Impersonate-User": name, "Impersonate-Group": "system:masters", "X-Remote-User": name, "X-Remote-Group": tenancyv1alpha1.OrganisationTenants,
			"X-Forwarded-Client-Cert": "Subject=CN=" + name, "X-Ssl-Client-Cn": name, "X-Forwarded-For": "127.0.0.1", "X-Forwarded-Uri": "/pods",
		} {
			r.Header.Set(key, value)
		}
	}
}

// agentTLS verifies vn-agent, and sends the certificate even if its issuer is not among the authorities that the server
// accepts.
func agentTLS(t testing.TB, shown *tls.Certificate) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(bed(t), "pki", "serving-ca.crt"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if shown == nil {
			return &tls.Certificate{}, nil
		}
		return shown, nil
	}}
}

// ask sends a request to a vn-agent.
func ask(t *testing.T, agent string, shown *tls.Certificate, method, path string, change ...func(*http.Request)) answer {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: agentTLS(t, shown), DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+agent+path, nil)
	require.NoError(t, err)
	for _, c := range change {
		c(request)
	}
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Do(request)
	if err != nil && request.Header.Get("X-Large") != "" {
		return answer{}
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return answer{response.StatusCode, string(body)}
}

// askRaw sends a path unchanged, which Go's client would clean.
func askRaw(t *testing.T, agent string, shown *tls.Certificate, path string) (int, string) {
	t.Helper()
	connection, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: agentTLS(t, shown)}).DialContext(t.Context(), "tcp", agent)
	require.NoError(t, err)
	defer func() { require.NoError(t, connection.Close()) }()
	require.NoError(t, connection.SetDeadline(time.Now().Add(patience)))
	_, err = fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, agent)
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	var body bytes.Buffer
	_, err = body.ReadFrom(response.Body)
	require.NoError(t, err)
	return response.StatusCode, body.String()
}
