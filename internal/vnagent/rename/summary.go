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

// Summary collects the summaries of nodes. It is not safe for concurrent use.
type Summary struct {
	own   index
	nodes Nodes
	out   statsv1alpha1.Summary
}

// NewSummary returns an empty summary of the tenant's pods.
func NewSummary(own []pods.Pod, nodes Nodes) *Summary {
	return &Summary{own: newIndex(own), nodes: nodes, out: statsv1alpha1.Summary{Pods: []statsv1alpha1.PodStats{}}}
}

// Add takes over what a kubelet said about the tenant's pods. The caller bounds in.
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

// tenantStats changes stats, which the caller has decoded for it.
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

// withoutNode leaves what the pod uses of a file system, and drops how large the node's is and how full. Before CRI-O a kubelet says of logs
// how many inodes of the node are used, by whomever.
func withoutNode(stats *statsv1alpha1.FsStats) {
	if stats != nil {
		if used, all, free := stats.InodesUsed, stats.Inodes, stats.InodesFree; used != nil && all != nil && free != nil && *used == *all-*free {
			stats.InodesUsed = nil
		}
		stats.AvailableBytes, stats.CapacityBytes, stats.InodesFree, stats.Inodes = nil, nil, nil, nil
	}
}

// Result returns the summary, ordered by namespace and name.
func (s *Summary) Result() *statsv1alpha1.Summary {
	slices.SortStableFunc(s.out.Pods, func(a, b statsv1alpha1.PodStats) int {
		return slices.Compare([]string{a.PodRef.Namespace, a.PodRef.Name}, []string{b.PodRef.Namespace, b.PodRef.Name})
	})
	s.out.Node.CPU, s.out.Node.Memory = sums(s.out.Pods, uint64(s.own.nodes))
	return &s.out
}

// sums adds up pods and divides by the number of their nodes; the time is the latest of theirs.
func sums(all []statsv1alpha1.PodStats, nodes uint64) (*statsv1alpha1.CPUStats, *statsv1alpha1.MemoryStats) {
	cpu, memory := &statsv1alpha1.CPUStats{}, &statsv1alpha1.MemoryStats{}
	for _, pod := range all {
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
