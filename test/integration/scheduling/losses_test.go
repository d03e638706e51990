package scheduling

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/vc-scheduler/app"
	"github.com/superpool/superpool/manifests/profiles"
)

// TestASuperClusterIsReplaceable as long as what it holds has room in the other one.
func TestASuperClusterIsReplaceable(t *testing.T) {
	w := shared.with(func(o *app.Options) { o.LossPeriod = 500 * time.Millisecond })
	w.run(t)
	here, there := w.placedIn(t, "loss", "60", "100Mi")
	w.wantReplaceable(t, here, "True", "has room in the other super clusters")
	w.wantReplaceable(t, there, "True", "has room in the other super clusters")
	w.placeIn(t, there, "loss-beside", "50", "100Mi")
	w.wantReplaceable(t, here, "False", "If it were lost, 1 of 1 namespaces would wait for cpu=60,memory=100Mi")
	w.wantReplaceable(t, there, "False", w.key+"/loss-beside (cpu=50,memory=100Mi")
}

// TestRoomIsKept: half of a pool of two is for what the other one holds.
func TestRoomIsKept(t *testing.T) {
	const args = "  - {name: NamespaceGang, args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: NamespaceGangArgs, tolerateLosses: 1}}\n"
	const ofTwo, ofOne = "  pluginConfig: &noDefaultSpread\n", "  pluginConfig:\n"
	text := strings.NewReplacer(ofTwo, ofTwo+args, ofOne, ofOne+args).Replace(string(profiles.NamespaceScheduler))
	file := filepath.Join(t.TempDir(), "namespaces.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	w := shared.with(func(o *app.Options) { o.NamespaceSchedulerConfig = file })
	w.run(t)
	here, there := w.placedIn(t, "keep", "60", "100Mi")
	w.namespace(t, "keep-beside", `{"cpu":"50","memory":"100Mi"}`)
	w.quota(t, "keep-beside", "50", "100Mi")
	require.Eventually(t, func() bool { return w.placement(t, "keep-beside") != nil }, patience, tick)
	w.wantPlacedMessage(t, "keep-beside", "0/2 super clusters are available: the pool keeps what it has free for the loss of a super cluster: 50 cpu")
	w.drain(t, here) // what leaves may use it
	w.wantShown(t, "keep", `{"`+there+`":1}`)
}

// wantReplaceable waits until condition Replaceable of a virtual Node has that status, and says that.
func (w *world) wantReplaceable(t *testing.T, id string, status corev1.ConditionStatus, says string) {
	t.Helper()
	require.Eventually(t, func() bool {
		node := &corev1.Node{}
		if err := w.meta.Get(t.Context(), types.NamespacedName{Name: id}, node); err != nil {
			return false
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == schedulerv1alpha1.NodeReplaceable {
				return condition.Status == status && strings.Contains(condition.Message, says)
			}
		}
		return false
	}, patience, tick, "condition Replaceable of %s: want %s, %q", id, status, says)
}
