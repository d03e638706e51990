package slicepod_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

func TestEncode(t *testing.T) {
	t.Parallel()
	first, second := &corev1.Pod{}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"old": "gone"}}}
	slicepod.Encode(slicepod.Gang{
		Name: "tenant/web@1", Size: 2, Total: slice.Amounts{"nvidia.com/gpu": 2, "cpu": 1500}, Held: map[string]int32{"r2": 1, "r1": 2},
	}, first, second)
	want := map[string]string{
		slicepod.AnnotationGang: "tenant/web@1", slicepod.AnnotationGangSize: "2",
		slicepod.AnnotationGangTotal: "cpu=1500,nvidia.com%2Fgpu=2", slicepod.AnnotationHeld: "r1=2,r2=1",
	}
	require.Empty(t, cmp.Diff(want, first.Annotations))
	require.Empty(t, cmp.Diff(want, second.Annotations))
}

func TestPin(t *testing.T) {
	t.Parallel()
	first, second, other := &corev1.Pod{}, &corev1.Pod{}, &corev1.Pod{}
	slicepod.Encode(slicepod.Gang{Name: "tenant/web@1", Size: 3}, first, second, other)
	slicepod.Pin("r1", first, second)
	slicepod.Pin("r2")
	require.Equal(t, []string{"r1", "r1", ""}, []string{slicepod.PinOf(first), slicepod.PinOf(second), slicepod.PinOf(other)})
	require.Equal(t, "tenant/web@1", slicepod.GangName(second))
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        slicepod.Gang
		wantErr     string
	}{
		{name: "no slice", want: slicepod.Gang{Size: 1}},
		{name: "nothing but a name", annotations: map[string]string{slicepod.AnnotationGang: "a"}, want: slicepod.Gang{Name: "a", Size: 1}},
		{
			name: "all of it",
			annotations: map[string]string{
				slicepod.AnnotationGang: "a", slicepod.AnnotationGangSize: "3",
				slicepod.AnnotationGangTotal: "cpu=250,nvidia.com%2Fgpu=1", slicepod.AnnotationHeld: "r1=2,r2=0",
			},
			want: slicepod.Gang{
				Name: "a", Size: 3, Total: slice.Amounts{"cpu": 250, "nvidia.com/gpu": 1}, Held: map[string]int32{"r1": 2, "r2": 0},
			},
		},
		{name: "size: none", annotations: map[string]string{slicepod.AnnotationGangSize: "0"}, wantErr: "is not a number above zero"},
		{name: "size: negative", annotations: map[string]string{slicepod.AnnotationGangSize: "-3"}, wantErr: "is not a number above zero"},
		{name: "size: no number", annotations: map[string]string{slicepod.AnnotationGangSize: "all"}, wantErr: "is not a number above zero"},
		{name: "size: empty", annotations: map[string]string{slicepod.AnnotationGangSize: ""}, wantErr: "is not a number above zero"},
		{name: "total: no name", annotations: map[string]string{slicepod.AnnotationGangTotal: "=1"}, wantErr: "reading the total"},
		{name: "total: beyond 64 bits", annotations: map[string]string{slicepod.AnnotationGangTotal: "cpu=99999999999999999999"}, wantErr: "is not a number"},
		{name: "held: a broken escape", annotations: map[string]string{slicepod.AnnotationHeld: "r%zz=1"}, wantErr: "names nothing"},
		{name: "held: negative", annotations: map[string]string{slicepod.AnnotationHeld: "r1=-1"}, wantErr: "is not a number from zero on"},
		{name: "held: beyond 32 bits", annotations: map[string]string{slicepod.AnnotationHeld: "r1=2147483648"}, wantErr: "is not a number from zero on"},
		{name: "held: a comma too many", annotations: map[string]string{slicepod.AnnotationHeld: "r1=1,"}, wantErr: "names nothing"},
		{name: "held: endless", annotations: map[string]string{slicepod.AnnotationHeld: strings.Repeat("r", 1<<19) + "=1"}, wantErr: "longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := slicepod.Decode(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}})
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

func FuzzGang(f *testing.F) {
	f.Add("tenant/web@1", int64(3), "cpu", int64(250), "r1", int32(2))
	f.Add("", int64(1), "nvidia.com/gpu", int64(math.MaxInt64), "a=b,c%", int32(math.MaxInt32))
	f.Fuzz(func(t *testing.T, name string, size int64, resource string, amount int64, cluster string, slices int32) {
		if size < 1 || amount < 0 || slices < 0 || resource == "" || cluster == "" {
			return
		}
		gang := slicepod.Gang{
			Name: name, Size: size, Total: slice.Amounts{corev1.ResourceName(resource): amount, "memory": 1}, Held: map[string]int32{cluster: slices},
		}
		pod := &corev1.Pod{}
		slicepod.Encode(gang, pod)
		got, err := slicepod.Decode(pod)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(gang, got, cmpopts.EquateEmpty()))
	})
}

func FuzzDecode(f *testing.F) {
	f.Add("1", "cpu=1", "r1=1")
	f.Add("0", "=,", "%")
	f.Fuzz(func(t *testing.T, size, total, held string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			slicepod.AnnotationGangSize: size, slicepod.AnnotationGangTotal: total, slicepod.AnnotationHeld: held,
		}}}
		gang, err := slicepod.Decode(pod)
		if err != nil {
			return
		}
		again := &corev1.Pod{}
		slicepod.Encode(gang, again)
		got, err := slicepod.Decode(again)
		require.NoError(t, err, "what was decoded can be encoded")
		require.Empty(t, cmp.Diff(gang, got, cmpopts.EquateEmpty()))
	})
}

func TestPlacementOf(t *testing.T) {
	t.Parallel()
	for gang, want := range map[string]types.NamespacedName{
		"tenant/web@0123": {Namespace: "tenant", Name: "web"},
		"tenant/web":      {Namespace: "tenant", Name: "web"},
		"":                {},
	} {
		require.Equal(t, want, slicepod.PlacementOf(gang), gang)
	}
}

func TestIsFirst(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		uid  types.UID
		want bool
	}{
		{name: "number 0", uid: slicepod.UID("tenant/web@1", 0), want: true},
		{name: "number 1", uid: slicepod.UID("tenant/web@1", 1)},
		{name: "number 10", uid: slicepod.UID("tenant/web@1", 10)},
		{name: "number 0 of another gang", uid: slicepod.UID("tenant/web@2", 0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: tc.uid}}
			slicepod.Encode(slicepod.Gang{Name: "tenant/web@1", Size: 11}, pod)
			require.Equal(t, tc.want, slicepod.IsFirst(pod))
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	held := map[string]int32{}
	for _, name := range strings.Fields("r00 r01 r02 r03 r04 r05 r06 r07 r08 r09") {
		held[name] = 1
	}
	pod := &corev1.Pod{}
	slicepod.Encode(slicepod.Gang{Name: "tenant/web@1", Size: 10, Total: slice.Amounts{"cpu": 1000, "memory": 1 << 30}, Held: held}, pod)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := slicepod.Decode(pod); err != nil {
			b.Fatal(err)
		}
	}
}
