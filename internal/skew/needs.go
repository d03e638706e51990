package skew

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations of the objects of a tenant's pod view. They never reach an API server.
const (
	// AnnotationNeeds is, on Pods, which have little of their specs there, what Needs said of the spec.
	AnnotationNeeds = "scheduler.tenancy.x-k8s.io/needs"
	// AnnotationVersion is, on Nodes, their version: kube-scheduler tells no plugin when that in status.nodeInfo is
	// another.
	AnnotationVersion = "scheduler.tenancy.x-k8s.io/version"
)

// Need is a field that an API server knows, by default, since a minor version of Kubernetes 1. The zero Need is none.
type Need struct {
	Minor uint
	// Field is its path in the pod.
	Field string
}

// String is what ParseNeed reads.
func (n Need) String() string {
	if n == (Need{}) {
		return ""
	}
	return fmt.Sprintf("1.%d %s", n.Minor, n.Field)
}

// ParseNeed returns the Need of a String, the zero Need for any other text.
func ParseNeed(text string) Need {
	version, field, _ := strings.Cut(text, " ")
	minor, err := strconv.ParseUint(strings.TrimPrefix(version, "1."), 10, 16)
	if err != nil || field == "" {
		return Need{}
	}
	return Need{Minor: uint(minor), Field: field}
}

// Lacks says which version a super cluster has that does not know the field, "" where it does, or its version is not
// known: "Kubernetes 1.34.10, and spec.hostnameOverride needs 1.35".
func (v Version) Lacks(need Need) string {
	if v == (Version{}) || v.Minor >= need.Minor {
		return ""
	}
	return fmt.Sprintf("Kubernetes %s, and %s needs 1.%d", v, need.Field, need.Minor)
}

// Needs returns the field of a pod that asks for the newest Kubernetes, the first of several. It knows those whose
// feature gates came to be on by default since the oldest version that Superpool works with. A gate that is alpha
// everywhere is the operator's to turn on, and what a super cluster with it can do its version does not tell: such
// fields are in no row, nor are those that do not go down, or that the policy of each tenant forbids.
//
//	1.35  HostnameOverride                      spec.hostnameOverride
//	1.35  ImageVolume                           volumes[].image
//	1.35  EnvFiles                              env[].valueFrom.fileKeyRef
//	1.35  ContainerRestartRules                 restartPolicy, but Always of init containers; restartPolicyRules
//	1.36  RestartAllContainersOnContainerExits  restartPolicyRules[].action RestartAllContainers, rules beside Always of
//	                                            init containers
func Needs(spec *corev1.PodSpec) Need {
	var needs finding
	needs.add(35, spec.HostnameOverride != nil, "spec.hostnameOverride", "")
	for i := range spec.Volumes {
		needs.add(35, spec.Volumes[i].Image != nil, "spec.volumes", "[%d].image", i)
	}
	const inits = "spec.initContainers"
	for i := range spec.InitContainers {
		container := &spec.InitContainers[i]
		isSidecar := container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
		needs.add(36, isSidecar && len(container.RestartPolicyRules) > 0, inits, "[%d].restartPolicyRules", i)
		needs.add(35, container.RestartPolicy != nil && !isSidecar, inits, "[%d].restartPolicy", i)
		needs.ofContainer(container, inits, i)
	}
	for i := range spec.Containers {
		needs.add(35, spec.Containers[i].RestartPolicy != nil, "spec.containers", "[%d].restartPolicy", i)
		needs.ofContainer(&spec.Containers[i], "spec.containers", i)
	}
	return needs.Need
}

// finding is the newest Need so far.
type finding struct{ Need }

// add adds what is used at path and below it, where format says with indexes.
func (f *finding) add(minor uint, isUsed bool, path, format string, indexes ...int) {
	if !isUsed || minor <= f.Minor {
		return
	}
	at := make([]any, 0, len(indexes))
	for _, index := range indexes {
		at = append(at, index)
	}
	f.Need = Need{Minor: minor, Field: path + fmt.Sprintf(format, at...)}
}

func (f *finding) ofContainer(container *corev1.Container, list string, at int) {
	for i := range container.Env {
		from := container.Env[i].ValueFrom
		f.add(35, from != nil && from.FileKeyRef != nil, list, "[%d].env[%d].valueFrom.fileKeyRef", at, i)
	}
	f.add(35, len(container.RestartPolicyRules) > 0, list, "[%d].restartPolicyRules", at)
	for i := range container.RestartPolicyRules {
		isAll := container.RestartPolicyRules[i].Action == corev1.ContainerRestartRuleActionRestartAllContainers
		f.add(36, isAll, list, "[%d].restartPolicyRules[%d].action", at, i)
	}
}
