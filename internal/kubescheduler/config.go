// Package kubescheduler builds kube-schedulers that run as a library, several in one process, over views instead of the
// Pods and Nodes of an API server. It holds what all of them share: reading a configuration, feature gates, and the
// parts that an instance is built of.
package kubescheduler

import (
	"fmt"
	"os"

	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/superpool/superpool/plugins"
)

// LoadConfig reads a KubeSchedulerConfiguration from file, or from fallback when file is "". Unknown fields, args for a
// plugin that takes none, plugins that are not registered and invalid values are errors.
func LoadConfig(file string, fallback []byte) (*config.KubeSchedulerConfiguration, error) {
	return LoadConfigWith(file, fallback, nil)
}

// LoadConfigWith is LoadConfig for a program that has plugins out of tree.
func LoadConfigWith(file string, fallback []byte, outOfTree runtime.Registry) (*config.KubeSchedulerConfiguration, error) {
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
	// The conversion to the internal type does not set it, and validation requires it.
	cfg.APIVersion = gvk.GroupVersion().String()
	if err := validation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		return nil, fmt.Errorf("validating %s: %w", name, err)
	}
	if err := plugins.Check(cfg, outOfTree); err != nil {
		return nil, fmt.Errorf("validating %s: %w", name, err)
	}
	return cfg, nil
}
