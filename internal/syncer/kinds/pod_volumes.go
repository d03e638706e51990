package kinds

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// translateVolumes removes sources of the super cluster's credentials from volumes and replaces the names of ConfigMaps
// by those in the super cluster. A serviceAccountToken source becomes a key of the pod's Secret of tokens at the same
// index, so that modes and the precedence of paths stay.
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

// tokenProjection projects one key of the pod's Secret of tokens. With an fsGroup its mode is 0600, as that of a token.
func tokenProjection(spec *corev1.PodSpec, secret, key, path string) *corev1.SecretProjection {
	item := corev1.KeyToPath{Key: key, Path: path}
	if spec.SecurityContext != nil && spec.SecurityContext.FSGroup != nil {
		item.Mode = ptr.To[int32](0o600)
	}
	return &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Items: []corev1.KeyToPath{item}}
}

// downwardDomain is the domain of a super pod's annotations that hold the tenant's labels and annotations for files of
// the downward API. The super pod's own lack those that do not go down, and include ownership labels and what the super
// cluster added.
const downwardDomain = "downward.tenancy.x-k8s.io/"

// eachShownField calls do with each fieldRef of a downward API file whose value differs in the super pod, and with the
// annotation of the super pod that holds the tenant's value. Volumes are immutable, so these annotations keep their
// names.
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

// carryFields writes the tenant's labels and annotations, in the format of downward API files, to annotations of
// superPod. The kubelet updates the files when the annotations change.
func carryFields(tenantPod, superPod *corev1.Pod) {
	eachShownField(&tenantPod.Spec, func(annotation string, field *corev1.ObjectFieldSelector) {
		if !strings.HasPrefix(annotation, downwardDomain) {
			return // an annotation of tenancy.SetOwner
		}
		// The API server has validated the path: an error leaves the value empty.
		value, _ := fieldpath.ExtractFieldPathAsString(tenantPod, field.FieldPath)
		superPod.Annotations[annotation] = value
	})
}
