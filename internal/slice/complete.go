package slice

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// Complete returns all that a namespace may have, and the size of its slices. quota is what its ResourceQuotas name, a
// limit of zero included; named is the slice size that the tenant names, nil for none; defaults is that of the pool.
//
// The size of what is not named follows from defaults, in proportion to what is: the largest ratio of the named
// resources, rounded up. What the slices have and quota does not name comes with the slices, so that a quota of cpu
// alone is enough to run pods, and nothing that a pod can request is unlimited. Extended resources, huge pages and
// storage are there only if quota names them.
//
// A quota of pods and storage alone asks for nothing: it bounds objects. Pods never make slices smaller unless the
// tenant names how many pods a slice has: where quota names more pods than the slices would have, each slice has more.
func Complete(quota, named, defaults Amounts) (whole, size Amounts) {
	size = fill(named, defaults)
	compute := maps.Clone(quota)
	delete(compute, corev1.ResourcePods)
	if compute.OfPods().IsZero() {
		return Amounts{}, size
	}
	d := divide(compute, size)
	if d.lead == "" {
		d = division{whole: 1, size: 1} // one slice holds everything
	}
	amount := d.whole*d.size + d.partial
	if pods := quota[corev1.ResourcePods]; pods > 0 && named[corev1.ResourcePods] == 0 {
		size[corev1.ResourcePods] = max(size[corev1.ResourcePods], ceilDiv(pods, d.size, amount))
	}
	whole = quota.Minus(nil)
	for name, piece := range size {
		if _, isNamed := quota[name]; isNamed || rowOf(name).family || rowOf(name).OfClaims {
			continue
		}
		comes := mulDiv(piece, amount, d.size)
		if name == corev1.ResourcePods {
			comes = ceilDiv(piece, amount, d.size)
		}
		whole[name] = min(max(1, comes), MaxAmount)
	}
	return whole, size
}

// fill completes named with defaults, scaled to the size of named.
func fill(named, defaults Amounts) Amounts {
	size := maps.Clone(named)
	if size == nil {
		size = Amounts{}
	}
	numerator, denominator := int64(0), int64(1)
	for name, amount := range named {
		if of := defaults[name]; of > 0 && moreThan(amount, of, numerator, denominator) {
			numerator, denominator = amount, of
		}
	}
	if numerator == 0 {
		numerator = 1
	}
	for name, amount := range defaults {
		if _, isNamed := named[name]; !isNamed {
			size[name] = ceilDiv(amount, numerator, denominator)
		}
	}
	return size
}

// ceilDiv returns a·b/c rounded up, at most MaxAmount. None is negative, and c is above zero.
func ceilDiv(a, b, c int64) int64 {
	quotient := mulDiv(a, b, c)
	if quotient < MaxAmount && moreThan(a, c, quotient, b) {
		quotient++
	}
	return min(quotient, MaxAmount)
}
