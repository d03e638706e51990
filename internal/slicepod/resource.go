package slicepod

import (
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ResourceSuffix ends the prefix of the extended resources that stand, in a tenant's pod view, for what a namespace
// holds in a super cluster: cpu of namespace web is "cpu.slice.tenancy.x-k8s.io/web".
const ResourceSuffix = ".slice.tenancy.x-k8s.io"

// escape begins an escaped byte in the name of a slice resource: z and two hexadecimal digits. A letter, because every
// part of a resource name's prefix must begin and end with a letter or digit.
const escape = 'z'

// Resource returns the extended resource that stands for a resource of a namespace: cpu of web is
// "cpu.slice.tenancy.x-k8s.io/web", nvidia.com/gpu is "nvidia.comz2fgpu.slice.tenancy.x-k8s.io/web". Quantities of it
// are the whole numbers of slice.Amounts.
func Resource(name corev1.ResourceName, namespace string) corev1.ResourceName {
	var prefix strings.Builder
	prefix.Grow(len(name) + len(ResourceSuffix) + 1 + len(namespace))
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c < escape, c >= '0' && c <= '9', (c == '.' || c == '-') && plain(name, i-1) && plain(name, i+1):
			prefix.WriteByte(c)
		default:
			prefix.WriteByte(escape)
			prefix.WriteString(hex.EncodeToString([]byte{c}))
		}
	}
	prefix.WriteString(ResourceSuffix)
	prefix.WriteByte('/')
	prefix.WriteString(namespace)
	return corev1.ResourceName(prefix.String())
}

// ResourceOf returns the resource that a slice resource stands for. It returns false for any other resource.
func ResourceOf(resource corev1.ResourceName) (corev1.ResourceName, bool) {
	prefix, _, found := strings.Cut(string(resource), ResourceSuffix+"/")
	if !found {
		return "", false
	}
	if strings.IndexByte(prefix, escape) < 0 {
		return corev1.ResourceName(prefix), true
	}
	var name strings.Builder
	for i := 0; i < len(prefix); i++ {
		if prefix[i] != escape {
			name.WriteByte(prefix[i])
			continue
		}
		if i+3 > len(prefix) {
			return "", false
		}
		decoded, err := hex.DecodeString(prefix[i+1 : i+3])
		if err != nil {
			return "", false
		}
		name.Write(decoded)
		i += 2
	}
	return corev1.ResourceName(name.String()), true
}

// IsHeldBy reports whether resource is a slice resource of namespace.
func IsHeldBy(resource corev1.ResourceName, namespace string) bool {
	prefix, found := strings.CutSuffix(string(resource), namespace)
	return found && strings.HasSuffix(prefix, ResourceSuffix+"/")
}

// plain reports whether the byte at i stands for itself and is no separator.
func plain(name corev1.ResourceName, i int) bool {
	return i >= 0 && i < len(name) && (name[i] >= 'a' && name[i] < escape || name[i] >= '0' && name[i] <= '9')
}
