package monitoring

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// recorded is for how long series are recorded, longer than any alert waits.
const recorded = 3 * time.Hour

// steady is a value that stays, and grows one that is greater by so much each minute.
func steady(value string) string { return value + "x180" }
func grows(by string) string     { return "0+" + by + "x180" }

// healthy is a pool of two super clusters where all is well, one hour after the other: with a standby, a tenant that is
// paused and one that has just been made, namespaces that have what they ask for, and a drain that proceeds.
var healthy = map[string]string{
	`up{job="vc-scheduler", pod="vc-scheduler-a"}`:                                                                       steady("1"),
	`up{job="vc-scheduler", pod="vc-scheduler-b"}`:                                                                       steady("1"),
	`up{job="vc-syncer", pod="vc-syncer-r1-a", super_cluster="r1"}`:                                                      steady("1"),
	`up{job="vc-syncer", pod="vc-syncer-r1-b", super_cluster="r1"}`:                                                      steady("1"),
	`up{job="vc-syncer", pod="vc-syncer-r2-a", super_cluster="r2"}`:                                                      steady("1"),
	`up{job="vn-agent", pod="vn-agent-a"}`:                                                                               steady("1"),
	`leader_election_master_status{job="vc-scheduler", pod="vc-scheduler-a", name="vc-scheduler"}`:                       steady("1"),
	`leader_election_master_status{job="vc-scheduler", pod="vc-scheduler-b", name="vc-scheduler"}`:                       steady("0"),
	`controller_runtime_reconcile_total{job="vc-scheduler", controller="tenants", result="success"}`:                     grows("60"),
	`controller_runtime_reconcile_errors_total{job="vc-scheduler", controller="tenants"}`:                                grows("1"),
	`controller_runtime_reconcile_time_seconds_bucket{job="vc-syncer", super_cluster="r1", controller="Pod", le="0.1"}`:  grows("50"),
	`controller_runtime_reconcile_time_seconds_bucket{job="vc-syncer", super_cluster="r1", controller="Pod", le="+Inf"}`: grows("60"),
	`process_resident_memory_bytes{job="vc-scheduler", pod="vc-scheduler-a"}`:                                            steady("200000000"),
	`process_cpu_seconds_total{job="vc-scheduler", pod="vc-scheduler-a"}`:                                                grows("6"),
	`rest_client_requests_total{job="vc-scheduler", code="200", method="GET", host="10.0.0.1:6443"}`:                     grows("60"),
	`scheduler_pending_pods{job="vc-scheduler", queue="unschedulable"}`:                                                  steady("3"),

	`vc_syncer_reconciles_total{super_cluster="r1", kind="Pod", result="success"}`:                   grows("100"),
	`vc_syncer_reconciles_total{super_cluster="r1", kind="Pod", result="wait"}`:                      grows("10"),
	`vc_syncer_reconciles_total{super_cluster="r1", kind="Pod", result="error"}`:                     grows("1"),
	`vc_syncer_operations_total{super_cluster="r1", kind="Pod", operation="create", result="error"}`: grows("1"),
	`vc_syncer_queue_depth{super_cluster="r1", kind="Pod"}`:                                          steady("2000"), // as deep as before
	`vc_syncer_queue_processing{super_cluster="r1", kind="Pod"}`:                                     steady("4"),
	`vc_syncer_drift_total{super_cluster="r1", kind="Pod"}`:                                          "0x90 1x90",
	`vc_syncer_super_cluster_last_answer_timestamp_seconds{super_cluster="r1", pod="vc-syncer-r1"}`:  grows("60"),
	`vc_syncer_missing_virtual_clusters{super_cluster="r1"}`:                                         steady("0"),

	`vc_scheduler_super_cluster_ready{super_cluster="r1", reason="SuperClusterReady"}`:   steady("1"),
	`vc_scheduler_super_cluster_ready{super_cluster="r2", reason="SuperClusterReady"}`:   steady("1"),
	`vc_scheduler_super_cluster_replaceable{super_cluster="r1", reason="FitsElsewhere"}`: steady("1"),
	`vc_scheduler_super_cluster_replaceable{super_cluster="r2", reason="FitsElsewhere"}`: steady("1"),
	`vc_scheduler_super_cluster_overcommitted{super_cluster="r1", resource="cpu"}`:       steady("0"),
	`vc_scheduler_super_cluster_slices{super_cluster="r1", state="used"}`:                steady("8"),
	`vc_scheduler_super_cluster_slices{super_cluster="r1", state="free"}`:                steady("0"),
	`vc_scheduler_super_cluster_slices{super_cluster="r2", state="free"}`:                steady("4"),
	`vc_scheduler_namespaces{placed="True", reason="Placed"}`:                            steady("9"),
	`vc_scheduler_namespaces{placed="False", reason="Paused"}`:                           steady("2"),
	`vc_scheduler_namespace_decisions_total{result="placed"}`:                            grows("1"),
	`vc_scheduler_placement_duration_seconds_bucket{le="1"}`:                             grows("1"),
	`vc_scheduler_placement_duration_seconds_bucket{le="+Inf"}`:                          grows("1"),
	`vc_scheduler_preemptions_total{result="nominated"}`:                                 grows("1"),
	`vc_scheduler_preemptions_total{result="none"}`:                                      steady("5"),
	`vc_scheduler_evictions_blocked`:                                                     "0x60 4x20 0x100",
	`vc_scheduler_evictions_total{reason="Drained", result="evicted"}`:                   grows("1"),
	`vc_scheduler_evictions_total{reason="Drained", result="error"}`:                     "0x60 2x120",
	`vc_scheduler_moves_total{reason="Drained", step="begun"}`:                           grows("1"),
	`vc_scheduler_virtual_clusters{ready="True", reason="Connected"}`:                    steady("7"),
	`vc_scheduler_virtual_clusters{ready="False", reason="Paused"}`:                      steady("1"),
	`vc_scheduler_virtual_clusters{ready="False", reason="Connecting"}`:                  "_x170 1x10",

	`vc_manager_virtual_clusters{condition="UpToDate", status="True"}`:          steady("3"),
	`vc_manager_virtual_clusters{condition="UpToDate", status="False"}`:         "0x20 1x20 _x140", // an upgrade
	`vc_manager_virtual_clusters{condition="CertificatesValid", status="True"}`: steady("7"),
	`vc_manager_virtual_clusters{condition="Rotated", status="False"}`:          steady("1"),
	`vc_manager_virtual_clusters{condition="BackedUp", status="True"}`:          steady("3"),
	`vc_manager_certificates_expire_timestamp_seconds`:                          steady("12000000"),
	`vc_manager_oldest_backup_timestamp_seconds`:                                steady("-86400"),

	`vn_agent_certificate_expire_timestamp_seconds{pod="vn-agent-a", certificate="serving"}`: steady("12000000"),
	`vn_agent_handshakes_refused_total{pod="vn-agent-a"}`:                                    steady("7"),
	`vn_agent_requests_total{pod="vn-agent-a", route="exec", code="101"}`:                    grows("60"),
	`vn_agent_requests_total{pod="vn-agent-a", route="exec", code="502"}`:                    grows("1"),
}

func TestHealthyPoolIsSilent(t *testing.T) {
	t.Parallel()
	for _, alert := range evaluate(t, healthy, recorded) {
		t.Errorf("%s fires: %s", alert.Labels, alert.Annotations.Get("description"))
	}
}

// TestAlertsFire: each of them from series that differ from those of a healthy pool, "" for one that is missing, and no
// other one.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		series map[string]string
		// says is what the description has of the labels and the value.
		says string
	}{
		"SuperpoolProgramDown": {
			series: map[string]string{`up{job="vc-syncer", pod="vc-syncer-r1-b", super_cluster="r1"}`: steady("0")}, says: "vc-syncer-r1-b of vc-syncer",
		},
		"SuperpoolSchedulerAbsent": {
			series: map[string]string{`up{job="vc-scheduler", pod="vc-scheduler-a"}`: "", `up{job="vc-scheduler", pod="vc-scheduler-b"}`: ""}, says: "No vc-scheduler",
		},
		"SuperpoolSyncerAbsent": {
			series: map[string]string{`up{job="vc-syncer", pod="vc-syncer-r2-a", super_cluster="r2"}`: ""}, says: "No syncer of r2",
		},
		"SuperpoolNoLeader": {
			series: map[string]string{`leader_election_master_status{job="vc-scheduler", pod="vc-scheduler-a", name="vc-scheduler"}`: "1x170 0x10"}, says: "Lease vc-scheduler",
		},
		"SuperpoolReconcileErrors": {
			series: map[string]string{`controller_runtime_reconcile_errors_total{job="vc-scheduler", controller="tenants"}`: grows("30")}, says: "50% of what controller tenants of vc-scheduler",
		},
		"SuperpoolSyncerReconcileErrors": {
			series: map[string]string{`vc_syncer_reconciles_total{super_cluster="r1", kind="Pod", result="error"}`: grows("110")}, says: "50% of the Pod that the syncer of r1",
		},
		"SuperpoolSyncerQueueGrows": {
			series: map[string]string{`vc_syncer_queue_depth{super_cluster="r1", kind="Pod"}`: grows("10")}, says: "1800 Pod wait for the syncer of r1",
		},
		"SuperpoolDrift": {
			series: map[string]string{`vc_syncer_drift_total{super_cluster="r1", kind="Pod"}`: grows("2")}, says: "r1 has changed or deleted 120 Pod",
		},
		"SuperpoolSuperClusterSilent": {
			series: map[string]string{`vc_syncer_super_cluster_last_answer_timestamp_seconds{super_cluster="r1", pod="vc-syncer-r1"}`: "0+60x177 10620x3"}, says: "r1 has not answered its syncer for 3m",
		},
		"SuperpoolSuperClusterLost": {
			series: map[string]string{
				`vc_scheduler_super_cluster_ready{super_cluster="r1", reason="SuperClusterReady"}`:       "1x150 _x30",
				`vc_scheduler_super_cluster_ready{super_cluster="r1", reason="SuperClusterUnreachable"}`: "_x150 0x30",
			}, says: "r1 has not answered vc-scheduler",
		},
		"SuperpoolSuperClusterNotReady": {
			series: map[string]string{
				`vc_scheduler_super_cluster_ready{super_cluster="r2", reason="SuperClusterReady"}`: "",
				`vc_scheduler_super_cluster_ready{super_cluster="r2", reason="ClusterRemoved"}`:    steady("0"),
			}, says: "r2 gets nothing new: ClusterRemoved",
		},
		"SuperpoolSuperClusterOvercommitted": {
			series: map[string]string{`vc_scheduler_super_cluster_overcommitted{super_cluster="r1", resource="cpu"}`: steady("12")}, says: "12 more cpu in r1",
		},
		"SuperpoolSuperClusterNotReplaceable": {
			series: map[string]string{
				`vc_scheduler_super_cluster_replaceable{super_cluster="r2", reason="FitsElsewhere"}`:   "1x60 _x120",
				`vc_scheduler_super_cluster_replaceable{super_cluster="r2", reason="NoRoomElsewhere"}`: "_x60 0x120",
			}, says: "If r2 were lost",
		},
		"SuperpoolPoolFull": {
			series: map[string]string{`vc_scheduler_super_cluster_slices{super_cluster="r2", state="free"}`: steady("0")}, says: "No super cluster has room",
		},
		"SuperpoolNamespacesWait": {
			series: map[string]string{`vc_scheduler_namespaces{placed="False", reason="Unschedulable"}`: steady("3")}, says: "3 namespaces",
		},
		"SuperpoolGuaranteeUnmet": {
			series: map[string]string{`vc_scheduler_preemptions_total{result="none"}`: grows("1")}, says: "guaranteed to its tenant",
		},
		"SuperpoolEvictionsBlocked": {
			series: map[string]string{`vc_scheduler_evictions_blocked`: steady("4")}, says: "4 pods cannot leave",
		},
		"SuperpoolEvictionErrors": {
			series: map[string]string{`vc_scheduler_evictions_total{reason="Drained", result="error"}`: grows("1")}, says: "(Drained)",
		},
		"SuperpoolTenantsNotReady": {
			series: map[string]string{`vc_scheduler_virtual_clusters{ready="False", reason="Unreachable"}`: steady("2")}, says: "2 VirtualClusters are not Ready: Unreachable",
		},
		"SuperpoolTenantsStay": {
			series: map[string]string{`vc_scheduler_virtual_clusters{ready="False", reason="Deleting"}`: steady("1")}, says: "1 VirtualClusters are being deleted",
		},
		"SuperpoolVirtualClusterMissing": {
			series: map[string]string{`vc_syncer_missing_virtual_clusters{super_cluster="r1"}`: steady("2")}, says: "r1 has namespaces of 2 VirtualClusters",
		},
		"SuperpoolControlPlanesNotReady": {
			series: map[string]string{`vc_manager_virtual_clusters{condition="EtcdReady", status="False"}`: steady("1")}, says: "1 control planes that vc-manager makes are not EtcdReady",
		},
		"SuperpoolCertificatesInvalid": {
			series: map[string]string{`vc_manager_virtual_clusters{condition="CertificatesValid", status="Unknown"}`: steady("5")}, says: "of 5 VirtualClusters",
		},
		"SuperpoolCertificatesEnd": {
			series: map[string]string{`vc_manager_certificates_expire_timestamp_seconds`: steady("270000")}, says: "ends in 3d 0h 0m 0s",
		},
		"SuperpoolAgentCertificatesEnd": {
			series: map[string]string{`vn_agent_certificate_expire_timestamp_seconds{pod="vn-agent-a", certificate="client-ca"}`: steady("875000")}, says: "vn-agent-a (client-ca) ends in 10d",
		},
		"SuperpoolBackupsFail": {
			series: map[string]string{`vc_manager_virtual_clusters{condition="BackedUp", status="False"}`: steady("2")}, says: "newest backups of 2 VirtualClusters",
		},
		"SuperpoolBackupsOld": {
			series: map[string]string{`vc_manager_oldest_backup_timestamp_seconds`: steady("-180000")}, says: "is 2d 5h 0m 0s old",
		},
		"SuperpoolAgentHandshakesRefused": {
			series: map[string]string{`vn_agent_handshakes_refused_total{pod="vn-agent-a"}`: grows("5")}, says: "vn-agent vn-agent-a faster",
		},
		"SuperpoolAgentErrors": {
			series: map[string]string{`vn_agent_requests_total{pod="vn-agent-a", route="exec", code="502"}`: grows("20")}, says: "25% of the requests to vn-agent vn-agent-a",
		},
	}
	var names []string
	for _, rule := range readRules(t) {
		if rule.Alert != "" {
			names = append(names, rule.Alert)
		}
	}
	slices.Sort(names)
	require.Empty(t, cmp.Diff(names, slices.Sorted(maps.Keys(cases))), "each alert has a case (-alerts +cases)")
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			series := maps.Clone(healthy)
			for one, values := range tc.series {
				if series[one] = values; values == "" {
					require.Contains(t, healthy, one)
					delete(series, one)
				}
			}
			fired := slices.Collect(maps.Values(evaluate(t, series, recorded)))
			require.Len(t, fired, 1)
			require.Equal(t, name, fired[0].Labels.Get("alertname"))
			require.Contains(t, fired[0].Annotations.Get("description"), tc.says)
		})
	}
}
