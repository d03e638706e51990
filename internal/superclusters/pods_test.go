package superclusters

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

func TestPodsOnVirtualNode(t *testing.T) {
	t.Parallel()
	pod := func(namespace, name string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	for _, tc := range []struct {
		name string
		pods []metav1.PartialObjectMetadata
		want string // how the message begins
	}{
		{name: "none"},
		{name: "one", pods: []metav1.PartialObjectMetadata{pod("a", "b")}, want: "1 pods of the meta cluster are bound to virtual Node r1, where no kubelet runs them; the first is a/b. "},
		{name: "in any order", pods: []metav1.PartialObjectMetadata{pod("b", "a"), pod("a", "c"), pod("a", "b")}, want: "3 pods of the meta cluster are bound to virtual Node r1, where no kubelet runs them; the first is a/b. "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := podsOnVirtualNode("r1", tc.pods)
			if tc.want == "" {
				require.Empty(t, cmp.Diff(tenancy.Reason{}, got))
				return
			}
			require.Equal(t, ReasonPodsOnVirtualNode, got.Reason)
			require.True(t, strings.HasPrefix(got.Message, tc.want), got.Message)
		})
	}
}

func TestPodsAreListedFromTimeToTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inMeta := builders.Client(scheme.Scheme).WithIndex(&corev1.Pod{}, "spec.nodeName", func(object client.Object) []string {
			return []string{strings.TrimPrefix(object.GetName(), "kube-proxy-")} // lists of metadata have no spec
		}).Build()
		recorder := record.NewFakeRecorder(10)
		controller := &Controller{Client: inMeta, Recorder: recorder}
		controller.setDefaults()
		cluster := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first"}}
		check := func() int {
			controller.checkPods(t.Context(), cluster, "r1")
			return len(recorder.Events)
		}
		require.Zero(t, check())
		for _, node := range []string{"r1", "other"} {
			require.NoError(t, inMeta.Create(t.Context(), builders.Pod("kube-system", "kube-proxy-"+node).Node(node).Obj()))
		}
		require.Zero(t, check(), "it was listed a moment ago")
		<-time.After(podsPeriod)
		require.Equal(t, 1, check())
		require.Contains(t, <-recorder.Events, "Warning PodsOnVirtualNode 1 pods of the meta cluster are bound to virtual Node r1, where no kubelet runs them; the first is kube-system/kube-proxy-r1.")
	})
}
