package offer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/offer"
)

// object returns an object with these texts of Notes by super cluster; nil is the tenant's own.
func object(notes map[string]string) *storagev1.StorageClass {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{"mine": "1"}}}
	if notes != nil {
		class.Labels = map[string]string{tenancyv1alpha1.LabelOffered: "true"}
	}
	for superCluster, text := range notes {
		class.Annotations[tenancyv1alpha1.AnnotationPrefixOfferedBy+superCluster] = text
	}
	return class
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// there is whether the tenant has an object, with notes; nil notes: its own.
		there                 bool
		notes                 map[string]string
		wantNothing, wantSame offer.Step
		wantStanding          string
	}{
		{name: "no object", wantNothing: offer.Leave, wantSame: offer.Create},
		{name: "the tenant's own", there: true, wantNothing: offer.Leave, wantSame: offer.Own},
		{name: "noted: nobody", there: true, notes: map[string]string{}, wantNothing: offer.Delete, wantSame: offer.Write},
		{name: "noted: this one", there: true, notes: map[string]string{"r2": "a"}, wantNothing: offer.Delete, wantSame: offer.Write},
		{name: "noted: this one, and it has changed", there: true, notes: map[string]string{"r2": "b"}, wantNothing: offer.Delete, wantSame: offer.Write},
		{name: "noted: another, the same", there: true, notes: map[string]string{"r1": "a.default"}, wantNothing: offer.Leave, wantSame: offer.Write},
		{name: "noted: both, the same", there: true, notes: map[string]string{"r1": "a", "r2": "a"}, wantNothing: offer.Withdraw, wantSame: offer.Write},
		{name: "noted: another, another", there: true, notes: map[string]string{"r3": "b"}, wantNothing: offer.Leave, wantSame: offer.Differ, wantStanding: "r3"},
		{name: "noted: both, and it has changed", there: true, notes: map[string]string{"r1": "b", "r2": "b"}, wantNothing: offer.Withdraw, wantSame: offer.Differ, wantStanding: "r1"},
		{name: "noted: the first is the same", there: true, notes: map[string]string{"r1": "a", "r3": "b"}, wantNothing: offer.Leave, wantSame: offer.Write},
		{name: "noted: the first is another", there: true, notes: map[string]string{"r1": "b", "r3": "a"}, wantNothing: offer.Leave, wantSame: offer.Differ, wantStanding: "r1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var tenantObject metav1.Object
			if tc.there {
				tenantObject = object(tc.notes)
			}
			step, _ := offer.Next("r2", nil, tenantObject)
			require.Equal(t, tc.wantNothing, step)
			step, standing := offer.Next("r2", &offer.Note{Hash: "a"}, tenantObject)
			require.Equal(t, tc.wantSame, step)
			require.Equal(t, tc.wantStanding, standing)
		})
	}
}

// TestMarks writes and removes notes, in a copy whose maps are those of an object that must not change.
func TestMarks(t *testing.T) {
	t.Parallel()
	cached := object(map[string]string{"r1": "a"})
	before := cached.DeepCopy()
	class := *cached
	offer.Mark(&class, "r2", offer.Note{Hash: "a", Default: true})
	require.Equal(t, []string{"r1", "r2"}, offer.By(&class))
	require.True(t, offer.IsDefault(&class))
	note, noted := offer.NoteOf(&class, "r2")
	require.Equal(t, offer.Note{Hash: "a", Default: true}, note)
	require.True(t, noted)
	offer.Unmark(&class, "r2")
	require.False(t, offer.IsDefault(&class))
	_, noted = offer.NoteOf(&class, "r2")
	require.False(t, noted)
	require.Equal(t, "1", class.Annotations["mine"])
	require.Empty(t, cmp.Diff(before, cached))

	own := object(nil)
	require.False(t, offer.Marked(own))
	require.Empty(t, offer.By(own))
	offer.Mark(own, "r1", offer.Note{Hash: "a"})
	require.True(t, offer.Marked(own))
	delete(own.Labels, tenancyv1alpha1.LabelOffered)
	require.True(t, offer.Marked(own), "the tenant removed the label")
}

func TestHashOf(t *testing.T) {
	t.Parallel()
	one, err := offer.HashOf(&storagev1.StorageClass{Provisioner: "a"})
	require.NoError(t, err)
	require.Len(t, one, 16)
	other, err := offer.HashOf(&storagev1.StorageClass{Provisioner: "b"})
	require.NoError(t, err)
	require.NotEqual(t, one, other)
	_, err = offer.HashOf(func() {})
	require.Error(t, err)
}

// FuzzNext lets syncers of two super clusters, which offer the same, something else or nothing, take turns on what a
// tenant has written: it comes to rest, and then holds no Note of one that offers nothing, nor two that differ.
func FuzzNext(f *testing.F) {
	f.Add("a", "a", "a", "", true)
	f.Add("a", "b", "x.default", "y", false)
	f.Add("", "b", "", "b", true)
	f.Fuzz(func(t *testing.T, first, second, text1, text2 string, label bool) {
		class := object(map[string]string{})
		if !label {
			class.Labels = nil
		}
		class.Annotations[tenancyv1alpha1.AnnotationPrefixOfferedBy+"r1"] = text1
		class.Annotations[tenancyv1alpha1.AnnotationPrefixOfferedBy+"r2"] = text2
		offered := map[string]string{"r1": first, "r2": second}
		var there metav1.Object = class
		turn := func(superCluster string) bool {
			var note *offer.Note
			if hash := offered[superCluster]; hash != "" {
				note = &offer.Note{Hash: hash}
			}
			step, _ := offer.Next(superCluster, note, there)
			switch step {
			case offer.Create:
				class = &storagev1.StorageClass{}
				there = class
				offer.Mark(class, superCluster, *note)
			case offer.Write:
				before := class.DeepCopy()
				offer.Mark(class, superCluster, *note)
				return cmp.Diff(before, class) != ""
			case offer.Withdraw:
				offer.Unmark(class, superCluster)
			case offer.Delete:
				there = nil
			case offer.Differ:
				_, noted := offer.NoteOf(class, superCluster)
				offer.Unmark(class, superCluster)
				return noted
			case offer.Own, offer.Leave:
				return false
			}
			return true
		}
		rests := 0
		for range 12 {
			if turn("r1") || turn("r2") {
				rests = 0
				continue
			}
			rests++
		}
		require.Positive(t, rests, "%v", class.Annotations)
		if there == nil {
			require.Empty(t, first+second)
			return
		}
		hashes := map[string]bool{}
		for _, superCluster := range offer.By(class) {
			note, _ := offer.NoteOf(class, superCluster)
			hashes[note.Hash] = true
			require.NotEmpty(t, offered[superCluster])
		}
		require.Len(t, hashes, 1)
	})
}
