package slice

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxAnnotationLength bounds what is parsed of an annotation that a tenant wrote.
const maxAnnotationLength = 4096

// Quota returns what the quotas of one namespace allow together: per resource the smallest hard limit over the quotas
// without scopes. It counts the resources that a super cluster can hold (see DimensionOfQuotaKey); others, such as
// limits.cpu or the storage of one StorageClass, are left to the tenant control plane. A limit of zero is a limit: such
// a resource is there, with zero. More storage than any pool has is none: it is how tenants write that there is no
// limit.
func Quota(quotas []corev1.ResourceQuota) (Amounts, field.ErrorList) {
	smallest := corev1.ResourceList{}
	for i := range quotas {
		if len(quotas[i].Spec.Scopes) > 0 || quotas[i].Spec.ScopeSelector != nil {
			continue
		}
		for key, hard := range quotas[i].Spec.Hard {
			d, ok := DimensionOfQuotaKey(key)
			if !ok || d.OfClaims && ExceedsMax(d.Name, hard) {
				continue
			}
			if known, exists := smallest[d.Name]; !exists || Compare(hard, known) < 0 {
				smallest[d.Name] = hard
			}
		}
	}
	amounts, errs := FromList(smallest, field.NewPath("spec", "hard"))
	for name, hard := range smallest {
		if hard.IsZero() {
			amounts[name] = 0
		}
	}
	return amounts, errs
}

// slowNumber matches the beginning of numbers that take long to parse.
var slowNumber = regexp.MustCompile(`[0-9.]{21}|[0-9.][eE][-+]?[0-9]{3}`)

// Shipped is the slice size of namespaces that name none, unless the operator sets another. It names every resource
// without which no pod runs.
const Shipped = `{"cpu":"2","memory":"4Gi","pods":"20"}`

// ParseDefault reads the slice size of namespaces that name none. What text does not name is that of Shipped, in
// proportion.
func ParseDefault(text string) (Amounts, error) {
	named, err := ParseSize(text)
	if err != nil {
		return nil, err
	}
	shipped, err := ParseSize(Shipped)
	if err != nil {
		return nil, err
	}
	return fill(named, shipped), nil
}

// ParseSize reads a slice annotation, a JSON object from resource to quantity, for example {"cpu":"100m"}. Every
// quantity must be above zero and every key a resource that quotas bound.
func ParseSize(text string) (Amounts, error) {
	if len(text) > maxAnnotationLength {
		return nil, fmt.Errorf("slice is longer than %d characters", maxAnnotationLength)
	}
	// No API server has parsed them, and it takes hours to write out 99999999999999999999e999999999.
	if slow := slowNumber.FindString(text); slow != "" {
		return nil, fmt.Errorf("slice: %s... is no quantity of a pool: use at most 20 digits, and exponents below 100", slow)
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
		_, ok := DimensionOfQuotaKey(DimensionOf(name).QuotaKey)
		switch {
		case !ok:
			errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(), "is not a resource that quotas bound"))
		case quantity.Sign() == 0:
			errs = append(errs, field.Invalid(path.Key(string(name)), quantity.String(), "must be above zero"))
		}
	}
	return size, errs.ToAggregate()
}
