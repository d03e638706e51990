package syncer

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenants"
)

// BenchmarkHandlers is what the event of a tenant costs a handler, by kind, where no other object is. tenantclient lets
// 4,096 a second in, so that a handler of less than 244 µs keeps up.
func BenchmarkHandlers(b *testing.B) {
	for _, spec := range kinds.Specs() {
		if spec.Tenant == nil {
			continue
		}
		b.Run(spec.Name, func(b *testing.B) {
			metrics, err := engine.NewMetrics(prometheus.NewRegistry())
			require.NoError(b, err)
			s := &Syncer{id: "r1", types: &typeMapper{}, sessions: map[string]*session{}, super: &informers{}}
			s.env = &kind.Env{
				ID: "r1", Declared: kinds.Specs(), SuperCache: s.super, Tenant: s.tenant, Tenants: s.tenants, Clock: clock.RealClock{}, Assignments: &assign.Pooled{SuperCluster: "r1"},
			}
			options := engine.Options{}
			s.order(&options)
			s.engine, err = engine.New(options, metrics, s.env.Reconcilers()...)
			require.NoError(b, err)
			made := &session{syncer: s, cache: &informers{}, changed: make(chan struct{}, 1)}
			made.tenant = &kind.Tenant{Tenant: &tenants.Tenant{Key: "a"}, Cache: made.cache}
			s.setSession("a", made)
			var objects [2][1000]client.Object
			for i := range objects[0] {
				for version := range objects {
					object := spec.Tenant.Object.DeepCopyObject().(client.Object)
					object.SetNamespace("web")
					object.SetName(fmt.Sprint("o", i))
					object.SetLabels(map[string]string{"version": fmt.Sprint(version)})
					objects[version][i] = object
				}
			}
			b.ResetTimer()
			for i := range b.N {
				made.tenantChanged(spec.Name, objects[i%2][i%1000], objects[1-i%2][i%1000])
			}
		})
	}
}
