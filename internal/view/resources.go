package view

import (
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// escape begins an escaped byte in the name of a slice resource: z and two hexadecimal digits. A letter, because every part of a
// resource name's prefix must begin and end with a letter or digit.
const escape = 'z'

// SliceResource returns the extended resource that stands for a resource of a namespace: cpu of web is "cpu.slice.tenancy.x-k8s.io/web",
// nvidia.com/gpu is "nvidia.comz2fgpu.slice.tenancy.x-k8s.io/web". Amounts of it are whole numbers as in package slice.
func SliceResource(name corev1.ResourceName, namespace string) corev1.ResourceName {
	var prefix strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c < escape, c >= '0' && c <= '9', (c == '.' || c == '-') && plain(name, i-1) && plain(name, i+1):
			prefix.WriteByte(c)
		default:
			prefix.WriteByte(escape)
			prefix.WriteString(hex.EncodeToString([]byte{c}))
		}
	}
	return corev1.ResourceName(prefix.String() + schedulerv1alpha1.SliceResourceSuffix + "/" + namespace)
}

// RequestedResource returns the resource that a slice resource stands for. It returns false for any other resource.
func RequestedResource(name corev1.ResourceName) (corev1.ResourceName, bool) {
	prefix, _, found := strings.Cut(string(name), schedulerv1alpha1.SliceResourceSuffix+"/")
	if !found {
		return "", false
	}
	var requested strings.Builder
	for i := 0; i < len(prefix); i++ {
		if prefix[i] != escape {
			requested.WriteByte(prefix[i])
			continue
		}
		if i+3 > len(prefix) {
			return "", false
		}
		decoded, err := hex.DecodeString(prefix[i+1 : i+3])
		if err != nil {
			return "", false
		}
		requested.Write(decoded)
		i += 2
	}
	return corev1.ResourceName(requested.String()), true
}

// plain says whether the byte at i stands for itself and is no separator.
func plain(name corev1.ResourceName, i int) bool {
	return i >= 0 && i < len(name) && (name[i] >= 'a' && name[i] < escape || name[i] >= '0' && name[i] <= '9')
}
