// Package podspec translates pods: a tenant's to its super pod, and the status of that to the tenant's. Everything here
// is pure.
package podspec

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/nodelabels"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// SuperPod sets superPod to the desired super pod of tenantPod. In an existing one, which has a UID, it sets what an
// update of a pod may change: labels, annotations, images, activeDeadlineSeconds and tolerations. env, and what the
// policy of rules sets in the spec, is used for a new one only.
func SuperPod(tenantPod, superPod *corev1.Pod, owner tenancy.Owner, rules *kind.Rules, env *PodEnvironment) {
	if superPod.UID != "" {
		UpdatePod(tenantPod, superPod, owner, rules)
		return
	}
	translatePodMeta(tenantPod, superPod, owner, rules)
	superPod.Namespace = tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	superPod.Name = tenantPod.Name
	superPod.Spec = *tenantPod.Spec.DeepCopy()
	translatePodSpec(tenantPod, &superPod.Spec, owner, rules, env)
	slowReadiness(superPod)
}

// UpdatePod is SuperPod for an existing super pod. It returns what files do not show because it is too much.
func UpdatePod(tenantPod, superPod *corev1.Pod, owner tenancy.Owner, rules *kind.Rules) (excess string) {
	updatePodSpec(tenantPod, superPod, rules)
	return translatePodMeta(tenantPod, superPod, owner, rules)
}

func translatePodMeta(tenantPod, superPod *corev1.Pod, owner tenancy.Owner, rules *kind.Rules) (excess string) {
	kind.CopyMeta(tenantPod, superPod, resourcePods, owner, rules)
	kind.TranslateLabels(tenantPod, superPod)
	return carryFields(tenantPod, superPod)
}

// translatePodSpec turns a copy of the tenant's spec into one for the super cluster.
func translatePodSpec(tenantPod *corev1.Pod, spec *corev1.PodSpec, owner tenancy.Owner, rules *kind.Rules, env *PodEnvironment) {
	pinned := spec.NodeName
	spec.NodeName = ""
	spec.SchedulerName = corev1.DefaultSchedulerName
	spec.Tolerations = Tolerations(tenantPod, rules)
	// Priority classes are the super cluster's own; a class of the same name there means something else unless it is
	// offered to the tenant. Its API server sets the rest.
	spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = cmp.Or(rules.InForce().PriorityClass(&tenantPod.Spec), env.PriorityClass), nil, nil
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	spec.AutomountServiceAccountToken = ptr.To(false)
	spec.EnableServiceLinks = ptr.To(false)
	// The tenant's controllers set the conditions of readiness gates on the tenant's pod: TenantPodStatus applies them.
	spec.ReadinessGates = nil
	// The kubelet would write a host name with the super namespace into /etc/hosts, which the tenant's DNS does not
	// resolve. The hostname in the tenant's EndpointSlices is what its DNS serves.
	spec.Subdomain = ""
	// Groups and what responds to evictions are objects of the tenant: a scheduler below would wait for the group.
	spec.SchedulingGroup, spec.EvictionResponders = nil, nil
	// Ephemeral containers cannot be created with a pod.
	spec.EphemeralContainers = nil
	rules.InForce().SetDefaults(spec)
	translateVolumes(tenantPod, spec, owner)
	values := literals{pod: tenantPod, owner: owner, rules: rules}
	services := serviceEnv(env.Services)
	for _, containers := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			translateContainer(&containers[i], values, services, env)
		}
	}
	requestExplicitly(spec)
	translateDNS(spec, owner.Namespace, env)
	if env.OwnLabels {
		// What no Node has matches no node; Pods.environment says so first, and nothing is created.
		nodelabels.Translate(spec, rules.InForce().IsTenants, env.TenantNodes)
	}
	NewNodeNames(env.SuperCluster, env.Nodes).Translate(spec, pinned)
	translateAffinity(spec.Affinity, owner.ClusterKey)
	spec.TopologySpreadConstraints = translateSpread(spec.TopologySpreadConstraints)
	rules.InForce().Force(spec)
}

// AddEphemeralContainers appends to superPod the ephemeral containers of tenantPod that it does not have. Existing ones
// are immutable.
func AddEphemeralContainers(tenantPod, superPod *corev1.Pod, owner tenancy.Owner, rules *kind.Rules, env *PodEnvironment) {
	values := literals{pod: tenantPod, owner: owner, rules: rules}
	services := serviceEnv(env.Services)
	for _, missing := range MissingEphemeral(tenantPod, superPod) {
		container := *missing.DeepCopy()
		common := corev1.Container(container.EphemeralContainerCommon)
		translateContainer(&common, values, services, env)
		container.EphemeralContainerCommon = corev1.EphemeralContainerCommon(common)
		rules.InForce().ForceEphemeral(&container)
		superPod.Spec.EphemeralContainers = append(superPod.Spec.EphemeralContainers, container)
	}
}

// MissingEphemeral returns the ephemeral containers of tenantPod that superPod does not have.
func MissingEphemeral(tenantPod, superPod *corev1.Pod) []*corev1.EphemeralContainer {
	var missing []*corev1.EphemeralContainer
	exist := sets.New[string]()
	for i := range superPod.Spec.EphemeralContainers {
		exist.Insert(superPod.Spec.EphemeralContainers[i].Name)
	}
	for i := range tenantPod.Spec.EphemeralContainers {
		if wanted := &tenantPod.Spec.EphemeralContainers[i]; !exist.Has(wanted.Name) {
			missing = append(missing, wanted)
		}
	}
	return missing
}

// PodEnvironment is what the environment variables and the DNS of containers name: Services and domain of the tenant,
// not of the super cluster. As with any kubelet they are fixed when a container starts.
type PodEnvironment struct {
	// SuperCluster is the id in the names of the tenant's nodes.
	SuperCluster string
	// Nodes holds the nodes of the super cluster; nil for none.
	Nodes kind.Cache
	// OwnLabels is whether requirements on labels that the tenant has given to its own Nodes become names of
	// TenantNodes (nodelabels.Translate), which are those of this super cluster.
	OwnLabels   bool
	TenantNodes []nodelabels.Node
	// NoNode is why none of TenantNodes answers to such requirements, "" if one does: no super pod is created, for what
	// it requires of nodes cannot be changed when a Node gets the label.
	NoNode string
	// Services are those with variables: the API server's, and unless enableServiceLinks is false those of the pod's
	// namespace. Their cluster IPs are those in this super cluster.
	Services []*corev1.Service
	// Nameservers are the cluster IPs of the tenant's DNS Service, none if there is none. Domain is the cluster domain
	// that it serves.
	Nameservers []string
	Domain      string
	// Defines returns the names of the variables that an envFrom source defines; nil defines none.
	Defines func(source *corev1.EnvFromSource) []string
	// Keys returns how many variables an envFrom source has; nil: none.
	Keys func(source *corev1.EnvFromSource) int
	// PriorityClass is that of the super cluster which the pod names and which is offered to the tenant, "" for none.
	PriorityClass string
}

// Around returns what is counted of it before it is written into containers.
func (e *PodEnvironment) Around() policy.Around {
	return policy.Around{Services: e.Services, Keys: e.Keys}
}

// resourcePods is the name of their resource in policies.
const resourcePods = "pods"
