package plugins

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	intree "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/superpool/superpool/plugins/namespacegang"
)

// Check returns an error for each plugin that a profile enables and no registry has. A scheduler with such a profile
// cannot be built: without Check, that would show with the first tenant that is engaged, and with every one after it.
func Check(cfg *config.KubeSchedulerConfiguration) error {
	registry, left := Registry(Options{}), map[string]string{}
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
	}
	return errors.Join(errs...)
}

// required are the plugins without which a profile of the namespace scheduler ignores what operators and tenants say
// about their namespaces, and where each is to run.
var required = []struct {
	name, why string
	points    []string
}{
	{namespacegang.Name, "which places all slices of a namespace or none", []string{"queueSort", "preFilter", "postFilter", "reserve", "permit", "bind"}},
	{names.NodeUnschedulable, "by which cordons hold", []string{"filter"}},
	{names.TaintToleration, "by which taints hold", []string{"filter", "preScore", "score"}},
	{names.NodeAffinity, "by which scheduling.nodeSelector of TenantPolicies and the choice of a namespace hold", []string{"preFilter", "filter", "preScore", "score"}},
	{names.PodTopologySpread, "by which the choice of a namespace holds", []string{"preFilter", "filter", "preScore", "score"}},
}

// CheckNamespaces returns an error for each profile of the namespace scheduler and each required plugin that does not
// run in it: nothing else would show that what operators and tenants ask for is ignored.
func CheckNamespaces(cfg *config.KubeSchedulerConfiguration) error {
	var errs []error
	for i := range cfg.Profiles {
		profile := &cfg.Profiles[i]
		for _, plugin := range required {
			var lacking []string
			for _, point := range plugin.points {
				if !runs(profile.Plugins, plugin.name, point) {
					lacking = append(lacking, point)
				}
			}
			if len(lacking) > 0 {
				errs = append(errs, fmt.Errorf("profile %q must enable plugin %s at %s, %s",
					profile.SchedulerName, plugin.name, strings.Join(lacking, ", "), plugin.why))
			}
		}
	}
	return errors.Join(errs...)
}

// runs reports whether a plugin that has an extension point runs there, as kube-scheduler expands multiPoint.
func runs(plugins *config.Plugins, name, point string) bool {
	if plugins == nil {
		return false
	}
	at := map[string]*config.PluginSet{
		"queueSort": &plugins.QueueSort, "preFilter": &plugins.PreFilter, "filter": &plugins.Filter, "postFilter": &plugins.PostFilter,
		"preScore": &plugins.PreScore, "score": &plugins.Score, "reserve": &plugins.Reserve, "permit": &plugins.Permit, "bind": &plugins.Bind,
	}[point]
	has := func(set []config.Plugin, oneOf ...string) bool {
		return slices.ContainsFunc(set, func(plugin config.Plugin) bool { return slices.Contains(oneOf, plugin.Name) })
	}
	return has(at.Enabled, name) || has(plugins.MultiPoint.Enabled, name) && !has(at.Disabled, name, "*")
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
