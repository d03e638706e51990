package controlplane

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

const (
	// FileSecretType is the type of the Secrets, in vc-manager's namespace, of which ClusterVersions may give programs keys.
	FileSecretType corev1.SecretType = "tenancy.x-k8s.io/control-plane-files"

	// fileFolder is where a program finds the files that its ClusterVersion gives it.
	fileFolder = "/etc/kubernetes/files"
	// annotationFile, with the name of a file behind it, has its content, or a sum of the Secret that holds it: another one
	// has pods replaced. Written by vc-manager; read by kubelets.
	annotationFile = "tenancy.x-k8s.io/file-"
)

// FileSecret returns the name, in a root namespace, of the copy of a Secret that a ClusterVersion names.
func FileSecret(name string) string { return "files-" + name }

// FileSecrets returns the Secrets that a ClusterVersion names, with the keys that its programs read of each.
func FileSecrets(version *tenancyv1alpha1.ClusterVersion) map[string][]string {
	keys := map[string][]string{}
	for _, part := range components() {
		for _, file := range part.of(&version.Spec).Files {
			if file.SecretName != "" {
				keys[file.SecretName] = append(keys[file.SecretName], file.Name)
			}
		}
	}
	return keys
}

// addFiles gives a pod the files of its ClusterVersion. sums are those of the Secrets, by name. What is no secret is in the
// template, so pods have the files of the flags that they have, whatever is wanted by then.
func (p *program) addFiles(template *corev1.PodTemplateSpec, sums map[string]string) {
	if len(p.template.Files) == 0 {
		return
	}
	projected := &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o440)}
	contents := &corev1.DownwardAPIProjection{}
	for _, file := range p.template.Files {
		key := annotationFile + file.Name
		if file.SecretName != "" {
			template.Annotations[key] = sums[file.SecretName]
			project(projected, FileSecret(file.SecretName), corev1.KeyToPath{Key: file.Name, Path: file.Name})
			continue
		}
		template.Annotations[key] = file.Content
		contents.Items = append(contents.Items, ofAnnotation(key, file.Name))
	}
	if len(contents.Items) > 0 {
		projected.Sources = append(projected.Sources, corev1.VolumeProjection{DownwardAPI: contents})
	}
	container := &template.Spec.Containers[0]
	template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: "files", VolumeSource: corev1.VolumeSource{Projected: projected}})
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "files", MountPath: fileFolder, ReadOnly: true})
}

// ofAnnotation returns the file that has what an annotation of the pod says.
func ofAnnotation(key, file string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: file, FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: fmt.Sprintf("metadata.annotations['%s']", key)}}
}
