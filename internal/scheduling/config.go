// Package scheduling runs the schedulers of vc-scheduler and the controllers around them: what tenant namespaces ask for, the namespace
// scheduler that places their slices, and one pod scheduler per tenant.
package scheduling

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"

	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins"
)

// LoadConfig reads a KubeSchedulerConfiguration from file, or from fallback when file is "". Unknown fields, plugin args of an unknown
// kind, plugins that are not registered and invalid values are errors.
func LoadConfig(file string, fallback []byte) (*config.KubeSchedulerConfiguration, error) {
	data, name := fallback, "the built-in configuration"
	if file != "" {
		var err error
		if data, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("reading the scheduler configuration: %w", err)
		}
		name = file
	}
	object, gvk, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decoding %s: %w", name, err)
	}
	cfg, ok := object.(*config.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("decoding %s: it holds a %s, not a KubeSchedulerConfiguration", name, gvk)
	}
	// The conversion to the internal type does not set it, and validation wants it.
	cfg.APIVersion = gvk.GroupVersion().String()
	if err := validation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		return nil, fmt.Errorf("validating %s: %w", name, err)
	}
	if err := plugins.Check(cfg); err != nil {
		return nil, fmt.Errorf("validating %s: %w", name, err)
	}
	return cfg, nil
}

// Profiles returns the names of the profiles in the configuration of the namespace scheduler. One must serve the namespaces that name none.
func Profiles(cfg *config.KubeSchedulerConfiguration) (sets.Set[string], error) {
	names := sets.New[string]()
	for i := range cfg.Profiles {
		names.Insert(cfg.Profiles[i].SchedulerName)
	}
	if !names.Has(view.DefaultNamespaceScheduler) {
		return nil, fmt.Errorf("no profile of the namespace scheduler is named %q, which places the namespaces that name none: there are %q",
			view.DefaultNamespaceScheduler, sets.List(names))
	}
	return names, nil
}
