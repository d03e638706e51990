package census

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// ofControlPlanes are the conditions that vc-manager says of control planes.
var ofControlPlanes = []string{
	tenancyv1alpha1.ConditionEtcdReady, tenancyv1alpha1.ConditionAPIServerReady, tenancyv1alpha1.ConditionControllerManagerReady,
	tenancyv1alpha1.ConditionExposed, tenancyv1alpha1.ConditionUpToDate, tenancyv1alpha1.ConditionCertificatesValid,
	tenancyv1alpha1.ConditionBackedUp, tenancyv1alpha1.ConditionRotated, tenancyv1alpha1.ConditionTranslated,
}

// RegisterControlPlanes registers the gauges of control planes, of what vc-manager says of them, in registerer. reader is
// a cache of VirtualClusters.
func RegisterControlPlanes(ctx context.Context, registerer prometheus.Registerer, reader client.Reader) error {
	return register(ctx, registerer, reader, func() census { return newControlPlanes() })
}

type controlPlanes struct{ conditions, certificates, backups *prometheus.GaugeVec }

func newControlPlanes() *controlPlanes {
	return &controlPlanes{
		conditions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "vc_manager", Name: "virtual_clusters",
			Help: "[ALPHA] VirtualClusters by condition, of those that vc-manager writes, and its status. What is so because the tenant is paused is left out.",
		}, []string{"condition", "status"}),
		certificates: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "vc_manager", Name: "certificates_expire_timestamp_seconds",
			Help: "[ALPHA] When the first certificate of a control plane that vc-manager makes ends if it is not renewed, of all of them, in seconds since 1970.",
		}, nil),
		backups: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "vc_manager", Name: "oldest_backup_timestamp_seconds",
			Help: "[ALPHA] When the newest backup was whole of the control plane whose newest one is the oldest, in seconds since 1970. Those without any yet, that are to have none, or whose tenant is paused, are left out.",
		}, nil),
	}
}

func (c *controlPlanes) gauges() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{c.conditions, c.certificates, c.backups}
}

func (c *controlPlanes) count(ctx context.Context, reader client.Reader) error {
	var tenants tenancyv1alpha1.VirtualClusterList
	if err := reader.List(ctx, &tenants, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing VirtualClusters: %w", err)
	}
	var certificates, backups *metav1.Time
	for i := range tenants.Items {
		status := &tenants.Items[i].Status
		for _, said := range status.Conditions {
			if slices.Contains(ofControlPlanes, said.Type) && said.Reason != tenancyv1alpha1.ReasonPaused {
				c.conditions.WithLabelValues(said.Type, string(said.Status)).Inc()
			}
		}
		certificates = earlier(certificates, status.CertificatesExpire)
		if kept := meta.FindStatusCondition(status.Conditions, tenancyv1alpha1.ConditionBackedUp); kept != nil && kept.Reason != tenancyv1alpha1.ReasonPaused {
			backups = earlier(backups, status.LastBackup)
		}
	}
	set(c.certificates, certificates)
	set(c.backups, backups)
	return nil
}

// earlier returns the earlier of two times, of which nil is none.
func earlier(a, b *metav1.Time) *metav1.Time {
	if a == nil || b != nil && b.Before(a) {
		return b
	}
	return a
}

// set shows a time, nothing for nil.
func set(gauge *prometheus.GaugeVec, at *metav1.Time) {
	if at != nil {
		gauge.WithLabelValues().Set(float64(at.Unix()))
	}
}
