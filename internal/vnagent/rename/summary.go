package rename

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/superpool/superpool/internal/vnagent/pods"
)

// Summary merges the kubelets' responses to /stats/summary into one with the tenant's pods alone. It is not safe for
// concurrent use.
type Summary struct {
	own   index
	nodes Nodes
	out   statsv1alpha1.Summary
}

// NewSummary returns an empty summary that keeps the pods in own. nodes names nodes as tenants see them.
func NewSummary(own []pods.Pod, nodes Nodes) *Summary {
	return &Summary{own: newIndex(own), nodes: nodes, out: statsv1alpha1.Summary{Pods: []statsv1alpha1.PodStats{}}}
}

// Add keeps the tenant's pods of one kubelet's summary. An error means that in is not a summary; nothing of it is kept.
// The caller bounds in.
func (s *Summary) Add(in io.Reader) error {
	var summary statsv1alpha1.Summary
	if err := json.NewDecoder(in).Decode(&summary); err != nil {
		return fmt.Errorf("reading a summary: %w", err)
	}
	if s.own.nodes == 1 {
		s.out.Node.NodeName = s.nodes.Name(summary.Node.NodeName)
		s.out.Node.StartTime = summary.Node.StartTime
	}
	for _, stats := range summary.Pods {
		if pod, ok := s.own.find(stats.PodRef.Namespace, stats.PodRef.Name, stats.PodRef.UID); ok {
			s.out.Pods = append(s.out.Pods, tenantStats(stats, pod))
		}
	}
	return nil
}

// tenantStats returns stats with the tenant's names and without the node's figures. It changes what stats points to.
func tenantStats(stats statsv1alpha1.PodStats, pod pods.Pod) statsv1alpha1.PodStats {
	stats.PodRef.Namespace, stats.PodRef.UID = pod.Owner.Namespace, string(pod.Owner.UID)
	withoutNode(stats.EphemeralStorage)
	for i := range stats.Containers {
		withoutNode(stats.Containers[i].Rootfs)
		withoutNode(stats.Containers[i].Logs)
	}
	for i := range stats.VolumeStats {
		volume := &stats.VolumeStats[i]
		if volume.PVCRef != nil {
			volume.PVCRef.Namespace = pod.Owner.Namespace
		} else {
			withoutNode(&volume.FsStats)
		}
	}
	return stats
}

// withoutNode keeps what the pod uses of a file system, and drops size and free space of the node's. With CRI-O a
// kubelet reports as the inodes of logs those that the whole file system uses: these are dropped too. stats may be nil.
func withoutNode(stats *statsv1alpha1.FsStats) {
	if stats != nil {
		if used, total, free := stats.InodesUsed, stats.Inodes, stats.InodesFree; used != nil && total != nil && free != nil && *used == *total-*free {
			stats.InodesUsed = nil
		}
		stats.AvailableBytes, stats.CapacityBytes, stats.InodesFree, stats.Inodes = nil, nil, nil, nil
	}
}

// Result returns the summary, pods sorted by namespace and name. The node's CPU and memory are the tenant's share, see
// index.nodes. It is never nil; the caller calls it once, after the last Add.
func (s *Summary) Result() *statsv1alpha1.Summary {
	slices.SortStableFunc(s.out.Pods, func(a, b statsv1alpha1.PodStats) int {
		return slices.Compare([]string{a.PodRef.Namespace, a.PodRef.Name}, []string{b.PodRef.Namespace, b.PodRef.Name})
	})
	s.out.Node.CPU, s.out.Node.Memory = sums(s.out.Pods, uint64(s.own.nodes))
	return &s.out
}

// sums adds up the usage of pods and divides it by nodes; its time is the latest of theirs.
func sums(pods []statsv1alpha1.PodStats, nodes uint64) (*statsv1alpha1.CPUStats, *statsv1alpha1.MemoryStats) {
	cpu, memory := &statsv1alpha1.CPUStats{}, &statsv1alpha1.MemoryStats{}
	for _, pod := range pods {
		if pod.CPU != nil {
			cpu.Time = later(cpu.Time, pod.CPU.Time)
			add(&cpu.UsageNanoCores, pod.CPU.UsageNanoCores)
			add(&cpu.UsageCoreNanoSeconds, pod.CPU.UsageCoreNanoSeconds)
		}
		if pod.Memory != nil {
			memory.Time = later(memory.Time, pod.Memory.Time)
			add(&memory.UsageBytes, pod.Memory.UsageBytes)
			add(&memory.WorkingSetBytes, pod.Memory.WorkingSetBytes)
			add(&memory.RSSBytes, pod.Memory.RSSBytes)
			add(&memory.PageFaults, pod.Memory.PageFaults)
			add(&memory.MajorPageFaults, pod.Memory.MajorPageFaults)
		}
	}
	for _, sum := range []*uint64{
		cpu.UsageNanoCores, cpu.UsageCoreNanoSeconds, memory.UsageBytes, memory.WorkingSetBytes, memory.RSSBytes, memory.PageFaults, memory.MajorPageFaults,
	} {
		if sum != nil {
			*sum /= nodes
		}
	}
	return cpu, memory
}

// add adds value to sum. nil counts as absent: sum stays nil until a value is added.
func add(sum **uint64, value *uint64) {
	if value == nil {
		return
	}
	if *sum == nil {
		*sum = new(uint64)
	}
	**sum += *value
}

func later(a, b metav1.Time) metav1.Time {
	if a.Before(&b) {
		return b
	}
	return a
}
