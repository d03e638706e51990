package perf

import (
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// TestRequests: what is counted of an API server, of all that its metrics say.
func TestRequests(t *testing.T) {
	t.Parallel()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(`# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="pods",subresource="",verb="POST"} 3
apiserver_request_total{code="200",resource="pods",subresource="status",verb="PATCH"} 4
apiserver_request_total{code="200",resource="pods",subresource="status",verb="PATCH",version="v1"} 1
apiserver_request_total{code="409",resource="pods",subresource="status",verb="PATCH"} 2
apiserver_request_total{code="200",resource="",subresource="",verb="GET"} 9
# TYPE apiserver_watch_events_sizes histogram
apiserver_watch_events_sizes_bucket{group="",resource="pods",version="v1",le="+Inf"} 5
apiserver_watch_events_sizes_sum{group="",resource="pods",version="v1"} 12000
apiserver_watch_events_sizes_count{group="",resource="pods",version="v1"} 5
# TYPE apiserver_request_body_size_bytes histogram
apiserver_request_body_size_bytes_bucket{group="",resource="pods",verb="create",le="+Inf"} 3
apiserver_request_body_size_bytes_sum{group="",resource="pods",verb="create"} 1500
apiserver_request_body_size_bytes_count{group="",resource="pods",verb="create"} 3
`))
	require.NoError(t, err)
	counted := requests{}
	counted.count("tenant", families)
	counted.count("tenant", families)
	require.Equal(t, requests{
		"tenant POST pods": 6, "tenant PATCH pods/status": 10, "tenant PATCH pods/status (409)": 4,
		"tenant watch events of pods": 10, "tenant kB of watch events of pods": 24, "tenant kB of bodies to create pods": 3,
	}, counted)
	require.Equal(t, requests{"tenant POST pods": 5}, counted.minus(requests{
		"tenant POST pods": 1, "tenant PATCH pods/status": 10, "tenant PATCH pods/status (409)": 4,
		"tenant watch events of pods": 10, "tenant kB of watch events of pods": 24, "tenant kB of bodies to create pods": 3,
	}))
}
