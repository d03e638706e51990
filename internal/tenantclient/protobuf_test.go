package tenantclient

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/superpool/superpool/test/builders"
)

// serializer is that of objects in answers.
var serializer = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// encoded returns an object in protobuf, as an answer or as an event.
func encoded(t testing.TB, object runtime.Object, event bool) []byte {
	t.Helper()
	gvks, _, err := scheme.Scheme.ObjectKinds(object)
	require.NoError(t, err)
	object.GetObjectKind().SetGroupVersionKind(gvks[0])
	var text bytes.Buffer
	require.NoError(t, serializer.Encode(object, &text))
	if !event {
		return text.Bytes()
	}
	data, err := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: text.Bytes()}}).Marshal()
	require.NoError(t, err)
	return data
}

// decoded returns what a client makes of a text.
func decoded(text []byte, event bool) (runtime.Object, error) {
	if event {
		var outer metav1.WatchEvent
		if err := outer.Unmarshal(text); err != nil {
			return nil, err
		}
		text = outer.Object.Raw
	}
	object, _, err := serializer.Decode(text, nil, nil)
	return object, err
}

func webPod() *corev1.Pod {
	pod := builders.Pod("p", "web").Obj()
	pod.Labels = map[string]string{"app": "web"}
	pod.Spec.Containers = []corev1.Container{
		{Name: "c", Image: "i", Resources: builders.Requests("cpu", "10m", "memory", "1e3"), Env: []corev1.EnvVar{{Name: "a"}, {}}}, {},
	}
	pod.Spec.Overhead = builders.Resources("cpu", "12345678901234567890")
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, LastTransitionTime: metav1.Unix(1, 0)}}
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`)}, {Manager: "n"}}
	return pod
}

// TestMessages: what is counted of a text is no less than what decoders make of it, and not many times as much.
func TestMessages(t *testing.T) {
	t.Parallel()
	deployment := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: webPod().Spec}}}
	for _, tc := range []struct {
		name   string
		object runtime.Object
		items  int64
	}{
		{name: "a pod", object: webPod()},
		{name: "a deployment", object: deployment},
		{name: "a list", object: &corev1.PodList{Items: []corev1.Pod{*webPod(), {}, *webPod()}}, items: 3},
		{name: "a list of an API with the same numbers", object: &appsv1.DeploymentList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []appsv1.Deployment{*deployment}}, items: 1},
		{name: "an error", object: &metav1.Status{Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: "m"}}}}},
		{name: "1 MiB of text", object: &corev1.ConfigMap{Data: map[string]string{"text": strings.Repeat("Call me Ishmael. Some years ago - never mind how long.\n", 20_000)}}},
		{name: "1 MiB of a certificate", object: &corev1.Secret{Data: map[string][]byte{"pem": bytes.Repeat([]byte("MIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQswCQYDVQQGEwJJ\n"), 15_000)}}},
		{name: "1 MiB of zeros", object: &corev1.Secret{Data: map[string][]byte{"zeros": make([]byte, 1<<20)}}},
		{name: "1 MiB of line feeds, each the beginning of a field", object: &corev1.Secret{Data: map[string][]byte{"lines": bytes.Repeat([]byte("\n"), 1<<20)}}},
	} {
		for _, event := range []bool{false, true} {
			if event && tc.items > 0 {
				continue
			}
			text := encoded(t, tc.object, event)
			object, err := decoded(text, event)
			require.NoError(t, err, tc.name)
			counted, err := countMessage(text, event)
			require.NoError(t, err, tc.name)
			require.LessOrEqual(t, sizeOf(object), counted.memory, tc.name)
			require.Less(t, counted.memory, 3*sizeOf(object)+1000, tc.name)
			require.EqualValues(t, len(text), counted.bytes, tc.name)
			require.Equal(t, tc.items, counted.items, tc.name)
		}
	}
}

// TestRefusedMessages: what decoders may read otherwise than it is counted does not reach them, and a quantity that
// takes long to parse costs as much in protobuf as in JSON.
func TestRefusedMessages(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		text    []byte
		event   bool
		wantErr error
		want    int64 // bytes besides those of the text
	}{
		{name: "a quantity in a map", text: podIn(container(entry("cpu", part(1, "1e-10000")))), want: 10_000},
		{name: "the same text as a label", text: podIn(part(1, part(11, entry("cpu", "1e-10000"))))},
		{name: "a value longer than its entry", text: overrun(1, 100), wantErr: errEntry},
		{name: "a key longer than its entry", text: podIn(part(1, part(11, "\x0a\x7f")+part(12, entry("a", strings.Repeat("x", 1000))))), wantErr: errEntry},
		{name: "a value of another type", text: wrongType(), wantErr: errEntry},
		{name: "a key of another type", text: podIn(part(1, part(11, "\x09\x01aaaaaaa"))), wantErr: errEntry},
		{name: "a key in an entry that has it", text: podIn(part(1, part(11, part(1, "a")+part(1, "b")))), wantErr: errEntry},
		{name: "more in an entry", text: podIn(part(1, part(11, entry("a", "b")+part(3, "c")))), wantErr: errEntry},
		{name: "a number of a field that is none of a decoder", text: podIn(part(1, part(11, "\x8a\x80\x80\x80\x80\x01\x00"))), wantErr: errEntry},
		{name: "a number where a message is", text: podIn("\x08\x01"), wantErr: errWireType},
		{name: "a group", text: podIn("\x7b\x7c"), wantErr: errBroken},
		{name: "two objects", text: []byte(magic + typeMeta("v1", "Pod") + part(2, "") + part(2, part(1, ""))), wantErr: errTwice},
		{name: "two kinds", text: []byte(magic + typeMeta("v1", "Pod") + typeMeta("v1", "PodList") + part(2, "")), wantErr: errTwice},
		{name: "no magic", text: []byte("k8s"), wantErr: errNoMagic},
		{name: "an event of two objects", text: []byte(part(2, "") + part(2, "")), event: true, wantErr: errTwice},
		{name: "nothing"},
	} {
		counted, err := countMessage(tc.text, tc.event)
		require.ErrorIs(t, err, tc.wantErr, tc.name)
		if tc.wantErr == nil {
			require.EqualValues(t, len(tc.text)+int(tc.want), counted.bytes, tc.name)
		}
	}
	for _, kind := range []string{"", "Unheard", "ListOptions\x00"} {
		_, err := countMessage([]byte(magic+typeMeta("v1", kind)+part(2, "")), false)
		require.ErrorContains(t, err, "is not known")
	}
}

func part(number int, value string) string {
	text := binary.AppendUvarint(nil, uint64(number)<<3|uint64(protowire.BytesType)) //nolint:gosec // numbers of fields
	return string(binary.AppendUvarint(text, uint64(len(value)))) + value
}

func entry(key, value string) string { return part(1, key) + part(2, value) }

func typeMeta(version, kind string) string { return part(1, part(1, version)+part(2, kind)) }

func podIn(fields string) []byte { return []byte(magic + typeMeta("v1", "Pod") + part(2, fields)) }

// container returns the fields of a pod with a container that has an entry of limits.
func container(limit string) string { return part(2, part(2, part(8, part(1, limit)))) }

// overrun returns a pod with labels whose values end behind their entries, in an annotation. Decoders take the
// annotation with each of them.
func overrun(labels, length int) []byte {
	var all strings.Builder
	for i := range labels {
		key := string(rune('a'+i/26)) + string(rune('a'+i%26))
		all.WriteString(part(11, part(1, key)+"\x12"+string(binary.AppendUvarint(nil, uint64(length))))) //nolint:gosec // it is short
	}
	return podIn(part(1, all.String()+part(12, entry("a", strings.Repeat("x", length+labels*20)))))
}

// wrongType returns a pod with a quantity in an entry whose tag says it is a number of 8 bytes. Decoders take it for a
// message, whose end is behind the number.
func wrongType() []byte {
	quantity := part(1, "1e-30000000")
	return podIn(container(part(1, "cpu") + "\x11" + string(rune(len(quantity))) + quantity))
}

// TestManagedFieldsAreHidden: decoders see none of an object or of a list, and all the rest.
func TestManagedFieldsAreHidden(t *testing.T) {
	t.Parallel()
	template := &corev1.PodTemplate{Template: corev1.PodTemplateSpec{ObjectMeta: webPod().ObjectMeta}} // they stay in templates
	template.ManagedFields = webPod().ManagedFields
	wantTemplate := template.DeepCopy()
	wantTemplate.ManagedFields = nil
	without := webPod()
	without.ManagedFields = nil
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{*webPod(), *webPod()}}
	for _, tc := range []struct {
		name         string
		object, want runtime.Object
		event        bool
	}{
		{name: "an object", object: webPod(), want: without},
		{name: "an event", object: webPod(), want: without, event: true},
		{name: "a list", object: list, want: &corev1.PodList{ListMeta: list.ListMeta, Items: []corev1.Pod{*without, *without}}},
		{name: "a template", object: template, want: wantTemplate},
		{name: "what looks like them", object: &corev1.Secret{Data: map[string][]byte{managedTag: []byte(managedTag + "\x00")}}, want: &corev1.Secret{Data: map[string][]byte{managedTag: []byte(managedTag + "\x00")}}},
	} {
		text := encoded(t, tc.object, tc.event)
		before, err := countMessage(text, tc.event)
		require.NoError(t, err, tc.name)
		after, err := prepared(text, tc.event)
		require.NoError(t, err, tc.name)
		got, err := decoded(text, tc.event)
		require.NoError(t, err, tc.name)
		want, err := decoded(encoded(t, tc.want, tc.event), tc.event)
		require.NoError(t, err, tc.name)
		require.Empty(t, cmp.Diff(want, got), tc.name)
		require.LessOrEqual(t, after.memory, before.memory, tc.name)
	}
}

// TestAllKindsAreCounted: all kinds that clients know and that have protobuf are known with all their fields. Nothing
// is deeper than is followed, larger in memory than largest, or has the number under which managedFields are hidden.
func TestAllKindsAreCounted(t *testing.T) {
	t.Parallel()
	counts := 0
	for gvk, kind := range scheme.Scheme.AllKnownTypes() {
		object := reflect.New(kind)
		fill(object)
		var text bytes.Buffer
		if !object.Type().Implements(reflect.TypeFor[unmarshaler]()) {
			_, err := known.ofKind(gvk)
			require.ErrorIs(t, err, errNoProtobuf, gvk)
			continue
		}
		require.LessOrEqual(t, depthOf(t, kind, sets.New[reflect.Type]()), maxDepth, gvk)
		filled := object.Interface().(runtime.Object) //nolint:forcetypeassert // it is in a scheme
		filled.GetObjectKind().SetGroupVersionKind(gvk)
		require.NoError(t, serializer.Encode(filled, &text), gvk)
		if filled.GetObjectKind().GroupVersionKind() != gvk { // options have no kind, and are no answers
			continue
		}
		counted, err := countMessage(text.Bytes(), false)
		require.NoError(t, err, gvk)
		decoded, err := decoded(text.Bytes(), false)
		require.NoError(t, err, gvk)
		require.LessOrEqual(t, sizeOf(decoded), counted.memory, gvk)
		of, err := known.ofKind(gvk)
		require.NoError(t, err, gvk)
		raw, err := only(text.Bytes()[len(magic):], unknownRaw)
		require.NoError(t, err, gvk)
		requireKnown(t, raw, of)
		counts++
	}
	require.Greater(t, counts, 100)
}

// requireKnown requires that a message has fields of a shape alone.
func requireKnown(t *testing.T, message []byte, of *shape) {
	t.Helper()
	for len(message) > 0 {
		next, rest, ok := nextField(message)
		require.True(t, ok)
		found, value := of.field(next.number), next.value
		require.NotNil(t, found, next.number)
		if found.entry {
			value, _ = only(value, entryValue)
		}
		if found.message != nil {
			requireKnown(t, value, found.message)
		}
		message = rest
	}
}

// fill sets all that is below value: lists and maps have one item. What is in a structure of its own type, whose types
// are above, stays as it is.
func fill(value reflect.Value, above ...reflect.Type) {
	switch value.Interface().(type) {
	case resource.Quantity:
		value.Set(reflect.ValueOf(resource.MustParse("1")))
		return
	case metav1.Time, metav1.MicroTime:
		value.Field(0).Set(reflect.ValueOf(time.Unix(1, 0)))
		return
	}
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			value.Set(reflect.New(value.Type().Elem()))
		}
		fill(value.Elem(), above...)
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1, 1))
		fill(value.Index(0), above...)
	case reflect.Map:
		key, item := reflect.New(value.Type().Key()).Elem(), reflect.New(value.Type().Elem()).Elem()
		fill(key, above...)
		fill(item, above...)
		value.Set(reflect.MakeMap(value.Type()))
		value.SetMapIndex(key, item)
	case reflect.Struct:
		if slices.Contains(above, value.Type()) {
			return
		}
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				fill(value.Field(i), append(slices.Clip(above), value.Type())...)
			}
		}
	case reflect.String:
		value.SetString("a")
	default:
		if value.CanInt() {
			value.SetInt(1)
		}
	}
}

// largest is more than what any one structure of all kinds takes.
const largest = 2048

// depthOf returns how deep a type nests messages.
func depthOf(t *testing.T, of reflect.Type, within sets.Set[reflect.Type]) (deepest int) {
	t.Helper()
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		return depthOf(t, of.Elem(), within)
	case reflect.Map:
		return 1 + depthOf(t, of.Elem(), within)
	case reflect.Struct:
	default:
		return 0
	}
	if within.Has(of) { // no program asks for the only one, and of it, too, what is deeper than maxDepth is refused
		require.Equal(t, "CompositePodGroupTemplate", of.Name(), "%s is in itself", of)
		return 0
	}
	require.Less(t, of.Size(), uintptr(largest), of)
	within = within.Clone().Insert(of)
	for i := range of.NumField() {
		tag := of.Field(i).Tag.Get("protobuf")
		if parts := strings.Split(tag, ","); len(parts) > 1 {
			number, err := strconv.Atoi(parts[1])
			require.NoError(t, err)
			require.NotEqual(t, noField, number, of)
		}
		deepest = max(deepest, 1+depthOf(t, of.Field(i).Type, within))
	}
	return deepest
}

// FuzzMessages: whatever decoders make of a text was counted, hidden fields or not.
func FuzzMessages(f *testing.F) {
	for _, event := range []bool{false, true} {
		for _, object := range []runtime.Object{webPod(), &corev1.PodList{Items: []corev1.Pod{*webPod()}}, &corev1.ConfigMap{Data: map[string]string{"a": "b"}}, &metav1.Status{}} {
			f.Add(encoded(f, object, event), event)
		}
	}
	f.Add(overrun(500, 20_000), false)
	f.Add(wrongType(), false)
	f.Add(podIn(container(entry("cpu", part(1, "1")))), false)
	f.Add(podIn(part(1, part(11, entry("a", "b")))), false)
	// A magic that is the beginning of a group, too.
	f.Add([]byte("k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x0b\x12\x09\x6b\x38\x73\x00\x6c\x6c\x12\x00\x12\x00"), false)
	f.Fuzz(func(t *testing.T, text []byte, event bool) {
		for _, count := range []func([]byte, bool) (content, error){countMessage, prepared} {
			counted, err := count(text, event)
			if err != nil || counted.bytes > int64(len(text))+1<<20 {
				continue // decoders do not see it; or would take long
			}
			object, err := decoded(text, event)
			if err != nil {
				continue
			}
			require.LessOrEqual(t, sizeOf(object), counted.memory)
		}
	})
}

// BenchmarkMessages decodes an event of a pod in protobuf, as BenchmarkManagedFields does in JSON.
func BenchmarkMessages(b *testing.B) {
	text := encoded(b, writtenPod(), true)
	for _, bounded := range []bool{false, true} {
		b.Run(fmt.Sprintf("bounded=%t", bounded), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				data := bytes.Clone(text)
				if bounded {
					_, err := prepared(data, true)
					require.NoError(b, err)
				}
				_, err := decoded(data, true)
				require.NoError(b, err)
			}
		})
	}
}
