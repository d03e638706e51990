package slice

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
)

// maxAnnotationLength bounds what is parsed of an annotation that a tenant wrote.
const maxAnnotationLength = 4096

// Quota returns what the quotas of one namespace allow together: per resource the smallest hard limit over the quotas
// without scopes. It counts the resources that a super cluster can hold (see Resource); others, such as pods or
// requests.storage, are left to the tenant control plane. A limit of zero is a limit: the resource is then absent.
func Quota(quotas []corev1.ResourceQuota) (Amounts, field.ErrorList) {
	smallest := corev1.ResourceList{}
	for i := range quotas {
		if len(quotas[i].Spec.Scopes) > 0 || quotas[i].Spec.ScopeSelector != nil {
			continue
		}
		for key, hard := range quotas[i].Spec.Hard {
			name, ok := Resource(key)
			if !ok {
				continue
			}
			if known, exists := smallest[name]; !exists || below(name, hard, known) {
				smallest[name] = hard
			}
		}
	}
	return FromList(smallest, field.NewPath("spec", "hard"))
}

// Resource translates a key of ResourceQuota's hard limits into the resource that it bounds: cpu and requests.cpu into
// cpu, requests.nvidia.com/gpu into nvidia.com/gpu. It returns false for keys that bound something else.
func Resource(key corev1.ResourceName) (corev1.ResourceName, bool) {
	name := corev1.ResourceName(strings.TrimPrefix(string(key), corev1.DefaultResourceRequestsPrefix))
	switch {
	case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, v1helper.IsHugePageResourceName(name):
		return name, true
	case name != key && v1helper.IsExtendedResourceName(name):
		return name, true
	}
	return "", false
}

// QuotaKey is the inverse of Resource: the key of ResourceQuota's hard limits that bounds requests for a resource.
func QuotaKey(name corev1.ResourceName) corev1.ResourceName {
	return corev1.DefaultResourceRequestsPrefix + name
}

// ParseSize reads a slice annotation, a JSON object from resource to quantity, for example {"cpu":"100m"}. Every quantity
// must be above zero and every key a resource that Resource knows.
func ParseSize(text string) (Amounts, error) {
	if len(text) > maxAnnotationLength {
		return nil, fmt.Errorf("slice is longer than %d characters", maxAnnotationLength)
	}
	var list corev1.ResourceList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf(`slice is not a JSON object of quantities such as {"cpu":"500m","memory":"1Gi"}: %w`, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf(`slice names no resource: want a JSON object such as {"cpu":"500m","memory":"1Gi"}`)
	}
	path := field.NewPath("slice")
	size, errs := FromList(list, path)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		bounded, ok := Resource(corev1.DefaultResourceRequestsPrefix + name)
		switch {
		case !ok || bounded != name:
			errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(), "is not a resource that quotas bound"))
		case quantity.Sign() == 0:
			errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(), "must be above zero"))
		}
	}
	return size, errs.ToAggregate()
}
