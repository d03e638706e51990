package pods

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// maxStrangers bounds the names that are read of ConfigMaps, or Secrets, of a super namespace that are not the
// tenant's. Where there are more, each name that the tenant has nothing of counts as one of them.
const maxStrangers = 500

// configRef names a ConfigMap or a Secret of a super namespace.
type configRef struct{ kind, name string }

// withhold takes the references to ConfigMaps and Secrets of a super namespace that are not the tenant's out of spec,
// which is new there, as far as a pod starts without them. It returns in words which one is left, "" for none. Without
// it a kubelet would mount what controllers of the super cluster, or its operator, keep in the namespace. tokens is the
// pod's Secret of tokens, which comes later.
func withhold(ctx context.Context, e *kind.Env, tenant *kind.Tenant, namespace, tokens string, spec *corev1.PodSpec) (string, error) {
	strange, err := strangers(ctx, e, tenant, namespace, tokens, spec)
	if err != nil || strange.Len() == 0 {
		return "", err
	}
	dropOptional(spec, strange)
	left := ""
	eachConfig(spec, func(ref configRef) {
		if left == "" && strange.Has(ref) {
			left = fmt.Sprintf("%s %s", kind.TitleOf(ref.kind), ref.name)
		}
	})
	return left, nil
}

// eachConfig calls visit for each ConfigMap and Secret that a spec refers to in the super namespace.
func eachConfig(spec *corev1.PodSpec, visit func(configRef)) {
	all := func(kind string) podutil.Visitor {
		return func(name string) bool {
			visit(configRef{kind, name})
			return true
		}
	}
	pod := &corev1.Pod{Spec: *spec}
	podutil.VisitPodConfigmapNames(pod, all(kind.ConfigMap))
	podutil.VisitPodSecretNames(pod, all(kind.Secret))
}

// strangers returns which ConfigMaps and Secrets that a spec refers to are in the super namespace and not the tenant's.
// It asks the super cluster, once for each kind, only if the cache does not show all of them as the tenant's.
func strangers(ctx context.Context, e *kind.Env, tenant *kind.Tenant, namespace, tokens string, spec *corev1.PodSpec) (sets.Set[configRef], error) {
	name := tenancy.SuperNamespace(tenant.Key, namespace)
	strange, unknown := sets.New[configRef](), map[string]sets.Set[string]{}
	eachConfig(spec, func(ref configRef) {
		superObject, _ := e.SuperCache.Get(ref.kind, name, ref.name)
		switch {
		case ref == configRef{kind.Secret, tokens}:
		case superObject == nil && unknown[ref.kind] == nil:
			unknown[ref.kind] = sets.New(ref.name)
		case superObject == nil:
			unknown[ref.kind].Insert(ref.name)
		default:
			if owner, owned := tenancy.GetOwner(superObject); !owned || !tenant.Owns(owner, namespace) {
				strange.Insert(ref)
			}
		}
	})
	for kind, names := range unknown {
		found, err := unmarked(ctx, e, kind, name)
		if err != nil {
			return nil, err
		}
		for each := range names {
			if found == nil || found.Has(each) {
				strange.Insert(configRef{kind, each})
			}
		}
	}
	return strange, nil
}

// unmarked returns the names of the ConfigMaps or Secrets in a super namespace without our label, read live; nil where
// there are more than maxStrangers.
func unmarked(ctx context.Context, e *kind.Env, kindName, superNamespace string) (sets.Set[string], error) {
	requirement, err := labels.NewRequirement(tenancyv1alpha1.LabelCluster, selection.DoesNotExist, nil)
	if err != nil {
		return nil, fmt.Errorf("making a selector: %w", err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(map[string]string{kind.ConfigMap: "ConfigMapList", kind.Secret: "SecretList"}[kindName]))
	err = e.Super.List(ctx, list, client.InNamespace(superNamespace), client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*requirement)}, client.Limit(maxStrangers))
	if err != nil {
		return nil, fmt.Errorf("listing the %ss of super namespace %s: %w", kind.TitleOf(kindName), superNamespace, err)
	}
	if list.Continue != "" {
		return nil, nil //nolint:nilnil // too many to know
	}
	names := sets.New[string]()
	for i := range list.Items {
		names.Insert(list.Items[i].Name)
	}
	return names, nil
}

// dropOptional takes references out of spec without which a kubelet starts a pod as if the object were missing.
func dropOptional(spec *corev1.PodSpec, strange sets.Set[configRef]) {
	drops := func(kind, name string, optional *bool) bool {
		return ptr.Deref(optional, false) && strange.Has(configRef{kind, name})
	}
	dropOptionalVolumes(spec, drops)
	podutil.VisitContainers(spec, podutil.AllContainers, func(container *corev1.Container, _ podutil.ContainerType) bool {
		dropOptionalVariables(container, drops)
		return true
	})
	spec.ImagePullSecrets = slices.DeleteFunc(spec.ImagePullSecrets, func(secret corev1.LocalObjectReference) bool {
		return strange.Has(configRef{kind.Secret, secret.Name}) // none of them is needed to start
	})
}

// dropOptionalVolumes leaves empty volumes where drops says so.
func dropOptionalVolumes(spec *corev1.PodSpec, drops func(kind, name string, optional *bool) bool) {
	for i := range spec.Volumes {
		switch volume := &spec.Volumes[i]; {
		case volume.Secret != nil && drops(kind.Secret, volume.Secret.SecretName, volume.Secret.Optional):
			volume.VolumeSource = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: volume.Secret.DefaultMode}}
		case volume.ConfigMap != nil && drops(kind.ConfigMap, volume.ConfigMap.Name, volume.ConfigMap.Optional):
			volume.VolumeSource = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: volume.ConfigMap.DefaultMode}}
		case volume.Projected != nil:
			volume.Projected.Sources = slices.DeleteFunc(volume.Projected.Sources, func(source corev1.VolumeProjection) bool {
				return source.Secret != nil && drops(kind.Secret, source.Secret.Name, source.Secret.Optional) ||
					source.ConfigMap != nil && drops(kind.ConfigMap, source.ConfigMap.Name, source.ConfigMap.Optional)
			})
		}
	}
}

// dropOptionalVariables takes out the variables for which drops says so.
func dropOptionalVariables(container *corev1.Container, drops func(kind, name string, optional *bool) bool) {
	container.EnvFrom = slices.DeleteFunc(container.EnvFrom, func(source corev1.EnvFromSource) bool {
		return source.SecretRef != nil && drops(kind.Secret, source.SecretRef.Name, source.SecretRef.Optional) ||
			source.ConfigMapRef != nil && drops(kind.ConfigMap, source.ConfigMapRef.Name, source.ConfigMapRef.Optional)
	})
	container.Env = slices.DeleteFunc(container.Env, func(variable corev1.EnvVar) bool {
		from := variable.ValueFrom
		return from != nil && (from.SecretKeyRef != nil && drops(kind.Secret, from.SecretKeyRef.Name, from.SecretKeyRef.Optional) ||
			from.ConfigMapKeyRef != nil && drops(kind.ConfigMap, from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Optional))
	})
}
