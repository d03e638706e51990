package leadership

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// TestOptionsNewLock: the Fence gives writes up before another leader may be elected, and there is none where nobody is
// elected.
func TestOptionsNewLock(t *testing.T) {
	t.Parallel()
	options, meta := NewOptions("vc-manager"), &rest.Config{Host: "https://127.0.0.1:1"}
	require.NoError(t, options.Validate())
	options.LeaseDuration, options.RenewDeadline = 8*time.Second, 5*time.Second
	fence, lock, err := options.NewLock(meta, "program")
	require.NoError(t, err)
	require.Equal(t, []time.Duration{8 * time.Second, 5 * time.Second}, []time.Duration{fence.LeaseDuration, fence.RenewDeadline})
	require.Contains(t, lock.Describe(), "vc-manager/program")

	options.Elect = false
	fence, lock, err = options.NewLock(meta, "program")
	require.NoError(t, err)
	require.Nil(t, fence)
	require.Nil(t, lock)
}
