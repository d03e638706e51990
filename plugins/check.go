package plugins

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	intree "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	pluginargs "github.com/superpool/superpool/apis/config"
	"github.com/superpool/superpool/plugins/choicebackoff"
	"github.com/superpool/superpool/plugins/coscheduling"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/plugins/namespaceplacement"
	"github.com/superpool/superpool/plugins/nodegroups"
	"github.com/superpool/superpool/plugins/superclusterbinder"
	"github.com/superpool/superpool/plugins/volumehome"
)

// Check returns an error for each plugin that a profile enables and no registry has, outOfTree included, and for each
// field of their args that is wrong. A scheduler with such a profile cannot be built: without Check, that would show
// with the first tenant that is engaged, and with every one after it.
func Check(cfg *config.KubeSchedulerConfiguration, outOfTree runtime.Registry) error {
	registry, left := Registry(Options{OutOfTree: outOfTree}), map[string]string{}
	for _, entry := range notRegistered() {
		left[entry.Name] = entry.WhyNot
	}
	if err := registry.Merge(intree.NewInTreeRegistry()); err != nil {
		return fmt.Errorf("adding kube-scheduler's own plugins: %w", err)
	}
	var errs []error
	for i := range cfg.Profiles {
		profile := &cfg.Profiles[i]
		for _, name := range enabled(profile.Plugins) {
			if _, exists := registry[name]; exists {
				continue
			}
			err := fmt.Errorf("profile %q enables plugin %q, which does not exist", profile.SchedulerName, name)
			if reason, leftOut := left[name]; leftOut {
				err = fmt.Errorf("profile %q enables plugin %q, which is not registered: %s", profile.SchedulerName, name, reason)
			}
			errs = append(errs, err)
		}
		errs = append(errs, checkArgs(profile)...)
	}
	return errors.Join(errs...)
}

// checkArgs returns an error for each field of the args of registered plugins that is wrong.
func checkArgs(profile *config.KubeSchedulerProfile) (errs []error) {
	entries := map[string]Entry{}
	for _, entry := range Entries(Options{}) {
		entries[entry.Name] = entry
	}
	for _, given := range profile.PluginConfig {
		entry := entries[given.Name]
		switch {
		case entry.Factory == nil: // kube-scheduler's own, which it has checked, or out of tree, which checks itself
		case entry.Validate == nil:
			errs = append(errs, fmt.Errorf("profile %q: plugin %s takes no args", profile.SchedulerName, given.Name))
		default:
			for _, problem := range entry.Validate(field.NewPath("args"), given.Args) {
				errs = append(errs, fmt.Errorf("profile %q: plugin %s: %w", profile.SchedulerName, given.Name, problem))
			}
		}
	}
	return errs
}

// rule is about one plugin of kube-scheduler or of ours in the profiles of one kind of scheduler.
type rule struct {
	name, why string
	// points are where the plugin must run, or must not.
	points []string
}

// requiredOfNamespaces are the plugins without which a profile of the namespace scheduler ignores what operators and
// tenants say about their namespaces, and where each is to run.
var requiredOfNamespaces = []rule{
	{namespacegang.Name, "which places all slices of a namespace or none", []string{"queueSort", "preFilter", "postFilter", "reserve", "permit", "bind"}},
	{names.NodeUnschedulable, "by which cordons hold", []string{"filter"}},
	{names.TaintToleration, "by which taints hold", []string{"filter", "preScore", "score"}},
	{names.NodeAffinity, "by which scheduling.nodeSelector of TenantPolicies and the choice of a namespace hold", []string{"preFilter", "filter", "preScore", "score"}},
	{names.PodTopologySpread, "by which the choice of a namespace holds", []string{"preFilter", "filter", "preScore", "score"}},
}

// requiredOfPods are the plugins without which a profile of pods sends them where they cannot run, or may not.
var requiredOfPods = []rule{
	{names.SchedulingGates, "by which gates hold", []string{"preEnqueue"}},
	{namespaceplacement.Name, "which keeps pods to what their namespace holds", []string{"preFilter"}},
	{choicebackoff.Name, "which keeps pods out of super clusters that did not take them", []string{"preFilter", "filter"}},
	{nodegroups.Name, "which answers what pods demand of nodes", []string{"preFilter", "filter"}},
	{names.InterPodAffinity, "by which required pod affinity holds", []string{"preFilter", "filter"}},
	{names.NodeUnschedulable, "by which cordons hold", []string{"filter"}},
	{names.TaintToleration, "by which taints hold", []string{"filter"}},
	{names.NodeResourcesFit, "which counts what the namespace holds", []string{"preFilter", "filter"}},
	{volumehome.Name, "which brings pods to their volumes", []string{"preFilter", "filter", "reserve", "preBind"}},
	{names.VolumeBinding, "which keeps pods to their volumes while these are being bound", []string{"preFilter", "filter", "reserve"}},
	{superclusterbinder.Name, "which writes the super cluster", []string{"reserve", "bind"}},
}

// refusedOfPods are the plugins of kube-scheduler that would judge the pod view by what is not in it.
var refusedOfPods = []rule{
	{names.NodeAffinity, "a Node of the pod view is a super cluster and has the labels of no node: NodeGroups answers node selectors and node affinity", []string{"preFilter", "filter", "preScore", "score"}},
	{names.PodTopologySpread, "it knows no domains below super clusters: NodeGroups answers DoNotSchedule, enable PodTopologySpread at preScore and score", []string{"preFilter", "filter"}},
	{names.NodeName, "a pod that names a node asks for its super cluster: NamespacePlacement answers it", []string{"filter"}},
	{names.NodePorts, "ports of the host are the super scheduler's to answer", []string{"preFilter", "filter"}},
	{names.ImageLocality, "images of nodes are not in the view", []string{"score"}},
	{names.NodeDeclaredFeatures, "features of nodes are not in the view: the super cluster judges them", []string{"preFilter", "filter"}},
	{names.VolumeBinding, "it waits until a claim is bound, which in the super cluster needs the pod: VolumeHome writes where that is", []string{"preBind"}},
	{names.VolumeRestrictions, volumes, []string{"preFilter", "filter"}},
	{names.VolumeZone, volumes, []string{"preFilter", "filter"}},
	{names.NodeVolumeLimits, volumes, []string{"preFilter", "filter"}},
	{names.DynamicResources, "resource claims are not synced", []string{"preFilter", "filter", "postFilter", "reserve", "preBind"}},
	{names.DefaultBinder, "a pod is bound to a node by its super cluster: SuperClusterBinder writes that one", []string{"bind"}},
}

// volumes is why no plugin about the sources of volumes runs over the pod view.
const volumes = "what volumes are is not in the view: the super cluster judges it"

// CheckNamespaces returns an error for each profile of the namespace scheduler and each required plugin that does not
// run in it: nothing else would show that what operators and tenants ask for is ignored. So it does for each plugin
// that is for pods, and where profiles keep room for the loss of different numbers of super clusters.
func CheckNamespaces(cfg *config.KubeSchedulerConfiguration) error {
	return errors.Join(checkKind(cfg, Namespaces, requiredOfNamespaces, nil), checkLosses(cfg))
}

// checkLosses returns an error unless all profiles keep the same room free: namespaces choose profiles.
func checkLosses(cfg *config.KubeSchedulerConfiguration) error {
	for i := range cfg.Profiles {
		if first, profile := &cfg.Profiles[0], &cfg.Profiles[i]; lossesOf(profile) != lossesOf(first) {
			return fmt.Errorf("profile %q has tolerateLosses %d of plugin %s, and profile %q has %d: one would use the room that the other keeps free",
				first.SchedulerName, lossesOf(first), namespacegang.Name, profile.SchedulerName, lossesOf(profile))
		}
	}
	return nil
}

// lossesOf returns of how many super clusters a profile tolerates the loss.
func lossesOf(profile *config.KubeSchedulerProfile) int32 {
	for _, given := range profile.PluginConfig {
		if args, isGang := given.Args.(*pluginargs.NamespaceGangArgs); isGang {
			return args.TolerateLosses
		}
	}
	return 0
}

// CheckPods is CheckNamespaces for profiles of pods. It refuses besides what would judge by things that the pod view
// does not have, and Coscheduling behind SuperClusterBinder.
func CheckPods(cfg *config.KubeSchedulerConfiguration) error {
	errs := []error{checkKind(cfg, Pods, requiredOfPods, refusedOfPods)}
	for i := range cfg.Profiles {
		if profile := &cfg.Profiles[i]; !isBefore(profile.Plugins, coscheduling.Name, superclusterbinder.Name) {
			errs = append(errs, fmt.Errorf("profile %q must enable plugin %s before %s, which holds back the members of a gang else",
				profile.SchedulerName, coscheduling.Name, superclusterbinder.Name))
		}
	}
	return errors.Join(errs...)
}

// checkKind returns an error for each rule that a profile breaks, and for each plugin that is for the other kind.
func checkKind(cfg *config.KubeSchedulerConfiguration, kind Scheduler, required, refused []rule) error {
	var errs []error
	for i := range cfg.Profiles {
		profile := &cfg.Profiles[i]
		for _, plugin := range required {
			if lacking := plugin.at(profile.Plugins, false); len(lacking) > 0 {
				errs = append(errs, fmt.Errorf("profile %q must enable plugin %s at %s, %s",
					profile.SchedulerName, plugin.name, strings.Join(lacking, ", "), plugin.why))
			}
		}
		for _, plugin := range refused {
			if running := plugin.at(profile.Plugins, true); len(running) > 0 {
				errs = append(errs, fmt.Errorf("profile %q must not enable plugin %s at %s: %s",
					profile.SchedulerName, plugin.name, strings.Join(running, ", "), plugin.why))
			}
		}
		names := enabled(profile.Plugins)
		for _, entry := range Entries(Options{}) {
			if entry.Factory != nil && !slices.Contains(entry.Schedulers, kind) && slices.Contains(names, entry.Name) {
				errs = append(errs, fmt.Errorf("profile %q must not enable plugin %s: it is for profiles of %s", profile.SchedulerName, entry.Name, entry.Schedulers[0]))
			}
		}
	}
	return errors.Join(errs...)
}

// at returns those of the points where the plugin runs, or does not.
func (r rule) at(plugins *config.Plugins, run bool) (points []string) {
	for _, point := range r.points {
		if runs(plugins, r.name, point) == run {
			points = append(points, point)
		}
	}
	return points
}

// isBefore reports whether first is enabled before second at Reserve, or not at all.
func isBefore(plugins *config.Plugins, first, second string) bool {
	if plugins == nil || !runs(plugins, first, "reserve") {
		return true
	}
	order := slices.Concat(plugins.Reserve.Enabled, plugins.MultiPoint.Enabled)
	index := func(name string) int {
		return slices.IndexFunc(order, func(plugin config.Plugin) bool { return plugin.Name == name })
	}
	return index(first) < index(second)
}

// runs reports whether a plugin that has an extension point runs there, as kube-scheduler expands multiPoint.
func runs(plugins *config.Plugins, name, point string) bool {
	if plugins == nil {
		return false
	}
	at := map[string]*config.PluginSet{
		"preEnqueue": &plugins.PreEnqueue, "preBind": &plugins.PreBind,
		"queueSort": &plugins.QueueSort, "preFilter": &plugins.PreFilter, "filter": &plugins.Filter, "postFilter": &plugins.PostFilter,
		"preScore": &plugins.PreScore, "score": &plugins.Score, "reserve": &plugins.Reserve, "permit": &plugins.Permit, "bind": &plugins.Bind,
	}[point]
	has := func(set []config.Plugin, oneOf ...string) bool {
		return slices.ContainsFunc(set, func(plugin config.Plugin) bool { return slices.Contains(oneOf, plugin.Name) })
	}
	return has(at.Enabled, name) || has(plugins.MultiPoint.Enabled, name) && !has(at.Disabled, name, "*")
}

// Enables reports whether any profile enables a plugin.
func Enables(cfg *config.KubeSchedulerConfiguration, name string) bool {
	return slices.ContainsFunc(cfg.Profiles, func(profile config.KubeSchedulerProfile) bool {
		return slices.Contains(enabled(profile.Plugins), name)
	})
}

// enabled returns the names of the plugins that are enabled at any extension point, sorted.
func enabled(plugins *config.Plugins) []string {
	if plugins == nil {
		return nil
	}
	names := plugins.Names()
	for _, plugin := range plugins.MultiPoint.Enabled { // which Names leaves out
		names = append(names, plugin.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
