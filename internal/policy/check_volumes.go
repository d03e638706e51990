package policy

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// volumeKinds are the names of the fields of corev1.VolumeSource in the API, in their order. Kinds of later versions of
// Kubernetes are among them, and so are not allowed before a policy names them.
var volumeKinds = kindsOf(reflect.TypeFor[corev1.VolumeSource]())

// emptyDirKind is the index in volumeKinds of the kind of a volume that names none, ephemeralKind that of generic
// ephemeral volumes.
var emptyDirKind, ephemeralKind = indexOfKind("emptyDir"), indexOfKind("ephemeral")

func kindsOf(source reflect.Type) []string {
	kinds := make([]string, source.NumField())
	for i := range kinds {
		kinds[i], _, _ = strings.Cut(source.Field(i).Tag.Get("json"), ",")
	}
	return kinds
}

func indexOfKind(name string) int {
	for index, kind := range volumeKinds {
		if kind == name {
			return index
		}
	}
	panic("the Pod API has no volumes of kind " + name) // a fault of the build
}

// checkVolumes checks the kinds of a pod's volumes, and the claims that they make.
func (p *Policy) checkVolumes(spec *corev1.PodSpec, found *refusals) {
	var claims []claim
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		kind := false
		source := reflect.ValueOf(&volume.VolumeSource).Elem()
		for index := range volumeKinds {
			if !source.Field(index).IsNil() {
				kind = true
				p.checkVolumeKind(i, index, found)
			}
		}
		if !kind {
			p.checkVolumeKind(i, emptyDirKind, found)
		}
		if volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil {
			template := volume.Ephemeral.VolumeClaimTemplate
			claims = append(claims, claim{fmt.Sprintf("spec.volumes[%d].ephemeral.volumeClaimTemplate.spec", i), &template.ObjectMeta, &template.Spec, false})
		}
	}
	if len(claims) > 0 && p.pods.volumes[ephemeralKind] {
		p.checkClaims(claims, found)
	}
}

func (p *Policy) checkVolumeKind(volume, index int, found *refusals) {
	if !p.pods.volumes[index] {
		kind := volumeKinds[index]
		found.add(at("spec.volumes", volume)+"."+kind, "volumes of kind %s are not allowed: pods.volumes allows %s", kind, names(p.spec.Pods.Volumes))
	}
}
