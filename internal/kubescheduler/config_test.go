package kubescheduler

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/manifests/profiles"
)

func TestLoadConfig(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	tests := map[string]struct {
		text    string
		wantErr string
	}{
		"defaults":                          {text: head},
		"many profiles":                     {text: head + "profiles:\n- schedulerName: a\n- schedulerName: b\n"},
		"the args of a plugin of the field": {text: head + "profiles:\n- schedulerName: a\n  pluginConfig:\n  - name: Coscheduling\n    args:\n      permitWaitingTimeSeconds: 5\n"},
		"an unknown field":                  {text: head + "parallelisme: 3\n", wantErr: "unknown field"},
		"an unknown field of args":          {text: head + "profiles:\n- schedulerName: a\n  pluginConfig:\n  - name: Coscheduling\n    args:\n      permit: 5\n", wantErr: "unknown field"},
		"a plugin that is not registered":   {text: head + "profiles:\n- schedulerName: a\n  plugins:\n    multiPoint:\n      enabled:\n      - name: CapacityScheduling\n", wantErr: "not registered"},
		"a value out of range":              {text: head + "parallelism: -1\n", wantErr: "parallelism"},
		"two profiles of one name":          {text: head + "profiles:\n- schedulerName: a\n- schedulerName: a\n", wantErr: "Duplicate"},
		"another kind":                      {text: "apiVersion: v1\nkind: Pod\n", wantErr: "no kind"},
		"no YAML":                           {text: "{", wantErr: "decoding"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			require.NoError(t, os.WriteFile(file, []byte(tc.text), 0o600))
			config, err := LoadConfig(file, nil)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				require.ErrorContains(t, err, file, "an error names the file")
				return
			}
			require.NoError(t, err)
			require.NotEmpty(t, config.Profiles)
		})
	}
}

func TestLoadConfigOfAMissingFile(t *testing.T) {
	_, err := LoadConfig(filepath.Join(t.TempDir(), "none.yaml"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestBuiltInConfigs(t *testing.T) {
	for name, data := range map[string][]byte{"namespace-scheduler": profiles.NamespaceScheduler, "default-scheduler": profiles.PodScheduler} {
		config, err := LoadConfig("", data)
		require.NoError(t, err)
		require.Equal(t, name, config.Profiles[0].SchedulerName)
		require.Equal(t, int32(100), *config.PercentageOfNodesToScore, "a decision looks at every super cluster")
	}
}
