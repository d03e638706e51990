package tenantclient

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/superpool/superpool/test/builders"
)

// trimmed trims texts that come in pieces of random sizes.
func trimmed(watch bool, texts string, most int) string {
	t, kept := trimmer{watch: watch}, ""
	for texts != "" {
		n := min(1+rand.IntN(most), len(texts)) //nolint:gosec // no secret
		kept += string(t.trim([]byte(texts[:n])))
		texts = texts[n:]
	}
	return kept
}

func TestManagedFieldsAreCutOut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		watch bool
		text  string
		want  string
	}{
		{name: "an object", text: `{"metadata":{"name":"a","managedFields":[{"f:a":{"[":"]"}},1],"uid":"u"},"spec":{}}`, want: `{"metadata":{"name":"a","managedFields":[],"uid":"u"},"spec":{}}`},
		{name: "with white space", text: "{ \"metadata\" :\n{ \"managedFields\" : [ 1 ] } }", want: "{ \"metadata\" :\n{ \"managedFields\" : [] } }"},
		{
			name: "a list", text: `{"metadata":{"continue":"x"},"items":[{"metadata":{"managedFields":[{}]}},{"metadata":{"managedFields":[2],"name":"]"}}]}`,
			want: `{"metadata":{"continue":"x"},"items":[{"metadata":{"managedFields":[]}},{"metadata":{"managedFields":[],"name":"]"}}]}`,
		},
		{
			name: "events", watch: true,
			text: `{"type":"ADDED","object":{"metadata":{"managedFields":["\"]"]}}}` + "\n" + `{"type":"DELETED","object":{"metadata":{"managedFields":[[[1]]]}}}`,
			want: `{"type":"ADDED","object":{"metadata":{"managedFields":[]}}}` + "\n" + `{"type":"DELETED","object":{"metadata":{"managedFields":[]}}}`,
		},
		{name: "a member of that name elsewhere", text: `{"data":{"managedFields":[1]},"spec":{"metadata":{"managedFields":[1]}},"managedFields":[1]}`},
		{name: "in a template", text: `{"items":[{"spec":{"template":{"metadata":{"managedFields":[1]}}}}]}`},
		{name: "in the object of what is no event", text: `{"object":{"metadata":{"managedFields":[1]}}}`},
		{name: "in the items of an event", watch: true, text: `{"items":[{"metadata":{"managedFields":[1]}}],"metadata":{"managedFields":[1]}}`},
		{name: "in a list within items", text: `{"items":[[{"metadata":{"managedFields":[1]}}]]}`},
		{name: "what is no list", text: `{"metadata":{"managedFields":{"a":[1]},"x":["managedFields",[1]]}}`},
		{name: "the name as a value", text: `{"metadata":{"a":"managedFields","b":[1],"c":["managedFields"]}}`},
		{name: "a name that begins with it", text: `{"metadata":{"managedFieldsX":[1],"managedField":[1],"\\managedFields":[1]}}`},
		{name: "deep below", text: `{"metadata":{"a":{"b":{"c":{"d":{"e":{"managedFields":[1]}}}}}}}`},
		{name: "in a list that no key leads to", text: `[{"metadata":1},{"x":"metadata"},{"managedFields":[1]}]`},
		{name: "what is no JSON", text: `]}"metadata":{"managedFields":`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := tc.want
			if want == "" {
				want = tc.text
			}
			for _, most := range []int{1, 5, 1 << 20} {
				require.Equal(t, want, trimmed(tc.watch, tc.text, most))
			}
		})
	}
}

// anything is a JSON text at random, of the names and values that matter here.
func anything(random *rand.Rand, depth int) string {
	values := []string{`1`, `null`, `"managedFields"`, `"metadata"`, `"a\\"`, `"]"`}
	kind, count, text := random.IntN(8), random.IntN(4), ""
	if depth > 6 || kind == 0 {
		return values[random.IntN(len(values))]
	}
	names := []string{`"metadata"`, `"managedFields"`, `"items"`, `"object"`, `"x"`, `"[\""`}
	random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for i := range count {
		if i > 0 {
			text += ","
		}
		if kind < 5 {
			text += names[i] + ": "
		}
		text += anything(random, depth+1)
	}
	if kind < 5 {
		return "{" + text + "}"
	}
	return "[" + text + "]"
}

// TestTrimAtRandom holds texts, and what they become where some characters are others, against checkTrim.
func TestTrimAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1_000) {
		random := rand.New(rand.NewPCG(seed, 17)) //nolint:gosec // no secret
		text := []byte(anything(random, 0))
		checkTrim(t, string(text), seed%2 == 0)
		for range 3 {
			text[random.IntN(len(text))] = `{}[]"\:,`[random.IntN(8)]
		}
		checkTrim(t, string(text), seed%2 == 0)
	}
}

// FuzzTrim calls checkTrim.
func FuzzTrim(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"managedFields":[{"a":1}],"name":"x"},"items":[{"metadata":{"managedFields":[1]}}]}`, `{"object":{"metadata":{"managedFields":[null]}}}`,
		`{"items":[{"metadata":{"managedFields":"x"}}]}`, `"\"{"`, `{"metadata":{"managedFields":[`, `[[[{`,
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(checkTrim)
}

// checkTrim: of what is JSON, nothing else is lost, however it comes.
func checkTrim(t *testing.T, text string, watch bool) {
	t.Helper()
	kept := trimmed(watch, text, 7)
	require.LessOrEqual(t, len(kept), len(text), text)
	var want, got any
	if json.Unmarshal([]byte(text), &want) != nil {
		return
	}
	require.NoError(t, json.Unmarshal([]byte(kept), &got), "%s", kept)
	without(want, watch)
	without(got, watch)
	require.Empty(t, cmp.Diff(want, got), text)
}

// without empties the lists that a trimmer may empty.
func without(text any, watch bool) {
	outermost, _ := text.(map[string]any)
	empty := func(of any) {
		object, _ := of.(map[string]any)
		metadata, _ := object["metadata"].(map[string]any)
		if _, isList := metadata["managedFields"].([]any); isList {
			metadata["managedFields"] = []any{}
		}
	}
	if watch {
		empty(outermost["object"])
		return
	}
	empty(outermost)
	list, _ := outermost["items"].([]any)
	for _, item := range list {
		empty(item)
	}
}

// writtenPod returns a pod that three programs have written.
func writtenPod() *corev1.Pod {
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "web", Labels: map[string]string{"app": "web"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "registry/image", Resources: corev1.ResourceRequirements{Requests: builders.Resources("cpu", "10m", "memory", "10Mi")}}}
	for _, condition := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1, 0)})
	}
	fields := `{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},` +
		`"f:resources":{".":{},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},` +
		`"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`
	for _, manager := range []string{"user", "vc-scheduler", "syncer"} {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
	return pod
}

// BenchmarkManagedFields decodes an event of a pod as an informer does.
func BenchmarkManagedFields(b *testing.B) {
	pod := writtenPod()
	text, err := json.Marshal(map[string]any{"type": "ADDED", "object": pod})
	require.NoError(b, err)
	for _, cut := range []bool{false, true} {
		b.Run(fmt.Sprintf("cut=%t", cut), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				data := bytes.Clone(text)
				if cut {
					trimmer := trimmer{watch: true}
					data = trimmer.trim(data)
				}
				var event metav1.WatchEvent
				require.NoError(b, json.Unmarshal(data, &event))
				_, _, err := scheme.Codecs.UniversalDeserializer().Decode(event.Object.Raw, nil, nil)
				require.NoError(b, err)
			}
		})
	}
}
