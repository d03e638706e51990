package app

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/superpool/superpool/internal/metricsauth"
)

// metricsOptions returns the options of the manager's metrics server.
func metricsOptions(options *Options) metricsserver.Options {
	provider := withSchedulerMetrics
	if options.MetricsSecure {
		provider = secured(withSchedulerMetrics)
	}
	return metricsserver.Options{BindAddress: options.MetricsBindAddress, SecureServing: options.MetricsSecure, FilterProvider: provider}
}

// secured returns a FilterProvider that lets those through to inner whom the meta cluster knows and allows to get
// /metrics.
func secured(inner filterProvider) filterProvider {
	return func(config *rest.Config, httpClient *http.Client) (metricsserver.Filter, error) {
		protect, err := metricsauth.FilterProvider(config, httpClient)
		if err != nil {
			return nil, fmt.Errorf("protecting /metrics: %w", err)
		}
		filter, err := inner(config, httpClient)
		if err != nil {
			return nil, err
		}
		return func(logger logr.Logger, handler http.Handler) (http.Handler, error) {
			handler, err := filter(logger, handler)
			if err != nil {
				return nil, err
			}
			return protect(logger, handler)
		}, nil
	}
}

type filterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error)

// withSchedulerMetrics is a FilterProvider: it makes the manager's /metrics serve kube-scheduler's registry too.
// kube-scheduler registers in legacyregistry and controller-runtime in a registry of its own, which its metrics server
// is built on: it has no option for another gatherer, and refuses an extra handler for /metrics. A second path would
// split what one scrape reads. The filter is applied to extra handlers as well; there are none.
func withSchedulerMetrics(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(logr.Logger, http.Handler) (http.Handler, error) {
		both := gatherers{first: ctrlmetrics.Registry, second: legacyregistry.DefaultGatherer}
		return promhttp.HandlerFor(both, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}), nil
	}, nil
}

// gatherers merges two registries. Both hold the metrics of the process and the Go runtime, for which
// prometheus.Gatherers would return errors.
type gatherers struct{ first, second prometheus.Gatherer }

// Gather implements prometheus.Gatherer: it returns the families of both registries, sorted by name. Of a family that
// is in both it returns the first's.
func (g gatherers) Gather() ([]*dto.MetricFamily, error) {
	families, err := g.first.Gather()
	if err != nil {
		return nil, fmt.Errorf("gathering the manager's metrics: %w", err)
	}
	names := sets.New[string]()
	for _, family := range families {
		names.Insert(family.GetName())
	}
	others, err := g.second.Gather()
	if err != nil {
		return nil, fmt.Errorf("gathering kube-scheduler's metrics: %w", err)
	}
	for _, family := range others {
		if !names.Has(family.GetName()) {
			families = append(families, family)
		}
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return families, nil
}
