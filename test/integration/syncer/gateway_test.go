package syncer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/controlplane"
)

const gatewayGroup = "gateway.networking.k8s.io"

// serveGateways makes an API server serve a kind of the Gateway API.
func serveGateways(t *testing.T, c client.Client, kind, plural, scope string) {
	t.Helper()
	open := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	create(t, c, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + gatewayGroup, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, a test"}},
		"spec": map[string]any{
			"group": gatewayGroup, "scope": scope,
			"names": map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": open, "status": open}}},
			}},
		},
	}})
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(gatewayGroup + "/v1")
	list.SetKind(kind + "List")
	eventually(t, func() error { return c.List(t.Context(), list) })
}

// ofGateways returns an object of the Gateway API, whose spec is YAML.
func ofGateways(t *testing.T, kind, namespace, name, spec string) *unstructured.Unstructured {
	t.Helper()
	object := widget(kind, namespace, name, nil)
	object.SetAPIVersion(gatewayGroup + "/v1")
	parsed := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(spec), &parsed))
	if len(parsed) > 0 {
		object.Object["spec"] = parsed
	}
	return object
}

// acts plays the gateway controller of a super cluster: it writes the status, as YAML, of an object that is there.
func acts(t *testing.T, super client.Client, object *unstructured.Unstructured, status string) {
	t.Helper()
	parsed := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(status), &parsed))
	await.Change(t, super, object, func(object *unstructured.Unstructured) { object.Object["status"] = parsed }, "status")
}

// gatewayHas returns whether the first address in the status of a Gateway is this.
func gatewayHas(want string) func(*unstructured.Unstructured) bool {
	return func(gateway *unstructured.Unstructured) bool {
		addresses, _, _ := unstructured.NestedSlice(gateway.Object, "status", "addresses")
		return len(addresses) == 1 && addresses[0].(map[string]any)["value"] == want
	}
}

// TestGatewayAPI: the sample lets Gateways and HTTPRoutes of tenants go to the home of their namespace, with the
// Service behind them, and their status come up from there; the class comes up. The test plays gateway controllers.
func TestGatewayAPI(t *testing.T) {
	w := newWorld(t, needs{r2: true})
	w.options = func(options *syncer.Options) { options.Unserved = time.Second }
	gold, err := policy.New("gold", policy.Default().Spec())
	require.NoError(t, err)
	w.policy.Set(gold)
	plurals := map[string]string{"Gateway": "gateways", "HTTPRoute": "httproutes", "GatewayClass": "gatewayclasses"}
	for kind, plural := range plurals {
		scope := "Namespaced"
		if kind == "GatewayClass" {
			scope = "Cluster"
		}
		for _, c := range []client.Client{w.tenant, w.super, w.super2} {
			serveGateways(t, c, kind, plural, scope)
		}
		for _, super := range []client.Client{w.super, w.super2} {
			grantOf(t, super, gatewayGroup, plural)
		}
	}
	for _, super := range []client.Client{w.super, w.super2} {
		create(t, super, ofGateways(t, "GatewayClass", "", "tenants", `{controllerName: example.com/gateways, parametersRef: {group: "", kind: Secret, name: cloud}}`))
		create(t, super, ofGateways(t, "GatewayClass", "", "operators", `{controllerName: example.com/gateways}`))
	}
	root, err := controlplane.Root()
	require.NoError(t, err)
	sample, err := os.ReadFile(filepath.Join(root, "manifests", "samples", "gateway.yaml"))
	require.NoError(t, err)
	for _, document := range strings.Split(string(sample), "\n---\n") {
		made := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &made.Object))
		create(t, w.meta, made)
	}
	w.place(t, "web", "r1", "r2")
	served := []*tenants.Tenant{w.engaged(w.tenantConfig)}
	both := []*running{w.startSyncerWith(t, w.superConfig, engaging(served)), w.startSyncerWith(t, w.super2Config, engaging(served))}
	for _, r := range both {
		closes(t, r.ready, "the tenant's caches are synced")
	}
	for _, name := range []string{"gateways", "httproutes", "gatewayclasses"} {
		w.says(t, name, "True", "True", "Ready", "2 of 2 super clusters follow it")
	}
	class := appears(t, w.tenant, "", "tenants", ofGateways(t, "GatewayClass", "", "", ""), nil)
	require.Equal(t, map[string]any{"controllerName": "example.com/gateways"}, class.Object["spec"])
	for _, r := range both {
		patrols(t, r.numbers)
	}
	lacks(t, w.tenant, "", "operators", ofGateways(t, "GatewayClass", "", "", ""))

	create(t, w.tenant, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	gateway := ofGateways(t, "Gateway", "web", "front", `
gatewayClassName: tenants
listeners:
- {name: http, port: 80, protocol: HTTP, hostname: shop.example.com}`)
	route := ofGateways(t, "HTTPRoute", "web", "shop", `
parentRefs:
- {name: front}
rules:
- backendRefs:
  - {name: shop, port: 80}`)
	create(t, w.tenant, gateway)
	create(t, w.tenant, route)
	superGateway := appears(t, w.super, w.superName("web"), "front", ofGateways(t, "Gateway", "", "", ""), nil)
	superRoute := appears(t, w.super, w.superName("web"), "shop", ofGateways(t, "HTTPRoute", "", "", ""), nil)
	require.Equal(t, gateway.Object["spec"], superGateway.Object["spec"])
	require.Equal(t, route.Object["spec"], superRoute.Object["spec"])
	appears(t, w.super, w.superName("web"), "shop", &corev1.Service{}, nil)

	acts(t, w.super, superGateway, `{addresses: [{type: IPAddress, value: 203.0.113.7}]}`)
	acts(t, w.super, superRoute, `{parents: [{controllerName: example.com/gateways, parentRef: {name: front}, conditions: []}]}`)
	appears(t, w.tenant, "web", "front", ofGateways(t, "Gateway", "", "", ""), gatewayHas("203.0.113.7"))
	appears(t, w.tenant, "web", "shop", ofGateways(t, "HTTPRoute", "", "", ""), func(route *unstructured.Unstructured) bool {
		parents, _, _ := unstructured.NestedSlice(route.Object, "status", "parents")
		return len(parents) == 1
	})
	patrols(t, both[1].numbers)
	lacks(t, w.super2, w.superName("web"), "front", ofGateways(t, "Gateway", "", "", ""))

	// The home moves, and the address with it.
	w.place(t, "web", "r2")
	moved := appears(t, w.super2, w.superName("web"), "front", ofGateways(t, "Gateway", "", "", ""), nil)
	appears(t, w.super2, w.superName("web"), "shop", ofGateways(t, "HTTPRoute", "", "", ""), nil)
	acts(t, w.super2, moved, `{addresses: [{type: IPAddress, value: 203.0.113.8}]}`)
	appears(t, w.tenant, "web", "front", ofGateways(t, "Gateway", "", "", ""), gatewayHas("203.0.113.8"))
}
