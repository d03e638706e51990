package syncer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/tenants"
)

// failing is a kind each reconcile of which ends with an error.
type failing struct {
	err   error
	calls atomic.Int64
	most  int64
	done  context.CancelFunc
}

func (*failing) Name() string       { return kind.Pod }
func (*failing) Keys() []engine.Key { return nil }

func (f *failing) Reconcile(context.Context, engine.Key, time.Duration) (time.Duration, error) {
	if f.calls.Add(1) == f.most {
		f.done()
	}
	return 0, f.err
}

// TestLogsOfReconcilesAreBounded: what a tenant's webhooks and API server let reconciles log is a megabyte, and another
// one with each minute, however many of its objects they refuse.
func TestLogsOfReconcilesAreBounded(t *testing.T) {
	t.Parallel()
	const objects = 20_000
	text := strings.Repeat("x", 4<<10)
	for name, err := range map[string]error{
		"refusals": apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New(text)),
		"errors":   errors.New(text),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Syncer{sessions: map[string]*session{}, env: &kind.Env{}}
			s.sessions["a"] = &session{tenant: &kind.Tenant{Tenant: &tenants.Tenant{Key: "a", Bounds: tenantclient.New(&policy.Ref{})}}}
			var written, others atomic.Int64
			logger := funcr.New(func(_, args string) {
				if strings.Contains(args, `"tenant"="a"`) {
					written.Add(int64(len(args)))
				} else {
					others.Add(1)
				}
			}, funcr.Options{Verbosity: 2})
			ctx, done := context.WithCancel(klog.NewContext(t.Context(), logger))
			defer done()
			metrics, failure := engine.NewMetrics(prometheus.NewRegistry())
			require.NoError(t, failure)
			var options engine.Options
			s.order(&options)
			options.InSync = nil
			made, failure := engine.New(options, metrics, &failing{err: err, most: objects + 1, done: done})
			require.NoError(t, failure)
			for i := range objects {
				made.Add(engine.Key{Tenant: "a", Kind: kind.Pod, Name: fmt.Sprint(i)})
			}
			made.Add(engine.Key{Tenant: "another", Kind: kind.Pod, Name: "its"})
			begin := time.Now()
			require.NoError(t, made.Run(ctx))
			require.Positive(t, written.Load())
			require.LessOrEqual(t, written.Load(), int64(1<<20+(16<<10)*(1+time.Since(begin).Seconds())))
			require.Positive(t, others.Load(), "others are logged as before")
		})
	}
}
