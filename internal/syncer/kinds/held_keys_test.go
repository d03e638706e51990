//go:build !race

package kinds_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/choice"
	"github.com/superpool/superpool/internal/syncer/kinds/pods"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestWhatAKeyHolds: what a syncer holds of an object beside its caches is no more than counts for it, whatever it
// waits for, and however long the words are with which it was refused. It runs alone: it looks at the whole heap.
func TestWhatAKeyHolds(t *testing.T) { //nolint:paralleltest // see above
	const count = 20_000
	now := time.Unix(1_000_000, 0)
	for _, tc := range []struct {
		name string
		kind string
		// warned are the topics about which the tenant was warned, and everywhere is whether the object waits for
		// everything that there is to wait for.
		warned     []string
		everywhere bool
	}{
		{name: "refused", kind: "service", warned: []string{""}},
		{name: "waits", kind: "service", warned: []string{""}, everywhere: true},
		{name: "refused pod", kind: kind.Pod, warned: []string{""}},
		// Without "readiness": only large ones have that, of which limits.cachedBytes lets few in.
		{name: "pod that waits everywhere", kind: kind.Pod, warned: []string{"", "tolerations", "objects"}, everywhere: true},
	} {
		t.Run(tc.name, func(t *testing.T) { //nolint:paralleltest // see above
			env, untaken, moments := &kind.Env{}, &choice.Untaken{}, &pods.Moments{}
			tenant := &kind.Tenant{Recorder: noRecorder{}}
			queue := engine.NewQueue(engine.QueueOptions{})
			defer queue.ShutDown()
			keys := make([]engine.Key, count)
			for i := range keys {
				keys[i] = engine.Key{Tenant: kindtest.ClusterKey, Kind: tc.kind, Namespace: "web", Name: fmt.Sprint("p", i)}
			}
			words := strings.Repeat("x", tenancy.MaxEventNote)
			before := heap()
			for i, key := range keys {
				uid, message := types.UID(fmt.Sprintf("%036d", i)), fmt.Sprint(i, words)
				queue.AddRateLimited(key)
				object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
				env.SetRefused(key, object, true)
				queue.AddAfter(key, time.Hour)
				for _, of := range tc.warned {
					env.WarnAbout(tenant, kind.Topic{Key: key, Of: of}, object, kind.ReasonTolerationsLeftOut, message)
				}
				if tc.kind == kind.Pod {
					untaken.Note(key, choice.Choice{UID: uid}, failedchoice.Quota, message, now)
				}
				if tc.everywhere {
					queue.Add(key)
					env.Tally.Reserve(key, true, kind.Amount{Objects: 1}, kind.Amount{}, now)
					env.QuotaWaiters.Add(key)
					if tc.kind == kind.Pod {
						moments.Note(key, uid, now)
					}
				}
			}
			held := int64(heap()-before) / count //nolint:gosec // a heap
			t.Logf("%d bytes a key", held)
			require.LessOrEqual(t, held, kind.HeldBytes(tc.kind))
			for _, each := range []any{keys, env, untaken, moments} {
				runtime.KeepAlive(each)
			}
		})
	}
}

// noRecorder is a kind.Recorder that keeps nothing.
type noRecorder struct{}

func (noRecorder) Event(apiruntime.Object, string, string, string) bool { return true }

// heap returns how many bytes are in use.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
