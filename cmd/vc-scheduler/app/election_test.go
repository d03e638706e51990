package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/manifests/profiles"
)

// TestPodsOfShardsUseAddedPlugins: the pod scheduler of a tenant of a shard builds the plugins of its profiles, those
// out of tree among them.
func TestPodsOfShardsUseAddedPlugins(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pods.yaml")
	const last = "      - name: SuperClusterBinder\n"
	added := strings.Replace(string(profiles.PodScheduler), last, "      - name: Added\n"+last, 1)
	require.NoError(t, os.WriteFile(file, []byte(added), 0o600))
	options := NewOptions()
	options.PodSchedulerConfig = file
	options.Plugins = []Option{WithPlugin("Added", func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return nil, errors.New("it is built")
	})}
	read, err := options.read()
	require.NoError(t, err)

	pods := shardTenants(nil, nil, read, &election{}, &placements.Store{}, dispatch.New(true))
	tenant := &tenants.Tenant{Key: "tenant", UID: "uid", Policy: &policy.Ref{}, Config: &rest.Config{Host: "https://127.0.0.1:1"}}
	require.ErrorContains(t, pods.Engage(schedulertest.Context(t), tenant, func() {}), `plugin "Added": it is built`)
}
