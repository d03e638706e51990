//go:build realnodes

package realnodes_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// BenchmarkThroughput reads from a container through vn-agent and from the same container's kubelet directly,
// alternately; then through API servers, as kubectl does: the tenant's and the super cluster's. It reports the medians
// of both in MB/s, and the median of the pairs' ratios. Run it on an idle bed in node mode. With cores=shared all
// processes share all cores; with cores=own vn-agent runs on one core and the other processes of the stream on another,
// as where vn-agent finds an idle core.
func BenchmarkThroughput(b *testing.B) {
	// A log has to fit into one file of the kubelet's (containerLogMaxSize). A command takes 40 ms to start, which is
	// little of a long stream.
	const size, output = 32 << 20, 128 << 20
	tenant := tenant1(b)
	namespace := tenant.namespace(b, "throughput", 20)
	pod := newPod(b, "p", fmt.Sprintf("yes %s | head -c %d; echo; echo whole; exec sleep 3600", strings.Repeat("0123456789", 9), size))
	// It requests the CPU that it uses: busy cores are shared by requests, and vn-agent's is 50m.
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("400m"), corev1.ResourceMemory: *slice.Memory()}
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "r1.node-1"}
	pod = tenant.create(b, namespace, pod)
	eventually(b, "the log is written", logged(tenant, namespace, "p", "whole"))

	id, _, _ := strings.Cut(pod.Spec.NodeName, ".")
	super := connect(b, id)
	address, _, _ := strings.Cut(vnAgents(b)[pod.Spec.NodeName], ":")
	superNamespace := certificateName(b, tenant.name) + "-" + namespace
	direct := newSide(b, address+":10250", superNamespace, super.name)
	agent := newSide(b, vnAgents(b)[pod.Spec.NodeName], namespace, tenant.name)
	writers := map[string][]string{
		"4KiB": {"head", "-c", strconv.Itoa(output), "/dev/zero"},
		"1MiB": {"dd", "if=/dev/zero", "bs=1M", fmt.Sprint("count=", output>>20)},
	}
	everywhere := fmt.Sprintf("0-%d", runtime.NumCPU()-1)
	for _, cores := range []struct{ name, agent, others string }{{"shared", everywhere, everywhere}, {"own", "1", "0"}} {
		b.Run("cores="+cores.name, func(b *testing.B) {
			pin(b, id, cores.agent, cores.others)
			defer pin(b, id, everywhere, everywhere)
			b.Run("logs", func(b *testing.B) { pairs(b, size, direct.logs(size), agent.logs(size)) })
			for pieces, command := range writers {
				b.Run("exec/pieces="+pieces, func(b *testing.B) { pairs(b, output, direct.exec(command), agent.exec(command)) })
			}
		})
	}
	pods := "/api/v1/namespaces/%s/pods/p/exec"
	for pieces, command := range writers {
		b.Run("kubectl-exec/pieces="+pieces, func(b *testing.B) {
			pairs(b, output, execOutput(super.config, fmt.Sprintf(pods, superNamespace), "stdout", command), execOutput(tenant.config, fmt.Sprintf(pods, namespace), "stdout", command))
		})
	}
}

// pairs runs two readers of size bytes alternately.
func pairs(b *testing.B, size int64, direct, agent func(*testing.B) int64) {
	b.Helper()
	b.SetBytes(2 * size)
	var rates, costs [2][]float64
	for b.Loop() {
		for i, read := range []func(*testing.B) int64{direct, agent} {
			started, busy := time.Now(), busyTime(b)
			require.Equal(b, size, read(b))
			megabytes := float64(size) / 1e6
			rates[i] = append(rates[i], megabytes/time.Since(started).Seconds())
			costs[i] = append(costs[i], float64((busyTime(b)-busy).Milliseconds())/megabytes)
		}
	}
	ratios, extra := make([]float64, len(rates[0])), make([]float64, len(rates[0]))
	for i := range ratios {
		ratios[i], extra[i] = rates[1][i]/rates[0][i], costs[1][i]/costs[0][i]
	}
	b.ReportMetric(median(rates[0]), "direct-MB/s")
	b.ReportMetric(median(rates[1]), "vn-agent-MB/s")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(costs[0]), "direct-cpu-ms/MB")
	b.ReportMetric(median(costs[1]), "vn-agent-cpu-ms/MB")
	b.ReportMetric(median(extra), "cpu-ratio")
}

// busyTime returns the CPU time that all processes of the machine took so far, the kernel's included: a chain of
// container, shim, containerd, kubelet, vn-agent and client has no single process to look at. The first line of
// /proc/stat counts hundredths of a second.
func busyTime(b *testing.B) time.Duration {
	b.Helper()
	content, err := os.ReadFile("/proc/stat")
	require.NoError(b, err)
	line, _, _ := strings.Cut(string(content), "\n")
	fields := strings.Fields(line)
	require.Greater(b, len(fields), 8, line)
	var busy int64
	for i, field := range fields[1:9] { // user nice system idle iowait irq softirq steal
		ticks, err := strconv.ParseInt(field, 10, 64)
		require.NoError(b, err)
		if i != 3 && i != 4 && i != 7 {
			busy += ticks
		}
	}
	return time.Duration(busy) * 10 * time.Millisecond
}

func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// pin sets the CPU affinity of a node's vn-agent, and of the node's other processes and this one.
func pin(b *testing.B, node, agent, others string) {
	b.Helper()
	script := `for process in /proc/[0-9]*; do
		name=$(cat "$process/comm" 2>/dev/null) || continue
		cores=$2; [[ $name != vn-agent ]] || cores=$1
		taskset -acp "$cores" "${process#/proc/}" >/dev/null || [[ ! -d $process ]]
	done`
	output, err := exec.CommandContext(b.Context(), filepath.Join(root(b), "hack", "realnodes", "node.sh"), node, "bash", "-c", script, "pin", agent, others).CombinedOutput()
	require.NoError(b, err, string(output))
	output, err = exec.CommandContext(b.Context(), "taskset", "-acp", others, strconv.Itoa(os.Getpid())).CombinedOutput()
	require.NoError(b, err, string(output))
}

// side is a server of the kubelet API, with the client certificate of a control plane's API server.
type side struct {
	namespace string
	config    *rest.Config
	client    *http.Client
}

func newSide(b *testing.B, address, namespace, controlPlane string) side {
	b.Helper()
	pki := filepath.Join(bed(b), "pki")
	certificate := filepath.Join(pki, controlPlane, "kubelet-client")
	connections := &http.Transport{TLSClientConfig: agentTLS(b, readPair(b, certificate)), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	return side{namespace: namespace, client: &http.Client{Transport: connections}, config: &rest.Config{
		Host:            "https://" + address,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(pki, "serving-ca.crt"), CertFile: certificate + ".crt", KeyFile: certificate + ".key"},
	}}
}

// logs returns a function that reads size bytes of a log.
func (s side) logs(size int64) func(*testing.B) int64 {
	return func(b *testing.B) int64 {
		target := fmt.Sprintf("%s/containerLogs/%s/p/main?limitBytes=%d", s.config.Host, s.namespace, size)
		request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, target, nil)
		require.NoError(b, err)
		response, err := s.client.Do(request)
		require.NoError(b, err)
		n, err := io.Copy(io.Discard, response.Body)
		require.NoError(b, err)
		require.NoError(b, response.Body.Close())
		return n
	}
}

func (s side) exec(command []string) func(*testing.B) int64 {
	return execOutput(s.config, "/exec/"+s.namespace+"/p/main", "output", command)
}

// execOutput returns a function that reads a command's output. output is the query key for it: kubelets and API servers
// have different ones.
func execOutput(config *rest.Config, path, output string, command []string) func(*testing.B) int64 {
	return func(b *testing.B) int64 {
		target, err := url.Parse(config.Host)
		require.NoError(b, err)
		target.Path = path
		target.RawQuery = url.Values{"command": command, output: {"1"}}.Encode()
		executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, target)
		require.NoError(b, err)
		var read counter
		require.NoError(b, executor.StreamWithContext(b.Context(), remotecommand.StreamOptions{Stdout: &read}))
		return int64(read)
	}
}

// counter counts the bytes that are written to it.
type counter int

func (c *counter) Write(piece []byte) (int, error) {
	*c += counter(len(piece))
	return len(piece), nil
}
