package engage_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/engage"
)

// stubborn returns work that serves until it is cancelled, and then until letGo is closed.
func stubborn() (w *work, letGo chan struct{}) {
	w, letGo = &work{}, make(chan struct{})
	w.set(nil, func(ctx context.Context, ready func()) error {
		ready()
		<-ctx.Done()
		<-letGo
		return ctx.Err()
	})
	return w, letGo
}

func (w *work) serving(t *testing.T) {
	t.Helper()
	synctest.Wait()
	_, serves := w.counts()
	require.Equal(t, 1, serves)
}

func TestOneInstancePerObject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var supervisor engage.Supervisor[*work]
		supervisor.HealthPeriod, supervisor.LongestDelay = healthPeriod, longestDelay
		name := types.NamespacedName{Name: "a"}
		changes := make(chan types.NamespacedName, 10)
		supervisor.OnChange(func(name types.NamespacedName) { changes <- name })
		ended := func() {
			t.Helper()
			synctest.Wait()
			require.NotEmpty(t, changes, "the end is announced")
			for len(changes) > 0 {
				require.Equal(t, name, <-changes)
			}
		}
		first, letFirstGo := stubborn()
		second, letSecondGo := stubborn()

		_, running := supervisor.Ensure(name, "1", func() *work { return first })
		require.True(t, running)
		got, _ := supervisor.Get(name)
		require.Same(t, first, got)
		first.serving(t)
		_, running = supervisor.Ensure(name, "1", func() *work { panic("it runs already") })
		require.True(t, running)
		got, _ = supervisor.Get(name)
		require.Same(t, first, got)
		for len(changes) > 0 {
			<-changes
		}

		for _, identity := range []string{"2", "1"} { // even the old identity has to wait: its instance is ending
			_, running = supervisor.Ensure(name, identity, func() *work { panic("the first has not ended") })
			require.False(t, running)
		}
		_, running = supervisor.Get(name)
		require.False(t, running)
		synctest.Wait()
		require.Empty(t, changes, "one that is ending has no news until it has ended")
		close(letFirstGo)
		ended()
		_, running = supervisor.Ensure(name, "2", func() *work { return second })
		require.True(t, running)
		second.serving(t)
		for len(changes) > 0 {
			<-changes
		}

		require.True(t, supervisor.Stop(types.NamespacedName{Name: "unknown"}))
		require.False(t, supervisor.Stop(name))
		close(letSecondGo)
		ended()
		require.True(t, supervisor.Stop(name))
	})
}

func TestInstancesEndWithTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var supervisor engage.Supervisor[*work]
		supervisor.HealthPeriod, supervisor.LongestDelay = healthPeriod, longestDelay
		only, letGo := stubborn()
		supervisor.Ensure(types.NamespacedName{Name: "a"}, "1", func() *work { return only })
		only.serving(t)
		_, running := supervisor.Get(types.NamespacedName{Name: "a"})
		require.True(t, running)

		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- supervisor.Start(ctx) }()
		cancel()
		synctest.Wait()
		require.Empty(t, stopped, "the end of each is awaited")
		close(letGo)
		require.NoError(t, <-stopped)
		_, running = supervisor.Ensure(types.NamespacedName{Name: "b"}, "1", func() *work { return &work{} })
		require.False(t, running, "nothing starts after the end")
	})
}
