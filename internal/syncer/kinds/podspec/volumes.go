package podspec

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// translateVolumes removes sources of the super cluster's credentials from volumes and replaces the names of ConfigMaps
// by those in the super cluster. A serviceAccountToken, clusterTrustBundle or podCertificate source becomes keys of the
// pod's Secret of tokens at the same index, so that modes and the precedence of paths stay. A podCertificate without paths,
// which no API server takes, is left out: a Secret without items would be all of it.
func translateVolumes(tenantPod *corev1.Pod, spec *corev1.PodSpec, owner tenancy.Owner) {
	eachShownField(spec, func(annotation, _ string, field *corev1.ObjectFieldSelector) {
		field.FieldPath = "metadata.annotations['" + annotation + "']"
	})
	secret := tenancy.TokenSecret(tenantPod.Name, owner.UID)
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		if volume.ConfigMap != nil {
			volume.ConfigMap.Name = kind.SuperConfigMap(volume.ConfigMap.Name)
		}
		if volume.Projected == nil {
			continue
		}
		for j := range volume.Projected.Sources {
			source := &volume.Projected.Sources[j]
			if source.ConfigMap != nil {
				source.ConfigMap.Name = kind.SuperConfigMap(source.ConfigMap.Name)
			}
			if source.ServiceAccountToken != nil {
				token := source.ServiceAccountToken
				source.Secret = secretProjection(spec, secret, corev1.KeyToPath{Key: kind.TokenKey(i, j), Path: token.Path, User: token.User})
				source.ServiceAccountToken = nil
			}
			if bundle := source.ClusterTrustBundle; bundle != nil {
				source.Secret = secretProjection(spec, secret, corev1.KeyToPath{Key: kind.TrustBundleKey(i, j), Path: bundle.Path, User: bundle.User})
				source.ClusterTrustBundle = nil
			}
			if certificate := source.PodCertificate; certificate != nil {
				var items []corev1.KeyToPath
				for _, file := range kind.CertificateFiles(i, j, certificate) {
					items = append(items, file.KeyToPath)
				}
				if len(items) > 0 {
					source.Secret = secretProjection(spec, secret, items...)
					source.PodCertificate = nil
				}
			}
		}
		volume.Projected.Sources = slices.DeleteFunc(volume.Projected.Sources, func(source corev1.VolumeProjection) bool {
			return source.PodCertificate != nil
		})
	}
}

// secretProjection projects keys of the pod's Secret of tokens. With an fsGroup their mode is 0600, as kubelets give it to
// tokens, trust bundles and certificates.
func secretProjection(spec *corev1.PodSpec, secret string, items ...corev1.KeyToPath) *corev1.SecretProjection {
	if spec.SecurityContext != nil && spec.SecurityContext.FSGroup != nil {
		for i := range items {
			items[i].Mode = ptr.To[int32](0o600)
		}
	}
	return &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Items: items}
}

// annotationDomainDownward is the domain of a super pod's annotations that hold the tenant's labels and annotations for
// files of the downward API. The super pod's own lack those that do not go down, and include ownership labels and what
// the super cluster added. Written by the syncer; read by kubelets.
const annotationDomainDownward = "downward.tenancy.x-k8s.io/"

// eachShownField calls do with each fieldRef of a downward API file whose value differs in the super pod, and with the
// annotation of the super pod that holds the tenant's value: files of one field share it. Volumes are immutable, so
// these annotations keep their names. single is the one that the file had for itself in super pods of earlier versions.
func eachShownField(spec *corev1.PodSpec, do func(annotation, single string, field *corev1.ObjectFieldSelector)) {
	carried, shared := 0, map[string]string{}
	visit := func(files []corev1.DownwardAPIVolumeFile) {
		for _, file := range files {
			if file.FieldRef == nil {
				continue
			}
			switch path, _, _ := fieldpath.SplitMaybeSubscriptedPath(file.FieldRef.FieldPath); path {
			case "metadata.namespace":
				do(tenancyv1alpha1.AnnotationNamespace, "", file.FieldRef)
			case "metadata.uid":
				do(tenancyv1alpha1.AnnotationUID, "", file.FieldRef)
			case "metadata.labels", "metadata.annotations":
				single := annotationDomainDownward + strconv.Itoa(carried)
				annotation, exists := shared[file.FieldRef.FieldPath]
				if !exists {
					annotation = single
					shared[file.FieldRef.FieldPath] = annotation
				}
				do(annotation, single, file.FieldRef)
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
// superPod. The kubelet updates the files when the annotations change. Where that is more than goes down it says so,
// and the files of a super pod that exists stay as they are: the rest of an update goes down.
func carryFields(tenantPod, superPod *corev1.Pod) (excess string) {
	exists := superPod.UID != ""
	if excess = policy.ExcessOfFiles(tenantPod); excess != "" && exists {
		return excess
	}
	carried := map[string]string{}
	eachShownField(&tenantPod.Spec, func(annotation, single string, field *corev1.ObjectFieldSelector) {
		if single == "" {
			return // an annotation of tenancy.SetOwner
		}
		if _, known := carried[annotation]; !known {
			// The API server has validated the path: an error leaves the value empty.
			carried[annotation], _ = fieldpath.ExtractFieldPathAsString(tenantPod, field.FieldPath)
		}
		if _, had := superPod.Annotations[single]; had && exists {
			carried[single] = carried[annotation]
		}
	})
	if len(carried) == 0 {
		return ""
	}
	annotations := maps.Clone(superPod.Annotations)
	maps.Copy(annotations, carried)
	if excess = policy.ExcessOfAnnotations(annotations); excess == "" || !exists {
		superPod.Annotations = annotations
	}
	return excess
}
