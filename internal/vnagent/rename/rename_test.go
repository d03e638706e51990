package rename_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/rename"
	"github.com/superpool/superpool/test/builders"
)

func own(key, namespace, name string) pods.Pod {
	owner := builders.Owner(key, namespace, types.UID("tenant-uid-"+name))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: tenancy.SuperNamespace(key, namespace), Name: name, UID: types.UID("super-uid-" + name), ResourceVersion: "7",
			Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"mine": "y"}, OwnerReferences: []metav1.OwnerReference{{Name: "super"}},
		},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{HostIP: "10.0.0.1", Phase: corev1.PodRunning},
	}
	return pods.Pod{Super: builders.Owned(pod, owner), Owner: owner}
}

func onNode(pod pods.Pod, node string) pods.Pod {
	pod.Super.Spec.NodeName = node
	return pod
}

// leaks are substrings that no response for tenant a may contain.
func requireNoLeak(t *testing.T, answer string) {
	t.Helper()
	for _, leak := range []string{"super-uid", "super_uid", "a-web", "b-web", "tenancy.x-k8s.io", "kube-system", "secret-node"} {
		require.NotContains(t, answer, leak)
	}
}

func TestPodList(t *testing.T) {
	t.Parallel()
	pod := own("a", "web", "p")
	before := pod.Super.DeepCopy()
	list := rename.PodList([]pods.Pod{pod}, rename.Nodes{SuperCluster: "r1"})
	require.Empty(t, cmp.Diff(before, pod.Super), "the index' pod is changed")
	want := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "p", UID: "tenant-uid-p", Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"mine": "y"}},
		Spec:       corev1.PodSpec{NodeName: "r1.node-1"},
		Status:     corev1.PodStatus{HostIP: "10.0.0.1", Phase: corev1.PodRunning},
	}}}
	require.Empty(t, cmp.Diff(want, list))
	text, err := json.Marshal(list)
	require.NoError(t, err)
	requireNoLeak(t, string(text))
	empty, err := json.Marshal(rename.PodList(nil, rename.Nodes{}))
	require.NoError(t, err)
	require.Contains(t, string(empty), `"items":[]`)
}

// TestPodListMessages has a kubelet's message about a container in CrashLoopBackOff.
func TestPodListMessages(t *testing.T) {
	t.Parallel()
	pod := own("a", "web", "p")
	const super, tenants = "back-off 10s restarting failed container=c pod=p_a-web(super-uid-p)", "back-off 10s restarting failed container=c pod=p_web(tenant-uid-p)"
	status := func(message string) corev1.PodStatus {
		waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: message}}
		ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}
		containers := []corev1.ContainerStatus{{Name: "c", State: waiting, LastTerminationState: ended}}
		return corev1.PodStatus{
			Message: message, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Message: message}},
			InitContainerStatuses: containers, ContainerStatuses: containers, EphemeralContainerStatuses: containers,
		}
	}
	pod.Super.Status = status(super)
	before := pod.Super.DeepCopy()
	got := rename.PodList([]pods.Pod{pod}, rename.Nodes{}).Items[0].Status
	require.Empty(t, cmp.Diff(status(tenants), got))
	require.Empty(t, cmp.Diff(before, pod.Super), "the index' pod is changed")
}

func TestText(t *testing.T) {
	t.Parallel()
	got := rename.Text([]byte("open /var/log/pods/a-web_p_super-uid-p/c/0.log: pod a-web/p"), own("a", "web", "p"))
	require.Equal(t, "open /var/log/pods/web_p_tenant-uid-p/c/0.log: pod web/p", string(got))
}

const summary = `{
 "node": {"nodeName":"secret-node","startTime":"2026-11-21T00:00:00Z","systemContainers":[{"name":"kubelet"}],
  "cpu":{"time":"2026-11-21T01:00:09Z","usageNanoCores":999,"usageCoreNanoSeconds":99999},"memory":{"workingSetBytes":999999},
  "fs":{"availableBytes":123456789},"network":{"name":"eth0"},"rlimit":{"maxpid":5}},
 "pods": [
  {"podRef":{"name":"p","namespace":"a-web","uid":"super-uid-p"},"cpu":{"time":"2026-11-21T01:00:00Z","usageNanoCores":10,"usageCoreNanoSeconds":100},
   "memory":{"time":"2026-11-21T01:00:00Z","workingSetBytes":1000},"ephemeral-storage":{"availableBytes":123456789,"usedBytes":5},
   "containers":[{"name":"c","rootfs":{"capacityBytes":123456789,"usedBytes":3},"logs":{"inodes":123456790,"inodesFree":123456000,"inodesUsed":790}}],
   "volume":[{"name":"empty","availableBytes":123456789,"usedBytes":1},{"name":"data","pvcRef":{"name":"claim","namespace":"a-web"},"capacityBytes":77}]},
  {"podRef":{"name":"q","namespace":"a-web","uid":"super-uid-q"},"cpu":{"time":"2026-11-21T01:00:05Z","usageNanoCores":1},"memory":{"workingSetBytes":24}},
  {"podRef":{"name":"q","namespace":"a-web","uid":"super-uid-of-a-former-q"},"cpu":{"usageNanoCores":5000}},
  {"podRef":{"name":"p","namespace":"b-web","uid":"super-uid-b"},"cpu":{"usageNanoCores":7000},"memory":{"workingSetBytes":7000}},
  {"podRef":{"name":"dns","namespace":"kube-system","uid":"u"},"cpu":{"usageNanoCores":7000}}
 ]}`

func TestSummary(t *testing.T) {
	t.Parallel()
	collected := rename.NewSummary([]pods.Pod{own("a", "web", "q"), own("a", "web", "p")}, rename.Nodes{})
	require.NoError(t, collected.Add(strings.NewReader(strings.ReplaceAll(summary, "secret-node", "node-1"))))
	got := collected.Result()
	require.Len(t, got.Pods, 2)
	require.Equal(t, "web/p tenant-uid-p", fmt.Sprintf("%s/%s %s", got.Pods[0].PodRef.Namespace, got.Pods[0].PodRef.Name, got.Pods[0].PodRef.UID))
	require.Equal(t, "node-1", got.Node.NodeName)
	require.Equal(t, uint64(11), *got.Node.CPU.UsageNanoCores)
	require.Equal(t, uint64(100), *got.Node.CPU.UsageCoreNanoSeconds)
	require.Equal(t, uint64(1024), *got.Node.Memory.WorkingSetBytes)
	require.Equal(t, "2026-11-21 01:00:05 +0000 UTC", got.Node.CPU.Time.UTC().String())
	require.Equal(t, uint64(77), *got.Pods[0].VolumeStats[1].CapacityBytes)
	text, err := json.Marshal(got)
	require.NoError(t, err)
	requireNoLeak(t, string(text))
	for _, leak := range []string{"123456789", "kubelet", "eth0", "maxpid", "7000", "5000", "999", "790"} {
		require.NotContains(t, string(text), leak)
	}

	many := rename.NewSummary([]pods.Pod{own("a", "web", "p"), onNode(own("a", "web", "q"), "node-2")}, rename.Nodes{})
	require.NoError(t, many.Add(strings.NewReader(summary)))
	require.Equal(t, uint64(5), *many.Result().Node.CPU.UsageNanoCores, "half of 11")
	require.Empty(t, many.Result().Node.NodeName)
	require.Error(t, many.Add(strings.NewReader("{")))
}

const metrics = `# HELP container_cpu_usage_seconds_total [STABLE] CPU
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="c",namespace="a-web",pod="p"} 4.5 1700000000001
container_cpu_usage_seconds_total{container="c",namespace="b-web",pod="p"} 7000 1700000000001
container_cpu_usage_seconds_total{container="c",namespace="kube-system",pod="dns"} 7000 1700000000001
# HELP container_fs_inodes_free inodes
# TYPE container_fs_inodes_free gauge
container_fs_inodes_free{container="c",device="/dev/vda1",namespace="a-web",pod="p"} 7000
# HELP container_fs_inodes_total inodes
# TYPE container_fs_inodes_total gauge
container_fs_inodes_total{container="c",device="/dev/vda1",namespace="a-web",pod="p"} 7000
# HELP container_fs_limit_bytes size of the file system
# TYPE container_fs_limit_bytes gauge
container_fs_limit_bytes{container="c",device="/dev/vda1",namespace="a-web",pod="p"} 7000
# HELP container_start_time_seconds [STABLE] start
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="c",namespace="a-web",pod="p"} 1.5e+09
# HELP machine_cpu_cores cores
# TYPE machine_cpu_cores gauge
machine_cpu_cores{boot_id="secret-node"} 64
# HELP container_memory_rss rss
# TYPE container_memory_rss gauge
container_memory_rss{container="",id="/kubepods/podsuper-uid-p",image="",name="",namespace="a-web",pod="p"} 3
container_memory_rss{container="",id="/kubepods/podsuper_uid_p/x",image="",name="",namespace="a-web",pod="p"} 4
container_memory_rss{container="c",id="/kubepods/podsuper-uid-p/y",image="i",name="cri-super_uid_p",namespace="a-web",pod="p"} 5
container_memory_rss{container="",id="/",image="",name="",namespace="",pod=""} 7000
# HELP node_cpu_usage_seconds_total [STABLE] CPU of the node
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 7000 1700000000009
# HELP node_memory_working_set_bytes [STABLE] memory of the node
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 7000 1700000000009
# HELP pod_cpu_usage_seconds_total [STABLE] CPU of the pod
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="a-web",pod="p"} 4.5 1700000000001
pod_cpu_usage_seconds_total{namespace="a-web",pod="q"} 0.25 1700000000002
pod_cpu_usage_seconds_total{namespace="b-web",pod="p"} 7000 1700000000003
# HELP prober_probe_total [BETA] probes
# TYPE prober_probe_total counter
prober_probe_total{container="c",namespace="a-web",pod="p",pod_uid="super-uid-p",probe_type="Liveness",result="successful"} 2
prober_probe_total{container="c",namespace="a-web",pod="p",pod_uid="super-uid-former",probe_type="Liveness",result="successful"} 7000
# HELP probe_seconds duration
# TYPE probe_seconds histogram
probe_seconds_bucket{namespace="a-web",pod="p",le="1"} 1
probe_seconds_bucket{namespace="a-web",pod="p",le="+Inf"} 1
probe_seconds_sum{namespace="a-web",pod="p"} 0.5
probe_seconds_count{namespace="a-web",pod="p"} 1
# HELP scrape_error [ALPHA] error
# TYPE scrape_error gauge
scrape_error 0
`

const wantMetrics = `# HELP container_cpu_usage_seconds_total [STABLE] CPU
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="c",namespace="web",pod="p"} 4.5 1700000000001
# HELP container_memory_rss rss
# TYPE container_memory_rss gauge
container_memory_rss{container="",image="",name="",namespace="web",pod="p"} 3
container_memory_rss{container="c",image="i",name="cri-tenant_uid_p",namespace="web",pod="p"} 5
# HELP container_start_time_seconds [STABLE] start
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="c",namespace="web",pod="p"} 1.5e+09
# HELP node_cpu_usage_seconds_total [STABLE] CPU of the node
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 4.75 1700000000002
# HELP node_memory_working_set_bytes [STABLE] memory of the node
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 0 1700000000009
# HELP pod_cpu_usage_seconds_total [STABLE] CPU of the pod
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="web",pod="p"} 4.5 1700000000001
pod_cpu_usage_seconds_total{namespace="web",pod="q"} 0.25 1700000000002
# HELP probe_seconds duration
# TYPE probe_seconds histogram
probe_seconds_bucket{namespace="web",pod="p",le="1"} 1
probe_seconds_bucket{namespace="web",pod="p",le="+Inf"} 1
probe_seconds_sum{namespace="web",pod="p"} 0.5
probe_seconds_count{namespace="web",pod="p"} 1
# HELP prober_probe_total [BETA] probes
# TYPE prober_probe_total counter
prober_probe_total{container="c",namespace="web",pod="p",pod_uid="tenant-uid-p",probe_type="Liveness",result="successful"} 2
`

func TestMetrics(t *testing.T) {
	t.Parallel()
	collected := rename.NewMetrics([]pods.Pod{own("a", "web", "p"), own("a", "web", "q")})
	require.NoError(t, collected.Add(strings.NewReader(metrics)))
	var out strings.Builder
	_, err := collected.WriteTo(&out)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(wantMetrics, out.String()))
	requireNoLeak(t, out.String())
}

func TestMetricsOfNodes(t *testing.T) {
	t.Parallel()
	collected := rename.NewMetrics([]pods.Pod{own("a", "web", "p"), onNode(own("a", "web", "r"), "node-2")})
	require.NoError(t, collected.Add(strings.NewReader(metrics)))
	require.NoError(t, collected.Add(strings.NewReader(strings.ReplaceAll(metrics, `pod="p"`, `pod="r"`))))
	var out strings.Builder
	_, err := collected.WriteTo(&out)
	require.NoError(t, err)
	require.Contains(t, out.String(), "\nnode_cpu_usage_seconds_total 4.5 ", "half of two pods of 4.5")
	require.Equal(t, 1, strings.Count(out.String(), "# TYPE pod_cpu_usage_seconds_total"))
	require.Contains(t, out.String(), `pod_cpu_usage_seconds_total{namespace="web",pod="r"} 4.5`)
	require.Error(t, collected.Add(strings.NewReader("a b c d\n")))
	require.Error(t, collected.Add(strings.NewReader(strings.Repeat("x", 2<<20))))
}

// TestMetricsAreBounded: of one family, and of all that is kept, no more is held than a bound.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	pod := []pods.Pod{own("a", "web", "p")}
	family := func(name, kind string, series int) io.Reader {
		var text strings.Builder
		fmt.Fprintf(&text, "# HELP %s What it is.\n# TYPE %s %s\n", name, name, kind)
		for i := range series {
			fmt.Fprintf(&text, "%s{namespace=\"a-web\",pod=\"p\",x=\"%d%s\"} 1\n", name, i, strings.Repeat("x", 1000))
		}
		return strings.NewReader(text.String())
	}
	require.ErrorContains(t, rename.NewMetrics(pod).Add(family("f", "summary", 5000)), "family")
	large := rename.NewMetrics(pod)
	require.NoError(t, large.Add(family("f", "gauge", 5000)))
	var whole strings.Builder
	_, err := large.WriteTo(&whole)
	require.NoError(t, err)
	require.Equal(t, 5000, strings.Count(whole.String(), "f{"), "in parts")
	require.Equal(t, 1, strings.Count(whole.String(), "# TYPE"))

	collected := rename.NewMetrics(pod)
	for i := range 100 {
		require.NoError(t, collected.Add(family(fmt.Sprintf("f%d", i), "counter", 1000)))
	}
	var out strings.Builder
	_, err = collected.WriteTo(&out)
	require.NoError(t, err)
	require.Less(t, out.Len(), 9<<20)
	require.Greater(t, out.Len(), 7<<20, "what was kept before stays")
}
