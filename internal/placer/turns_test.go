package placer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/test/builders"
)

// BenchmarkBesideManyNamespaces places a namespace of ten slices beside one tenant's namespaces that are older, wait,
// and do not fit: an event that may make room wakes all of them.
func BenchmarkBesideManyNamespaces(b *testing.B) {
	for _, waiting := range []int{0, 10000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			p := newPool(b)
			p.cluster("r1", "100", "400Gi")
			p.cluster("r2", "100", "400Gi")
			for i := range waiting {
				np := builders.Placement("hog", fmt.Sprintf("ns%05d", i)).UID(types.UID(fmt.Sprint(i))).Slice("cpu", "1000").Quota("cpu", "1000").Obj()
				np.CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
				p.placer.Namespaces.Set(np)
			}
			require.Eventually(b, func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.refused["hog"] >= waiting
			}, time.Minute, time.Millisecond)
			b.ResetTimer()
			for i := range b.N {
				tenant := fmt.Sprintf("tenant-%d", i)
				p.ask(tenant, "1", "1000Mi")
				schedulertest.Soon(b, func() bool { return p.placed(tenant) != "" })
				b.StopTimer()
				p.remove(tenant)
				b.StartTimer()
			}
		})
	}
}
