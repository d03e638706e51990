package census

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// RegisterPool registers the gauges of tenants, namespaces and super clusters, of what vc-scheduler says of them, in
// registerer. reader is a cache of VirtualClusters, NamespacePlacements and virtual Nodes.
func RegisterPool(ctx context.Context, registerer prometheus.Registerer, reader client.Reader) error {
	return register(ctx, registerer, reader, func() census { return newPool() })
}

type pool struct{ tenants, namespaces, ready, replaceable *prometheus.GaugeVec }

func newPool() *pool {
	return &pool{
		tenants: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "vc_scheduler", Name: "virtual_clusters", Help: "[ALPHA] VirtualClusters by status and reason of their condition Ready.",
		}, []string{"ready", "reason"}),
		namespaces: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "vc_scheduler", Name: "namespaces", Help: "[ALPHA] NamespacePlacements by status and reason of their condition Placed.",
		}, []string{"placed", "reason"}),
		ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "vc_scheduler", Name: "super_cluster_ready", Help: "[ALPHA] 1 for a super cluster whose virtual Node has condition Ready, else 0, with the reason of the condition.",
		}, []string{"super_cluster", "reason"}),
		replaceable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "vc_scheduler", Name: "super_cluster_replaceable", Help: "[ALPHA] 1 for a super cluster whose virtual Node has condition Replaceable, that is what namespaces have there has room in the others, else 0, with the reason of the condition.",
		}, []string{"super_cluster", "reason"}),
	}
}

func (p *pool) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{p.tenants, p.namespaces, p.ready, p.replaceable}
}

func (p *pool) count(ctx context.Context, reader client.Reader) error {
	var tenants tenancyv1alpha1.VirtualClusterList
	if err := reader.List(ctx, &tenants, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing VirtualClusters: %w", err)
	}
	for i := range tenants.Items {
		add(p.tenants, tenants.Items[i].Status.Conditions, tenancyv1alpha1.ConditionReady)
	}
	var namespaces schedulerv1alpha1.NamespacePlacementList
	if err := reader.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	for i := range namespaces.Items {
		add(p.namespaces, namespaces.Items[i].Status.Conditions, schedulerv1alpha1.ConditionPlaced)
	}
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.HasLabels{schedulerv1alpha1.LabelVirtualNode}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing virtual Nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, condition := range nodes.Items[i].Status.Conditions {
			isTrue := 0.0
			if condition.Status == corev1.ConditionTrue {
				isTrue = 1
			}
			switch condition.Type {
			case corev1.NodeReady:
				p.ready.WithLabelValues(nodes.Items[i].Name, condition.Reason).Set(isTrue)
			case schedulerv1alpha1.NodeReplaceable:
				p.replaceable.WithLabelValues(nodes.Items[i].Name, condition.Reason).Set(isTrue)
			}
		}
	}
	return nil
}

// add counts one object by one of its conditions. What nothing was said of yet is Unknown.
func add(gauge *prometheus.GaugeVec, conditions []metav1.Condition, kind string) {
	status, reason := metav1.ConditionUnknown, ""
	if said := meta.FindStatusCondition(conditions, kind); said != nil {
		status, reason = said.Status, said.Reason
	}
	gauge.WithLabelValues(string(status), reason).Inc()
}
