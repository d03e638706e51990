package namespacescheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/tenancy"
)

// refusalBook notes what refusals write.
type refusalBook struct {
	mu    sync.Mutex
	lines []string
	fail  error
	wait  <-chan struct{}
}

func (b *refusalBook) write(ctx context.Context, gang string, facts placement.Facts) error {
	if b.wait != nil {
		select {
		case <-b.wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, gang+" "+facts.Unschedulable)
	return b.fail
}

// TestRefusalsTakeTurns: tenants take turns, whoever has how many; the latest message of a gang wins.
func TestRefusalsTakeTurns(t *testing.T) {
	t.Parallel()
	book := &refusalBook{}
	r := newRefusals(clock.RealClock{}, book.write)
	for i := range 3 {
		r.add(fmt.Sprintf("many/ns%d@1", i), refusal.Refusal{Message: "old"})
		r.add(fmt.Sprintf("many/ns%d@2", i), refusal.Refusal{Message: "new"})
	}
	r.add("few/web@1", refusal.Refusal{Message: "no"})
	r.add("few/gone@1", refusal.Refusal{Message: "no"})
	r.forget(client.ObjectKey{Namespace: "few", Name: "gone"})
	r.drain(t.Context())
	require.Empty(t, cmp.Diff([]string{"many/ns0@2 new", "few/web@1 no", "many/ns1@2 new", "many/ns2@2 new"}, book.lines))
	require.Zero(t, r.queue.Len())
	require.Empty(t, r.waiting)

	r.add("few/web@1", refusal.Refusal{Message: "no"})
	r.drain(t.Context())
	require.Len(t, book.lines, 4, "it is written")
}

// TestRefusalsAreBounded per tenant, and one that failed is written with the next try.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	book := &refusalBook{fail: errors.New("no etcd")}
	r := newRefusals(clock.RealClock{}, book.write)
	r.add("many/ns0@1", refusal.Refusal{Message: strings.Repeat("x", 40000)})
	for i := range 2 * refusalsPerTenant {
		r.add(fmt.Sprintf("many/ns%d@1", i+1), refusal.Refusal{Message: "no"})
	}
	r.add("few/web@1", refusal.Refusal{Message: "no"})
	require.Len(t, r.waiting, refusalsPerTenant+1)
	require.Len(t, r.waiting[client.ObjectKey{Namespace: "many", Name: "ns0"}].message, tenancy.MaxConditionMessage)
	r.drain(t.Context())
	require.Empty(t, r.written)
	book.fail, book.lines = placements.ErrChanged, nil
	r.add("few/web@1", refusal.Refusal{Message: "no"})
	r.drain(t.Context())
	require.Len(t, book.lines, 1)
	require.Empty(t, r.written, "it was another gang")
}

// TestRefusalsHoldUpNobody: the scheduling loop goes on while the meta cluster does not answer.
func TestRefusalsHoldUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		book := &refusalBook{wait: hangs}
		r := newRefusals(clock.RealClock{}, book.write)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.run(ctx)
		}()
		for i := range 100 {
			r.add(fmt.Sprintf("tenant/ns%d@1", i), refusal.Refusal{Message: "no"})
		}
		synctest.Wait()
		<-time.After(refusalTimeout + time.Second) // the first writes end
		close(hangs)
		synctest.Wait()
		require.GreaterOrEqual(t, len(book.lines), 100-2*refusalWriters)
		cancel()
		<-ended
	})
}
