package slicepod

import (
	"encoding/hex"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/superpool/superpool/internal/slice"
)

// ResourceSuffix ends the prefix of the resources that stand, in a tenant's pod view, for what a namespace holds in a
// super cluster: cpu of namespace web is "cpu.slice.tenancy.kubernetes.io/web". They exist in memory only. Those of
// Kubernetes' own domain are counted as extended resources are, but are known by a look at the name: whether a resource
// is an extended one kube-scheduler asks two regular expressions, for each resource, pod and node, and one whose name
// is too long it does not count.
const ResourceSuffix = ".slice.tenancy.kubernetes.io"

// ResourcePods is, in the namespace view, the resource that stands for the pods which a slice may hold:
// kube-scheduler takes the resource pods for the number of Pods on a Node, and a slice is one of those.
const ResourcePods corev1.ResourceName = "pods" + ResourceSuffix + "/pool"

// ResourceStorage is, in the namespace view, the resource that stands for the storage which slices hold, in kibibytes,
// so that what any number of namespaces name adds up within 64 bits. Slices request storage itself besides, in bytes:
// no node has any, and kube-scheduler does not count it.
const ResourceStorage corev1.ResourceName = "storage" + ResourceSuffix + "/pool"

// kibibyte is the unit of ResourceStorage.
const kibibyte = 1 << 10

// StorageRoom returns how much ResourceStorage so many bytes are room for: whole kibibytes.
func StorageRoom(bytes int64) int64 { return bytes / kibibyte }

// StorageBytes returns how many bytes an amount of ResourceStorage stands for, at most math.MaxInt64.
func StorageBytes(amount int64) int64 {
	if amount > math.MaxInt64/kibibyte {
		return math.MaxInt64
	}
	return amount * kibibyte
}

// escape begins an escaped byte in the name of a slice resource: z and two hexadecimal digits. A letter, because every
// part of a resource name's prefix must begin and end with a letter or digit.
const escape = 'z'

// Resource returns the resource of the view that stands for a resource of a namespace: cpu of web is
// "cpu.slice.tenancy.kubernetes.io/web", nvidia.com/gpu is "nvidia.comz2fgpu.slice.tenancy.kubernetes.io/web".
// Quantities of it are the whole numbers of slice.Amounts.
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

// NamespaceOf returns the namespace of a slice resource. It returns false for any other resource.
func NamespaceOf(resource corev1.ResourceName) (string, bool) {
	_, namespace, found := strings.Cut(string(resource), ResourceSuffix+"/")
	return namespace, found
}

// plain reports whether the byte at i stands for itself and is no separator.
func plain(name corev1.ResourceName, i int) bool {
	return i >= 0 && i < len(name) && (name[i] >= 'a' && name[i] < escape || name[i] >= '0' && name[i] <= '9')
}

// Requests returns the requests of the Pod that stands for slices which hold these amounts.
func Requests(amounts slice.Amounts) corev1.ResourceList {
	list := amounts.List()
	if pods, exists := list[corev1.ResourcePods]; exists {
		delete(list, corev1.ResourcePods)
		list[ResourcePods] = pods
	}
	if bytes := amounts[corev1.ResourceStorage]; bytes > 0 {
		list[ResourceStorage] = *resource.NewQuantity((bytes-1)/kibibyte+1, resource.DecimalSI)
	}
	return list
}

// AmountsOf returns what the slices hold that a Pod of the namespace view stands for.
func AmountsOf(pod *corev1.Pod) slice.Amounts {
	amounts := slice.Taken(pod, slice.Reading{})
	if pods, exists := amounts[ResourcePods]; exists {
		delete(amounts, ResourcePods)
		amounts[corev1.ResourcePods] = pods
	}
	delete(amounts, ResourceStorage)
	return amounts
}

// Readable replaces the slice resources in a sentence of kube-scheduler by words: "Insufficient
// memory.slice.tenancy.kubernetes.io/web" becomes "Insufficient memory of the namespace".
func Readable(sentence string) string {
	if !strings.Contains(sentence, ResourceSuffix) {
		return sentence
	}
	words := strings.Split(sentence, " ")
	for i, word := range words {
		switch name, ok := ResourceOf(corev1.ResourceName(word)); {
		case !ok:
		case corev1.ResourceName(word) == ResourcePods, corev1.ResourceName(word) == ResourceStorage:
			words[i] = string(name)
		default:
			words[i] = string(name) + " of the namespace"
		}
	}
	return strings.Join(words, " ")
}
