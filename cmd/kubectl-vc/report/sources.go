package report

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// source is a kind of objects of the meta cluster, of which some fields are taken into a file.
type source struct {
	file, what string
	kind       schema.GroupKind
	options    []client.ListOption
	// is says which are taken, nil for all.
	is     func(object *unstructured.Unstructured) bool
	fields fields
}

// Fields of each object, and of conditions.
var (
	ofAll = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "metadata.generation", "metadata.resourceVersion", "metadata.creationTimestamp",
		"metadata.deletionTimestamp", "metadata.finalizers", "metadata.ownerReferences.kind", "metadata.ownerReferences.name",
	}
	ofStatus = []string{
		"status.observedGeneration", "status.conditions.type", "status.conditions.status", "status.conditions.reason", "status.conditions.message",
		"status.conditions.observedGeneration", "status.conditions.lastTransitionTime", "status.conditions.lastHeartbeatTime",
	}
)

// taken returns fields of a kind, with those of all kinds.
func taken(paths ...string) fields { return fieldsOf(slices.Concat(ofAll, ofStatus, paths)...) }

// isByUs reports whether one of our components wrote an Event.
func isByUs(event *unstructured.Unstructured) bool {
	component, _, _ := unstructured.NestedString(event.Object, "source", "component")
	controller, _, _ := unstructured.NestedString(event.Object, "reportingComponent")
	for _, by := range []string{component, controller} {
		if strings.HasPrefix(by, "vc-") || strings.HasPrefix(by, "syncer-") || by == "superpool-syncer" {
			return true
		}
	}
	return false
}

// sources returns all of them. No kind is among them that a tenant's objects are copies of.
func sources() []source {
	tenancy, scheduling := tenancyv1alpha1.GroupVersion.Group, schedulerv1alpha1.GroupVersion.Group
	inOurs := client.InNamespace(tenancyv1alpha1.ManagerNamespace)
	events := taken("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "eventTime", "source.component", "reportingComponent",
		"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "series.count", "series.lastObservedTime")
	workloads := taken("spec.replicas", "spec.template.spec.containers.name", "spec.template.spec.containers.image", "spec.template.spec.containers.resources.requests.*",
		"spec.template.spec.containers.resources.limits.*", "status.replicas", "status.updatedReplicas", "status.readyReplicas", "status.availableReplicas", "status.unavailableReplicas")
	return []source{
		{file: "virtualclusters.json", what: "VirtualClusters", kind: schema.GroupKind{Group: tenancy, Kind: "VirtualCluster"}, fields: taken(
			"spec.clusterVersionName", "spec.policyName", "spec.serviceCIDRs", "spec.serviceNodePortRange", "spec.exposure.type", "spec.exposure.port", "spec.paused",
			"spec.restoreFrom", "spec.backupAfter", "spec.rotateAfter", "spec.distrustAfter", "spec.nodes", "status.clusterNamespace", "status.controlPlaneUID",
			"status.version", "status.certificatesExpire", "status.lastBackup", "status.lastBackupName", "status.restoredFrom",
		)},
		{file: "clusterversions.json", what: "ClusterVersions", kind: schema.GroupKind{Group: tenancy, Kind: "ClusterVersion"}, fields: taken(
			"spec.kubernetesVersion", "spec.etcd.image", "spec.etcd.replicas", "spec.apiServer.image", "spec.apiServer.replicas", "spec.controllerManager.image",
			"spec.controllerManager.replicas", "spec.backup.schedule", "spec.backup.keep", "spec.backup.storage",
		)},
		{file: "tenantpolicies.json", what: "TenantPolicies", kind: schema.GroupKind{Group: tenancy, Kind: "TenantPolicy"}, fields: taken(
			"spec.limits.*", "spec.limits.reserved.*", "spec.limits.writes.*", "spec.limits.objects.resource", "spec.limits.objects.count", "spec.limits.objects.bytes",
			"spec.pods.securityLevel", "spec.pods.volumes", "spec.network.mode", "spec.scheduling.weight", "spec.scheduling.priority", "spec.scheduling.guaranteed.*",
			"spec.scheduling.borrowing", "spec.scheduling.preemptionsPerHour", "spec.scheduling.movesPerHour", "spec.scheduling.movableFor",
		)},
		{file: "syncpolicies.json", what: "SyncPolicies", kind: schema.GroupKind{Group: tenancy, Kind: "SyncPolicy"}, fields: taken(
			"spec.group", "spec.version", "spec.kind", "spec.direction", "spec.scope", "status.superClusters.name", "status.superClusters.observedGeneration",
			"status.superClusters.ready", "status.superClusters.reason", "status.superClusters.message",
		)},
		{file: "clusteraddresses.json", what: "ClusterAddresses", kind: schema.GroupKind{Group: tenancy, Kind: "ClusterAddresses"}, fields: taken("status.addresses", "status.agentPort")},
		{file: "namespaceplacements.json", what: "NamespacePlacements", kind: schema.GroupKind{Group: scheduling, Kind: "NamespacePlacement"}, fields: taken(
			"spec.namespaceUID", "spec.slice.*", "spec.quota.*", "spec.schedulerName", "spec.priority", "spec.weight", "spec.guaranteed.*", "spec.preemptionsPerHour",
			"spec.lostToleration", "spec.movableFor", "spec.quotaGoneSince", "spec.paused", "status.slices", "status.placedSlices", "status.clusters", "status.home",
			"status.placements.cluster", "status.placements.slices", "status.placements.reserved.*", "status.placements.leaving.reason", "status.placements.leaving.since",
			"status.placements.leaving.deadline", "status.placements.leaving.reserved.*", "status.displaced.resources.*", "status.nominated.since", "status.requested.state",
			"status.requested.since", "status.lastMoved", "status.lastRequested",
		)},
		{file: "clusters.json", what: "Clusters of Cluster API", kind: schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"}, fields: taken(
			"spec.paused", "status.phase", "status.infrastructureReady", "status.controlPlaneReady",
		)},
		{file: "nodes.json", what: "virtual Nodes", kind: schema.GroupKind{Kind: "Node"}, options: []client.ListOption{client.HasLabels{schedulerv1alpha1.LabelVirtualNode}}, fields: taken(
			"spec.unschedulable", "spec.taints.key", "spec.taints.effect", "status.allocatable.*", "status.capacity.*", "status.nodeInfo.kubeletVersion",
		)},
		{
			file: "definitions.json", what: "CustomResourceDefinitions of Superpool", kind: schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"},
			is: func(object *unstructured.Unstructured) bool {
				return strings.HasSuffix(object.GetName(), "."+tenancy) || strings.HasSuffix(object.GetName(), "."+scheduling)
			}, fields: taken("spec.versions.name", "spec.versions.served", "spec.versions.storage", "status.storedVersions"),
		},
		{file: "deployments.json", what: "Deployments of Superpool", kind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, options: []client.ListOption{inOurs}, fields: workloads},
		{file: "statefulsets.json", what: "StatefulSets of Superpool", kind: schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, options: []client.ListOption{inOurs}, fields: workloads},
		{file: "leases.json", what: "Leases of Superpool", kind: schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}, options: []client.ListOption{inOurs}, fields: taken(
			"spec.holderIdentity", "spec.acquireTime", "spec.renewTime", "spec.leaseDurationSeconds", "spec.leaseTransitions",
		)},
		{file: "pods.json", what: "pods of Superpool", kind: schema.GroupKind{Kind: "Pod"}, options: []client.ListOption{inOurs}, fields: taken(
			"spec.nodeName", "spec.containers.name", "spec.containers.image", "status.phase", "status.reason", "status.startTime", "status.containerStatuses.name",
			"status.containerStatuses.ready", "status.containerStatuses.restartCount", "status.containerStatuses.imageID", "status.containerStatuses.state.waiting.reason",
			"status.containerStatuses.state.running.startedAt", "status.containerStatuses.state.terminated.reason", "status.containerStatuses.state.terminated.exitCode",
			"status.containerStatuses.lastState.terminated.reason", "status.containerStatuses.lastState.terminated.exitCode",
			"status.containerStatuses.lastState.terminated.finishedAt",
		)},
		{file: "events-of-our-namespace.json", what: "Events of namespace " + tenancyv1alpha1.ManagerNamespace, kind: schema.GroupKind{Kind: "Event"}, options: []client.ListOption{inOurs}, fields: events},
		{file: "events.json", what: "Events that Superpool has written", kind: schema.GroupKind{Kind: "Event"}, is: isByUs, fields: events},
	}
}

// isOurs reports whether a pod is one of Superpool, of which logs are taken.
func isOurs(pod *corev1.Pod) bool { return pod.Labels["app.kubernetes.io/part-of"] == "superpool" }
