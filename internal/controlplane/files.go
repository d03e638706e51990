package controlplane

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

const (
	// FileSecretType is the type of the Secrets, in vc-manager's namespace, of which ClusterVersions may give programs keys.
	FileSecretType corev1.SecretType = "tenancy.x-k8s.io/control-plane-files"
	// MaxFile is how large a file is at most, in bytes.
	MaxFile = 16 << 10
	// SecretFiles is the Secret of the root namespace with the files that are secrets, each in a key that FileKey returns.
	SecretFiles = "files"

	// fileFolder is where a program finds the files that its ClusterVersion gives it.
	fileFolder = "/etc/kubernetes/files"
	// annotationFile, with the name of a file behind it, has its content. Written by vc-manager; read by kubelets.
	annotationFile = "tenancy.x-k8s.io/file-"
)

// FileSource is where a file that is a secret comes from: a key of a Secret in vc-manager's namespace.
type FileSource struct{ Secret, Key string }

// FileSources returns those of all files of a ClusterVersion that are secrets, some of them twice.
func FileSources(version *tenancyv1alpha1.ClusterVersion) (sources []FileSource) {
	for _, part := range components() {
		for _, file := range part.of(&version.Spec).Files {
			if file.SecretName != "" {
				sources = append(sources, FileSource{file.SecretName, file.Name})
			}
		}
	}
	return sources
}

// MissingFile returns which file an argument names that the ClusterVersion does not give its component, "" for none.
func MissingFile(version *tenancyv1alpha1.ClusterVersion) string {
	for _, part := range components() {
		template := part.of(&version.Spec)
		for _, flag := range slices.Sorted(maps.Keys(template.ExtraArgs)) {
			for value := range strings.SplitSeq(template.ExtraArgs[flag], ",") { // a flag may name more than one, with names of hosts behind
				path, _, _ := strings.Cut(value, ":")
				name, isFile := strings.CutPrefix(path, fileFolder+"/")
				if isFile && !slices.ContainsFunc(template.Files, func(file tenancyv1alpha1.ComponentFile) bool { return file.Name == name }) {
					return fmt.Sprintf("spec.%[1]s.extraArgs: %[2]s is %[3]s, and spec.%[1]s.files has no %[4]s", part.field, flag, template.ExtraArgs[flag], name)
				}
			}
		}
	}
	return ""
}

// FileKey returns the key of a file in SecretFiles. Another content has another one, so pods have the files that they were
// made with.
func FileKey(name string, content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:16]) + "." + name
}

// addFiles gives a pod the files of its ClusterVersion. keys are those of the ones that are secrets. All are named by the
// template, so pods have the files of the flags that they have, whatever is wanted by then.
func (p *program) addFiles(template *corev1.PodTemplateSpec, keys map[FileSource]string) {
	if len(p.template.Files) == 0 {
		return
	}
	projected := &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o440)}
	contents := &corev1.DownwardAPIProjection{}
	for _, file := range p.template.Files {
		if file.SecretName != "" {
			project(projected, SecretFiles, corev1.KeyToPath{Key: keys[FileSource{file.SecretName, file.Name}], Path: file.Name})
			continue
		}
		template.Annotations[annotationFile+file.Name] = file.Content
		contents.Items = append(contents.Items, ofAnnotation(annotationFile+file.Name, file.Name))
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
