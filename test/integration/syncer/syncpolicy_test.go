package syncer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/offer"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/await"
)

// widget returns an object of kind Widget, or another kind of example.com.
func widget(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": kind}}
	object.SetNamespace(namespace)
	object.SetName(name)
	if spec != nil {
		object.Object["spec"] = spec
	}
	return object
}

// serve makes an API server serve a kind of example.com: the specs of its objects have size, which defaults to 1,
// color, node and parts.
func serve(t *testing.T, c client.Client, kind, scope string, status bool) {
	t.Helper()
	plural := strings.ToLower(kind) + "s"
	text, open := map[string]any{"type": "string"}, map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	version := map[string]any{
		"name": "v1", "served": true, "storage": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
			"status": open,
			"spec": map[string]any{"type": "object", "properties": map[string]any{
				"size": map[string]any{"type": "integer", "default": int64(1), "maximum": int64(1000)}, "color": text, "node": text,
				"parts": map[string]any{"type": "array", "items": map[string]any{"type": "object", "properties": map[string]any{"name": text, "grade": map[string]any{"type": "string", "default": "a"}}}},
			}},
		}}},
	}
	if status {
		version["subresources"] = map[string]any{"status": map[string]any{}}
	}
	create(t, c, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + ".example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": scope, "versions": []any{version},
			"names": map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
		},
	}})
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("example.com/v1")
	list.SetKind(kind + "List")
	eventually(t, func() error { return c.List(t.Context(), list) })
}

// grant plays the operator, and kube-controller-manager, which aggregates the rights.
func grant(t *testing.T, c client.Client, plural string) {
	t.Helper()
	grantOf(t, c, "example.com", plural)
}

func grantOf(t *testing.T, c client.Client, group, plural string) {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "superpool:syncer:kinds:" + plural, Labels: map[string]string{tenancyv1alpha1.LabelAggregateToSyncer: "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{plural}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"}}},
	}
	create(t, c, role)
	all := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "superpool:syncer:kinds"}}
	change(t, c, all, func(client.Object) { all.Rules = append(all.Rules, role.Rules...) })
}

// syncPolicy returns a SyncPolicy of a kind of example.com that goes down.
func syncPolicy(name, kind string, changes ...func(*tenancyv1alpha1.SyncPolicySpec)) *tenancyv1alpha1.SyncPolicy {
	policy := &tenancyv1alpha1.SyncPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: tenancyv1alpha1.SyncPolicySpec{
		Group: "example.com", Version: "v1", Kind: kind, Direction: tenancyv1alpha1.SyncDown, Scope: tenancyv1alpha1.SyncPlaced, Names: []string{},
		Copies: tenancyv1alpha1.CopiesKeep, Events: tenancyv1alpha1.EventsUp, Fields: tenancyv1alpha1.SyncFields{Up: []string{"status"}},
		Limits: tenancyv1alpha1.SyncLimits{Objects: 10, Bytes: resource.MustParse("4Ki")},
	}}
	for _, change := range changes {
		change(&policy.Spec)
	}
	return policy
}

// says waits until the conditions of a SyncPolicy are these, with the reason of Ready, and texts in its message.
func (w *world) says(t *testing.T, name string, accepted, ready metav1.ConditionStatus, reason string, texts ...string) {
	t.Helper()
	appears(t, w.meta, "", name, &tenancyv1alpha1.SyncPolicy{}, func(policy *tenancyv1alpha1.SyncPolicy) bool {
		condition := meta.FindStatusCondition(policy.Status.Conditions, tenancyv1alpha1.ConditionSyncReady)
		if condition == nil || condition.Status != ready || condition.Reason != reason || condition.ObservedGeneration != policy.Generation ||
			!meta.IsStatusConditionPresentAndEqual(policy.Status.Conditions, tenancyv1alpha1.ConditionSyncAccepted, accepted) {
			return false
		}
		for _, text := range texts {
			if !strings.Contains(condition.Message, text) {
				return false
			}
		}
		return len(policy.Status.SuperClusters) == 2
	})
}

// hasSpec returns whether a member of an object's spec has a value.
func hasSpec(name string, want any) func(*unstructured.Unstructured) bool {
	return func(object *unstructured.Unstructured) bool {
		value, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", name)
		return value == want
	}
}

func hasPhase(want string) func(*unstructured.Unstructured) bool {
	return func(object *unstructured.Unstructured) bool {
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		return phase == want
	}
}

// setSpec returns a change of a member of an object's spec.
func setSpec(name string, value any) func(client.Object) {
	return func(object client.Object) {
		spec, _ := object.(*unstructured.Unstructured).Object["spec"].(map[string]any)
		spec[name] = value
	}
}

// setPhase plays a controller that writes the status of an object.
func setPhase(t *testing.T, c client.Client, object *unstructured.Unstructured, phase string) {
	t.Helper()
	await.Change(t, c, object, func(object *unstructured.Unstructured) { object.Object["status"] = map[string]any{"phase": phase} }, "status")
}

// TestSyncPolicy: kinds of two tenants that nobody compiled in, in two super clusters.
func TestSyncPolicy(t *testing.T) {
	w := newWorld(t, needs{r2: true})
	other := w.neighbour(t, "b")
	w.options = func(options *syncer.Options) { options.Unserved = time.Second }
	w.place(t, "web", "r1", "r2")
	other.place(t, "web", "r1", "r2")
	served := []*tenants.Tenant{w.engaged(w.tenantConfig), other.engaged(other.tenantConfig)}
	r1, r2 := w.startSyncerWith(t, w.superConfig, engaging(served)), w.startSyncerWith(t, w.super2Config, engaging(served))
	closes(t, r1.ready, "the tenants' caches are synced")
	closes(t, r2.ready, "the tenants' caches are synced")
	supers := []client.Client{w.super, w.super2}

	t.Run("what a super cluster lacks is said", func(t *testing.T) {
		create(t, w.meta, syncPolicy("widgets", "Widget", func(spec *tenancyv1alpha1.SyncPolicySpec) {
			spec.Fields.Stay = []string{"spec.node"}
		}))
		w.says(t, "widgets", "True", "False", "NotServed", "super cluster r1: it does not serve kind Widget of example.com/v1", "super cluster r2")
		for _, super := range supers {
			serve(t, super, "Widget", "Namespaced", true)
		}
		w.says(t, "widgets", "True", "False", "NoRights", "its syncer may not get, list, watch, create, update, delete widgets.example.com", "--resource=widgets.example.com")
		for _, super := range supers {
			grant(t, super, "widgets")
		}
		w.says(t, "widgets", "True", "True", "Ready", "2 of 2 super clusters follow it")
	})
	t.Run("wrong policies say so and harm nothing", w.testWrongSyncPolicies)
	t.Run("objects go down, and their status comes up", func(t *testing.T) { w.testSyncDown(t, other) })
	t.Run("limits", w.testSyncLimits)
	t.Run("a tenant that loses its definition", func(t *testing.T) { w.testSyncUndefined(t, other) })
	t.Run("a kind at home", w.testSyncHome)
	t.Run("what came up to namespaces by an earlier version stays", w.testSyncCameUp)
	t.Run("Events of copies come up", func(t *testing.T) { w.testSyncEvents(t, other) })
	t.Run("what is offered comes up", func(t *testing.T) { w.testSyncUp(t, other) })
	t.Run("who leaves the pool answers no more", w.testSyncAnswersLeave)
	t.Run("a policy that is gone takes nothing with it", w.testSyncPolicyGone)
}

// testWrongSyncPolicies makes policies that the API server refuses, and others that syncers do.
func (w *world) testWrongSyncPolicies(t *testing.T) {
	for name, wrong := range map[string]func(*tenancyv1alpha1.SyncPolicySpec){
		"names of a kind that goes down": func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Names = []string{"a"} },
		"a kind that comes up, no names": func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Direction = tenancyv1alpha1.SyncUp },
		"metadata":                       func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Fields.Stay = []string{"metadata.labels"} },
		"what is no path":                func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Fields.Up = []string{"status[0]"} },
		"a group that is none":           func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Group = "" },
		"objects that are too large":     func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Limits.Bytes = resource.MustParse("1Gi") },
		"a direction that is none":       func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Direction = "Sideways" },
		"a scope of a kind that comes up": func(spec *tenancyv1alpha1.SyncPolicySpec) {
			spec.Direction, spec.Names, spec.Scope = tenancyv1alpha1.SyncUp, []string{"a"}, tenancyv1alpha1.SyncHome
		},
		"what is made in super namespaces": func(spec *tenancyv1alpha1.SyncPolicySpec) {
			spec.Direction, spec.Names, spec.Scope = tenancyv1alpha1.SyncUp, []string{"a"}, "Namespaces"
		},
		"Events that go sideways":          func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Events = "Sideways" },
		"a version that is no API version": func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Version = "V1/x" },
	} {
		err := w.meta.Create(t.Context(), syncPolicy("refused", "Gadget", wrong))
		require.True(t, apierrors.IsInvalid(err), "%s: %v", name, err)
	}
	for _, super := range []client.Client{w.super, w.super2} {
		serve(t, super, "Planet", "Cluster", true)
		grant(t, super, "planets")
	}
	for name, tc := range map[string]struct {
		accepted     metav1.ConditionStatus
		reason, text string
		kind         schemaKind
	}{
		"roles":      {"False", "KindForbidden", "give rights", schemaKind{"rbac.authorization.k8s.io", "v1", "Role"}},
		"pods":       {"False", "KindForbidden", "", schemaKind{"apps", "v1", "Deployment"}},
		"ingresses":  {"False", "BuiltIn", "without a SyncPolicy", schemaKind{"networking.k8s.io", "v1", "Ingress"}},
		"widgets-2":  {"False", "KindTaken", "SyncPolicy widgets, which is older", schemaKind{"example.com", "v1", "Widget"}},
		"planets":    {"True", "WrongScope", "Planet has no namespaces", schemaKind{"example.com", "v1", "Planet"}},
		"old-things": {"True", "NotServed", "does not serve kind Widget of example.org/v7", schemaKind{"example.org", "v7", "Widget"}},
	} {
		policy := syncPolicy(name, tc.kind.kind)
		policy.Spec.Group, policy.Spec.Version = tc.kind.group, tc.kind.version
		create(t, w.meta, policy)
		w.says(t, name, tc.accepted, "False", tc.reason, tc.text)
	}
	change(t, w.meta, syncPolicy("widgets", ""), func(object client.Object) {
		object.(*tenancyv1alpha1.SyncPolicy).Spec.Limits.Objects = 11
	})
	w.says(t, "widgets", "True", "True", "Ready")
	err := w.meta.Get(t.Context(), types.NamespacedName{Name: "widgets"}, &tenancyv1alpha1.SyncPolicy{})
	require.NoError(t, err)
	renamed := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"kind":"Gadget"}}`))
	require.True(t, apierrors.IsInvalid(w.meta.Patch(t.Context(), syncPolicy("widgets", "Widget"), renamed)), "a policy is for one kind as long as it lives")
	// What was synced before still is.
	create(t, w.tenant, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "after-wrong"}})
	appears(t, w.super, w.superName("web"), "after-wrong", &corev1.ConfigMap{}, nil)
}

type schemaKind struct{ group, version, kind string }

// testSyncDown creates, changes and deletes widgets of both tenants. The definition of w's has a status subresource,
// that of other's has none.
func (w *world) testSyncDown(t *testing.T, other *world) {
	serve(t, w.tenant, "Widget", "Namespaced", true)
	serve(t, other.tenant, "Widget", "Namespaced", false)
	parts := []any{map[string]any{"name": "x"}}
	mine := widget("Widget", "web", "w", map[string]any{"color": "red", "node": "tenants", "parts": parts})
	mine.SetLabels(map[string]string{"app": "w"})
	mine.SetFinalizers([]string{"example.com/mine"})
	mine.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "u"}})
	create(t, w.tenant, mine)
	create(t, other.tenant, widget("Widget", "web", "w", map[string]any{"color": "blue"}))
	superW := func() *unstructured.Unstructured { return widget("Widget", w.superName("web"), "w", nil) }
	for _, super := range []client.Client{w.super, w.super2} {
		copied := appears(t, super, w.superName("web"), "w", superW(), hasSpec("color", "red"))
		require.Equal(t, "w", copied.GetLabels()["app"])
		require.Equal(t, string(mine.GetUID()), copied.GetAnnotations()[tenancyv1alpha1.AnnotationUID])
		require.Empty(t, copied.GetFinalizers())
		require.Empty(t, copied.GetOwnerReferences())
		require.True(t, hasSpec("node", nil)(copied), "spec.node stays")
		appears(t, super, tenancy.SuperNamespace(other.key, "web"), "w", superW(), hasSpec("color", "blue"))
	}

	// Of two super clusters the home tells.
	require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(mine), mine))
	setPhase(t, w.super2, superW(), "NotHome")
	setPhase(t, w.super, superW(), "Running")
	appears(t, w.tenant, "web", "w", mine, hasPhase("Running"))
	require.True(t, hasSpec("node", "tenants")(mine))
	otherSuper := widget("Widget", tenancy.SuperNamespace(other.key, "web"), "w", nil)
	setPhase(t, w.super, otherSuper, "Ready")
	appears(t, other.tenant, "web", "w", widget("Widget", "", "", nil), hasPhase("Ready"))
	setPhase(t, w.tenant, mine, "Forged")
	appears(t, w.tenant, "web", "w", mine, hasPhase("Running"))

	// The tenant changes it; the super cluster's own field and defaults stay.
	change(t, w.super, superW(), setSpec("node", "n1"))
	change(t, w.tenant, mine, setSpec("color", "green"))
	for at, super := range []client.Client{w.super, w.super2} {
		copied := appears(t, super, w.superName("web"), "w", superW(), hasSpec("color", "green"))
		require.True(t, hasSpec("node", []any{"n1", nil}[at])(copied), "%v", copied.Object)
		require.True(t, hasSpec("size", int64(1))(copied))
	}
	change(t, w.tenant, mine, func(object client.Object) {
		unstructured.RemoveNestedField(mine.Object, "spec", "parts")
		mine.SetLabels(nil)
	})
	appears(t, w.super, w.superName("web"), "w", superW(), func(copied *unstructured.Unstructured) bool {
		return hasSpec("parts", nil)(copied) && copied.GetLabels()["app"] == ""
	})
	require.True(t, hasPhase("Running")(appears(t, w.super, w.superName("web"), "w", superW(), nil)), "status does not go down")

	// Drift is mended, and what is deleted is made again.
	change(t, w.super2, superW(), setSpec("color", "drifted"))
	appears(t, w.super2, w.superName("web"), "w", superW(), hasSpec("color", "green"))
	before := appears(t, w.super2, w.superName("web"), "w", superW(), nil)
	require.NoError(t, w.super2.Delete(t.Context(), before))
	appears(t, w.super2, w.superName("web"), "w", superW(), func(copied *unstructured.Unstructured) bool { return copied.GetUID() != before.GetUID() })

	// Somebody else's object of that name stays.
	theirs := widget("Widget", w.superName("web"), "theirs", map[string]any{"color": "theirs"})
	create(t, w.super, theirs)
	create(t, w.tenant, widget("Widget", "web", "theirs", map[string]any{"color": "mine"}))
	w.warned(t, "web", "theirs", "Conflict")
	require.True(t, hasSpec("color", "theirs")(appears(t, w.super, w.superName("web"), "theirs", theirs, nil)))
	require.NoError(t, w.tenant.Delete(t.Context(), widget("Widget", "web", "theirs", nil)))
	vanishes(t, w.super2, w.superName("web"), "theirs", widget("Widget", "", "", nil))
	require.NoError(t, w.super.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))

	// It is deleted, and made again as another one.
	change(t, w.tenant, mine, func(object client.Object) { object.SetFinalizers(nil) })
	require.NoError(t, w.tenant.Delete(t.Context(), mine))
	for _, super := range []client.Client{w.super, w.super2} {
		vanishes(t, super, w.superName("web"), "w", superW())
		appears(t, super, tenancy.SuperNamespace(other.key, "web"), "w", superW(), nil)
	}
	create(t, w.tenant, widget("Widget", "web", "w", map[string]any{"color": "again"}))
	for _, super := range []client.Client{w.super, w.super2} {
		appears(t, super, w.superName("web"), "w", superW(), hasSpec("color", "again"))
	}
}

// testSyncTotal makes fewer objects in each of two namespaces than either may have, and more than both may.
func (w *world) testSyncTotal(t *testing.T) {
	bound := func(total int32) {
		change(t, w.meta, syncPolicy("widgets", ""), func(object client.Object) { object.(*tenancyv1alpha1.SyncPolicy).Spec.Limits.TotalObjects = total })
		w.says(t, "widgets", "True", "True", "Ready")
	}
	everywhere := func() int {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("example.com/v1")
		list.SetKind("WidgetList")
		require.NoError(t, w.super2.List(t.Context(), list, client.MatchingLabels{tenancyv1alpha1.LabelCluster: w.key}))
		return len(list.Items)
	}
	before := everywhere()
	second := w.place(t, "second", "r2")
	appears(t, w.super2, "", w.superName("second"), &corev1.Namespace{}, nil)
	bound(int32(before) + 3)
	for _, namespace := range []string{"web", "second"} {
		for i := range 2 {
			create(t, w.tenant, widget("Widget", namespace, fmt.Sprintf("total-%d", i), map[string]any{"size": int64(i)}))
		}
	}
	eventually(t, func() error {
		var events corev1.EventList
		if err := w.tenant.List(t.Context(), &events); err != nil {
			return err
		}
		for i := range events.Items {
			if event := &events.Items[i]; strings.Contains(event.Message, "limits.totalObjects") && everywhere() == before+3 {
				return nil
			}
		}
		return fmt.Errorf("%d objects, and before %d", everywhere(), before)
	})
	bound(0)
	for _, namespace := range []string{"web", "second"} {
		for i := range 2 {
			name := fmt.Sprintf("total-%d", i)
			appears(t, w.super2, w.superName(namespace), name, widget("Widget", "", "", nil), nil)
			require.NoError(t, w.tenant.Delete(t.Context(), widget("Widget", namespace, name, nil)))
			vanishes(t, w.super2, w.superName(namespace), name, widget("Widget", "", "", nil))
		}
	}
	w.end(t, second)
	release(t, w.super2, w.superName("second"), "")
}

// testSyncLimits makes too many objects, and one that is too large.
func (w *world) testSyncLimits(t *testing.T) {
	create(t, w.tenant, widget("Widget", "web", "large", map[string]any{"color": strings.Repeat("x", 5000)}))
	w.warned(t, "web", "large", "TenantLimit")
	change(t, w.meta, syncPolicy("widgets", ""), func(object client.Object) { object.(*tenancyv1alpha1.SyncPolicy).Spec.Limits.Objects = 4 })
	w.says(t, "widgets", "True", "True", "Ready")
	for i := range 6 {
		create(t, w.tenant, widget("Widget", "web", fmt.Sprintf("many-%d", i), map[string]any{"size": int64(i)}))
	}
	count := func() int {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("example.com/v1")
		list.SetKind("WidgetList")
		require.NoError(t, w.super2.List(t.Context(), list, client.InNamespace(w.superName("web")), client.HasLabels{tenancyv1alpha1.LabelCluster}))
		return len(list.Items)
	}
	eventually(t, func() error {
		if have := count(); have != 4 {
			return fmt.Errorf("%d objects", have)
		}
		var events corev1.EventList
		if err := w.tenant.List(t.Context(), &events); err != nil {
			return err
		}
		for i := range events.Items {
			if event := &events.Items[i]; event.Reason == "TenantLimit" && strings.Contains(event.Message, "may have 4 objects of kind Widget") {
				return nil
			}
		}
		return fmt.Errorf("no Event says why")
	})
	require.Equal(t, 4, count())
	change(t, w.meta, syncPolicy("widgets", ""), func(object client.Object) { object.(*tenancyv1alpha1.SyncPolicy).Spec.Limits.Objects = 100 })
	for i := range 6 {
		name := fmt.Sprintf("many-%d", i)
		appears(t, w.super2, w.superName("web"), name, widget("Widget", "", "", nil), nil)
		require.NoError(t, w.tenant.Delete(t.Context(), widget("Widget", "web", name, nil)))
		vanishes(t, w.super2, w.superName("web"), name, widget("Widget", "", "", nil))
	}
	w.testSyncTotal(t)
	// What the super cluster's API server refuses is the tenant's to mend, and holds up nothing.
	setMaximum := func(most int64) {
		crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
		crd.SetName("widgets.example.com")
		change(t, w.super, crd, func(client.Object) {
			versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
			require.NoError(t, unstructured.SetNestedField(versions[0].(map[string]any), most, "schema", "openAPIV3Schema", "properties", "spec", "properties", "size", "maximum"))
			require.NoError(t, unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
		})
	}
	setMaximum(10)
	eventually(t, func() error { // the definition is in force
		err := w.super.Create(t.Context(), widget("Widget", "default", "probe", map[string]any{"size": int64(20)}), client.DryRunAll)
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("not refused yet: %w", err)
		}
		return nil
	})
	create(t, w.tenant, widget("Widget", "web", "big", map[string]any{"size": int64(20)}))
	w.warned(t, "web", "big", "FailedCreate")
	require.NoError(t, w.tenant.Delete(t.Context(), widget("Widget", "web", "big", nil)))
}

// testSyncUndefined takes the definition from one tenant: its objects go, and nobody else's.
func (w *world) testSyncUndefined(t *testing.T, other *world) {
	crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
	crd.SetName("widgets.example.com")
	require.NoError(t, other.tenant.Delete(t.Context(), crd))
	vanishes(t, w.super, tenancy.SuperNamespace(other.key, "web"), "w", widget("Widget", "", "", nil))
	appears(t, w.super, w.superName("web"), "w", widget("Widget", "", "", nil), nil)
	create(t, other.tenant, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "undefined"}})
	appears(t, w.super, tenancy.SuperNamespace(other.key, "web"), "undefined", &corev1.ConfigMap{}, nil)
}

// testSyncAnswersLeave takes r2, whose syncer still runs, out of the pool for a while.
func (w *world) testSyncAnswersLeave(t *testing.T) {
	answers := func(want ...string) {
		appears(t, w.meta, "", "widgets", &tenancyv1alpha1.SyncPolicy{}, func(policy *tenancyv1alpha1.SyncPolicy) bool {
			var found []string
			for i := range policy.Status.SuperClusters {
				found = append(found, policy.Status.SuperClusters[i].Name)
			}
			return slices.Equal(want, found)
		})
	}
	answers("r1", "r2")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r2"}}
	require.NoError(t, w.meta.Delete(t.Context(), node))
	answers("r1")
	w.record(t, "r2", uidOf(t, w.super2))
	answers("r1", "r2")
}

// testSyncHome moves an object with the home of its namespace.
func (w *world) testSyncHome(t *testing.T) {
	for _, c := range []client.Client{w.super, w.super2, w.tenant} {
		serve(t, c, "Door", "Namespaced", true)
	}
	for _, super := range []client.Client{w.super, w.super2} {
		grant(t, super, "doors")
	}
	create(t, w.meta, syncPolicy("doors", "Door", func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Scope = tenancyv1alpha1.SyncHome }))
	w.says(t, "doors", "True", "True", "Ready")
	create(t, w.tenant, widget("Door", "web", "d", map[string]any{"color": "red"}))
	superDoor := appears(t, w.super, w.superName("web"), "d", widget("Door", "", "", nil), nil)
	setPhase(t, w.super, superDoor, "r1")
	appears(t, w.tenant, "web", "d", widget("Door", "", "", nil), hasPhase("r1"))
	require.True(t, apierrors.IsNotFound(w.super2.Get(t.Context(), client.ObjectKeyFromObject(superDoor), widget("Door", "", "", nil))))
	w.place(t, "web", "r2")
	appears(t, w.super2, w.superName("web"), "d", widget("Door", "", "", nil), nil)
	release(t, w.super, w.superName("web"), "")
	setPhase(t, w.super2, widget("Door", w.superName("web"), "d", nil), "r2")
	appears(t, w.tenant, "web", "d", widget("Door", "", "", nil), hasPhase("r2"))
	w.place(t, "web", "r1", "r2")
	appears(t, w.super, w.superName("web"), "w", widget("Widget", "", "", nil), nil)
}

// testSyncCameUp has a SyncPolicy of an earlier version, by which objects of super namespaces came up to namespaces of
// tenants: it is refused, and takes nothing away.
func (w *world) testSyncCameUp(t *testing.T) {
	for _, c := range []client.Client{w.super, w.super2, w.tenant} {
		serve(t, c, "Report", "Namespaced", true)
	}
	for _, super := range []client.Client{w.super, w.super2} {
		grant(t, super, "reports")
	}
	made := widget("Report", w.superName("web"), "first", map[string]any{"color": "red"})
	create(t, w.super, made)
	cameUp := widget("Report", "web", "first", map[string]any{"color": "red"})
	offer.Mark(cameUp, "r1", offer.Note{Hash: "of an earlier version"})
	create(t, w.tenant, cameUp)
	own := widget("Report", "web", "own", map[string]any{"color": "mine"})
	create(t, w.tenant, own)
	w.createOfEarlierVersion(t, "reports", "Report")
	w.says(t, "reports", "False", "False", "Invalid", "spec.scope Namespaces is no longer followed", "kubectl delete Report.v1.example.com -A -l tenancy.x-k8s.io/offered=true")

	stays := func(passed string) {
		t.Helper()
		create(t, w.tenant, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: passed}})
		for _, super := range []client.Client{w.super, w.super2} {
			appears(t, super, w.superName("web"), passed, &corev1.ConfigMap{}, nil)
		}
		found := widget("Report", "", "", nil)
		require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(cameUp), found))
		require.Equal(t, cameUp.GetResourceVersion(), found.GetResourceVersion(), "nobody writes it")
	}
	stays("refused")
	require.NoError(t, w.super.Get(t.Context(), client.ObjectKeyFromObject(made), made))
	require.NoError(t, w.super.Delete(t.Context(), made))
	stays("reportless")
	require.NoError(t, w.meta.Delete(t.Context(), syncPolicy("reports", "")))
	stays("policyless")
	cameUpAlone := client.MatchingLabels{tenancyv1alpha1.LabelOffered: "true"}
	require.NoError(t, w.tenant.DeleteAllOf(t.Context(), widget("Report", "", "", nil), client.InNamespace("web"), cameUpAlone))
	vanishes(t, w.tenant, "web", "first", cameUp)
	require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(own), own))
}

// createOfEarlierVersion creates a SyncPolicy with scope Namespaces, which the definition of SyncPolicies lets in for
// as long as that takes.
func (w *world) createOfEarlierVersion(t *testing.T, name, kind string) {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
	definition.SetName("syncpolicies.tenancy.x-k8s.io")
	require.NoError(t, w.meta.Get(t.Context(), client.ObjectKeyFromObject(definition), definition))
	ours := definition.Object["spec"]
	await.Change(t, w.meta, definition, func(definition *unstructured.Unstructured) {
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		require.NoError(t, err)
		spec := []string{"schema", "openAPIV3Schema", "properties", "spec"}
		version := versions[0].(map[string]any)
		unstructured.RemoveNestedField(version, append(slices.Clone(spec), "x-kubernetes-validations")...)
		unstructured.RemoveNestedField(version, append(slices.Clone(spec), "properties", "scope", "enum")...)
		require.NoError(t, unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"))
	})
	policy := func(name string) *tenancyv1alpha1.SyncPolicy {
		return syncPolicy(name, kind, func(spec *tenancyv1alpha1.SyncPolicySpec) {
			spec.Direction, spec.Scope = tenancyv1alpha1.SyncUp, "Namespaces"
		})
	}
	eventually(t, func() error { return w.meta.Create(t.Context(), policy(name)) })
	await.Change(t, w.meta, definition, func(definition *unstructured.Unstructured) { definition.Object["spec"] = ours })
	eventually(t, func() error {
		if err := w.meta.Create(t.Context(), policy("another"), client.DryRunAll); !apierrors.IsInvalid(err) {
			return fmt.Errorf("the API server still takes it: %w", err)
		}
		return nil
	})
}

// testSyncEvents plays a controller of a super cluster that writes Events about copies of widgets.
func (w *world) testSyncEvents(t *testing.T, other *world) {
	create(t, w.tenant, widget("Widget", "web", "told", map[string]any{"color": "red"}))
	copied := appears(t, w.super, w.superName("web"), "told", widget("Widget", "", "", nil), nil)
	tell := func(about *unstructured.Unstructured, name, reason string) {
		create(t, w.super, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: about.GetNamespace(), Name: name},
			InvolvedObject: corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "Widget", Namespace: about.GetNamespace(), Name: about.GetName(), UID: about.GetUID()},
			Reason:         reason, Message: "no issuer for " + about.GetNamespace() + "/" + about.GetName(), LastTimestamp: metav1.Now(), Type: "Warning",
		})
	}
	operators := widget("Widget", w.superName("web"), "operators", map[string]any{"color": "none's"})
	create(t, w.super, operators)
	tell(operators, "operators.1", "OfOperators")
	tell(copied, "told.1", "NoIssuer")
	event := appears(t, w.tenant, "web", "told.1.r1", &corev1.Event{}, nil)
	require.Equal(t, "no issuer for web/told", event.Message)
	require.Equal(t, "told", event.InvolvedObject.Name)
	require.NotEqual(t, copied.GetUID(), event.InvolvedObject.UID)
	for _, tenant := range []client.Client{w.tenant, other.tenant} {
		var events corev1.EventList
		require.NoError(t, tenant.List(t.Context(), &events))
		for i := range events.Items {
			require.NotEqual(t, "OfOperators", events.Items[i].Reason, "it is about no copy")
		}
	}
	require.NoError(t, w.super.Delete(t.Context(), operators))
}

// testSyncUp lets planets come up that super clusters offer.
func (w *world) testSyncUp(t *testing.T, other *world) {
	require.NoError(t, w.meta.Delete(t.Context(), syncPolicy("planets", "")))
	for _, c := range []client.Client{w.tenant, other.tenant} {
		serve(t, c, "Planet", "Cluster", true)
	}
	w.follow(t, func(*tenancyv1alpha1.TenantPolicySpec) {})
	create(t, w.meta, syncPolicy("planets", "Planet", func(spec *tenancyv1alpha1.SyncPolicySpec) {
		spec.Direction, spec.Names, spec.TenantPolicies = tenancyv1alpha1.SyncUp, []string{"earth", "mars"}, []string{"few"}
		spec.Fields.Stay = []string{"spec.node"}
	}))
	w.says(t, "planets", "True", "True", "Ready")
	for _, super := range []client.Client{w.super, w.super2} {
		for _, name := range []string{"earth", "pluto"} {
			create(t, super, widget("Planet", "", name, map[string]any{"color": "blue", "node": "secret"}))
		}
	}
	seen := func(color string) func(*unstructured.Unstructured) bool {
		return func(object *unstructured.Unstructured) bool {
			annotations := object.GetAnnotations()
			return hasSpec("color", color)(object) && hasSpec("node", nil)(object) &&
				annotations[tenancyv1alpha1.AnnotationPrefixOfferedBy+"r1"] != "" && annotations[tenancyv1alpha1.AnnotationPrefixOfferedBy+"r2"] != ""
		}
	}
	earth := appears(t, w.tenant, "", "earth", widget("Planet", "", "", nil), seen("blue"))
	change(t, w.tenant, earth, setSpec("color", "mine"))
	appears(t, w.tenant, "", "earth", earth, seen("blue"))
	for _, super := range []client.Client{w.super, w.super2} {
		change(t, super, widget("Planet", "", "earth", nil), setSpec("color", "brown"))
	}
	appears(t, w.tenant, "", "earth", earth, seen("brown"))
	require.True(t, apierrors.IsNotFound(w.tenant.Get(t.Context(), types.NamespacedName{Name: "pluto"}, widget("Planet", "", "", nil))), "no policy names it")
	change(t, w.meta, syncPolicy("planets", ""), func(object client.Object) {
		object.(*tenancyv1alpha1.SyncPolicy).Spec.Copies = tenancyv1alpha1.CopiesRemove
	})
	vanishes(t, w.tenant, "", "earth", earth)
}

// testSyncPolicyGone deletes a policy, which deletes nothing, makes it again, and then lets it remove its copies.
func (w *world) testSyncPolicyGone(t *testing.T) {
	require.NoError(t, w.meta.Delete(t.Context(), syncPolicy("widgets-2", "")))
	require.NoError(t, w.meta.Delete(t.Context(), syncPolicy("widgets", "")))
	supers, passed := []client.Client{w.super, w.super2}, 0
	pass := func() { // until both syncers have synced what came later
		passed++
		name := fmt.Sprintf("after-policy-%d", passed)
		create(t, w.tenant, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}})
		for _, super := range supers {
			appears(t, super, w.superName("web"), name, &corev1.ConfigMap{}, nil)
		}
	}
	// A syncer looks at all policies at once: one that has answered about a later one does not follow these any more.
	create(t, w.meta, syncPolicy("later", "Unserved"))
	w.says(t, "later", "True", "False", "NotServed")
	require.NoError(t, w.meta.Delete(t.Context(), syncPolicy("later", "")))
	for _, super := range supers {
		change(t, super, widget("Widget", w.superName("web"), "w", nil), setSpec("color", "drifted"))
	}
	pass()
	for _, super := range supers {
		kept := widget("Widget", w.superName("web"), "w", nil)
		require.NoError(t, super.Get(t.Context(), client.ObjectKeyFromObject(kept), kept))
		require.True(t, hasSpec("color", "drifted")(kept), "the policy is still followed: %v", kept)
	}
	create(t, w.tenant, widget("Widget", "web", "late", map[string]any{"color": "red"}))
	require.NoError(t, w.tenant.Delete(t.Context(), widget("Widget", "web", "w", nil)))
	pass()
	for _, super := range supers {
		require.NoError(t, super.Get(t.Context(), types.NamespacedName{Namespace: w.superName("web"), Name: "w"}, widget("Widget", "", "", nil)), "its copy stays")
		err := super.Get(t.Context(), types.NamespacedName{Namespace: w.superName("web"), Name: "late"}, widget("Widget", "", "", nil))
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	}

	create(t, w.meta, syncPolicy("widgets", "Widget"))
	for _, super := range supers {
		appears(t, super, w.superName("web"), "late", widget("Widget", "", "", nil), hasSpec("color", "red"))
		vanishes(t, super, w.superName("web"), "w", widget("Widget", "", "", nil))
	}
	theirs := widget("Widget", w.superName("web"), "theirs", map[string]any{"color": "theirs"})
	create(t, w.super2, theirs)
	change(t, w.meta, syncPolicy("widgets", ""), func(object client.Object) {
		object.(*tenancyv1alpha1.SyncPolicy).Spec.Copies = tenancyv1alpha1.CopiesRemove
	})
	for _, super := range supers {
		vanishes(t, super, w.superName("web"), "late", widget("Widget", "", "", nil))
	}
	require.NoError(t, w.super2.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
	require.NoError(t, w.tenant.Get(t.Context(), types.NamespacedName{Namespace: "web", Name: "late"}, widget("Widget", "", "", nil)))
}
