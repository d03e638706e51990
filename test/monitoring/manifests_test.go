package monitoring

import (
	"cmp"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// root is that of the checkout.
const root = "../.."

// applied returns what `kubectl apply -k` of a folder of manifests makes of one kind, decoded strictly.
func applied[T any](t *testing.T, dir, kind string) (objects []T) {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "manifests", dir))
	require.NoError(t, err)
	for _, resource := range made.Resources() {
		if resource.GetKind() != kind {
			continue
		}
		text, err := resource.AsYAML()
		require.NoError(t, err)
		var object T
		require.NoError(t, yaml.UnmarshalStrict(text, &object), "%s of %s", resource.GetName(), dir)
		objects = append(objects, object)
	}
	return objects
}

// TestMonitorsFindPrograms: each program's pods are those of one Service, in their namespace, with the port that they
// serve metrics on, and one ServiceMonitor selects it. job is then the program's name.
func TestMonitorsFindPrograms(t *testing.T) {
	t.Parallel()
	pool := slices.Concat(applied[appsv1.Deployment](t, "base", "Deployment"), applied[appsv1.Deployment](t, "vc-manager", "Deployment"), applied[appsv1.Deployment](t, "syncer", "Deployment"))
	for _, tc := range []struct {
		dir      string
		programs []appsv1.Deployment
		wantJobs []string
	}{
		{dir: "monitoring", programs: pool, wantJobs: []string{"vc-manager", "vc-scheduler", "vc-syncer"}},
		{dir: "monitoring/vn-agent", programs: applied[appsv1.Deployment](t, "vn-agent/apiserver", "Deployment"), wantJobs: []string{"vn-agent"}},
	} {
		t.Run(tc.dir, func(t *testing.T) {
			t.Parallel()
			services, monitors := applied[corev1.Service](t, tc.dir, "Service"), applied[monitoringv1.ServiceMonitor](t, tc.dir, "ServiceMonitor")
			require.Len(t, monitors, 1)
			monitor := monitors[0]
			selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
			require.NoError(t, err)
			endpoint := monitor.Spec.Endpoints[0]
			require.Equal(t, "https", endpoint.Scheme.String())
			jobs := map[string]bool{}
			for i := range services {
				service := &services[i]
				require.Equal(t, monitor.Namespace, service.Namespace)
				require.True(t, selector.Matches(labels.Set(service.Labels)), service.Name)
				require.Equal(t, endpoint.Port, service.Spec.Ports[0].Name)
				jobs[service.Labels[monitor.Spec.JobLabel]] = true
				scraped := slices.IndexFunc(tc.programs, func(program appsv1.Deployment) bool {
					return program.Namespace == service.Namespace && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(program.Spec.Template.Labels))
				})
				require.GreaterOrEqual(t, scraped, 0, service.Name)
				require.True(t, slices.ContainsFunc(tc.programs[scraped].Spec.Template.Spec.Containers[0].Ports, func(port corev1.ContainerPort) bool {
					return port.Name == service.Spec.Ports[0].TargetPort.String() && port.ContainerPort == service.Spec.Ports[0].Port
				}), service.Name)
			}
			require.Equal(t, tc.wantJobs, slices.Sorted(maps.Keys(jobs)))
			for i := range tc.programs {
				require.True(t, slices.ContainsFunc(services, func(service corev1.Service) bool {
					return labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(tc.programs[i].Spec.Template.Labels))
				}), tc.programs[i].Name)
			}
		})
	}
	require.Equal(t, "supercluster-id", applied[appsv1.Deployment](t, "syncer", "Deployment")[0].Spec.Template.Labels["app.kubernetes.io/instance"], "relabelled to super_cluster")
}

// TestSuperClusterOfTargets: a syncer's is its pods' instance. Whatever else has an instance has none, or Prometheus would
// call the label super_cluster of its series exported_super_cluster.
func TestSuperClusterOfTargets(t *testing.T) {
	t.Parallel()
	var configs []*relabel.Config
	for _, config := range applied[monitoringv1.ServiceMonitor](t, "monitoring", "ServiceMonitor")[0].Spec.Endpoints[0].RelabelConfigs {
		made := relabel.DefaultRelabelConfig
		made.TargetLabel, made.NameValidationScheme = config.TargetLabel, model.UTF8Validation
		made.Regex = relabel.MustNewRegexp(cmp.Or(config.Regex, made.Regex.String()))
		for _, label := range config.SourceLabels {
			made.SourceLabels = append(made.SourceLabels, model.LabelName(label))
		}
		configs = append(configs, &made)
	}
	for program, want := range map[string]string{"vc-syncer": "r1", "vc-scheduler": "", "vc-manager": ""} {
		target := promlabels.NewBuilder(promlabels.FromStrings(
			"__meta_kubernetes_pod_label_app_kubernetes_io_name", program, "__meta_kubernetes_pod_label_app_kubernetes_io_instance", "r1",
		))
		require.True(t, relabel.ProcessBuilder(target, configs...))
		require.Equal(t, want, target.Get("super_cluster"), program)
	}
}

// TestDeletingTheSample leaves the namespace of Prometheus, which is not ours.
func TestDeletingTheSample(t *testing.T) {
	t.Parallel()
	require.Empty(t, applied[corev1.Namespace](t, "samples/monitoring", "Namespace"))
}

// TestDashboardIsDelivered to Grafana's sidecar, by the label that it looks for.
func TestDashboardIsDelivered(t *testing.T) {
	t.Parallel()
	configs := applied[corev1.ConfigMap](t, "samples/monitoring", "ConfigMap")
	require.Len(t, configs, 1)
	require.Equal(t, "1", configs[0].Labels["grafana_dashboard"])
	var board dashboard
	require.NoError(t, json.Unmarshal([]byte(configs[0].Data["superpool.json"]), &board))
	require.Equal(t, "Superpool", board.Title)
}
