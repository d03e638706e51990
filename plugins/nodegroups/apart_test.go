package nodegroups_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	internal "github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/nodegroups"
)

// avoiding returns a required anti-affinity by host name to pods of each of apps.
func avoiding(apps ...string) *corev1.Affinity {
	terms := make([]corev1.PodAffinityTerm, 0, len(apps))
	for _, app := range apps {
		terms = append(terms, corev1.PodAffinityTerm{
			TopologyKey: corev1.LabelHostname, LabelSelector: metav1.SetAsLabelSelector(map[string]string{"app": app}),
		})
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
}

// others are apps that no pod has.
func others(count int) []string {
	apps := make([]string, count)
	for i := range apps {
		apps[i] = fmt.Sprintf("other-%d", i)
	}
	return apps
}

// TestApart: pods of app db take both nodes of a super cluster, and the ninth term of a pod is left to its scheduler.
func TestApart(t *testing.T) {
	t.Parallel()
	full := nodegroups.ErrReasonApart + corev1.LabelHostname
	for name, tc := range map[string]struct {
		pod, there []string // whom the pod, and each of the pods there, avoids
		nodes      []string // of the pods there, "" for one that is not known
		want       string
	}{
		"a free node":                            {pod: []string{"db"}, nodes: []string{"n1"}},
		"every node has one":                     {pod: []string{"db"}, nodes: []string{"n1", "n2"}, want: full},
		"two share a node":                       {pod: []string{"db"}, nodes: []string{"n1", "n1"}},
		"two that may share a node":              {pod: []string{"db"}, nodes: []string{"n1", ""}},
		"two that avoid each other":              {pod: []string{"db"}, there: []string{"db"}, nodes: []string{"", ""}, want: full},
		"the eighth term counts":                 {pod: append(others(7), "db"), nodes: []string{"n1", "n2"}, want: full},
		"the ninth does not":                     {pod: append(others(8), "db"), nodes: []string{"n1", "n2"}},
		"nor that of those that it avoids":       {pod: []string{"db"}, there: append(others(8), "db"), nodes: []string{"", ""}},
		"their eighth does":                      {pod: []string{"db"}, there: append(others(7), "db"), nodes: []string{"", ""}, want: full},
		"a pod that avoids nobody who is there":  {pod: []string{"web"}, nodes: []string{"n1", "n2"}},
		"pods there that avoid others, on nodes": {pod: []string{"db"}, there: others(9), nodes: []string{"n1", "n2"}, want: full},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := plugintest.NewFramework(t, nodegroups.Name, nodegroups.New(nil), nil)
			node := framework.NewNodeInfo()
			node.SetNode(withGroups(`{"groups":[{"nodes":2,"shapes":[{"cpu":"4"}]}]}`))
			for i, on := range tc.nodes {
				pod := st.MakePod().Namespace("web").Name(fmt.Sprint(i)).UID(fmt.Sprint(i)).Label("app", "db").Annotation(internal.AnnotationBoundNode, on).Obj()
				pod.Spec.Affinity = avoiding(tc.there...)
				node.AddPod(pod)
			}
			pod := st.MakePod().Namespace("web").Name("new").UID("new").Obj()
			pod.Spec.Affinity = avoiding(tc.pod...)
			state := framework.NewCycleState()
			_, status, _ := f.RunPreFilterPlugins(t.Context(), state, pod)
			require.True(t, status.IsSuccess(), status.Message())
			require.Equal(t, tc.want, f.RunFilterPlugins(t.Context(), state, pod, node).Message(), types.UID(name))
		})
	}
}
