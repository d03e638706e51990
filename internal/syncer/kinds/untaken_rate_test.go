package kinds

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// TestClaimsGoAtTheRateOfTheTenant: claims that go with their pods draw from what may be taken back of the tenant in a
// second, and the pod waits for all of them.
func TestClaimsGoAtTheRateOfTheTenant(t *testing.T) {
	t.Parallel()
	held, now := &untaken{}, time.Unix(1_000_000, 0)
	pod := engine.Key{Tenant: "t", Kind: KindPod, Name: "pod"}
	goes := func(now time.Time) (goes int) {
		for i := range 2 * takenBackBurst {
			key := engine.Key{Tenant: "t", Kind: KindClaim, Name: fmt.Sprint(i)}
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: types.UID(key.Name), ResourceVersion: "1"}}
			require.True(t, held.giveUpWith(key, claim, pod, time.Minute, now))
			if held.of(key).givenUp {
				goes++
			}
		}
		return goes
	}
	require.Equal(t, takenBackBurst, goes(now))
	require.Equal(t, takenBackBurst+5, goes(now.Add(5*time.Second)))
}
