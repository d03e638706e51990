package census_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/census"
	"github.com/superpool/superpool/test/builders"
)

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason}
}

func tenant(name string, conditions ...metav1.Condition) *tenancyv1alpha1.VirtualCluster {
	vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: name}}
	vc.Status.Conditions = conditions
	return vc
}

func namespace(name string, conditions ...metav1.Condition) *schedulerv1alpha1.NamespacePlacement {
	np := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants-a", Name: name}}
	np.Status.Conditions = conditions
	return np
}

func virtualNode(name string, status corev1.ConditionStatus, reason string, others ...corev1.NodeCondition) *corev1.Node {
	others = append(others, corev1.NodeCondition{Type: "Drained", Status: "True"}, corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: reason})
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{schedulerv1alpha1.LabelVirtualNode: name}},
		Status:     corev1.NodeStatus{Conditions: others},
	}
}

func fakeClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(corev1.AddToScheme(scheme), tenancyv1alpha1.AddToScheme(scheme), schedulerv1alpha1.AddToScheme(scheme)))
	return builders.Client(scheme).WithObjects(objects...).Build()
}

// shows compares what a registry has, one line for each series, with what Prometheus would read.
func shows(t *testing.T, registry prometheus.Gatherer, want ...string) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	var got []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			got = append(got, fmt.Sprintf("%s{%s} %v", family.GetName(), strings.Join(labels, ","), metric.GetGauge().GetValue()))
		}
	}
	require.Empty(t, cmp.Diff(want, got), "(-want +got)")
}

func TestPool(t *testing.T) {
	t.Parallel()
	reader := fakeClient(t,
		tenant("a", condition(tenancyv1alpha1.ConditionReady, metav1.ConditionTrue, tenancyv1alpha1.ReasonConnected)),
		tenant("b", condition(tenancyv1alpha1.ConditionReady, metav1.ConditionTrue, tenancyv1alpha1.ReasonConnected)),
		tenant("c", condition(tenancyv1alpha1.ConditionReady, metav1.ConditionFalse, tenancyv1alpha1.ReasonUnreachable)),
		tenant("new"),
		namespace("a", condition(schedulerv1alpha1.ConditionPlaced, metav1.ConditionTrue, schedulerv1alpha1.ReasonPlaced)),
		namespace("b", condition(schedulerv1alpha1.ConditionPlaced, metav1.ConditionFalse, schedulerv1alpha1.ReasonUnschedulable)),
		virtualNode("r1", corev1.ConditionTrue, "SuperClusterReady", corev1.NodeCondition{Type: schedulerv1alpha1.NodeReplaceable, Status: corev1.ConditionTrue, Reason: "FitsElsewhere"}),
		virtualNode("r2", corev1.ConditionUnknown, "SuperClusterUnreachable", corev1.NodeCondition{Type: schedulerv1alpha1.NodeReplaceable, Status: corev1.ConditionFalse, Reason: "NoRoomElsewhere"}),
		virtualNode("r3", corev1.ConditionTrue, "SuperClusterReady"),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-the-meta-cluster"}},
	)
	registry := prometheus.NewRegistry()
	require.NoError(t, census.RegisterPool(t.Context(), registry, reader))
	want := []string{
		"vc_scheduler_namespaces{placed=False,reason=Unschedulable} 1",
		"vc_scheduler_namespaces{placed=True,reason=Placed} 1",
		"vc_scheduler_super_cluster_ready{reason=SuperClusterReady,super_cluster=r1} 1",
		"vc_scheduler_super_cluster_ready{reason=SuperClusterReady,super_cluster=r3} 1",
		"vc_scheduler_super_cluster_ready{reason=SuperClusterUnreachable,super_cluster=r2} 0",
		"vc_scheduler_super_cluster_replaceable{reason=FitsElsewhere,super_cluster=r1} 1",
		"vc_scheduler_super_cluster_replaceable{reason=NoRoomElsewhere,super_cluster=r2} 0",
		"vc_scheduler_virtual_clusters{ready=False,reason=Unreachable} 1",
		"vc_scheduler_virtual_clusters{ready=True,reason=Connected} 2",
		"vc_scheduler_virtual_clusters{ready=Unknown,reason=} 1",
	}
	shows(t, registry, want...)
	shows(t, registry, want...) // and not twice as much
	require.NoError(t, reader.Delete(t.Context(), tenant("c")))
	shows(t, registry, slices.Delete(want, 7, 8)...)
}

func TestControlPlanes(t *testing.T) {
	t.Parallel()
	backedUp := func(name string, certificates, backup int64, status metav1.ConditionStatus, reason string) client.Object {
		vc := tenant(name, condition(tenancyv1alpha1.ConditionBackedUp, status, reason), condition(tenancyv1alpha1.ConditionCertificatesValid, metav1.ConditionTrue, tenancyv1alpha1.ReasonWhole),
			condition(tenancyv1alpha1.ConditionReady, metav1.ConditionTrue, tenancyv1alpha1.ReasonConnected)) // vc-scheduler's
		vc.Status.CertificatesExpire = &metav1.Time{Time: time.Unix(certificates, 0)}
		if backup > 0 {
			vc.Status.LastBackup = &metav1.Time{Time: time.Unix(backup, 0)}
		}
		return vc
	}
	const whole = tenancyv1alpha1.ReasonWhole
	without := tenant("its backups were given up")
	without.Status.LastBackup = &metav1.Time{Time: time.Unix(1, 0)}
	for name, tc := range map[string]struct {
		tenants []client.Object
		want    []string
	}{
		"none":     {},
		"imported": {tenants: []client.Object{tenant("a")}},
		"the first certificate and the oldest backup": {
			tenants: []client.Object{
				backedUp("a", 5000, 400, metav1.ConditionTrue, whole), backedUp("b", 4000, 300, metav1.ConditionFalse, tenancyv1alpha1.ReasonFailed),
				backedUp("c", 6000, 500, metav1.ConditionTrue, whole), backedUp("new", 7000, 0, metav1.ConditionFalse, tenancyv1alpha1.ReasonProgressing),
			},
			want: []string{
				"vc_manager_certificates_expire_timestamp_seconds{} 4000",
				"vc_manager_oldest_backup_timestamp_seconds{} 300",
				"vc_manager_virtual_clusters{condition=BackedUp,status=False} 2",
				"vc_manager_virtual_clusters{condition=BackedUp,status=True} 2",
				"vc_manager_virtual_clusters{condition=CertificatesValid,status=True} 4",
			},
		},
		"backups of a tenant that is paused": {
			tenants: []client.Object{backedUp("a", 5000, 400, metav1.ConditionFalse, tenancyv1alpha1.ReasonPaused)},
			want: []string{
				"vc_manager_certificates_expire_timestamp_seconds{} 5000",
				"vc_manager_virtual_clusters{condition=CertificatesValid,status=True} 1",
			},
		},
		"backups that are wanted no more": {tenants: []client.Object{without}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			require.NoError(t, census.RegisterControlPlanes(t.Context(), registry, fakeClient(t, tc.tenants...)))
			shows(t, registry, tc.want...)
		})
	}
}

// TestACacheThatCannotBeRead costs no scrape: what else is in the registry is shown.
func TestACacheThatCannotBeRead(t *testing.T) {
	t.Parallel()
	registry, other := prometheus.NewRegistry(), prometheus.NewGauge(prometheus.GaugeOpts{Name: "other", Help: "Another."})
	registry.MustRegister(other)
	reader := interceptor.NewClient(fakeClient(t), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("not started")
		},
	})
	require.NoError(t, census.RegisterPool(t.Context(), registry, reader))
	shows(t, registry, "other{} 0")
}

// TestRegisteredAgain: the reader of a program that ran before in this process is not asked any more.
func TestRegisteredAgain(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	require.NoError(t, census.RegisterPool(t.Context(), registry, fakeClient(t, tenant("a"), tenant("b"))))
	require.NoError(t, census.RegisterPool(t.Context(), registry, fakeClient(t, tenant("a"))))
	shows(t, registry, "vc_scheduler_virtual_clusters{ready=Unknown,reason=} 1")
}
