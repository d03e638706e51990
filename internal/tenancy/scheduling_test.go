package tenancy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/tenancy"
)

// TestSchedulingWords: a tenant reads why no node takes its pod, and nothing of nodes that it does not know.
func TestSchedulingWords(t *testing.T) {
	t.Parallel()
	const none = "no node takes the pod now: "
	for message, want := range map[string]string{
		"0/40 nodes are available: 12 Insufficient nvidia.com/gpu, 3 node(s) had untolerated taint {customer: acme-bank}. preemption: 0/40 nodes are available: 40 No preemption victims found for incoming pod.": none +
			"too little nvidia.com/gpu is free, taints that the pod does not tolerate",
		"0/2 nodes are available: 1 node(s) had taint {a: b}, that the pod didn't tolerate, 1 node(s) were unschedulable.": none + "taints that the pod does not tolerate, cordoned nodes",
		"0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods.":                             none + "too little cpu is free, too little memory is free, too many pods",
		"0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate":        none + "the pod's node selector or affinity",
		`0/1 nodes are available: persistentvolumeclaim "data" not found. preemption: not eligible`:                        none + "claim data is not there",
		"0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.":                             none + "no PersistentVolume for a claim",
		"0/3 nodes are available: 3 node(s) belong to acme-bank.":                                                          "no node takes the pod now; its operator can read why",
		"": "no node takes the pod now; its operator can read why",
	} {
		require.Equal(t, want, tenancy.SchedulingWords(message))
	}
}

// FuzzSchedulingWords: whatever a scheduler says, no number, name or value of it comes up but names of resources and
// claims, and the words have a bounded length.
func FuzzSchedulingWords(f *testing.F) {
	f.Add("12 Insufficient cpu, 3 node(s) had untolerated taint {customer: acme-bank}", uint8(1))
	f.Add(strings.Repeat("Insufficient a.b/c, ", 1000), uint8(9))
	f.Fuzz(func(t *testing.T, message string, times uint8) {
		words := tenancy.SchedulingWords(strings.Repeat(message+", 3 node(s) had untolerated taint {acmebank: yes}", int(times%8)+1))
		require.True(t, strings.Contains(message, "acmebank") || !strings.Contains(words, "acmebank"), words)
		require.LessOrEqual(t, len(words), 32<<10)
	})
}
