package podscheduler

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// Why a case of kube-scheduler's does not run over the view.
const (
	ofVolumes     = "VolumeRestrictions, VolumeZone and NodeVolumeLimits do not run over the view: the super cluster judges what volumes are"
	ofTopology    = "labels of nodes are not in the view: there volumes are in a super cluster, and StorageClasses are offered by one"
	ofBinding     = "it binds a claim to a volume that is there: in the view claims get a home, whose super cluster makes and binds the volume"
	ofCSINodes    = "CSINodes are not in the view: the super cluster knows the drivers of its nodes"
	ofCapacities  = "CSIDrivers and CSIStorageCapacities are not in the view: the super cluster knows how much is free"
	noPorts       = "ports of the host are not in the view: the super scheduler judges them"
	noClaims      = "resource claims are not synced"
	ofAPIServer   = "the tenant's API server judges it before a scheduler sees the pod"
	ofAlpha       = "it is about a feature that is alpha, and off"
	ofGroups      = "it is about kube-scheduler's own groups of pods, which are off: gangs are those of scheduler-plugins and of namespaces"
	noFeatures    = "what kubelets declare that they can do is not in the view: the version of the super cluster stands for it"
	ofGates       = "it switches a feature gate off that is on by default, and cannot be switched off later"
	ofFramework   = "it is about kube-scheduler's own loop, with plugins that the test makes; the loop is kube-scheduler's own here, too"
	ofNominations = "it is about how kube-scheduler's own loop keeps nominations and the room for them, which runs here unchanged"
	noPreFilter   = "NodeAffinity does not run over the view, and NodeGroups, which takes its place, refuses in Filter alone"
	shownByPrefix = "shown by "
)

// leftOutCases say why cases do not run over the view, by the beginning of their names; the longest counts. One that
// another test of ours shows names it.
var leftOutCases = map[string]string{
	"filters/TestInterPodAffinity/incomingPod with invalid podAffinity":                                                 ofAPIServer,
	"filters/TestInterPodAffinityWithNamespaceSelector/fastPathEnabled=":                                                ofAlpha,
	"filters/TestNodeDeclaredFeaturesFilter/":                                                                           noFeatures,
	"filters/TestTaintTolerationFilter/Pod with Gt toleration":                                                          ofAlpha,
	"filters/TestTaintTolerationFilter/Pod with Lt toleration":                                                          ofAlpha,
	"filters/TestTaintTolerationFilter/Pod with mixed tolerations including Gt":                                         ofAlpha,
	"scoring/TestTaintTolerationScoring/pod with Gt toleration":                                                         ofAlpha,
	"preemption/TestDeferredResize":                                                                                     ofAlpha,
	"preemption/TestInterPodAffinityPreemption/":                                                                        shownByPrefix + "TestSchedulerPreemptionCases",
	"preemption/TestInterPodAffinityPreemption/basic pod preemption with hostname":                                      ofAlpha,
	"preemption/TestPreemption/CPG ":                                                                                    ofGroups,
	"preemption/TestPreemption/multiple victim ":                                                                        ofGroups,
	"preemption/TestPreemption/pod group ":                                                                              ofGroups,
	"preemption/TestPreemption/unsuccessful ":                                                                           ofGroups,
	"preemption/TestPreemptionRespects":                                                                                 ofFramework,
	"queueing/TestCoreResourceEnqueue/Pod rejected by the GangScheduling plugin":                                        ofGroups,
	"queueing/TestCoreResourceEnqueue/pod becomes schedulable after node update with required feature":                  noFeatures,
	"queueing/TestCoreResourceEnqueue/pod becomes schedulable after pod update that removes feature":                    noFeatures,
	"queueing/TestCoreResourceEnqueue/pod remains unschedulable after":                                                  noFeatures,
	"queueing/TestCoreResourceEnqueue/Pod rejected by the NodeResourcesFit plugin is requeued when created DeviceClass": noClaims,
	"queueing/TestCoreResourceEnqueue/Pod rejected by the NodeResourcesFit plugin is requeued when updated DeviceClass": noClaims,
	"filters/TestNodePortsFilter/":                                                                                      noPorts,
	"filters/TestPodAffinityMatchLabelKeyEnablement":                                                                    ofAPIServer,
	"filters/TestPodTopologySpreadFilter/feature gate disabled":                                                         ofGates,
	"filters/TestPodTopologySpreadFilter/matchLabelKeys ignored":                                                        ofGates,

	"filters/TestUnschedulablePodBecomesSchedulable/node gets added":                                                                   shownByPrefix + "TestPodSchedulerSaysWhyThereIsNoPlace",
	"filters/TestUnschedulablePodBecomesSchedulable/other pod gets deleted":                                                            shownByPrefix + "TestPodSchedulerFillsWhatTheNamespaceHolds",
	"filters/TestUnschedulablePodBecomesSchedulable/pod with pod-affinity gets added":                                                  shownByPrefix + "TestPodAffinityIsToASuperCluster",
	"filters/TestUnschedulablePodBecomesSchedulable/scheduled pod uses read-write-once-pod pvc":                                        ofVolumes,
	"filters/TestUnschedulablePodBecomesSchedulable/pod with pvc":                                                                      ofTopology,
	"scoring/TestNodeResourcesScoring/":                                                                                                "it scores cpu and memory of Nodes: in the view these are resources of namespaces",
	"scoring/TestTaintTolerationScoring/pod with":                                                                                      "PreferNoSchedule of nodes is not in the view: the super scheduler prefers nodes without it",
	"scoring/TestImageLocalityScoring":                                                                                                 "images on nodes are not in the view",
	"scoring/TestDefaultPodTopologySpreadScoring":                                                                                      "the profile sets no default constraints",
	"scoring/TestPodTopologySpreadScoring/soft constraint with two node inclusion":                                                     "what may be violated spreads over super clusters, whatever nodes count",
	"scoring/TestPodTopologySpreadScoring/matchLabelKeys ignored":                                                                      ofGates,
	"preemption/TestPreemption/basic pod preemption":                                                                                   shownByPrefix + "TestPodSchedulerPreemptsWithinANamespace",
	"preemption/TestPreemption/basic pod preemption with":                                                                              ofFramework,
	"preemption/TestAsyncPreemption/":                                                                                                  ofFramework,
	"preemption/nominatednodename/":                                                                                                    ofNominations,
	"preemption/misc/TestNonPreemption/":                                                                                               shownByPrefix + "TestPreemption",
	"preemption/misc/TestPodPriorityResolution/":                                                                                       ofAPIServer,
	"preemption/misc/TestPreemptionStarvation/":                                                                                        ofNominations,
	"preemption/misc/TestPreemptionRaces/":                                                                                             ofNominations,
	"preemption/misc/TestPDBInPreemption/A non-PDB violating pod":                                                                      shownByPrefix + "TestPreemption",
	"preemption/misc/TestReadWriteOncePodPreemption/":                                                                                  ofVolumes,
	"queueing/TestSchedulingGates/one pod carrying scheduling gates":                                                                   shownByPrefix + "TestPreemption",
	"queueing/TestSchedulingGates/regular pods":                                                                                        shownByPrefix + "TestPodSchedulerFillsWhatTheNamespaceHolds",
	"queueing/TestCoreResourceEnqueue/Pod rejected by the PreFilter of NodeAffinity":                                                   noPreFilter,
	"queueing/TestCustomResourceEnqueue":                                                                                               ofFramework,
	"queueing/TestRequeueBy":                                                                                                           ofFramework,
	"queueing/TestPopFromBackoffQWhenActiveQEmpty":                                                                                     ofFramework,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeZone":                                                        ofVolumes,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeBinding plugin is requeued when the Node":                    ofTopology,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeBinding plugin is requeued when the PV ":                     ofTopology,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeBinding plugin is requeued when the PVC":                     ofBinding,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeBinding plugin is requeued when the StorageClass is created": ofBinding,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeBinding plugin is requeued when the StorageClass's AllowedTopologies": ofTopology,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeBinding plugin is not requeued when the StorageClass":                 ofTopology,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeBinding plugin is requeued when the CSINode":                          ofCSINodes,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeBinding plugin is requeued when the CSIDriver":                        ofCapacities,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeBinding plugin is not requeued when the CSIDriver":                    ofCapacities,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeBinding plugin is requeued when the CSIStorageCapacity":               ofCapacities,
	"queueing/TestCoreResourceEnqueue/Pod rejected with node by the VolumeBinding plugin is not requeued when the CSIStorageCapacity":           ofCapacities,
	"queueing/TestCoreResourceEnqueue/Pod rejected by the Volume":                                                                               ofVolumes,
	"queueing/TestCoreResourceEnqueue/Pod rejected the CSI":                                                                                     ofVolumes,
	"queueing/TestCoreResourceEnqueue/Pod rejected with PVC":                                                                                    ofVolumes,
	"queueing/TestCoreResourceEnqueue/Pod with PVC":                                                                                             ofVolumes,
	"queueing/TestCoreResourceEnqueue/Pod with Inline Migratable volume":                                                                        ofVolumes,
	"queueing/TestCoreResourceEnqueue/Pod rejected with hostport":                                                                               noPorts,
	"queueing/TestCoreResourceEnqueue/Pod rejected by the NodeResourcesFit plugin isn't requeued when a Node has the extended resource":         noClaims,
	"queueing/TestCoreResourceEnqueue/Pod rejected by the NodeResourcesFit plugin isn't requeued when a Node does not have the extended":        noClaims,
	"queueing/TestCoreResourceEnqueue/Pod rejected by the NodeResourcesFit plugin is requeued when a Node does not have the extended resource":  noClaims,
}

// TestSchedulerCaseMatrix: each case of kube-scheduler's runs over the view, or says why not, and
// docs/reference/scheduler-cases.md counts them and lists those that do not run: -update writes it.
func TestSchedulerCaseMatrix(t *testing.T) {
	const page = "../../../docs/reference/scheduler-cases.md"
	runs := map[string]bool{}
	for _, tc := range schedulerCases() {
		require.False(t, runs[tc.name], "%s runs once", tc.name)
		runs[tc.name] = true
	}
	for name := range otherCases() {
		require.False(t, runs[name], "%s runs once", name)
		runs[name] = true
	}
	matrix := caseMatrix{counts: map[string]*caseCounts{}, leftOut: map[string]int{}}
	for _, name := range stockCaseNames(t) {
		beginning := ""
		if !runs[name] {
			beginning = leftOutBeginning(name)
			require.NotEmpty(t, beginning, "%s runs, or there is a reason", name)
		}
		matrix.add(name, beginning)
		delete(runs, name)
	}
	require.Empty(t, runs, "cases that kube-scheduler does not have")
	for beginning := range leftOutCases {
		require.Positive(t, matrix.leftOut[beginning], "the reason for %s is for a case", beginning)
	}
	want := matrix.page()
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644)) //nolint:gosec // a page of the repository
		return
	}
	was, err := os.ReadFile(page)
	require.NoError(t, err)
	if diff := cmp.Diff(want, string(was)); diff != "" {
		t.Errorf("the page (-want +got):\n%s", diff)
	}
}

// leftOutBeginning returns the key of leftOutCases for a case, "" for none.
func leftOutBeginning(name string) (longest string) {
	for beginning := range leftOutCases {
		if strings.HasPrefix(name, beginning) && len(beginning) > len(longest) {
			longest = beginning
		}
	}
	return longest
}

// caseCounts are those of the cases of one folder of kube-scheduler's.
type caseCounts struct{ run, shown, not int }

// caseMatrix is what the page says.
type caseMatrix struct {
	// counts by folder.
	counts map[string]*caseCounts
	// leftOut are the numbers of cases by the key of leftOutCases.
	leftOut map[string]int
}

// add counts a case that runs, where beginning is "", or the one that the reason of a beginning is for.
func (m *caseMatrix) add(name, beginning string) {
	folder, _, _ := strings.Cut(name, "/Test")
	if m.counts[folder] == nil {
		m.counts[folder] = &caseCounts{}
	}
	switch {
	case beginning == "":
		m.counts[folder].run++
		return
	case strings.HasPrefix(leftOutCases[beginning], shownByPrefix):
		m.counts[folder].shown++
	default:
		m.counts[folder].not++
	}
	m.leftOut[beginning]++
}

func (m *caseMatrix) page() string {
	var page strings.Builder
	page.WriteString(`# Cases of kube-scheduler

<!-- go test ./internal/scheduling/podscheduler -run SchedulerCaseMatrix -update -->

Cases of kube-scheduler's integration tests, and whether they run over the view of a tenant's pod scheduler
(` + "`TestScheduler.*Cases`" + `): each of their nodes is a super cluster of one node.

| folder | run | shown by another test | do not run |
|---|---|---|---|
`)
	all := caseCounts{}
	for _, folder := range slices.Sorted(maps.Keys(m.counts)) {
		counts := m.counts[folder]
		fmt.Fprintf(&page, "| %s | %d | %d | %d |\n", folder, counts.run, counts.shown, counts.not)
		all = caseCounts{run: all.run + counts.run, shown: all.shown + counts.shown, not: all.not + counts.not}
	}
	fmt.Fprintf(&page, "| all | %d | %d | %d |\n", all.run, all.shown, all.not)
	page.WriteString("\nThose that do not run over the view, by the beginning of their names, with how many begin so.\n\n| why | cases |\n|---|---|\n")
	byReason := map[string][]string{}
	for _, beginning := range slices.Sorted(maps.Keys(m.leftOut)) {
		reason := leftOutCases[beginning]
		byReason[reason] = append(byReason[reason], fmt.Sprintf("%s (%d)", strings.TrimSpace(beginning), m.leftOut[beginning]))
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		fmt.Fprintf(&page, "| %s | %s |\n", reason, strings.Join(byReason[reason], "; "))
	}
	page.WriteString("\nFolders of which no case runs.\n\n| folder | why |\n|---|---|\n")
	for _, folder := range slices.Sorted(maps.Keys(leftOutFolders)) {
		fmt.Fprintf(&page, "| %s | %s |\n", folder, leftOutFolders[folder])
	}
	return page.String()
}
