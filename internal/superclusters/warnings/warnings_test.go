package warnings

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/superpool/superpool/internal/tenancy"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	cluster := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r1"}}
	name := types.NamespacedName{Namespace: "default", Name: "r1"}
	bad, worse := tenancy.Reason{Reason: "Bad", Message: "m"}, tenancy.Reason{Reason: "Worse", Message: "m"}
	for _, tc := range []struct {
		name string
		do   func(*Warnings)
		want []string
	}{
		{name: "nothing is wrong", do: func(w *Warnings) { w.Set(cluster, "x", tenancy.Reason{}) }},
		{name: "the same twice", want: []string{"Warning Bad m"}, do: func(w *Warnings) {
			w.Set(cluster, "x", bad)
			w.Set(cluster, "x", bad)
		}},
		{name: "another one", want: []string{"Warning Bad m", "Warning Worse m"}, do: func(w *Warnings) {
			w.Set(cluster, "x", bad)
			w.Set(cluster, "x", worse)
		}},
		{name: "another topic", want: []string{"Warning Bad m", "Warning Bad m"}, do: func(w *Warnings) {
			w.Set(cluster, "x", bad)
			w.Set(cluster, "y", bad)
			w.Set(cluster, "x", bad)
		}},
		{name: "it lasts", want: []string{"Warning Bad m", "Warning Bad m"}, do: func(w *Warnings) {
			w.Set(cluster, "x", bad)
			<-time.After(Period - 1)
			w.Set(cluster, "x", bad)
			<-time.After(1)
			w.Set(cluster, "x", bad)
		}},
		{name: "it ended in between", want: []string{"Warning Bad m", "Warning Bad m"}, do: func(w *Warnings) {
			w.Set(cluster, "x", bad)
			w.Set(cluster, "x", tenancy.Reason{})
			w.Set(cluster, "x", bad)
		}},
		{name: "the Cluster was made anew", want: []string{"Warning Bad m", "Warning Bad m"}, do: func(w *Warnings) {
			w.Set(cluster, "x", bad)
			w.Forget(types.NamespacedName{Namespace: "default", Name: "r"})
			w.Set(cluster, "x", bad)
			w.Forget(name)
			w.Set(cluster, "x", bad)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				recorder := record.NewFakeRecorder(10)
				tc.do(&Warnings{Recorder: recorder})
				close(recorder.Events)
				var got []string
				for event := range recorder.Events {
					got = append(got, event)
				}
				require.Equal(t, tc.want, got)
			})
		})
	}
}
