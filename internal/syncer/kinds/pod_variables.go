package kinds

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/pkg/kubelet/envvars"

	"github.com/superpool/superpool/internal/tenancy"
)

// translateContainer rewrites the environment variables of a copy of the tenant's container.
func translateContainer(container *corev1.Container, values literals, services []corev1.EnvVar, env *PodEnvironment) {
	// Before translateEnv changes the names of ConfigMaps, by which env.Defines finds them.
	variables := addServiceEnv(container.Env, container.EnvFrom, services, env)
	translateEnv(variables, container.EnvFrom, values)
	container.Env = renameNode(variables, env.SuperCluster)
}

// renameNode adds after each variable with the node's name a second one of the same name, whose value is the tenant's
// name of the node. The node is not chosen yet: the kubelet expands the reference to the first variable.
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
		if path, key, found := fieldpath.SplitMaybeSubscriptedPath(source.FieldRef.FieldPath); found && path == "metadata.labels" {
			source.FieldRef.FieldPath = "metadata.labels['" + tenancy.LabelKey(key) + "']"
			continue
		}
		if value, translated := values.of(source.FieldRef.FieldPath); translated {
			// The kubelet expands values, but not what a fieldRef yields: $$ stands for $.
			env[i].Value, env[i].ValueFrom = strings.ReplaceAll(value, "$", "$$"), nil
		}
	}
}

// literals yields the fields of a tenant pod whose value is another in its super pod.
type literals struct {
	pod   *corev1.Pod
	owner tenancy.Owner
	rules *Rules
}

func (l literals) of(fieldPath string) (string, bool) {
	switch fieldPath {
	case "metadata.namespace":
		return l.owner.Namespace, true
	case "metadata.uid":
		return string(l.owner.UID), true
	}
	path, key, _ := fieldpath.SplitMaybeSubscriptedPath(fieldPath)
	if path != "metadata.annotations" || l.rules.annotation(resourcePods, key) {
		return "", false
	}
	return l.pod.Annotations[key], true
}

// serviceEnv returns the variables that a kubelet defines for Services, sorted by the Service's name.
func serviceEnv(services []*corev1.Service) []corev1.EnvVar {
	services = slices.SortedFunc(slices.Values(services), func(a, b *corev1.Service) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Namespace, a.Namespace))
	})
	var env []corev1.EnvVar
	index := map[string]int{}
	for _, variable := range envvars.FromServices(services) {
		if at, exists := index[variable.Name]; exists {
			env[at] = variable
			continue
		}
		index[variable.Name] = len(env)
		env = append(env, variable)
	}
	return env
}

// addServiceEnv puts the variables of Services before those of a container, which override them, and leaves out the
// names that envFrom of the container defines, which would override them too.
func addServiceEnv(own []corev1.EnvVar, envFrom []corev1.EnvFromSource, services []corev1.EnvVar, env *PodEnvironment) []corev1.EnvVar {
	defined := map[string]bool{}
	for i := range envFrom {
		if env.Defines != nil {
			for _, name := range env.Defines(&envFrom[i]) {
				defined[name] = true
			}
		}
	}
	if len(services) == 0 {
		return own
	}
	all := make([]corev1.EnvVar, 0, len(services)+len(own))
	for i := range services {
		if !defined[services[i].Name] {
			all = append(all, services[i])
		}
	}
	return append(all, own...)
}
