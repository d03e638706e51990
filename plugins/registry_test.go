package plugins_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/plugins"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	multiPoint := func(names ...string) *config.Plugins {
		set := config.PluginSet{}
		for _, name := range names {
			set.Enabled = append(set.Enabled, config.Plugin{Name: name})
		}
		return &config.Plugins{MultiPoint: set}
	}
	for _, tc := range []struct {
		name    string
		plugins *config.Plugins
		wantErr []string
	}{
		{name: "none"},
		{name: "our own, kube-scheduler's and those of scheduler-plugins", plugins: multiPoint("NodeShape", "TaintToleration", "QOSSort")},
		{
			name: "one that is left out", plugins: multiPoint("Coscheduling"),
			wantErr: []string{`profile "p" enables plugin "Coscheduling", which is not registered: it asks the tenant's API server`},
		},
		{name: "one that nobody has", plugins: multiPoint("NodeShap"), wantErr: []string{`profile "p" enables plugin "NodeShap", which does not exist`}},
		{
			name: "at an extension point, all of them", plugins: &config.Plugins{
				Score:      config.PluginSet{Enabled: []config.Plugin{{Name: "Peaks"}}},
				PostFilter: config.PluginSet{Enabled: []config.Plugin{{Name: "CapacityScheduling"}}},
				Filter:     config.PluginSet{Disabled: []config.Plugin{{Name: "Nobody"}}},
			},
			wantErr: []string{`"Peaks", which is not registered: it scores by the loads`, `"CapacityScheduling", which is not registered: it lists ElasticQuotas in New`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := plugins.Check(&config.KubeSchedulerConfiguration{Profiles: []config.KubeSchedulerProfile{{SchedulerName: "p", Plugins: tc.plugins}}})
			if len(tc.wantErr) == 0 {
				require.NoError(t, err)
			}
			for _, want := range tc.wantErr {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestCheckOfBuiltInProfiles(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{"namespaces": profiles.NamespaceScheduler, "pods": profiles.PodScheduler} {
		object, _, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
		require.NoError(t, err)
		require.NoError(t, plugins.Check(object.(*config.KubeSchedulerConfiguration)), name)
	}
}

func TestEveryPluginIsRegisteredOrHasAReason(t *testing.T) {
	t.Parallel()
	registry := plugins.Registry(plugins.Options{})
	for name, reason := range plugins.NotRegistered() {
		require.NotContains(t, registry, name)
		require.NotEmpty(t, reason, name)
	}
}
