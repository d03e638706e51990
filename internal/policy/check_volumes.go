package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// volumeKinds are the names of the fields of corev1.VolumeSource in the API, in their order. Kinds of later versions of
// Kubernetes are among them, and so are not allowed before a policy names them.
var volumeKinds = kindsOf(reflect.TypeFor[corev1.VolumeSource]())

// emptyDirKind is the index in volumeKinds of the kind of a volume that names none, ephemeralKind that of generic
// ephemeral volumes.
// claimKind is that of claims.
var emptyDirKind, ephemeralKind, claimKind = indexOfKind("emptyDir"), indexOfKind("ephemeral"), indexOfKind("persistentVolumeClaim")

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

// Claims returns how the claims of a tenant's pod break policy, each of them once, nil if they do not. It is asked
// before translation, after which generic ephemeral volumes are claims like others. The Field of a Refusal begins below
// the volume.
func Claims(policy *Policy, tenantSpec *corev1.PodSpec) []Refusal {
	found, claims := &refusals{}, &corev1.PodSpec{}
	for i := range tenantSpec.Volumes {
		volume := &tenantSpec.Volumes[i]
		if volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil {
			claims.Volumes = append(claims.Volumes, *volume)
		}
		if volume.PersistentVolumeClaim != nil && policy.pods.volumes[ephemeralKind] { // checkVolumeKind allows it
			policy.refuseVolumeKind(i, claimKind, found)
		}
	}
	policy.checkVolumes(claims, found)
	var once []Refusal
	for _, refusal := range found.all() {
		if _, below, found := strings.Cut(refusal.Field, "]."); found {
			refusal.Field = below
		}
		if !slices.Contains(once, refusal) {
			once = append(once, refusal)
		}
	}
	return once
}

func (p *Policy) checkVolumeKind(volume, index int, found *refusals) {
	// In super clusters a generic ephemeral volume is the claim that the tenant's controller has made for it.
	if !p.pods.volumes[index] && (index != claimKind || !p.pods.volumes[ephemeralKind]) {
		p.refuseVolumeKind(volume, index, found)
	}
}

// refuseVolumeKind refuses a volume of a kind that the policy does not list.
func (p *Policy) refuseVolumeKind(volume, index int, found *refusals) {
	if kind := volumeKinds[index]; !p.pods.volumes[index] {
		found.add(at("spec.volumes", volume)+"."+kind, "volumes of kind %s are not allowed: pods.volumes allows %s", kind, names(p.spec.Pods.Volumes))
	}
}
