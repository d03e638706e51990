package scheduling

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// emptyAPI is the transport to an API server that has nothing and never changes. It costs no connection.
type emptyAPI struct{ watches *atomic.Int64 }

// RoundTrip implements http.RoundTripper.
func (e emptyAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	if r.URL.Query().Get("watch") == "" {
		response.Body = io.NopCloser(strings.NewReader(`{"metadata":{"resourceVersion":"1"}}`))
		return response, nil
	}
	reader, writer := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = writer.CloseWithError(io.EOF) })
	e.watches.Add(1)
	response.Body = reader
	return response, nil
}

// BenchmarkIdleTenant measures what the work on a tenant costs that has nothing: all that Engage starts, without the
// connection to its API server.
func BenchmarkIdleTenant(b *testing.B) {
	podConfig, err := kubescheduler.LoadConfig("", profiles.PodScheduler)
	require.NoError(b, err)
	measure := func() (int, uint64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapAlloc + m.StackInuse
	}
	for name, part := range map[string]Part{"all": PartAll, "pods": PartPods, "placements": PartPlacements} {
		for _, count := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("part=%s/tenants=%d", name, count), func(b *testing.B) {
				for range b.N {
					stored := schedulingtest.NewStoredPlacements(b)
					dispatcher := dispatch.New(true)
					for i := range 20 {
						dispatcher.Node(builders.VirtualNode(fmt.Sprintf("r%02d", i)).Obj(), false)
					}
					work := &Tenants{
						Part: part, Client: stored, Store: placements.NewStore(stored, stored), Usage: &schedulingtest.Measured{}, Dispatcher: dispatcher,
						PodConfig: podConfig, DefaultSlice: slice.Amounts{},
					}
					ctx, cancel := context.WithCancel(schedulertest.Context(b))
					goroutines, memory := measure()
					var running, ready sync.WaitGroup
					api := emptyAPI{watches: &atomic.Int64{}}
					for i := range count {
						tenant := &tenants.Tenant{
							Key: fmt.Sprintf("tenant-%d", i), Policy: &policy.Ref{}, Config: &rest.Config{Host: "https://tenant", Transport: api},
						}
						ready.Add(1)
						running.Go(func() { _ = work.Engage(ctx, tenant, ready.Done) })
					}
					ready.Wait()
					more, moreMemory := measure()
					b.ReportMetric(float64(more-goroutines)/float64(count), "goroutines/tenant")
					b.ReportMetric(float64(moreMemory-memory)/float64(count), "B/tenant")
					b.ReportMetric(float64(api.watches.Load())/float64(count), "watches/tenant")
					cancel()
					running.Wait()
				}
			})
		}
	}
}
