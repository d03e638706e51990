package kinds_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

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
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/kindtest"
)

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
