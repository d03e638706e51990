package podspec

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/pkg/kubelet/envvars"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// translateContainer rewrites the environment variables of a copy of the tenant's container.
func translateContainer(container *corev1.Container, values literals, services serviceVariables, env *PodEnvironment) {
	// Before translateEnv changes the names of ConfigMaps, by which env.Defines finds them.
	variables := addServiceEnv(container.Env, container.EnvFrom, services, env)
	translateEnv(variables, container.EnvFrom, values)
	container.Env = renameNode(variables, env.SuperCluster)
}

// renameNode adds after each variable with the node's name a second one of the same name, whose value is the tenant's
// name of the node. The node is not chosen yet: the kubelet expands the reference to the first variable.
func renameNode(env []corev1.EnvVar, superCluster string) []corev1.EnvVar {
	named := func(variable *corev1.EnvVar) bool {
		return variable.ValueFrom != nil && variable.ValueFrom.FieldRef != nil && variable.ValueFrom.FieldRef.FieldPath == "spec.nodeName"
	}
	var renamed []corev1.EnvVar
	for i := range env {
		if renamed == nil && !named(&env[i]) {
			continue
		}
		if renamed == nil {
			renamed = slices.Clone(env[:i])
		}
		renamed = append(renamed, env[i])
		if named(&env[i]) {
			renamed = append(renamed, corev1.EnvVar{Name: env[i].Name, Value: tenancy.NodeName(superCluster, "$("+env[i].Name+")")})
		}
	}
	if renamed == nil {
		return env
	}
	return renamed
}

func translateEnv(env []corev1.EnvVar, envFrom []corev1.EnvFromSource, values literals) {
	for i := range envFrom {
		if envFrom[i].ConfigMapRef != nil {
			envFrom[i].ConfigMapRef.Name = kind.SuperConfigMap(envFrom[i].ConfigMapRef.Name)
		}
	}
	for i := range env {
		source := env[i].ValueFrom
		if source == nil {
			continue
		}
		if source.ConfigMapKeyRef != nil {
			source.ConfigMapKeyRef.Name = kind.SuperConfigMap(source.ConfigMapKeyRef.Name)
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
	rules *kind.Rules
}

func (l literals) of(fieldPath string) (string, bool) {
	switch fieldPath {
	case "metadata.namespace":
		return l.owner.Namespace, true
	case "metadata.uid":
		return string(l.owner.UID), true
	}
	path, key, _ := fieldpath.SplitMaybeSubscriptedPath(fieldPath)
	if path != "metadata.annotations" || l.rules.Annotation(resourcePods, key) {
		return "", false
	}
	return l.pod.Annotations[key], true
}

// serviceVariables are the variables that a kubelet defines for Services, sorted by the Service's name, and their index
// by name.
type serviceVariables struct {
	list  []corev1.EnvVar
	index map[string]int
}

// serviceEnv returns the variables of services.
func serviceEnv(services []*corev1.Service) serviceVariables {
	services = slices.SortedFunc(slices.Values(services), func(a, b *corev1.Service) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Namespace, a.Namespace))
	})
	env := serviceVariables{index: map[string]int{}}
	for _, variable := range envvars.FromServices(services) {
		if at, exists := env.index[variable.Name]; exists {
			env.list[at] = variable
			continue
		}
		env.index[variable.Name] = len(env.list)
		env.list = append(env.list, variable)
	}
	return env
}

// addServiceEnv puts the variables of Services before those of a container, which override them, and leaves out the
// names that envFrom of the container defines, which would override them too.
func addServiceEnv(own []corev1.EnvVar, envFrom []corev1.EnvFromSource, services serviceVariables, env *PodEnvironment) []corev1.EnvVar {
	if len(services.list) == 0 {
		return own
	}
	defined := sets.New[int]()
	for i := range envFrom {
		if env.Defines == nil {
			break
		}
		for _, name := range env.Defines(&envFrom[i]) {
			if at, exists := services.index[name]; exists {
				defined.Insert(at)
			}
		}
	}
	all := make([]corev1.EnvVar, 0, len(services.list)+len(own))
	for i := range services.list {
		if !defined.Has(i) {
			all = append(all, services.list[i])
		}
	}
	return append(all, own...)
}
