package plugins_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/plugins"
)

// decode reads the built-in profiles of pods after a replacement, or profiles after head.
func decode(t *testing.T, text string) *config.KubeSchedulerConfiguration {
	t.Helper()
	object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	require.NoError(t, err)
	return object.(*config.KubeSchedulerConfiguration)
}

// TestLeftOut: each plugin of scheduler-plugins that cannot work over a view is refused with its reason, in profiles of
// either kind, and so are all that its command registers and we do not.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, entry := range plugins.Entries(plugins.Options{}) {
		known[entry.Name] = true
		if entry.Factory != nil {
			continue
		}
		t.Run(entry.Name, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, entry.WhyNot)
			cfg := &config.KubeSchedulerConfiguration{Profiles: []config.KubeSchedulerProfile{{
				SchedulerName: "p", Plugins: &config.Plugins{MultiPoint: config.PluginSet{Enabled: []config.Plugin{{Name: entry.Name}}}},
			}}}
			require.EqualError(t, plugins.Check(cfg, nil), `profile "p" enables plugin "`+entry.Name+`", which is not registered: `+entry.WhyNot)
		})
	}
	for _, name := range []string{ // those of cmd/scheduler of scheduler-plugins v0.34.7
		"CapacityScheduling", "Coscheduling", "LoadVariationRiskBalancing", "NetworkOverhead", "TopologicalSort", "NodeResourcesAllocatable",
		"NodeResourceTopologyMatch", "PreemptionToleration", "TargetLoadPacking", "LowRiskOverCommitment", "SySched", "Peaks",
		"CrossNodePreemption", "PodState", "QOSSort",
	} {
		require.True(t, known[name], name)
	}
}

// TestCheckPods: a profile of pods runs what keeps pods to where they can and may run, and nothing that judges by what
// the view does not have.
func TestCheckPods(t *testing.T) {
	t.Parallel()
	const line = "      - name: NodeResourcesFit\n"
	for name, tc := range map[string]struct {
		without, with string
		binds         bool
		wantErr       string
	}{
		"the built-in ones":      {},
		"no gates":               {without: "SchedulingGates", wantErr: `profile "default-scheduler" must enable plugin SchedulingGates at preEnqueue, by which gates hold`},
		"no placements":          {without: "NamespacePlacement", wantErr: "must enable plugin NamespacePlacement at preFilter, which keeps"},
		"no node groups":         {without: "NodeGroups", wantErr: "must enable plugin NodeGroups at preFilter, filter, which answers"},
		"no backoff":             {without: "ChoiceBackoff", wantErr: "must enable plugin ChoiceBackoff at preFilter, filter"},
		"no cordons":             {without: "NodeUnschedulable", wantErr: "must enable plugin NodeUnschedulable at filter"},
		"no taints":              {without: "TaintToleration", wantErr: "must enable plugin TaintToleration at filter"},
		"no affinity":            {without: "InterPodAffinity", wantErr: "must enable plugin InterPodAffinity at preFilter, filter"},
		"no room":                {without: "NodeResourcesFit", wantErr: "must enable plugin NodeResourcesFit at preFilter, filter"},
		"no binder":              {without: "SuperClusterBinder", wantErr: "must enable plugin SuperClusterBinder at reserve, bind"},
		"node affinity":          {with: "NodeAffinity", wantErr: `must not enable plugin NodeAffinity at preFilter, filter, preScore, score: a Node of the pod view is a super cluster`},
		"topology spread":        {with: "PodTopologySpread", wantErr: "must not enable plugin PodTopologySpread at preFilter, filter: it knows no domains below"},
		"names of nodes":         {with: "NodeName", wantErr: "must not enable plugin NodeName at filter"},
		"ports":                  {with: "NodePorts", wantErr: "must not enable plugin NodePorts at preFilter, filter: ports of the host"},
		"images":                 {with: "ImageLocality", wantErr: "must not enable plugin ImageLocality at score: images"},
		"features of nodes":      {with: "NodeDeclaredFeatures", wantErr: "must not enable plugin NodeDeclaredFeatures at preFilter, filter: features of nodes"},
		"no claims":              {without: "VolumeBinding", wantErr: "must enable plugin VolumeBinding at preFilter, filter, reserve"},
		"no homes":               {without: "VolumeHome", wantErr: "must enable plugin VolumeHome at preFilter, filter, reserve, preBind, which brings pods to their volumes"},
		"binding of claims":      {binds: true, wantErr: "must not enable plugin VolumeBinding at preBind: it waits until a claim is bound"},
		"volumes":                {with: "VolumeRestrictions", wantErr: "must not enable plugin VolumeRestrictions"},
		"zones of volumes":       {with: "VolumeZone", wantErr: "must not enable plugin VolumeZone"},
		"limits of volumes":      {with: "NodeVolumeLimits", wantErr: "must not enable plugin NodeVolumeLimits"},
		"resource claims":        {with: "DynamicResources", wantErr: "must not enable plugin DynamicResources"},
		"kube-scheduler's binds": {with: "DefaultBinder", wantErr: "must not enable plugin DefaultBinder at bind"},
		"one for namespaces":     {with: "SliceSpread", wantErr: "must not enable plugin SliceSpread: it is for profiles of namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := string(profiles.PodScheduler)
			if tc.without != "" {
				text = strings.Replace(text, "      - name: "+tc.without+"\n", "      - name: NodeNameOrder\n", 1)
				text = strings.Replace(text, "      - name: NodeNameOrder\n        weight: 1\n", "", 1)
			}
			if tc.with != "" {
				text = strings.Replace(text, line, "      - name: "+tc.with+"\n"+line, 1)
			}
			if tc.binds {
				text = strings.ReplaceAll(text, "      disabled:\n      - name: VolumeBinding\n", "      disabled: []\n")
			}
			err := plugins.CheckPods(decode(t, text))
			if tc.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wantErr)
		})
	}
	swapped := strings.Replace(string(profiles.PodScheduler), "      - name: Coscheduling\n", "", 1)
	i := strings.LastIndex(swapped, "      - name: SuperClusterBinder\n")
	swapped = swapped[:i] + strings.Replace(swapped[i:], "      - name: SuperClusterBinder\n", "      - name: SuperClusterBinder\n      - name: Coscheduling\n", 1)
	require.EqualError(t, plugins.CheckPods(decode(t, swapped)),
		`profile "gang" must enable plugin Coscheduling before SuperClusterBinder, which holds back the members of a gang else`)
	require.ErrorContains(t, plugins.CheckNamespaces(decode(t, string(profiles.PodScheduler))), "must not enable plugin NodeGroups: it is for profiles of pods")
}

// TestProfilesKeepTheSameRoom: a namespace that chose another profile would use what is kept.
func TestProfilesKeepTheSameRoom(t *testing.T) {
	t.Parallel()
	const args = "  - {name: NamespaceGang, args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: NamespaceGangArgs, tolerateLosses: 1}}\n"
	text := strings.Replace(string(profiles.NamespaceScheduler), "  pluginConfig: &noDefaultSpread\n", "  pluginConfig: &noDefaultSpread\n"+args, 1)
	require.EqualError(t, plugins.CheckNamespaces(decode(t, text)),
		`profile "namespace-scheduler" has tolerateLosses 1 of plugin NamespaceGang, and profile "pack" has 0: one would use the room that the other keeps free`)
	text = strings.Replace(text, "  pluginConfig:\n", "  pluginConfig:\n"+args, 1)
	require.NoError(t, plugins.CheckNamespaces(decode(t, text)))
}

// TestCheckArgs: a wrong value is named with its field, an unknown field is refused, and so are args for a plugin that
// takes none.
func TestCheckArgs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plugin, args string
		wantErr      string
	}{
		"all of a strategy":   {plugin: "NamespaceRoom", args: "{strategy: Pack, resources: [{name: cpu, weight: 2}, {name: nvidia.com/gpu}]}"},
		"defaults":            {plugin: "NamespaceRoom", args: "{}"},
		"no strategy":         {plugin: "NamespaceRoom", args: "{strategy: Fill}", wantErr: `plugin NamespaceRoom: args.strategy: Unsupported value: "Fill": supported values: "Pack", "Spread"`},
		"no weight":           {plugin: "NamespaceRoom", args: "{resources: [{name: cpu, weight: 0}]}", wantErr: "args.resources[0].weight: Invalid value: 0: must be between 1 and 100, inclusive"},
		"no resource":         {plugin: "NamespaceRoom", args: "{resources: [{name: 'c p u'}]}", wantErr: `args.resources[0].name: Invalid value: "c p u"`},
		"one resource twice":  {plugin: "NamespaceRoom", args: "{resources: [{name: cpu}, {name: cpu}]}", wantErr: `args.resources[1].name: Duplicate value: "cpu"`},
		"an unknown field":    {plugin: "NamespaceRoom", args: "{strategies: Pack}", wantErr: `unknown field "strategies"`},
		"a time":              {plugin: "NamespaceGang", args: "{permitWaitingTimeSeconds: 60}"},
		"no time":             {plugin: "NamespaceGang", args: "{permitWaitingTimeSeconds: 0}", wantErr: "args.permitWaitingTimeSeconds: Invalid value: 0: must be between 1 and 600, inclusive"},
		"a loss":              {plugin: "NamespaceGang", args: "{tolerateLosses: 1}"},
		"too many losses":     {plugin: "NamespaceGang", args: "{tolerateLosses: 11}", wantErr: "args.tolerateLosses: Invalid value: 11: must be between 0 and 10, inclusive"},
		"less than no loss":   {plugin: "NamespaceGang", args: "{tolerateLosses: -1}", wantErr: "args.tolerateLosses: Invalid value: -1: must be between 0 and 10, inclusive"},
		"binds":               {plugin: "SuperClusterBinder", args: "{maxInFlight: 10}"},
		"too many binds":      {plugin: "SuperClusterBinder", args: "{maxInFlight: 10001}", wantErr: "args.maxInFlight: Invalid value: 10001: must be between 1 and 10000, inclusive"},
		"gangs":               {plugin: "Coscheduling", args: "{permitWaitingTimeSeconds: 10}"},
		"gangs for ever":      {plugin: "Coscheduling", args: "{permitWaitingTimeSeconds: 601}", wantErr: "args.permitWaitingTimeSeconds: Invalid value: 601: must be between 1 and 600"},
		"a backoff of gangs":  {plugin: "Coscheduling", args: "{podGroupBackoffSeconds: 5}", wantErr: "args.podGroupBackoffSeconds: Invalid value: 5: must be 0"},
		"a percentage":        {plugin: "Coscheduling", args: "{podGroupRejectPercentage: 50}", wantErr: "args.podGroupRejectPercentage: Invalid value: 50: must be left out"},
		"sizes":               {plugin: "NodeResourcesAllocatable", args: "{mode: Most, resources: [{name: cpu, weight: 1048576}, {name: nvidia.com/gpu, weight: 1}]}"},
		"sizes by default":    {plugin: "NodeResourcesAllocatable", args: "{}"},
		"no mode":             {plugin: "NodeResourcesAllocatable", args: "{mode: Half}", wantErr: `plugin NodeResourcesAllocatable: args.mode: Unsupported value: "Half": supported values: "Least", "Most"`},
		"a weight below zero": {plugin: "NodeResourcesAllocatable", args: "{resources: [{name: cpu, weight: -1}]}", wantErr: "args.resources[0].weight: Invalid value: -1: must be at least 1"},
		"candidates":          {plugin: "PreemptionToleration", args: "{minCandidateNodesPercentage: 100, minCandidateNodesAbsolute: 1}"},
		"too many candidates": {plugin: "PreemptionToleration", args: "{minCandidateNodesPercentage: 101}", wantErr: "plugin PreemptionToleration: args.minCandidateNodesPercentage: Invalid value: 101: not in valid range"},
		"no candidates":       {plugin: "PreemptionToleration", args: "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}", wantErr: "args.minCandidateNodesAbsolute: Invalid value: 0: cannot be zero"},
		"of another plugin":   {plugin: "PodState", args: "{mode: Most}", wantErr: "plugin PodState takes no args"},
		"for one without any": {plugin: "NodeGroups", args: "{x: 1}", wantErr: "plugin NodeGroups takes no args"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: p\n" +
				"  pluginConfig: [{name: " + tc.plugin + ", args: " + tc.args + "}]\n"
			object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
			if err == nil {
				err = plugins.Check(object.(*config.KubeSchedulerConfiguration), nil)
			}
			if tc.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wantErr)
		})
	}
}
