package kinds_test

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func TestTenantPodStatus(t *testing.T) {
	t.Parallel()
	earlier := metav1.Unix(100, 0)
	for _, tc := range []struct {
		name          string
		tenant, super *corev1.Pod
		// want is nil when the status stays.
		want *corev1.PodStatus
	}{
		{
			name:   "nothing is known yet",
			tenant: kindtest.PodWith("", corev1.PodStatus{Phase: corev1.PodPending}),
			super:  kindtest.PodWith("", corev1.PodStatus{Phase: corev1.PodPending}),
		},
		{
			name:   "the super cluster finds no node",
			tenant: kindtest.PodWith("", corev1.PodStatus{Phase: corev1.PodPending}),
			super: kindtest.PodWith("", corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient cpu."},
			}}),
			want: &corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "super cluster r1: no node takes the pod now: too little cpu is free"},
			}},
		},
		{
			name: "the time of the transition stays",
			tenant: kindtest.PodWith("", corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "before", LastTransitionTime: earlier, ObservedGeneration: 3},
			}}),
			super: kindtest.PodWith("", corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "now", LastTransitionTime: metav1.Unix(200, 0), ObservedGeneration: 1},
			}}),
			want: &corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "super cluster r1: no node takes the pod now; its operator can read why", LastTransitionTime: earlier, ObservedGeneration: 3},
			}},
		},
		{
			name: "a pod that runs",
			tenant: kindtest.PodWith("r1.n1", corev1.PodStatus{
				Phase: corev1.PodPending, QOSClass: corev1.PodQOSGuaranteed, ObservedGeneration: 2, StartTime: &metav1.Time{},
				Conditions: []corev1.PodCondition{kindtest.Condition(corev1.PodScheduled, corev1.ConditionTrue, "tenant"), kindtest.Condition(corev1.PodResizePending, corev1.ConditionTrue, "stale")},
			}),
			super: kindtest.PodWith("n1", corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1", NominatedNodeName: "n2", QOSClass: corev1.PodQOSBurstable, ObservedGeneration: 7,
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodReady, Status: corev1.ConditionTrue, ObservedGeneration: 7}, kindtest.Condition(corev1.PodScheduled, corev1.ConditionTrue, "super"),
				},
			}),
			want: &corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1", QOSClass: corev1.PodQOSGuaranteed, ObservedGeneration: 2,
				Conditions: []corev1.PodCondition{
					kindtest.Condition(corev1.PodReady, corev1.ConditionTrue, ""), kindtest.Condition(corev1.PodScheduled, corev1.ConditionTrue, "tenant"),
				},
			},
		},
		{
			name:   "names of the super cluster",
			tenant: kindtest.PodNamed("web", "tenant-uid", kindtest.PodWith("r1.n1", corev1.PodStatus{})),
			super: kindtest.PodNamed("vc-web", "super-uid", kindtest.PodWith("n1", corev1.PodStatus{
				Conditions: []corev1.PodCondition{kindtest.Condition(corev1.PodReady, corev1.ConditionFalse, "back-off of p_vc-web(super-uid)")},
				ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Message: "back-off 10s restarting failed container=c pod=p_vc-web(super-uid)"},
				}}},
			})),
			want: &corev1.PodStatus{
				Conditions: []corev1.PodCondition{kindtest.Condition(corev1.PodReady, corev1.ConditionFalse, "back-off of p_web(tenant-uid)")},
				ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Message: "back-off 10s restarting failed container=c pod=p_web(tenant-uid)"},
				}}},
			},
		},
		{
			name: "what others than kubelets say in the tenant stays",
			tenant: kindtest.PodWith("r1.n1", corev1.PodStatus{Conditions: []corev1.PodCondition{
				kindtest.Condition(corev1.DisruptionTarget, corev1.ConditionTrue, "evicted by the tenant"), kindtest.Condition("example.com/checked", corev1.ConditionTrue, ""),
			}}),
			super: kindtest.PodWith("n1", corev1.PodStatus{Phase: corev1.PodFailed}),
			want: &corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{
				kindtest.Condition(corev1.DisruptionTarget, corev1.ConditionTrue, "evicted by the tenant"), kindtest.Condition("example.com/checked", corev1.ConditionTrue, ""),
			}},
		},
		{
			name:   "unless the super cluster says it too",
			tenant: kindtest.PodWith("r1.n1", corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition(corev1.DisruptionTarget, corev1.ConditionFalse, "before")}}),
			super:  kindtest.PodWith("n1", corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition(corev1.DisruptionTarget, corev1.ConditionTrue, "evicted by a kubelet")}}),
			want:   &corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition(corev1.DisruptionTarget, corev1.ConditionTrue, "evicted by a kubelet")}},
		},
		{
			name:   "a readiness gate that is not True bounds Ready",
			tenant: kindtest.PodWith("r1.n1", corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition("gate", corev1.ConditionFalse, "mine")}}, "gate"),
			super: kindtest.PodWith("n1", corev1.PodStatus{Conditions: []corev1.PodCondition{
				kindtest.Condition(corev1.PodReady, corev1.ConditionTrue, ""), kindtest.Condition("gate", corev1.ConditionTrue, "not mine"),
			}}),
			want: &corev1.PodStatus{Conditions: []corev1.PodCondition{
				{
					Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady", Message: "readiness gate gate is not True",
					LastTransitionTime: metav1.Unix(300, 0),
				},
				kindtest.Condition("gate", corev1.ConditionFalse, "mine"),
			}},
		},
		{
			name:   "a readiness gate that is True",
			tenant: kindtest.PodWith("r1.n1", corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition("gate", corev1.ConditionTrue, "")}}, "gate"),
			super:  kindtest.PodWith("n1", corev1.PodStatus{Conditions: []corev1.PodCondition{kindtest.Condition(corev1.PodReady, corev1.ConditionTrue, "")}}),
			want: &corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(300, 0)}, kindtest.Condition("gate", corev1.ConditionTrue, ""),
			}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			untouched := []*corev1.Pod{tc.tenant.DeepCopy(), tc.super.DeepCopy()}
			got, changes := podspec.TenantPodStatus(tc.tenant, tc.super, "r1", time.Unix(300, 0))
			require.Equal(t, tc.want != nil, changes)
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Empty(t, cmp.Diff(untouched, []*corev1.Pod{tc.tenant, tc.super}), "the pods lie in caches")
		})
	}
}

func TestSuperKey(t *testing.T) {
	t.Parallel()
	env := &kind.Env{Declared: kinds.Specs()}
	for _, tc := range []struct {
		kind   string
		object client.Object
		want   engine.Key
	}{
		{"namespace", &corev1.Namespace{}, engine.Key{Tenant: kindtest.ClusterKey, Kind: "namespace", Name: "web"}},
		{"resourcequota", &corev1.ResourceQuota{}, engine.Key{Tenant: kindtest.ClusterKey, Kind: "namespace", Name: "web"}},
		{"pod", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, engine.Key{Tenant: kindtest.ClusterKey, Kind: "pod", Namespace: "web", Name: "p"}},
		{
			"configmap", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "tenant-kube-root-ca.crt"}},
			engine.Key{Tenant: kindtest.ClusterKey, Kind: "configmap", Namespace: "web", Name: "kube-root-ca.crt"},
		},
		{
			"token", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
				Name: "p-tokens-x", Labels: map[string]string{"tenancy.x-k8s.io/tokens": "true"}, Annotations: map[string]string{"tenancy.x-k8s.io/pod": "p"},
			}},
			engine.Key{Tenant: kindtest.ClusterKey, Kind: "token", Namespace: "web", Name: "p/uid"},
		},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			t.Parallel()
			_, ours := env.SuperKey(tc.kind, tc.object)
			require.False(t, ours, "it has no owner")
			if tc.kind == kind.Namespace {
				tc.object.SetName(kindtest.ClusterKey + "-web")
			} else {
				tc.object.SetNamespace(kindtest.ClusterKey + "-web")
			}
			tenancy.SetOwner(tc.object, kindtest.OwnerOf("uid"))
			key, ours := env.SuperKey(tc.kind, tc.object)
			require.True(t, ours)
			require.Equal(t, tc.want, key)
			if tc.kind == kind.Token {
				_, ours = env.SuperKey(kind.Secret, tc.object)
				require.False(t, ours, "kind secret would delete it")
			}
		})
	}
	plain := &corev1.Secret{}
	tenancy.SetOwner(plain, kindtest.OwnerOf("uid"))
	_, ours := env.SuperKey(kind.Token, plain)
	require.False(t, ours, "it holds no tokens")
}

// TestPoliciesNameAllResources: a TenantPolicy can bound each kind that goes down, by a name that the API server knows,
// and nothing else.
func TestPoliciesNameAllResources(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../manifests/crds/tenancy.x-k8s.io_tenantpolicies.yaml")
	require.NoError(t, err)
	definition := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(data, &definition.Object))
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	require.NoError(t, err)
	enum := func(path ...string) []string {
		schema, _, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema")
		require.NoError(t, err)
		for _, name := range path {
			schema, _, err = unstructured.NestedMap(schema, "properties", name)
			require.NoError(t, err)
			if items, isList := schema["items"].(map[string]any); isList {
				schema = items
			}
		}
		names, _, err := unstructured.NestedStringSlice(schema, "enum")
		require.NoError(t, err)
		return names
	}
	down := []string{}
	for _, spec := range kinds.Specs() {
		if spec.Tenant != nil && spec.Super != nil && (spec.Scope == kind.ScopePlaced || spec.Scope == kind.ScopeTenant) {
			plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: spec.Name})
			down = append(down, plural.Resource)
		}
	}
	require.ElementsMatch(t, append(down, "tokens"), enum("spec", "limits", "objects", "resource"))
	require.ElementsMatch(t, down, enum("spec", "metadata", "byResource", "resource"))
	volumes := []string{}
	for source, i := reflect.TypeFor[corev1.VolumeSource](), 0; i < source.NumField(); i++ {
		name, _, _ := strings.Cut(source.Field(i).Tag.Get("json"), ",")
		volumes = append(volumes, name)
	}
	require.ElementsMatch(t, volumes, enum("spec", "pods", "volumes"))
}
