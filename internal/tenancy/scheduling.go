package tenancy

import (
	"regexp"
	"slices"
	"strings"
)

// schedulingReasons are what kube-scheduler says of nodes that do not take a pod (1.27 to 1.36), and what its tenant is
// told: it knows its pod, and not the taints, the number and the other pods of nodes. The first of those that a text
// matches more than once counts. $1 stands for what is the tenant's own, such as the name of a resource or claim.
var schedulingReasons = []struct {
	says  *regexp.Regexp
	words string
}{
	{regexp.MustCompile(`Insufficient ([A-Za-z0-9./-]+[A-Za-z0-9])`), "too little $1 is free"},
	{regexp.MustCompile(`Too many pods`), "too many pods"},
	{regexp.MustCompile(`untolerated taint|didn't tolerate`), "taints that the pod does not tolerate"},
	{regexp.MustCompile(`were unschedulable`), "cordoned nodes"},
	{regexp.MustCompile(`didn't match Pod's node affinity/selector|didn't match node selector|didn't match the requested node name`), "the pod's node selector or affinity"},
	{regexp.MustCompile(`didn't match pod affinity rules`), "the pod's affinity"},
	{regexp.MustCompile(`didn't match pod anti-affinity rules`), "the pod's anti-affinity"},
	{regexp.MustCompile(`didn't satisfy existing pods anti-affinity rules`), "the anti-affinity of pods that run"},
	{regexp.MustCompile(`didn't match pod topology spread constraints`), "the pod's topology spread"},
	{regexp.MustCompile(`didn't have free ports`), "host ports that are taken"},
	{regexp.MustCompile(`volume node affinity conflict|didn't match PersistentVolume's node affinity`), "volumes that are on other nodes"},
	{regexp.MustCompile(`didn't find available persistent volumes to bind`), "no PersistentVolume for a claim"},
	{regexp.MustCompile(`not have enough free storage`), "too little free storage"},
	{regexp.MustCompile(`exceed max volume count`), "too many volumes on nodes"},
	{regexp.MustCompile(`no available volume zone|no available disk|volume node zone`), "volumes of other zones"},
	{regexp.MustCompile(`pod has unbound immediate PersistentVolumeClaims`), "a claim without volume"},
	{regexp.MustCompile(`persistentvolumeclaim "([a-z0-9.-]+)" not found`), "claim $1 is not there"},
	{regexp.MustCompile(`persistentvolumeclaim "([a-z0-9.-]+)" is being deleted`), "claim $1 is being deleted"},
	{regexp.MustCompile(`persistentvolumeclaim "([a-z0-9.-]+)" bound to non-existent persistentvolume`), "claim $1 has lost its volume"},
	{regexp.MustCompile(`waiting for ephemeral volume controller`), "an ephemeral volume that is not made yet"},
	{regexp.MustCompile(`storageclass.storage.k8s.io "([a-z0-9.-]+)" not found`), "StorageClass $1 is not there"},
	{regexp.MustCompile(`in use by pod with ReadWriteOncePod|ReadWriteOncePod access mode already in-use`), "a claim that another pod uses alone"},
}

// maxSchedulingMessage bounds the text that SchedulingWords reads, in bytes: a scheduler names each reason once.
const maxSchedulingMessage = 16 << 10

// SchedulingWords returns what a tenant may know of the message of a super cluster's scheduler about a pod that no node
// takes: the reasons, without taints, numbers and names of nodes, and without what it says of preemption. What no
// reason is known for is the operator's to read.
func SchedulingWords(message string) string {
	message = message[:min(len(message), maxSchedulingMessage)]
	if before, _, found := strings.Cut(message, "preemption:"); found {
		message = before
	}
	var reasons []string
	for i := range schedulingReasons {
		known := &schedulingReasons[i]
		for _, match := range known.says.FindAllStringSubmatchIndex(message, 8) {
			words := string(known.says.ExpandString(nil, known.words, message, match))
			if !slices.Contains(reasons, words) {
				reasons = append(reasons, words)
			}
		}
	}
	if len(reasons) == 0 {
		return "no node takes the pod now; its operator can read why"
	}
	return "no node takes the pod now: " + strings.Join(reasons, ", ")
}
