// Package slicepod is the codec between slices and the in-memory Pods that stand for them: what the slices of one
// NamespacePlacement have in common (Gang), and the extended resources that stand, in a tenant's pod view, for what a
// namespace holds (Resource). None of its keys reaches an API server.
//
// Everything here is pure: no clients, no clock, no logging.
package slicepod

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/slice"
)

// Keys on the Pods of the namespace view. Encode writes and Decode reads them.
const (
	// AnnotationGang is Gang.Name.
	AnnotationGang = "scheduler.tenancy.x-k8s.io/gang"
	// AnnotationGangSize is Gang.Size.
	AnnotationGangSize = "scheduler.tenancy.x-k8s.io/gang-size"
	// AnnotationGangTotal is Gang.Total: cpu=1500,memory=1024, names escaped as in a URL's query.
	AnnotationGangTotal = "scheduler.tenancy.x-k8s.io/gang-total"
	// AnnotationHeld is Gang.Held in the same form: r1=2,r2=1.
	AnnotationHeld = "scheduler.tenancy.x-k8s.io/held"
	// AnnotationTurn is Gang.Turn; it is absent for 0.
	AnnotationTurn = "scheduler.tenancy.x-k8s.io/turn"
	// AnnotationReplaces is Gang.Replaces: "true"; it is absent otherwise.
	AnnotationReplaces = "scheduler.tenancy.x-k8s.io/replaces"
	// LabelReplaced is, on a Pod that stands for what a namespace holds in a super cluster, "true" where all of that
	// leaves and has been placed elsewhere.
	LabelReplaced = "scheduler.tenancy.x-k8s.io/replaced"
	// AnnotationPin is, on a slice that is to go to one super cluster only, that super cluster.
	AnnotationPin = "scheduler.tenancy.x-k8s.io/pin"
	// AnnotationSlices is, on a Pod that stands for what a namespace holds in a super cluster, the slices that this is.
	// EncodeRuns writes and Runs reads it.
	AnnotationSlices = "scheduler.tenancy.x-k8s.io/slices"
)

// maxLength bounds what Decode parses of one annotation, in bytes. A namespace has at most a thousand slices, and a
// name of a super cluster at most 253 characters.
const maxLength = 512 * 1024

// Gang is what the slices of a NamespacePlacement that are placed together have in common.
type Gang struct {
	// Name is namespace and name of the NamespacePlacement, and a hash of what the decision rests on:
	// tenant/web@0123456789abcdef. Equal decisions have equal names. "": the Pod stands for no slice that is to be
	// placed.
	Name string
	// Size is the number of slices in the gang, at least 1.
	Size int64
	// Total is what all slices of the gang request together.
	Total slice.Amounts
	// Held is how many slices the namespace holds already, by super cluster.
	Held map[string]int32
	// Turn orders gangs of the same priority: lower ones are tried first.
	Turn int
	// Replaces is whether the gang takes the place of what leaves super clusters that are drained or lost.
	Replaces bool
}

// Encode makes each pod a slice of gang. The pods share one map of annotations, which replaces their own and must not
// be changed afterwards: a gang may have a thousand slices.
func Encode(gang Gang, pods ...*corev1.Pod) {
	annotations := map[string]string{
		AnnotationGang:      gang.Name,
		AnnotationGangSize:  strconv.FormatInt(gang.Size, 10),
		AnnotationGangTotal: encodeCounts(gang.Total),
		AnnotationHeld:      encodeCounts(gang.Held),
	}
	if gang.Turn > 0 {
		annotations[AnnotationTurn] = strconv.Itoa(gang.Turn)
	}
	if gang.Replaces {
		annotations[AnnotationReplaces] = "true"
	}
	for _, pod := range pods {
		pod.Annotations = annotations
	}
}

// Replaces returns Gang.Replaces of a slice.
func Replaces(pod *corev1.Pod) bool { return pod.Annotations[AnnotationReplaces] != "" }

// IsReplaced returns whether all that a Pod stands for leaves and has been placed elsewhere (LabelReplaced).
func IsReplaced(pod *corev1.Pod) bool { return pod.Labels[LabelReplaced] != "" }

// Pin lets slices go to one super cluster only. They share one map of annotations: what Encode gave the first of them,
// and the super cluster.
func Pin(cluster string, pods ...*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	annotations := maps.Clone(pods[0].Annotations)
	annotations[AnnotationPin] = cluster
	for _, pod := range pods {
		pod.Annotations = annotations
	}
}

// PinOf returns the one super cluster to which a slice may go, "" for any.
func PinOf(pod *corev1.Pod) string { return pod.Annotations[AnnotationPin] }

// Decode reads the gang of a slice. A Pod without the annotations is a gang of one that wants and holds nothing. The
// maps are the caller's. Plugins call Size, Total and Held for the parts that they use: Held has an entry per super
// cluster, and they read it in every scheduling cycle.
func Decode(pod *corev1.Pod) (Gang, error) {
	size, sizeErr := Size(pod)
	total, totalErr := Total(pod)
	held, heldErr := Held(pod)
	if err := cmp.Or(sizeErr, totalErr, heldErr); err != nil {
		return Gang{}, err
	}
	return Gang{Name: GangName(pod), Size: size, Total: total, Held: held, Turn: Turn(pod), Replaces: Replaces(pod)}, nil
}

// Turn returns Gang.Turn of a slice, 0 where there is none. The queue compares it all the time.
func Turn(pod *corev1.Pod) int {
	text, exists := pod.Annotations[AnnotationTurn]
	if !exists {
		return 0
	}
	turn, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return max(0, turn)
}

// Size returns Gang.Size of a slice.
func Size(pod *corev1.Pod) (int64, error) {
	text, exists := pod.Annotations[AnnotationGangSize]
	if !exists {
		return 1, nil
	}
	size, err := strconv.ParseInt(text, 10, 64)
	if err != nil || size < 1 {
		return 0, fmt.Errorf("reading the size of gang %s: %q is not a number above zero", GangName(pod), text)
	}
	return size, nil
}

// Total returns Gang.Total of a slice.
func Total(pod *corev1.Pod) (slice.Amounts, error) {
	total, err := decodeCounts[corev1.ResourceName, int64](pod.Annotations[AnnotationGangTotal], 64)
	if err != nil {
		return nil, fmt.Errorf("reading the total of gang %s: %w", GangName(pod), err)
	}
	return total, nil
}

// Held returns Gang.Held of a slice.
func Held(pod *corev1.Pod) (map[string]int32, error) {
	held, err := decodeCounts[string, int32](pod.Annotations[AnnotationHeld], 32)
	if err != nil {
		return nil, fmt.Errorf("reading what the namespace of gang %s holds: %w", GangName(pod), err)
	}
	return held, nil
}

// GangName returns Gang.Name of a slice without decoding the rest: plugins compare it for each slice that waits.
func GangName(pod *corev1.Pod) string {
	return pod.Annotations[AnnotationGang]
}

// PlacementOf returns the NamespacePlacement that a gang of this name was projected from.
func PlacementOf(gang string) types.NamespacedName {
	scope, _, _ := strings.Cut(gang, "@")
	namespace, name, _ := strings.Cut(scope, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// UID returns the UID of slice number index of a gang, so that another decision about the same namespace has other
// Pods.
func UID(gang string, index int) types.UID {
	return types.UID(gang + "/" + strconv.Itoa(index))
}

// Index returns the number of a slice in its gang, 0 for a Pod that is none.
func Index(pod *corev1.Pod) int {
	digits, isSlice := strings.CutPrefix(string(pod.UID), GangName(pod)+"/")
	index, err := strconv.Atoi(digits)
	if !isSlice || err != nil {
		return 0
	}
	return max(0, index)
}

// IsFirst reports whether pod is slice number 0 of its gang.
func IsFirst(pod *corev1.Pod) bool {
	gang, isFirst := strings.CutSuffix(string(pod.UID), "/0")
	return isFirst && gang == GangName(pod)
}

// encodeCounts writes counts in alphabetical order.
func encodeCounts[M ~map[K]V, K ~string, V int32 | int64](counts M) string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if text.Len() > 0 {
			text.WriteByte(',')
		}
		text.WriteString(url.QueryEscape(string(name)))
		text.WriteByte('=')
		text.WriteString(strconv.FormatInt(int64(counts[name]), 10))
	}
	return text.String()
}

// decodeCounts reads what encodeCounts writes: numbers of so many bits, none of them negative. It returns nil for "".
func decodeCounts[K ~string, V int32 | int64](text string, bits int) (map[K]V, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxLength {
		return nil, fmt.Errorf("it is longer than %d characters", maxLength)
	}
	counts := make(map[K]V, strings.Count(text, ",")+1)
	for part := range strings.SplitSeq(text, ",") {
		escaped, digits, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(escaped)
		if err != nil || name == "" {
			return nil, fmt.Errorf("%q names nothing: want name=number", part)
		}
		count, err := strconv.ParseInt(digits, 10, bits)
		if err != nil || count < 0 {
			return nil, fmt.Errorf("%q of %q is not a number from zero on", digits, name)
		}
		counts[K(name)] = V(count)
	}
	return counts, nil
}
