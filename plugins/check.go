package plugins

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	intree "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
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
