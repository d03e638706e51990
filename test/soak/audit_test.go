package soak

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

// kind returns the type of an object, as API servers write it.
func kind(group, kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: group, Kind: kind} }

func pod(node, chosen string) *corev1.Pod {
	object := &corev1.Pod{TypeMeta: kind("v1", "Pod"), ObjectMeta: metav1.ObjectMeta{UID: "1"}, Spec: corev1.PodSpec{NodeName: node}}
	if chosen != "" {
		object.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: chosen}
	}
	return object
}

func TestAuditor(t *testing.T) {
	t.Parallel()
	configMap := &corev1.ConfigMap{TypeMeta: kind("v1", "ConfigMap"), ObjectMeta: metav1.ObjectMeta{UID: "1"}}
	copied := configMap.DeepCopy()
	copied.Namespace = tenancy.SuperNamespace("acme", "web")
	owned := builders.Owned(copied, builders.Owner("acme", "web", "2"))
	lease := func(name string) runtime.Object {
		return &coordinationv1.Lease{TypeMeta: kind("coordination.k8s.io/v1", "Lease"), ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"}}
	}
	const addresses = "/apis/tenancy.x-k8s.io/v1alpha1/namespaces/t/clusteraddresses"
	told := func(name string) runtime.Object {
		return &tenancyv1alpha1.ClusterAddresses{TypeMeta: kind("tenancy.x-k8s.io/v1alpha1", "ClusterAddresses"), ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"}}
	}
	binding := func(node string) runtime.Object {
		return &corev1.Binding{TypeMeta: kind("v1", "Binding"), Target: corev1.ObjectReference{Name: node}}
	}
	status := &metav1.Status{TypeMeta: kind("v1", "Status"), Status: metav1.StatusSuccess}
	const pods, configMaps, leases = "/api/v1/namespaces/n/pods/p/status", "/api/v1/namespaces/n/configmaps", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	for name, tc := range map[string]struct {
		by, at, path    string
		request, answer runtime.Object
		want            string
	}{
		"a copy":                             {at: "r1", path: configMaps, answer: owned},
		"an object of the super cluster":     {at: "r1", path: configMaps, answer: configMap, want: "it carries no marks of a tenant"},
		"a deletion that only says so":       {at: "r1", path: configMaps, answer: status},
		"who decides there":                  {at: "r1", path: "/api/v1/namespaces/superpool-system/configmaps", answer: configMap},
		"another super cluster":              {at: "r2", path: configMaps, answer: owned, want: "a syncer writes in another super cluster"},
		"a pod that runs here":               {at: "t1", path: pods, answer: pod("r1.n", "r1")},
		"a pod that runs elsewhere":          {at: "t1", path: pods, answer: pod("r2.n", "r1"), want: "the Node of the pod is r2.n"},
		"a pod that is meant for here":       {at: "t1", path: pods, answer: pod("", "r1")},
		"a pod that is meant for r2":         {at: "t1", path: pods, answer: pod("", "r2"), want: "the pod is meant for r2"},
		"a pod that was given back":          {at: "t1", path: pods, answer: pod("", "")},
		"a Binding":                          {at: "t1", path: "/api/v1/namespaces/n/pods/p/binding", request: binding("r1.n"), answer: status},
		"a Binding to another super cluster": {at: "t1", path: "/api/v1/namespaces/n/pods/p/binding", request: binding("r2.n"), answer: status, want: "the Node of the Binding is r2.n"},
		"a Lease of a Node":                  {at: "t1", path: leases, answer: lease("r1.n")},
		"a Lease of another's Node":          {at: "t1", path: leases, answer: lease("r10.n"), want: "leases is r10.n"},
		"the own Lease":                      {at: "meta", path: leases, answer: lease("r1-syncer")},
		"placements":                         {at: "meta", path: "/apis/scheduler.tenancy.x-k8s.io/v1alpha1/namespaces/t/namespaceplacements/n", answer: configMap, want: "a syncer writes in the meta cluster"},
		"its addresses":                      {at: "meta", path: addresses, answer: told("r1")},
		"addresses of another super cluster": {at: "meta", path: addresses, answer: told("r2"), want: "they are those of r2"},
		"vc-scheduler writes everywhere":     {by: "vc-scheduler", at: "t1", path: pods, answer: pod("r2.n", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := write{at: tc.at, program: tc.by, path: tc.path}
			if w.program == "" {
				w.program = "syncer-r1"
			}
			var err error
			w.answer, err = json.Marshal(tc.answer)
			require.NoError(t, err)
			if tc.request != nil {
				w.request, err = json.Marshal(tc.request)
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, newAuditor([]string{"r1", "r2"}).check(w))
		})
	}
}

func TestResourceOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/api/v1/nodes/n/status": "nodes", "/api/v1/namespaces/n": "namespaces", "/api/v1/namespaces/n/pods": "pods", "/api/v1/namespaces": "namespaces",
		"/apis/apps/v1/namespaces/n/deployments/d": "deployments", "/apis/storage.k8s.io/v1/storageclasses": "storageclasses", "/api": "", "/": "",
	} {
		require.Equal(t, want, resourceOf(path), path)
	}
}
