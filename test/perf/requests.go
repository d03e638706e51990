package perf

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
)

// requests counts what API servers have answered, by side and kind of request, "tenant PATCH pods/status", what they were
// sent and have sent besides, "tenant kB of watch events of pods", and the reconciles of the syncer, by kind and result:
// "syncer reconciles pod success".
type requests map[string]float64

// minus returns what was answered since before.
func (r requests) minus(before requests) requests {
	since := requests{}
	for kind, count := range r {
		if count > before[kind] {
			since[kind] = count - before[kind]
		}
	}
	return since
}

// requests returns what the API servers of the super cluster and of the tenants have answered until now, and how often
// the syncer has reconciled.
func (b *bed) requests(ctx context.Context) (requests, error) {
	counted := requests{}
	if err := counted.add(ctx, "super", b.super); err != nil {
		return nil, err
	}
	for _, tenant := range b.tenants {
		if err := counted.add(ctx, "tenant", tenant); err != nil {
			return nil, err
		}
	}
	for _, p := range b.ours {
		families, err := p.families(ctx)
		if err != nil {
			return nil, err
		}
		for _, metric := range families["vc_syncer_reconciles_total"].GetMetric() {
			labels := labelsOf(metric)
			counted[p.group+" reconciles "+labels["kind"]+" "+labels["result"]] += metric.GetCounter().GetValue()
		}
	}
	return counted, nil
}

// add adds what one API server has answered.
func (r requests) add(ctx context.Context, side string, client *kubernetes.Clientset) error {
	content, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("reading the metrics of an API server: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("parsing the metrics of an API server: %w", err)
	}
	r.count(side, families)
	return nil
}

// count adds what the metrics of one API server say.
func (r requests) count(side string, families map[string]*dto.MetricFamily) {
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		labels := labelsOf(metric)
		resource := labels["resource"]
		if resource == "" {
			continue
		}
		if sub := labels["subresource"]; sub != "" {
			resource += "/" + sub
		}
		kind := side + " " + labels["verb"] + " " + resource
		if code := labels["code"]; code >= "400" {
			kind += " (" + code + ")"
		}
		r[kind] += metric.GetCounter().GetValue()
	}
	for _, metric := range families["apiserver_watch_events_sizes"].GetMetric() {
		of := "watch events of " + labelsOf(metric)["resource"]
		r[side+" "+of] += float64(metric.GetHistogram().GetSampleCount())
		r.addBytes(side, of, metric)
	}
	for _, metric := range families["apiserver_request_body_size_bytes"].GetMetric() {
		labels := labelsOf(metric)
		r.addBytes(side, "bodies to "+labels["verb"]+" "+labels["resource"], metric)
	}
}

// addBytes adds the bytes of a histogram, in thousands.
func (r requests) addBytes(side, of string, sizes *dto.Metric) {
	r[side+" kB of "+of] += sizes.GetHistogram().GetSampleSum() / 1000
}

func labelsOf(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, label := range metric.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	return labels
}

// changes reports whether a method of HTTP changes something.
func changes(method string) bool { return method != http.MethodGet && method != http.MethodHead }
