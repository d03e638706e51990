package scheduling

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/vc-scheduler/app"
)

// command runs a command of vc-scheduler with a kubeconfig, and returns what it prints and its exit code.
func command(t *testing.T, kubeconfig string, args ...string) (printed string, code int) {
	t.Helper()
	var out bytes.Buffer
	command := app.NewCommand()
	command.SetArgs(append(args, "--kubeconfig", kubeconfig))
	command.SetOut(&out)
	command.SetErr(&out)
	code = app.ExitCode(command.ExecuteContext(t.Context()))
	return out.String(), code
}

// TestCommands asks about a pool that works, with the rights of vc-scheduler, and orders moves in it as its operator.
func TestCommands(t *testing.T) {
	w := shared
	w.run(t)
	w.placeIn(t, "r1", "fuller", "50", "10Gi")
	w.namespace(t, "spread", `{"cpu":"10","memory":"1Gi"}`)
	w.quota(t, "spread", "20", "2Gi")
	w.wantShown(t, "spread", `{"r1":1,"r2":1}`)
	w.namespace(t, "toolarge", `{"cpu":"95","memory":"1Gi"}`)
	w.quota(t, "toolarge", "95", "1Gi")
	w.wantCondition(t, "toolarge", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonUnschedulable)
	versions := func() map[string]string {
		found := map[string]string{}
		for _, name := range []string{"fuller", "spread", "toolarge"} {
			found[name] = w.placement(t, name).ResourceVersion
		}
		return found
	}
	before := versions()

	for _, tc := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{name: "explain what is placed", args: []string{"explain", "spread", "--tenant", "default/tenant"}, want: []string{"r1", "r2"}},
		{name: "explain what waits", args: []string{"explain", "toolarge", "-n", w.key}, code: 3, want: []string{"r1", "r2", "larger than any free piece: the largest is cpu="}},
		{name: "explain what is not there", args: []string{"explain", "nothing", "-n", w.key}, code: 1},
		{name: "simulate", args: []string{"simulate", "--drain", "r1"}, code: 3, want: []string{"fuller", "spread", "toolarge"}},
		{name: "rebalance", args: []string{"rebalance", "--dry-run"}, want: []string{"spread"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			printed, code := command(t, w.options.Kubeconfig, tc.args...)
			require.Equal(t, tc.code, code, printed)
			for _, want := range tc.want {
				require.Contains(t, printed, want)
			}
		})
	}
	require.Empty(t, cmp.Diff(before, versions()), "nobody has written")

	operator := filepath.Join(t.TempDir(), "operator.kubeconfig")
	require.NoError(t, os.WriteFile(operator, w.metaPlane.KubeConfig, 0o600))
	printed, code := command(t, operator, "rebalance")
	require.Zero(t, code, printed)
	w.wantShown(t, "spread", `{"r1":2}`)
	w.wantEvent(t, "ResourceQuota", "spread/quota", "Moving")
	w.superQuota(t, "r2", "spread", "0", "0") // the syncer's answer: without it vc-scheduler waits for ten seconds
	w.wantShown(t, "toolarge", `{"r2":1}`)    // what the piece was for
}
