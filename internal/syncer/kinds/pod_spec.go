package kinds

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// SuperPod writes onto superPod what it should be for tenantPod. A new superPod, one without a UID, gets everything; an
// existing one gets what may change in a pod: labels, annotations, images, the deadline, and tolerations. env is for a
// new one.
func SuperPod(tenantPod, superPod *corev1.Pod, owner tenancy.Owner, opaque []string, env *PodEnvironment) {
	copyMeta(tenantPod, superPod, owner, opaque)
	carryFields(tenantPod, superPod)
	if superPod.UID != "" {
		updatePodSpec(tenantPod, superPod)
		return
	}
	superPod.Namespace = tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	superPod.Name = tenantPod.Name
	superPod.Spec = *tenantPod.Spec.DeepCopy()
	translatePodSpec(tenantPod, &superPod.Spec, owner, opaque, env)
}

func updatePodSpec(tenantPod, superPod *corev1.Pod) {
	updateImages(tenantPod.Spec.Containers, superPod.Spec.Containers)
	updateImages(tenantPod.Spec.InitContainers, superPod.Spec.InitContainers)
	if deadline := tenantPod.Spec.ActiveDeadlineSeconds; deadline != nil {
		superPod.Spec.ActiveDeadlineSeconds = ptr.To(*deadline)
	}
	superPod.Spec.Tolerations = updateTolerations(tenantPod.Spec.Tolerations, superPod.Spec.Tolerations)
}

// updateTolerations adds what is missing, or changes its seconds: the first toleration that matches a taint says how
// long a pod stays.
func updateTolerations(from, to []corev1.Toleration) []corev1.Toleration {
	has := func(tolerations []corev1.Toleration, wanted corev1.Toleration) bool {
		return slices.ContainsFunc(tolerations, func(toleration corev1.Toleration) bool { return equality.Semantic.DeepEqual(toleration, wanted) })
	}
	for i := range from {
		wanted := *from[i].DeepCopy()
		if has(to, wanted) {
			continue
		}
		older := slices.IndexFunc(to, func(toleration corev1.Toleration) bool {
			if has(from, toleration) {
				return false
			}
			toleration.TolerationSeconds = wanted.TolerationSeconds
			return equality.Semantic.DeepEqual(toleration, wanted)
		})
		if older >= 0 {
			to[older] = wanted
			continue
		}
		to = append(to, wanted)
	}
	return to
}

// updateImages gives each container the image of the one of its name.
func updateImages(from, to []corev1.Container) {
	eachOfOneName(from, to, func(wanted, container *corev1.Container) { container.Image = wanted.Image })
}

// eachOfOneName calls do with the containers of the tenant's pod and those of the same name. The super cluster may have
// added containers, anywhere.
func eachOfOneName(from, to []corev1.Container, do func(wanted, container *corev1.Container)) {
	next := 0
	for i := range to {
		same := slices.IndexFunc(from[next:], func(container corev1.Container) bool { return container.Name == to[i].Name })
		if same >= 0 {
			do(&from[next+same], &to[i])
			next += same + 1
		}
	}
}

// ResizePod writes onto superPod the CPU and memory that the containers of tenantPod ask for: only those can change,
// and not go away, and only of containers that run on.
func ResizePod(tenantPod, superPod *corev1.Pod) {
	resize := func(wanted, container *corev1.Container) {
		resizeList(wanted.Resources.Requests, container.Resources.Requests)
		resizeList(wanted.Resources.Limits, container.Resources.Limits)
	}
	eachOfOneName(tenantPod.Spec.Containers, superPod.Spec.Containers, resize)
	eachOfOneName(tenantPod.Spec.InitContainers, superPod.Spec.InitContainers, func(wanted, container *corev1.Container) {
		if ptr.Deref(wanted.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			resize(wanted, container)
		}
	})
}

func resizeList(from, to corev1.ResourceList) {
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if wanted, exists := from[name]; exists && to != nil {
			to[name] = wanted.DeepCopy()
		}
	}
}

// translatePodSpec turns a copy of the tenant's spec into one for the super cluster.
func translatePodSpec(tenantPod *corev1.Pod, spec *corev1.PodSpec, owner tenancy.Owner, opaque []string, env *PodEnvironment) {
	spec.NodeName = ""
	spec.SchedulerName = corev1.DefaultSchedulerName
	// Priority classes are the super cluster's own; a class of the same name there means something else.
	spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = "", nil, nil
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	spec.AutomountServiceAccountToken = ptr.To(false)
	spec.EnableServiceLinks = ptr.To(false)
	// The tenant's controllers set the conditions of readiness gates on the tenant's pod; TenantPodStatus judges them
	// there.
	spec.ReadinessGates = nil
	// The kubelet would make a fully qualified name of it that tells of the super namespace and that the tenant's DNS
	// does not know. That of the tenant is in its EndpointSlices.
	spec.Subdomain = ""
	// Ephemeral containers cannot be created with a pod.
	spec.EphemeralContainers = nil
	translateVolumes(tenantPod, spec, owner)
	values := literals{pod: tenantPod, owner: owner, opaque: opaque}
	services := serviceEnv(env.Services)
	for _, containers := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			translateContainer(&containers[i], values, services, env)
		}
	}
	translateDNS(spec, owner.Namespace, env)
	translateAffinity(spec.Affinity, owner.ClusterKey)
	translateSpread(spec.TopologySpreadConstraints)
}

// AddEphemeralContainers writes onto superPod the ephemeral containers of tenantPod that it does not have yet. Those
// that are there cannot change.
func AddEphemeralContainers(tenantPod, superPod *corev1.Pod, owner tenancy.Owner, opaque []string, env *PodEnvironment) {
	values := literals{pod: tenantPod, owner: owner, opaque: opaque}
	services := serviceEnv(env.Services)
	for _, container := range missingEphemeral(tenantPod, superPod) {
		common := corev1.Container(container.EphemeralContainerCommon)
		translateContainer(&common, values, services, env)
		container.EphemeralContainerCommon = corev1.EphemeralContainerCommon(common)
		superPod.Spec.EphemeralContainers = append(superPod.Spec.EphemeralContainers, container)
	}
}

// missingEphemeral returns copies of the ephemeral containers of tenantPod that superPod does not have.
func missingEphemeral(tenantPod, superPod *corev1.Pod) []corev1.EphemeralContainer {
	var missing []corev1.EphemeralContainer
	for i := range tenantPod.Spec.EphemeralContainers {
		wanted := &tenantPod.Spec.EphemeralContainers[i]
		exists := slices.ContainsFunc(superPod.Spec.EphemeralContainers, func(container corev1.EphemeralContainer) bool {
			return container.Name == wanted.Name
		})
		if !exists {
			missing = append(missing, *wanted.DeepCopy())
		}
	}
	return missing
}

// translateVolumes takes credentials of the super cluster out of volumes and leads what they refer to to the super
// cluster's names. A token becomes a key of the pod's Secret of tokens, in the same place, so that modes and what lies
// over what stay.
func translateVolumes(tenantPod *corev1.Pod, spec *corev1.PodSpec, owner tenancy.Owner) {
	eachShownField(spec, func(annotation string, field *corev1.ObjectFieldSelector) {
		field.FieldPath = "metadata.annotations['" + annotation + "']"
	})
	secret := tenancy.TokenSecret(tenantPod.Name, owner.UID)
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		if volume.ConfigMap != nil {
			volume.ConfigMap.Name = superConfigMapName(volume.ConfigMap.Name)
		}
		if volume.Projected == nil {
			continue
		}
		for j := range volume.Projected.Sources {
			source := &volume.Projected.Sources[j]
			if source.ConfigMap != nil {
				source.ConfigMap.Name = superConfigMapName(source.ConfigMap.Name)
			}
			if source.ServiceAccountToken != nil {
				source.Secret = tokenProjection(spec, secret, tokenKey(i, j), source.ServiceAccountToken.Path)
				source.ServiceAccountToken = nil
			}
		}
		volume.Projected.Sources = slices.DeleteFunc(volume.Projected.Sources, func(source corev1.VolumeProjection) bool {
			return source.PodCertificate != nil
		})
	}
}

// tokenProjection projects one key of the pod's Secret of tokens. As in a tenant's own cluster only the group of the
// pod reads it, if the pod has one.
func tokenProjection(spec *corev1.PodSpec, secret, key, path string) *corev1.SecretProjection {
	item := corev1.KeyToPath{Key: key, Path: path}
	if spec.SecurityContext != nil && spec.SecurityContext.FSGroup != nil {
		item.Mode = ptr.To[int32](0o600)
	}
	return &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Items: []corev1.KeyToPath{item}}
}

// downwardDomain is that of a super pod's annotations which carry what files of the downward API show of the tenant's
// labels and annotations. Its own labels and annotations lack some of those, and hold marks and what the super cluster
// added.
const downwardDomain = "downward.tenancy.x-k8s.io/"

// eachShownField calls do with each field that a file in a pod's volumes shows and that differs in the super pod, and
// with the annotation of the super pod that holds the tenant's. Volumes never change, so neither do these annotations.
func eachShownField(spec *corev1.PodSpec, do func(annotation string, field *corev1.ObjectFieldSelector)) {
	carried := 0
	visit := func(files []corev1.DownwardAPIVolumeFile) {
		for _, file := range files {
			if file.FieldRef == nil {
				continue
			}
			switch path, _, _ := fieldpath.SplitMaybeSubscriptedPath(file.FieldRef.FieldPath); path {
			case "metadata.namespace":
				do(tenancyv1alpha1.AnnotationNamespace, file.FieldRef)
			case "metadata.uid":
				do(tenancyv1alpha1.AnnotationUID, file.FieldRef)
			case "metadata.labels", "metadata.annotations":
				do(downwardDomain+strconv.Itoa(carried), file.FieldRef)
				carried++
			}
		}
	}
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		if volume.DownwardAPI != nil {
			visit(volume.DownwardAPI.Items)
		}
		if volume.Projected == nil {
			continue
		}
		for j := range volume.Projected.Sources {
			if source := volume.Projected.Sources[j].DownwardAPI; source != nil {
				visit(source.Items)
			}
		}
	}
}

// carryFields writes what files show of the tenant's labels and annotations onto superPod, where the kubelet keeps the
// files up to date with it.
func carryFields(tenantPod, superPod *corev1.Pod) {
	eachShownField(&tenantPod.Spec, func(annotation string, field *corev1.ObjectFieldSelector) {
		if !strings.HasPrefix(annotation, downwardDomain) {
			return // a mark
		}
		// A path that no API server lets through shows nothing.
		value, _ := fieldpath.ExtractFieldPathAsString(tenantPod, field.FieldPath)
		superPod.Annotations[annotation] = value
	})
}

func translateContainer(container *corev1.Container, values literals, services []corev1.EnvVar, env *PodEnvironment) {
	// Before the names of ConfigMaps change.
	variables := addServiceEnv(container.Env, container.EnvFrom, services, env)
	translateEnv(variables, container.EnvFrom, values)
	container.Env = renameNode(variables, env.SuperCluster)
}

// renameNode lets variables say the tenant's name of the node, which nobody knows before the super cluster's scheduler
// has chosen: the kubelet expands it from what it has just given the same variable.
func renameNode(env []corev1.EnvVar, superCluster string) []corev1.EnvVar {
	for i := 0; i < len(env); i++ {
		if source := env[i].ValueFrom; source != nil && source.FieldRef != nil && source.FieldRef.FieldPath == "spec.nodeName" {
			i++
			env = slices.Insert(env, i, corev1.EnvVar{Name: env[i-1].Name, Value: tenancy.NodeName(superCluster, "$("+env[i-1].Name+")")})
		}
	}
	return env
}

func translateEnv(env []corev1.EnvVar, envFrom []corev1.EnvFromSource, values literals) {
	for i := range envFrom {
		if envFrom[i].ConfigMapRef != nil {
			envFrom[i].ConfigMapRef.Name = superConfigMapName(envFrom[i].ConfigMapRef.Name)
		}
	}
	for i := range env {
		source := env[i].ValueFrom
		if source == nil {
			continue
		}
		if source.ConfigMapKeyRef != nil {
			source.ConfigMapKeyRef.Name = superConfigMapName(source.ConfigMapKeyRef.Name)
		}
		if source.FieldRef == nil {
			continue
		}
		if value, known := values.of(source.FieldRef.FieldPath); known {
			// Values are expanded by the kubelet, unlike what a field gives: $$ stands for $.
			env[i].Value, env[i].ValueFrom = strings.ReplaceAll(value, "$", "$$"), nil
		}
	}
}

// literals are the fields of a tenant pod that its super pod does not have.
type literals struct {
	pod    *corev1.Pod
	owner  tenancy.Owner
	opaque []string
}

func (l literals) of(fieldPath string) (string, bool) {
	switch fieldPath {
	case "metadata.namespace":
		return l.owner.Namespace, true
	case "metadata.uid":
		return string(l.owner.UID), true
	}
	path, key, _ := fieldpath.SplitMaybeSubscriptedPath(fieldPath)
	if !isOpaque(key, l.opaque) {
		return "", false
	}
	switch path {
	case "metadata.labels":
		return l.pod.Labels[key], true
	case "metadata.annotations":
		return l.pod.Annotations[key], true
	}
	return "", false
}

// translateAffinity keeps (anti-)affinity to pods inside the tenant.
func translateAffinity(affinity *corev1.Affinity, clusterKey string) {
	if affinity == nil {
		return
	}
	if between := affinity.PodAffinity; between != nil {
		translateTerms(between.RequiredDuringSchedulingIgnoredDuringExecution, between.PreferredDuringSchedulingIgnoredDuringExecution, clusterKey)
	}
	if between := affinity.PodAntiAffinity; between != nil {
		translateTerms(between.RequiredDuringSchedulingIgnoredDuringExecution, between.PreferredDuringSchedulingIgnoredDuringExecution, clusterKey)
	}
}

func translateTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, clusterKey string) {
	for i := range required {
		translateTerm(&required[i], clusterKey)
	}
	for i := range preferred {
		translateTerm(&preferred[i].PodAffinityTerm, clusterKey)
	}
}

func translateTerm(term *corev1.PodAffinityTerm, clusterKey string) {
	for i, namespace := range term.Namespaces {
		term.Namespaces[i] = tenancy.SuperNamespace(clusterKey, namespace)
	}
	confine(term.LabelSelector, clusterKey)
	if selector := term.NamespaceSelector; selector != nil {
		translateNamespaceNames(selector, clusterKey)
		confine(selector, clusterKey)
	}
	// The tenant's API server has put them into the selector. Another that did so again would refuse the pod, whose
	// selector has them twice.
	term.MatchLabelKeys, term.MismatchLabelKeys = nil, nil
}

// translateSpread leaves out the keys that the tenant's API server has put into a selector: another that did so again
// would refuse the pod. One before Kubernetes 1.34 leaves them to the scheduler, so what is not in the selector stays.
func translateSpread(constraints []corev1.TopologySpreadConstraint) {
	for i := range constraints {
		constraint := &constraints[i]
		if constraint.LabelSelector == nil {
			continue
		}
		var left []string
		for _, key := range constraint.MatchLabelKeys {
			merged := slices.ContainsFunc(constraint.LabelSelector.MatchExpressions, func(requirement metav1.LabelSelectorRequirement) bool {
				return requirement.Key == key
			})
			if !merged {
				left = append(left, key)
			}
		}
		constraint.MatchLabelKeys = left
	}
}

// confine lets a selector match objects of the tenant only. The nil selector matches nothing and stays so.
func confine(selector *metav1.LabelSelector, clusterKey string) {
	if selector == nil {
		return
	}
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[tenancyv1alpha1.LabelCluster] = clusterKey
}

// translateNamespaceNames maps the names in a selector of namespaces by name.
func translateNamespaceNames(selector *metav1.LabelSelector, clusterKey string) {
	if name, exists := selector.MatchLabels[corev1.LabelMetadataName]; exists {
		selector.MatchLabels[corev1.LabelMetadataName] = tenancy.SuperNamespace(clusterKey, name)
	}
	for _, requirement := range selector.MatchExpressions {
		if requirement.Key == corev1.LabelMetadataName {
			for i, name := range requirement.Values {
				requirement.Values[i] = tenancy.SuperNamespace(clusterKey, name)
			}
		}
	}
}
