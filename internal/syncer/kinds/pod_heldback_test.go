package kinds

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/syncer/engine"
)

// TestHeldBack: beyond the tenant's rate a pod that is refused is looked at less and less often, until its choice is
// taken back. Each look may be a request that the super cluster refuses.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	u := &untaken{}
	refused := func(name string) (engine.Key, choice) {
		key, of := engine.Key{Tenant: "t", Kind: KindPod, Namespace: "web", Name: name}, choice{uid: types.UID(name)}
		u.note(key, of, failedchoice.Refused, "no", now)
		return key, of
	}
	pod, of := refused("pod")
	now = now.Add(time.Minute)
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		for i := range takenBackBurst { // what the rate allows meanwhile, others take
			key, other := refused(fmt.Sprint(now, i))
			require.True(t, u.giveUp(key, other, 0, now))
		}
		require.False(t, u.giveUp(pod, of, time.Minute, now))
		require.Equal(t, want*time.Second, u.after(pod, time.Minute, now))
		now = now.Add(time.Minute)
	}
	require.True(t, u.giveUp(pod, of, time.Minute, now))
	require.Zero(t, u.after(pod, time.Minute, now))
}
