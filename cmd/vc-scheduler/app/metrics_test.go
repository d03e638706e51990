package app

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// scrape returns what /metrics serves, once, over HTTP. The parser fails on a family that is served twice.
func scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	server, err := metricsserver.NewServer(metricsOptions(&Options{MetricsBindAddress: "127.0.0.1:0"}), &rest.Config{}, http.DefaultClient)
	require.NoError(t, err)
	bound, ok := server.(interface{ GetBindAddr() string })
	require.True(t, ok, "%T", server)
	ended := make(chan error, 1)
	go func() { ended <- server.Start(t.Context()) }()
	t.Cleanup(func() { require.NoError(t, <-ended) })
	require.Eventually(t, func() bool { return bound.GetBindAddr() != "" }, 10*time.Second, time.Millisecond)

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+bound.GetBindAddr()+"/metrics", http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	require.NoError(t, err)
	return families
}

func TestMetricsOfManagerAndSchedulersAreServedTogether(t *testing.T) {
	t.Parallel()
	metrics.Register()
	families := scrape(t)
	for name, where := range map[string]string{
		"go_goroutines":                      "both registries",
		"process_start_time_seconds":         "both registries",
		"scheduler_pod_scheduling_attempts":  "kube-scheduler's registry",
		"certwatcher_read_certificate_total": "the manager's registry",
	} {
		require.Contains(t, families, name, where)
	}
}

func TestManagersRegistryIsLeftAlone(t *testing.T) {
	t.Parallel()
	metrics.Register()
	scrape(t)
	families, err := ctrlmetrics.Registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		require.NotEqual(t, "scheduler_pod_scheduling_attempts", family.GetName())
	}
}

func TestGatherers(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, tc := range []struct {
		name                string
		first, second       []string
		firstErr, secondErr error
		want                []string
		wantErr             string
	}{
		{name: "nothing"},
		{name: "only the first", first: []string{"a", "b"}, want: []string{"a first", "b first"}},
		{name: "only the second", second: []string{"a", "b"}, want: []string{"a second", "b second"}},
		{name: "sorted", first: []string{"a", "c"}, second: []string{"b"}, want: []string{"a first", "b second", "c first"}},
		{name: "in both", first: []string{"a"}, second: []string{"a", "b"}, want: []string{"a first", "b second"}},
		{name: "the first fails", second: []string{"a"}, firstErr: failed, wantErr: "gathering the manager's metrics: failed"},
		{name: "the second fails", first: []string{"a"}, secondErr: failed, wantErr: "gathering kube-scheduler's metrics: failed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			registry := func(help string, names []string, err error) prometheus.Gatherer {
				return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
					var families []*dto.MetricFamily
					for _, name := range names {
						families = append(families, &dto.MetricFamily{Name: &name, Help: &help})
					}
					return families, err
				})
			}
			families, err := gatherers{first: registry("first", tc.first, tc.firstErr), second: registry("second", tc.second, tc.secondErr)}.Gather()
			if tc.wantErr != "" {
				require.EqualError(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			var got []string
			for _, family := range families {
				got = append(got, family.GetName()+" "+family.GetHelp())
			}
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}
