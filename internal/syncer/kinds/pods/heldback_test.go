package pods

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/choice"
)

// TestHeldBack: beyond the tenant's rate a pod that is refused is looked at less and less often, until its choice is
// taken back. Each look may be a request that the super cluster refuses.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	u := &choice.Untaken{}
	refused := func(name string) (engine.Key, choice.Choice) {
		key, of := engine.Key{Tenant: "t", Kind: kind.Pod, Namespace: "web", Name: name}, choice.Choice{UID: types.UID(name)}
		u.Note(key, of, failedchoice.Refused, "no", now)
		return key, of
	}
	pod, of := refused("pod")
	now = now.Add(time.Minute)
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		for i := range choice.TakenBackBurst { // what the rate allows meanwhile, others take
			key, other := refused(fmt.Sprint(now, i))
			require.True(t, u.GiveUp(key, other, 0, now))
		}
		require.False(t, u.GiveUp(pod, of, time.Minute, now))
		require.Equal(t, want*time.Second, u.After(pod, time.Minute, now))
		now = now.Add(time.Minute)
	}
	require.True(t, u.GiveUp(pod, of, time.Minute, now))
	require.Zero(t, u.After(pod, time.Minute, now))
}
