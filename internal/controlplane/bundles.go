package controlplane

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// oldestEtcd is the oldest minor version of etcd 3 that has the flags of etcdFlags.
const oldestEtcd = 6

// maxReplicas is how many replicas a component has at most, as the CRD says.
const maxReplicas = 9

// component is a part of a control plane as a ClusterVersion names it.
type component struct {
	// field and program are its names in a ClusterVersion and as an executable.
	field, program string
	of             func(*tenancyv1alpha1.ClusterVersionSpec) *tenancyv1alpha1.ComponentTemplate
	// taken are the arguments that are taken over, with the names that they have now, ours those that vc-manager gives
	// other values, and missed what is in the place of those of ours that somebody may miss.
	taken  map[string]string
	ours   Flags
	missed map[string]string
}

// components returns the parts of a control plane. Arguments that name files, addresses or ports are not taken over: these
// are others here; nor those whose values one version has and another does not, as feature gates, admission plugins and
// APIs: a program that does not know one does not start; nor how users are known: half of it lets in too many.
// TestTakenArguments holds their names against the programs.
func components() []component {
	same := func(names ...string) map[string]string {
		taken := map[string]string{}
		for _, name := range names {
			taken[name] = name
		}
		return taken
	}
	manager := same(
		"cluster-signing-duration", "concurrent-deployment-syncs", "concurrent-gc-syncs", "concurrent-namespace-syncs", "concurrent-replicaset-syncs",
		"kube-api-burst", "kube-api-qps", "min-resync-period", "node-monitor-grace-period", "node-monitor-period", "terminated-pod-gc-threshold", "v", "vmodule",
	)
	manager["experimental-cluster-signing-duration"] = "cluster-signing-duration"
	sample := &ControlPlane{Tenant: &tenancyv1alpha1.VirtualCluster{}}
	server := Server{KubeletClient: KubeletClient}
	return []component{
		{
			field: "etcd", program: Etcd, of: func(spec *tenancyv1alpha1.ClusterVersionSpec) *tenancyv1alpha1.ComponentTemplate { return &spec.Etcd },
			taken: same("auto-compaction-mode", "auto-compaction-retention", "election-timeout", "heartbeat-interval", "max-request-bytes", "max-txn-ops", "quota-backend-bytes", "snapshot-count"),
			ours:  sample.etcdFlags().With(Flags{"initial-cluster": "", "initial-cluster-state": "", "initial-cluster-token": ""}),
		},
		{
			field: "apiServer", program: APIServer, of: func(spec *tenancyv1alpha1.ClusterVersionSpec) *tenancyv1alpha1.ComponentTemplate {
				return &spec.APIServer
			},
			taken: same(
				"audit-log-format", "default-not-ready-toleration-seconds", "default-unreachable-toleration-seconds",
				"enable-bootstrap-token-auth", "enable-priority-and-fairness", "event-ttl", "goaway-chance",
				"max-mutating-requests-inflight", "max-requests-inflight", "min-request-timeout", "request-timeout",
				"service-account-max-token-expiration", "v", "vmodule", "watch-cache", "watch-cache-sizes",
			),
			ours: server.Flags().With(Flags{
				"apiserver-count": "", "endpoint-reconciler-type": "", "etcd-cafile": "", "etcd-certfile": "", "etcd-keyfile": "", "kubelet-https": "", "profiling": "",
			}),
			missed: map[string]string{
				"anonymous-auth":           "true: probes ask without a name",
				"enable-admission-plugins": "the default ones and NodeRestriction", "service-cluster-ip-range": "spec.serviceCIDRs of the VirtualCluster",
				"service-node-port-range": "spec.serviceNodePortRange of the VirtualCluster",
			},
		},
		{
			field: "controllerManager", program: ControllerManager, taken: manager,
			of: func(spec *tenancyv1alpha1.ClusterVersionSpec) *tenancyv1alpha1.ComponentTemplate {
				return &spec.ControllerManager
			},
			ours: (&Manager{}).Flags().With(Flags{"authentication-kubeconfig": "", "authorization-kubeconfig": "", "leader-elect": "", "profiling": ""}),
		},
	}
}

// TakenArguments returns the names of the arguments that Unbundle takes over, by program, as the programs have them now.
func TakenArguments() map[string][]string {
	taken := map[string][]string{}
	for _, part := range components() {
		taken[part.program] = slices.Compact(slices.Sorted(maps.Values(part.taken)))
	}
	return taken
}

// IsBundled reports whether a ClusterVersion is written as for the first VirtualCluster: as StatefulSets.
func IsBundled(version *tenancyv1alpha1.ClusterVersion) bool {
	return slices.ContainsFunc(components(), func(part component) bool { return part.of(&version.Spec).StatefulSet != nil })
}

// Unbundle returns a ClusterVersion in the short form of one that is written as StatefulSets, and what of that is left
// out, sorted, but for what vc-manager sets itself. Images that are not all of one release of Kubernetes, of a minor version
// from oldest to newest, are those of base, which is in the short form: the first VirtualCluster's are of 1.16, and do not
// have the flags that all programs have here.
func Unbundle(bundled, base *tenancyv1alpha1.ClusterVersion, oldest, newest uint) (short *tenancyv1alpha1.ClusterVersion, left []string, err error) {
	short = bundled.DeepCopy()
	parts, images := components(), map[string]string{}
	for i := range parts {
		template := parts[i].of(&short.Spec)
		if template.StatefulSet == nil {
			images[parts[i].program] = template.Image
			continue
		}
		translated, image, missed, err := parts[i].translate(template)
		if err != nil {
			return nil, nil, err
		}
		images[parts[i].program] = image
		*template, left = *translated, append(left, missed...)
	}
	running, works := versionOf(images, oldest, newest)
	if !works {
		running = base.Spec.KubernetesVersion
	}
	short.Spec.KubernetesVersion = running
	for i := range parts {
		template, of := parts[i].of(&short.Spec), parts[i].of(&base.Spec)
		template.Image = images[parts[i].program]
		if !works && template.Image != of.Image {
			left = append(left, fmt.Sprintf("%s: image %s (%s runs)", parts[i].field, template.Image, of.Image))
			template.Image = of.Image
		}
	}
	slices.Sort(left)
	return short, slices.Compact(left), nil
}

// translate returns a StatefulSet in the short form but for its image, and what of it is left out.
func (c *component) translate(template *tenancyv1alpha1.ComponentTemplate) (short *tenancyv1alpha1.ComponentTemplate, image string, left []string, err error) {
	set := &appsv1.StatefulSet{}
	if err := decode(template.StatefulSet, set); err != nil {
		return nil, "", nil, fmt.Errorf("%s.statefulset: %w", c.field, err)
	}
	pod := &set.Spec.Template.Spec
	if len(pod.Containers) == 0 {
		return nil, "", nil, fmt.Errorf("%s.statefulset has no container", c.field)
	}
	container := &pod.Containers[0]
	wanted := ptr.Deref(set.Spec.Replicas, 1)
	short = &tenancyv1alpha1.ComponentTemplate{Replicas: min(max(wanted, 1), maxReplicas), Resources: container.Resources}
	if c.program == Etcd && short.Replicas > 1 {
		short.Replicas = MaxMembers
	}
	if short.Replicas != wanted {
		left = append(left, fmt.Sprintf("%s: %d replicas (%d run)", c.field, wanted, short.Replicas))
	}
	var missed []string
	short.ExtraArgs, missed = c.arguments(container)
	left = append(left, missed...)
	if len(container.Command) > 0 && path.Base(container.Command[0]) != c.program {
		left = append(left, fmt.Sprintf("%s: command %s", c.field, container.Command[0]))
	}
	left = append(left, c.fields(set)...)
	service := &corev1.Service{}
	if err := decode(template.Service, service); err != nil {
		return nil, "", nil, fmt.Errorf("%s.service: %w", c.field, err)
	}
	if kind := service.Spec.Type; c.program == APIServer && (kind == corev1.ServiceTypeNodePort || kind == corev1.ServiceTypeLoadBalancer) {
		left = append(left, fmt.Sprintf("%s: a Service of type %s (spec.exposure of the VirtualCluster)", c.field, kind))
	}
	return short, container.Image, left, nil
}

// arguments returns the arguments of a container that are taken over, and what of them is left out: also what is given
// more than once, and what names a variable.
func (c *component) arguments(container *corev1.Container) (taken map[string]string, left []string) {
	given, taken := parseArgs(slices.Concat(container.Command, container.Args)), map[string]string{}
	times := map[string]int{} // by the name that it has now
	for name, values := range given {
		times[c.taken[name]] += len(values)
	}
	for name, values := range given {
		now, isTaken := c.taken[name]
		instead, isMissed := c.missed[name]
		_, isOurs := c.ours[name]
		switch {
		case isTaken && times[now] == 1 && !strings.Contains(values[0], "$("):
			taken[now] = values[0]
		case isMissed:
			left = append(left, fmt.Sprintf("%s: argument --%s=%s (%s)", c.field, name, strings.Join(values, ","), instead))
		case !isOurs:
			left = append(left, fmt.Sprintf("%s: argument --%s", c.field, name))
		}
	}
	if len(taken) == 0 {
		return nil, left
	}
	return taken, left
}

// fields returns which fields of a StatefulSet are left out that change where or how pods run. Volumes, probes and
// variables are those that the programs have here.
func (c *component) fields(set *appsv1.StatefulSet) (left []string) {
	pod := &set.Spec.Template.Spec
	for name, isUsed := range map[string]bool{
		"nodeSelector": len(pod.NodeSelector) > 0, "affinity": pod.Affinity != nil, "tolerations": len(pod.Tolerations) > 0, "hostNetwork": pod.HostNetwork,
		"initContainers": len(pod.InitContainers) > 0, "priorityClassName": pod.PriorityClassName != "", "imagePullSecrets": len(pod.ImagePullSecrets) > 0,
		"volumeClaimTemplates": len(set.Spec.VolumeClaimTemplates) > 0, "more than one container": len(pod.Containers) > 1,
	} {
		if isUsed {
			left = append(left, c.field+": "+name)
		}
	}
	return left
}

// decode reads a template, which may be none.
func decode(template *runtime.RawExtension, into any) error {
	if template == nil || len(template.Raw) == 0 {
		return nil
	}
	return json.Unmarshal(template.Raw, into) //nolint:wrapcheck // the caller says what was read
}

// parseArgs returns the flags of a command line, without their dashes, with their values: "true" for one without.
func parseArgs(args []string) map[string][]string {
	flags := map[string][]string{}
	for i, arg := range args {
		name, value, hasValue := strings.Cut(strings.TrimSpace(arg), "=")
		switch {
		case !strings.HasPrefix(name, "-"):
			continue
		case hasValue:
		case i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			value = args[i+1]
		default:
			value = "true"
		}
		name = strings.TrimLeft(name, "-")
		flags[name] = append(flags[name], value)
	}
	return flags
}

// versionOf returns the version of Kubernetes of images, by their tags, and whether they work together with each other and
// with the flags that programs have here.
func versionOf(images map[string]string, oldest, newest uint) (string, bool) {
	server, store := tag(images[APIServer]), tag(images[Etcd])
	if server == nil || store == nil || server.Major() != 1 || server.PreRelease() != "" || server.Minor() < oldest || server.Minor() > newest || store.Major() != 3 || store.Minor() < oldestEtcd {
		return "", false
	}
	manager := tag(images[ControllerManager])
	return "v" + server.String(), manager != nil && manager.String() == server.String()
}

// tag returns the version in the tag of an image, nil for none.
func tag(image string) *version.Version {
	image, _, _ = strings.Cut(image, "@")
	at := strings.LastIndex(image, ":")
	if at < 0 || strings.Contains(image[at:], "/") {
		return nil
	}
	parsed, err := version.ParseSemantic(image[at+1:])
	if err != nil {
		return nil
	}
	return parsed
}
