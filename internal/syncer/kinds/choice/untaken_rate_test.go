package choice

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
)

// TestClaimsGoAtTheRateOfTheTenant: claims that go with their pods draw from what may be taken back of the tenant in a
// second, and the pod waits for all of them.
func TestClaimsGoAtTheRateOfTheTenant(t *testing.T) {
	t.Parallel()
	held, now := &Untaken{}, time.Unix(1_000_000, 0)
	pod := engine.Key{Tenant: "t", Kind: kind.Pod, Name: "pod"}
	goes := func(now time.Time) (goes int) {
		for i := range 2 * TakenBackBurst {
			key := engine.Key{Tenant: "t", Kind: kind.Claim, Name: fmt.Sprint(i)}
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: types.UID(key.Name), ResourceVersion: "1"}}
			require.True(t, held.GiveUpWith(key, claim, pod, time.Minute, now))
			if held.Of(key).GivenUp {
				goes++
			}
		}
		return goes
	}
	require.Equal(t, TakenBackBurst, goes(now))
	require.Equal(t, TakenBackBurst+5, goes(now.Add(5*time.Second)))
}
