package syncpolicy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncpolicy"
)

// policy returns the SyncPolicy of a kind, written as widgets.v1.example.com.
func policy(name, group, version, kind string, changes ...func(*tenancyv1alpha1.SyncPolicy)) *tenancyv1alpha1.SyncPolicy {
	made := &tenancyv1alpha1.SyncPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid", Generation: 3},
		Spec: tenancyv1alpha1.SyncPolicySpec{
			Group: group, Version: version, Kind: kind, Direction: tenancyv1alpha1.SyncDown, Fields: tenancyv1alpha1.SyncFields{Up: []string{"status"}},
		},
	}
	for _, change := range changes {
		change(made)
	}
	return made
}

func fields(stay, up []string) func(*tenancyv1alpha1.SyncPolicy) {
	return func(made *tenancyv1alpha1.SyncPolicy) {
		made.Spec.Fields = tenancyv1alpha1.SyncFields{Stay: stay, Up: up}
	}
}

var builtIn = map[schema.GroupKind]bool{{Kind: "Pod"}: true, {Group: "networking.k8s.io", Kind: "Ingress"}: true, {Group: "snapshot.storage.k8s.io", Kind: "VolumeSnapshotClass"}: true}

func TestCompile(t *testing.T) {
	t.Parallel()
	stay := func(paths ...string) func(*tenancyv1alpha1.SyncPolicy) { return fields(paths, nil) }
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf("spec.f%d", i)
	}
	for _, tc := range []struct {
		name                 string
		group, version, kind string
		change               func(*tenancyv1alpha1.SyncPolicy)
		wantReason, want     string
	}{
		{name: "a custom resource", group: "example.com", version: "v1", kind: "Widget"},
		{name: "Gateway API", group: "gateway.networking.k8s.io", version: "v1", kind: "HTTPRoute"},
		{name: "snapshots", group: "snapshot.storage.k8s.io", version: "v1", kind: "VolumeSnapshot"},
		{name: "a group that only ends like one of Kubernetes", group: "myapps", version: "v1", kind: "Widget"},
		{name: "what is synced", group: "networking.k8s.io", version: "v1", kind: "Ingress", wantReason: "BuiltIn", want: "Ingress.networking.k8s.io are synced without a SyncPolicy"},
		{name: "what is offered", group: "snapshot.storage.k8s.io", version: "v1", kind: "VolumeSnapshotClass", wantReason: "BuiltIn"},
		{name: "pods", version: "v1", kind: "Pod", wantReason: "BuiltIn"},
		{name: "nodes", version: "v1", kind: "Node", wantReason: "KindForbidden"},
		{name: "persistent volumes", version: "v1", kind: "PersistentVolume", wantReason: "KindForbidden"},
		{name: "roles", group: "rbac.authorization.k8s.io", version: "v1", kind: "Role", wantReason: "KindForbidden", want: `no kind of group "rbac.authorization.k8s.io"`},
		{name: "webhooks", group: "admissionregistration.k8s.io", version: "v1", kind: "ValidatingWebhookConfiguration", wantReason: "KindForbidden"},
		{name: "definitions", group: "apiextensions.k8s.io", version: "v1", kind: "CustomResourceDefinition", wantReason: "KindForbidden"},
		{name: "API services", group: "apiregistration.k8s.io", version: "v1", kind: "APIService", wantReason: "KindForbidden"},
		{name: "certificates", group: "certificates.k8s.io", version: "v1", kind: "CertificateSigningRequest", wantReason: "KindForbidden"},
		{name: "tokens", group: "authentication.k8s.io", version: "v1", kind: "TokenRequest", wantReason: "KindForbidden"},
		{name: "deployments", group: "apps", version: "v1", kind: "Deployment", wantReason: "KindForbidden"},
		{name: "jobs", group: "batch", version: "v1", kind: "Job", wantReason: "KindForbidden"},
		{name: "flow control", group: "flowcontrol.apiserver.k8s.io", version: "v1", kind: "FlowSchema", wantReason: "KindForbidden"},
		{name: "volume attachments", group: "storage.k8s.io", version: "v1", kind: "VolumeAttachment", wantReason: "KindForbidden"},
		{name: "our own", group: "scheduler.tenancy.x-k8s.io", version: "v1alpha1", kind: "NamespacePlacement", wantReason: "KindForbidden"},
		{name: "Cluster API", group: "infrastructure.cluster.x-k8s.io", version: "v1beta1", kind: "AWSMachine", wantReason: "KindForbidden"},
		{name: "no kind", group: "example.com", version: "v1", wantReason: "Invalid", want: "spec names no kind"},
		{name: "a key within a kind", group: "example.com", version: "v1", kind: "Widget/x", wantReason: "Invalid"},
		{name: "up to namespaces, by an earlier version", group: "example.com", version: "v1", kind: "Widget", change: up("Namespaces"), wantReason: "Invalid", want: "kubectl delete Widget.v1.example.com -A -l tenancy.x-k8s.io/offered=true removes it"},
		{name: "up", group: "example.com", version: "v1", kind: "Widget", change: up(tenancyv1alpha1.SyncPlaced)},
		{name: "up to the home", group: "example.com", version: "v1", kind: "Widget", change: up(tenancyv1alpha1.SyncHome), wantReason: "Invalid", want: "Placed with Up"},
		{name: "a scope of a later version", group: "example.com", version: "v1", kind: "Widget", change: func(made *tenancyv1alpha1.SyncPolicy) { made.Spec.Scope = "Everywhere" }, wantReason: "Invalid", want: "use Placed or Home with Down"},
		{name: "no direction", group: "example.com", version: "v1", kind: "Widget", change: func(made *tenancyv1alpha1.SyncPolicy) { made.Spec.Direction = "" }, wantReason: "Invalid", want: "use Down or Up"},
		{name: "metadata", group: "example.com", version: "v1", kind: "Widget", change: stay("metadata.annotations"), wantReason: "Invalid", want: "spec.fields.stay: \"metadata.annotations\": metadata cannot be named"},
		{name: "an element", group: "example.com", version: "v1", kind: "Widget", change: stay("spec.list[0]"), wantReason: "Invalid", want: "only whole fields"},
		{name: "a wildcard", group: "example.com", version: "v1", kind: "Widget", change: stay("spec.*"), wantReason: "Invalid"},
		{name: "an empty name", group: "example.com", version: "v1", kind: "Widget", change: stay("spec..x"), wantReason: "Invalid", want: "is no path"},
		{name: "nothing", group: "example.com", version: "v1", kind: "Widget", change: stay(""), wantReason: "Invalid"},
		{name: "who it is comes up", group: "example.com", version: "v1", kind: "Widget", change: fields(nil, []string{"kind"}), wantReason: "Invalid", want: "spec.fields.up"},
		{name: "too deep", group: "example.com", version: "v1", kind: "Widget", change: stay("a" + strings.Repeat(".a", 40)), wantReason: "Invalid", want: "more than 32 names"},
		{name: "too many", group: "example.com", version: "v1", kind: "Widget", change: stay(many...), wantReason: "Invalid", want: "at most 64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			made := policy("p", tc.group, tc.version, tc.kind)
			if tc.change != nil {
				tc.change(made)
			}
			rules, refusal := syncpolicy.Compile(made, builtIn)
			if tc.wantReason == "" {
				require.Nil(t, refusal)
				require.Equal(t, schema.GroupVersionKind{Group: tc.group, Version: tc.version, Kind: tc.kind}, rules.Kind)
				return
			}
			require.Nil(t, rules)
			require.Equal(t, tc.wantReason, refusal.Reason)
			require.Contains(t, refusal.Message, tc.want)
		})
	}
}

// TestCompileAll: of several policies for one kind the oldest is followed, whatever else is wrong.
func TestCompileAll(t *testing.T) {
	t.Parallel()
	at := func(seconds int64) func(*tenancyv1alpha1.SyncPolicy) {
		return func(made *tenancyv1alpha1.SyncPolicy) { made.CreationTimestamp = metav1.Unix(seconds, 0) }
	}
	policies := []*tenancyv1alpha1.SyncPolicy{
		policy("b-new", "example.com", "v1", "Widget", at(20)), policy("z-old", "example.com", "v2", "Widget", at(10)),
		policy("other", "example.org", "v1", "Widget", at(30)), policy("broken", "example.com", "v1", "Gadget", at(1), fields([]string{"["}, nil)),
		policy("gadget-b", "example.com", "v1", "Gadget", at(5)), policy("gadget-a", "example.com", "v1", "Gadget", at(5)),
	}
	before := slices.Clone(policies)
	accepted, refused := syncpolicy.CompileAll(policies, builtIn)
	var names []string
	for _, rules := range accepted {
		names = append(names, rules.Name)
	}
	require.Equal(t, []string{"gadget-a", "other", "z-old"}, names)
	reasons := map[string]string{}
	for name, refusal := range refused {
		reasons[name] = refusal.Reason
	}
	require.Equal(t, map[string]string{"b-new": "KindTaken", "broken": "Invalid", "gadget-b": "KindTaken"}, reasons)
	require.Contains(t, refused["b-new"].Message, "SyncPolicy z-old")
	require.Equal(t, before, policies)
}

func parse(t testing.TB, text string) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &object))
	return object
}

func TestFields(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		stay, up      []string
		tenant, super string
		wantDown      string
		wantUp        string
		wantDiffers   string
	}{
		{
			name: "status comes up, the rest goes down", up: []string{"status"},
			tenant:   `{"kind":"W","metadata":{"name":"t"},"spec":{"a":1},"status":{"x":1},"data":["b"]}`,
			super:    `{"kind":"W","metadata":{"name":"s"},"spec":{"a":2},"status":{"x":2},"gone":true}`,
			wantDown: `{"kind":"W","metadata":{"name":"s"},"spec":{"a":1},"status":{"x":2},"data":["b"]}`,
			wantUp:   `{"kind":"W","metadata":{"name":"t"},"spec":{"a":1},"status":{"x":2},"data":["b"]}`, wantDiffers: "data",
		},
		{
			name: "nothing comes up, and status does not go down", tenant: `{"spec":{"a":1},"status":{"x":1}}`, super: `{"spec":{"a":1},"status":{"x":2}}`,
			wantDown: `{"spec":{"a":1},"status":{"x":2}}`, wantUp: `{"spec":{"a":1},"status":{"x":1}}`,
		},
		{
			name: "each side keeps its own", stay: []string{"spec.replicas", "spec.node.name"}, tenant: `{"spec":{"replicas":1,"node":{"name":"t","zone":"z"}}}`,
			super:    `{"spec":{"replicas":7,"node":{"name":"s"}}}`,
			wantDown: `{"spec":{"replicas":7,"node":{"name":"s","zone":"z"}}}`, wantUp: `{"spec":{"replicas":1,"node":{"name":"t","zone":"z"}}}`, wantDiffers: "spec.node.zone",
		},
		{
			name: "a field of spec comes up", up: []string{"spec.address"}, tenant: `{"spec":{"a":1}}`, super: `{"spec":{"a":1,"address":"10.0.0.1"}}`,
			wantDown: `{"spec":{"a":1,"address":"10.0.0.1"}}`, wantUp: `{"spec":{"a":1,"address":"10.0.0.1"}}`,
		},
		{
			name: "what is gone is removed", up: []string{"status.address"}, tenant: `{"spec":{"a":1},"status":{"address":"1","mine":2}}`, super: `{"spec":{"a":1}}`,
			wantDown: `{"spec":{"a":1}}`, wantUp: `{"spec":{"a":1},"status":{"mine":2}}`,
		},
		{
			name: "another form is in the way", stay: []string{"spec.a.b"}, tenant: `{"spec":{"a":"text"}}`, super: `{"spec":{"a":{"b":1}}}`,
			wantDown: `{"spec":{"a":"text"}}`, wantUp: `{"spec":{"a":"text"}}`, wantDiffers: "spec.a",
		},
		{
			name: "defaults are no difference", tenant: `{"spec":{"parts":[{"name":"x"}],"n":1}}`, super: `{"spec":{"parts":[{"name":"x","grade":"a"}],"n":1.0,"size":1}}`,
			wantDown: `{"spec":{"parts":[{"name":"x"}],"n":1}}`, wantUp: `{"spec":{"parts":[{"name":"x"}],"n":1}}`,
		},
		{
			name: "another element is", tenant: `{"spec":{"parts":[{"name":"x"},{"name":"y"}]}}`, super: `{"spec":{"parts":[{"name":"x"},{"name":"z"}]}}`,
			wantDown: `{"spec":{"parts":[{"name":"x"},{"name":"y"}]}}`, wantUp: `{"spec":{"parts":[{"name":"x"},{"name":"y"}]}}`, wantDiffers: "spec.parts[1].name",
		},
		{name: "nothing at all", tenant: `{}`, super: `{}`, wantDown: `{}`, wantUp: `{}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rules, refusal := syncpolicy.Compile(policy("p", "example.com", "v1", "W", fields(tc.stay, tc.up)), builtIn)
			require.Nil(t, refusal)
			tenant, super := parse(t, tc.tenant), parse(t, tc.super)
			part := rules.Part(tenant)
			require.Equal(t, tc.wantDiffers, syncpolicy.Differs(part, super))
			require.Empty(t, cmp.Diff(parse(t, tc.wantDown), rules.Down(part, super)))
			up := rules.Up(super, rules.Up(super, tenant, true), false)
			require.Empty(t, cmp.Diff(parse(t, tc.wantUp), up))
			require.Empty(t, cmp.Diff([]map[string]any{parse(t, tc.tenant), parse(t, tc.super)}, []map[string]any{tenant, super}), "they lie in caches")
		})
	}
}

// up returns a change of the direction to Up, with a scope.
func up(scope tenancyv1alpha1.SyncScope) func(*tenancyv1alpha1.SyncPolicy) {
	return func(made *tenancyv1alpha1.SyncPolicy) {
		made.Spec.Direction, made.Spec.Scope = tenancyv1alpha1.SyncUp, scope
	}
}

// FuzzFields: whatever objects and paths are, who an object is and what stays is untouched, what goes down is there
// then, a second time changes nothing, and what was given is not changed.
func FuzzFields(f *testing.F) {
	f.Add(`{"metadata":{"name":"t"},"spec":{"a":{"b":1},"l":[{"x":null}]},"status":1}`, `{"metadata":{"name":"s"},"spec":{"a":[]},"status":{"y":2}}`, "spec.a.b", "status.y")
	f.Add(`{"spec":{"replicas":1}}`, `{"spec":{"replicas":2}}`, "spec.replicas", "status")
	f.Add(`{"a":{"b":{"c":1}}}`, `{"a":{"b":{"d":1}}}`, "a.b", "a.b.c")
	f.Fuzz(func(t *testing.T, tenantText, superText, stay, up string) {
		var tenant, super map[string]any
		if json.Unmarshal([]byte(tenantText), &tenant) != nil || json.Unmarshal([]byte(superText), &super) != nil || tenant == nil || super == nil {
			return
		}
		rules, refusal := syncpolicy.Compile(policy("p", "example.com", "v1", "W", fields([]string{stay}, []string{up})), builtIn)
		if refusal != nil {
			require.Equal(t, tenancyv1alpha1.ReasonSyncInvalid, refusal.Reason)
			return
		}
		wantTenant, wantSuper := runtime.DeepCopyJSON(tenant), runtime.DeepCopyJSON(super)
		part := rules.Part(tenant)
		down := rules.Down(part, super)
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			require.Empty(t, cmp.Diff(super[name], down[name]))
			require.NotContains(t, part, name)
		}
		require.NotContains(t, part, "status")
		require.Empty(t, cmp.Diff(super["status"], down["status"]))
		require.Empty(t, cmp.Diff(part, rules.Part(part)))
		require.Empty(t, cmp.Diff(down, rules.Down(part, down)))
		above := rules.Up(super, rules.Up(super, tenant, true), false)
		require.Empty(t, cmp.Diff(above, rules.Up(super, rules.Up(super, above, true), false)))
		for _, name := range []string{"apiVersion", "kind", "metadata"} {
			require.Empty(t, cmp.Diff(tenant[name], above[name]))
		}
		require.GreaterOrEqual(t, syncpolicy.Size(super), int64(0))
		require.Empty(t, cmp.Diff(wantTenant, tenant))
		require.Empty(t, cmp.Diff(wantSuper, super))
	})
}

func TestReport(t *testing.T) {
	t.Parallel()
	stays := func(string) bool { return false }
	lacks := &syncpolicy.Refusal{Reason: "NoRights", Message: strings.Repeat("grant it. ", 200)}
	answers := func(made *tenancyv1alpha1.SyncPolicy) (text []string) {
		for _, answer := range made.Status.SuperClusters {
			text = append(text, fmt.Sprintf("%s %d %s", answer.Name, answer.ObservedGeneration, answer.Reason))
			require.LessOrEqual(t, len(answer.Message), 1024)
		}
		return text
	}
	condition := func(made *tenancyv1alpha1.SyncPolicy, kind string) string {
		found := meta.FindStatusCondition(made.Status.Conditions, kind)
		require.LessOrEqual(t, len(found.Message), 1024)
		return fmt.Sprintf("%s %s %d", found.Status, found.Reason, found.ObservedGeneration)
	}
	made := policy("p", "example.com", "v1", "Widget")
	syncpolicy.Report(made, "r2", stays, nil, nil)
	require.Equal(t, []string{"r2 3 Ready"}, answers(made))
	require.Equal(t, []string{"True Accepted 3", "True Ready 3"}, []string{condition(made, "Accepted"), condition(made, "Ready")})

	before := made.DeepCopy()
	syncpolicy.Report(made, "r2", stays, nil, nil)
	require.True(t, syncpolicy.SameStatus(&before.Status, &made.Status), "nothing is written at rest")

	syncpolicy.Report(made, "r1", stays, nil, lacks)
	require.Equal(t, []string{"r1 3 NoRights", "r2 3 Ready"}, answers(made))
	require.Equal(t, "False NoRights 3", condition(made, "Ready"))
	syncpolicy.Report(made, "r3", stays, nil, &syncpolicy.Refusal{Reason: "NotServed"})
	require.Equal(t, "False SuperClustersNotReady 3", condition(made, "Ready"))
	require.Contains(t, meta.FindStatusCondition(made.Status.Conditions, "Ready").Message, "1 of 3 super clusters follow it. super cluster r1: grant it")

	made.Generation = 4 // r3 has left the pool
	syncpolicy.Report(made, "r1", stays, nil, nil)
	syncpolicy.Report(made, "r2", stays, nil, nil)
	require.Equal(t, []string{"r1 4 Ready", "r2 4 Ready"}, answers(made))
	require.Equal(t, "True Ready 4", condition(made, "Ready"))

	syncpolicy.Report(made, "r1", stays, &syncpolicy.Refusal{Reason: "KindTaken", Message: "by another"}, nil)
	require.Equal(t, []string{"False KindTaken 4", "False KindTaken 4"}, []string{condition(made, "Accepted"), condition(made, "Ready")})
	require.Equal(t, []string{"r1 4 KindTaken", "r2 4 Ready"}, answers(made))

	for i := range 300 {
		syncpolicy.Report(made, fmt.Sprintf("s%03d", i), stays, nil, nil)
	}
	require.Len(t, made.Status.SuperClusters, 256)
}
