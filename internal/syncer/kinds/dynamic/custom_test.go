package dynamic_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/offer"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/dynamic"
	"github.com/superpool/superpool/internal/syncpolicy"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

var superNamespace = tenancy.SuperNamespace(kindtest.ClusterKey, "web")

// custom is a pool with a SyncPolicy of Widgets. Its caches are what its clients have.
type custom struct {
	*kindtest.Pool
	clock *testingclock.FakePassiveClock
	rules *syncpolicy.Rules
	// writes are the writes to the super cluster, and told those to the tenant.
	writes, told []string
	// unserved is whether the tenant serves no Widgets, and defined whether it has their definition all the same.
	unserved, defined bool
	// removes is the error of a live read of the policy.
	removes error
	// stored changes what the super cluster's API server stores.
	stored func(*unstructured.Unstructured)
}

func newCustom(t *testing.T, change func(*tenancyv1alpha1.SyncPolicySpec)) *custom {
	t.Helper()
	c := &custom{Pool: kindtest.NewPool(t, interceptor.Funcs{}), clock: testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0)), stored: func(*unstructured.Unstructured) {}}
	c.Env.Clock = c.clock
	scheme := func() *runtime.Scheme {
		made := runtime.NewScheme()
		require.NoError(t, clientgoscheme.AddToScheme(made))
		return made
	}
	status := kindtest.Widget("", "", "")
	c.SuperClient = kindtest.Answering(interceptor.NewClient(builders.Client(scheme()).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, to client.WithWatch, made client.Object, options ...client.CreateOption) error {
			c.writes = append(c.writes, "create "+made.GetName())
			made.SetUID("super-" + types.UID(made.GetName()))
			c.stored(made.(*unstructured.Unstructured))
			return to.Create(ctx, made, options...)
		},
		Update: func(ctx context.Context, to client.WithWatch, made client.Object, options ...client.UpdateOption) error {
			c.writes = append(c.writes, "update "+made.GetName())
			c.stored(made.(*unstructured.Unstructured))
			return to.Update(ctx, made, options...)
		},
		Delete: func(ctx context.Context, to client.WithWatch, made client.Object, options ...client.DeleteOption) error {
			applied := &client.DeleteOptions{}
			for _, option := range options {
				option.ApplyToDelete(applied)
			}
			c.writes = append(c.writes, fmt.Sprintf("delete %s %s", made.GetName(), *applied.Preconditions.UID))
			return to.Delete(ctx, made)
		},
	}), kindtest.SuperUID)
	c.Env.Super = c.SuperClient
	c.Tenant.Client = kindtest.Answering(interceptor.NewClient(builders.Client(scheme()).WithStatusSubresource(status).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, to client.WithWatch, name client.ObjectKey, read client.Object, options ...client.GetOption) error {
			kind := read.GetObjectKind().GroupVersionKind().Kind
			switch {
			case kind == "Widget" && c.unserved:
				return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{Group: "example.com", Resource: "widgets"}, name.Name, "404 page not found", 0, true)
			case kind == "CustomResourceDefinition" && c.defined:
				return nil
			case kind == "CustomResourceDefinition":
				return apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, name.Name)
			}
			return to.Get(ctx, name, read, options...)
		},
		Patch: func(ctx context.Context, to client.WithWatch, made client.Object, patch client.Patch, options ...client.PatchOption) error {
			c.told = append(c.told, "object")
			return to.Patch(ctx, made, patch, options...)
		},
		SubResourcePatch: func(ctx context.Context, to client.Client, name string, made client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			c.told = append(c.told, name)
			return to.SubResource(name).Patch(ctx, made, patch, options...)
		},
	}), kindtest.TenantUID)
	c.home(t, "r1")
	c.follows(t, change)
	return c
}

// home places namespace web in r1 and r2, with that home.
func (c *custom) home(t *testing.T, home string) {
	t.Helper()
	placed := builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Held("r1", 1, "cpu", "10", "pods", "10").Held("r2", 1, "cpu", "10", "pods", "10").Home(home).Obj()
	meta := builders.Client(kindtest.PlacementScheme(t)).WithObjects(placed).Build()
	c.Assigns(meta, meta)
}

// follows puts a SyncPolicy in force.
func (c *custom) follows(t *testing.T, change func(*tenancyv1alpha1.SyncPolicySpec)) {
	t.Helper()
	policy := &tenancyv1alpha1.SyncPolicy{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}, Spec: tenancyv1alpha1.SyncPolicySpec{
		Group: "example.com", Version: "v1", Kind: "Widget", Direction: tenancyv1alpha1.SyncDown, Fields: tenancyv1alpha1.SyncFields{Up: []string{"status"}},
		Limits: tenancyv1alpha1.SyncLimits{Objects: 3, Bytes: resource.MustParse("2Ki")},
	}}
	if change != nil {
		change(&policy.Spec)
	}
	var refusal *syncpolicy.Refusal
	c.rules, refusal = syncpolicy.Compile(policy, nil)
	require.Nil(t, refusal)
	c.SetCustom([]dynamic.Custom{{Rules: c.rules, Resource: "widgets", Removes: func(context.Context, string) (proof.Proof, error) {
		return proof.NotNeeded("the policy says so"), c.removes
	}}})
}

// has lets a tenant have an object, or the super cluster.
func has(t *testing.T, to client.Client, made *unstructured.Unstructured) {
	t.Helper()
	require.NoError(t, client.IgnoreAlreadyExists(to.Create(t.Context(), made.DeepCopy())))
}

// reconcile fills the caches from the clients and reconciles a Widget of namespace web. It returns what was written to
// the super cluster.
func (c *custom) reconcile(t *testing.T, name string) ([]string, error) {
	t.Helper()
	fill := func(to kindtest.Cache, from client.Client, options ...client.ListOption) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(c.rules.Kind.GroupVersion().WithKind("WidgetList"))
		require.NoError(t, from.List(t.Context(), list, options...))
		to[kindtest.Widgets] = nil
		for i := range list.Items {
			to[kindtest.Widgets] = append(to[kindtest.Widgets], &list.Items[i])
		}
	}
	fill(c.SuperCache, c.SuperClient, client.HasLabels{tenancyv1alpha1.LabelCluster})
	fill(c.TenantCache, c.Tenant.Client)
	before := []kindtest.Cache{copyOf(c.SuperCache), copyOf(c.TenantCache)}
	c.writes, c.told = nil, nil
	_, err := c.Kind(kind.Custom).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kindtest.Widgets, Namespace: "web", Name: name}, 0)
	require.Empty(t, cmp.Diff(before, []kindtest.Cache{copyOf(c.SuperCache), copyOf(c.TenantCache)}), "cached objects are never changed")
	return c.writes, err
}

func copyOf(of kindtest.Cache) kindtest.Cache {
	copied := kindtest.Cache{}
	for _, cached := range of[kindtest.Widgets] {
		copied[kindtest.Widgets] = append(copied[kindtest.Widgets], cached.DeepCopyObject().(client.Object))
	}
	return copied
}

// wants reconciles and demands what is written.
func (c *custom) wants(t *testing.T, name string, want ...string) {
	t.Helper()
	got, err := c.reconcile(t, name)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// super returns the super object of a Widget.
func (c *custom) super(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	found := kindtest.Widget("", "", "")
	require.NoError(t, c.SuperClient.Get(t.Context(), types.NamespacedName{Namespace: superNamespace, Name: name}, found))
	return found
}

// changed changes Widget w of a control plane.
func changed(t *testing.T, to client.Client, namespace string, change func(*unstructured.Unstructured)) {
	t.Helper()
	found := kindtest.Widget("", "", "")
	require.NoError(t, to.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "w"}, found))
	change(found)
	require.NoError(t, to.Update(t.Context(), found))
}

// recorded returns the Events that were recorded.
func (c *custom) recorded() (all []string) {
	for len(c.Events.Events) > 0 {
		all = append(all, <-c.Events.Events)
	}
	return all
}

// TestCustomDown follows a Widget: made, in sync, changed, drifted, deleted.
func TestCustomDown(t *testing.T) {
	t.Parallel()
	c := newCustom(t, func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Fields.Stay = []string{"spec.node"} })
	c.stored = func(made *unstructured.Unstructured) { // a default of the schema
		if spec, ok := made.Object["spec"].(kindtest.Object); ok {
			spec["size"] = int64(1)
		}
	}
	mine := kindtest.Widget("web", "w", "w-uid", "spec", kindtest.Object{"color": "red", "node": "t"}, "data", []any{"a"})
	mine.SetFinalizers([]string{"example.com/mine"})
	mine.SetOwnerReferences([]metav1.OwnerReference{{Kind: "ConfigMap", Name: "c", UID: "u"}})
	mine.SetAnnotations(map[string]string{"note": "1"})
	has(t, c.Tenant.Client, mine)
	c.wants(t, "w", "create w")
	made := c.super(t, "w")
	require.Equal(t, kindtest.Object{"color": "red", "size": int64(1)}, made.Object["spec"])
	require.Empty(t, made.GetFinalizers())
	require.Empty(t, made.GetOwnerReferences())
	owner, owned := tenancy.GetOwner(made)
	require.True(t, owned)
	require.Equal(t, kindtest.OwnerOf("w-uid"), owner)
	c.wants(t, "w")

	changed(t, c.SuperClient, superNamespace, func(found *unstructured.Unstructured) { found.Object["spec"].(kindtest.Object)["node"] = "n1" })
	c.wants(t, "w")
	changed(t, c.Tenant.Client, "web", func(found *unstructured.Unstructured) {
		found.Object["spec"].(kindtest.Object)["color"] = "green"
		delete(found.Object, "data")
	})
	c.wants(t, "w", "update w")
	require.Equal(t, kindtest.Object{"color": "green", "size": int64(1), "node": "n1"}, c.super(t, "w").Object["spec"])
	require.NotContains(t, c.super(t, "w").Object, "data")
	c.wants(t, "w")

	changed(t, c.SuperClient, superNamespace, func(found *unstructured.Unstructured) { found.Object["spec"].(kindtest.Object)["color"] = "drifted" })
	c.wants(t, "w", "update w")
	require.NoError(t, c.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(mine), mine))
	mine.SetFinalizers(nil)
	require.NoError(t, c.Tenant.Client.Update(t.Context(), mine))
	require.NoError(t, c.Tenant.Client.Delete(t.Context(), mine))
	c.wants(t, "w", "delete w super-w")
	c.wants(t, "w")
	require.Empty(t, c.recorded())
}

// TestCustomDoesNotStay: what the super cluster does not keep is written ever more rarely, and the tenant is told.
func TestCustomDoesNotStay(t *testing.T) {
	t.Parallel()
	c := newCustom(t, nil)
	c.stored = func(made *unstructured.Unstructured) { unstructured.RemoveNestedField(made.Object, "spec", "color") } // its schema has none
	has(t, c.Tenant.Client, kindtest.Widget("web", "w", "w-uid", "spec", kindtest.Object{"color": "red", "size": int64(1)}))
	c.wants(t, "w", "create w")
	writes := 0
	for range 6 * 60 { // a quarter of a day of patrols
		c.clock.SetTime(c.clock.Now().Add(time.Minute))
		got, err := c.reconcile(t, "w")
		require.NoError(t, err)
		writes += len(got)
	}
	require.InDelta(t, 17, writes, 2)
	recorded := c.recorded()
	require.NotEmpty(t, recorded)
	require.Contains(t, recorded[0], "Warning FieldsDiffer Super cluster r1: field spec.color does not stay as it is here")

	changed(t, c.Tenant.Client, "web", func(found *unstructured.Unstructured) { found.Object["spec"].(kindtest.Object)["size"] = int64(2) })
	c.wants(t, "w", "update w")
	require.Equal(t, kindtest.Object{"size": int64(2)}, c.super(t, "w").Object["spec"])
}

// TestCustomOrphans: a super object whose tenant object is not in the cache.
func TestCustomOrphans(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		super func(*unstructured.Unstructured)
		setUp func(*custom)
		want  []string
		waits bool
	}{
		{name: "the tenant has deleted it", want: []string{"delete w super-w"}},
		{name: "the tenant has deleted the definition", setUp: func(c *custom) { c.unserved = true }, want: []string{"delete w super-w"}},
		{name: "the tenant serves another version", setUp: func(c *custom) { c.unserved, c.defined = true, true }, waits: true},
		{name: "another control plane answers", setUp: func(c *custom) { c.Tenant.ControlPlaneUID = "another" }, waits: true},
		{name: "the tenant does not answer", setUp: func(c *custom) {
			c.Tenant.Client = interceptor.NewClient(c.Tenant.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return errors.New("connection refused")
				},
			})
		}, waits: true},
		{name: "it is somebody else's", super: func(made *unstructured.Unstructured) {
			tenancy.SetOwner(made, tenancy.Owner{ClusterKey: "other", Namespace: "web", UID: "u"})
		}},
		{name: "it is no longer synced", setUp: func(c *custom) { c.SetCustom(nil) }},
		{name: "the policy is for other tenants", setUp: func(c *custom) { c.rules.Spec.TenantPolicies = []string{"gold"} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCustom(t, nil)
			made := kindtest.Widget(superNamespace, "w", "super-w", "spec", kindtest.Object{"color": "red"})
			tenancy.SetOwner(made, kindtest.OwnerOf("w-uid"))
			if tc.super != nil {
				tc.super(made)
			}
			has(t, c.SuperClient, made)
			if tc.setUp != nil {
				tc.setUp(c)
			}
			got, err := c.reconcile(t, "w")
			require.Equal(t, tc.waits, err != nil, "%v", err)
			require.Equal(t, tc.want, got)
		})
	}
}

// TestCustomLeaves: a copy that kind namespace did not see goes when its namespace is no longer placed here.
func TestCustomLeaves(t *testing.T) {
	t.Parallel()
	c := newCustom(t, nil)
	has(t, c.Tenant.Client, kindtest.Widget("web", "w", "w-uid", "spec", kindtest.Object{"color": "red"}))
	c.wants(t, "w", "create w")
	placed := builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Held("r2", 1, "cpu", "10", "pods", "10").Home("r2")
	here := builders.Client(kindtest.PlacementScheme(t)).WithObjects(placed.Obj()).Build()
	c.TenantCache[kind.Service] = []client.Object{kindtest.ServiceAt("web", "front", "10.97.0.7")}
	before := c.Env.Assignments
	c.Assigns(here, before.(*assign.Pooled).Live.Reader.(client.WithWatch))
	c.wants(t, "w")
	c.Assigns(here, here)
	c.wants(t, "w", "delete w super-w")
}

// TestCustomWithItems: what watches would take for a list does not go down.
func TestCustomWithItems(t *testing.T) {
	t.Parallel()
	c := newCustom(t, nil)
	has(t, c.Tenant.Client, kindtest.Widget("web", "w", "w-uid", "spec", kindtest.Object{"color": "red"}, "items", "none"))
	c.wants(t, "w")
	recorded := c.recorded()
	require.Len(t, recorded, 1)
	require.Contains(t, recorded[0], "Warning Unwatchable Super cluster r1: an object with a field items")
}

// TestCustomConflict: messages name the kind as people do.
func TestCustomConflict(t *testing.T) {
	t.Parallel()
	c := newCustom(t, nil)
	has(t, c.Tenant.Client, kindtest.Widget("web", "w", "w-uid", "spec", kindtest.Object{"color": "red"}))
	theirs := kindtest.Widget(superNamespace, "w", "theirs")
	tenancy.SetOwner(theirs, tenancy.Owner{ClusterKey: "other", Namespace: "web", UID: "u"})
	has(t, c.SuperClient, theirs)
	c.wants(t, "w")
	require.Equal(t, []string{"Warning Conflict Super cluster r1 has a Widget of that name with another owner"}, c.recorded())
}

// TestCustomRemoves: copies are deleted when the policy says so, by a live read, and are not made again.
func TestCustomRemoves(t *testing.T) {
	t.Parallel()
	c := newCustom(t, nil)
	has(t, c.Tenant.Client, kindtest.Widget("web", "w", "w-uid", "spec", kindtest.Object{"color": "red"}))
	c.wants(t, "w", "create w")
	c.follows(t, func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Copies = tenancyv1alpha1.CopiesRemove })
	c.removes = errors.New("it does not remove its copies any more")
	got, err := c.reconcile(t, "w")
	require.ErrorIs(t, err, c.removes)
	require.Empty(t, got)
	c.removes = nil
	c.wants(t, "w", "delete w super-w")
	c.wants(t, "w")
	c.follows(t, nil)
	c.wants(t, "w", "create w")
}

// TestCustomUp: what the super cluster says of an object, and who tells the tenant.
func TestCustomUp(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		home string
		up   []string
		want []string
		// wantStatus and wantSpec are what the tenant has then.
		wantStatus any
		wantSpec   kindtest.Object
	}{
		{name: "from the home", home: "r1", up: []string{"status"}, want: []string{"status"}, wantStatus: kindtest.Object{"phase": "Running"}, wantSpec: kindtest.Object{"color": "red"}},
		{name: "not from elsewhere", home: "r2", up: []string{"status"}, wantSpec: kindtest.Object{"color": "red"}},
		{name: "nothing", home: "r1", wantSpec: kindtest.Object{"color": "red"}},
		{name: "a field of spec", home: "r1", up: []string{"spec.address"}, want: []string{"object"}, wantSpec: kindtest.Object{"color": "red", "address": "10.0.0.1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCustom(t, func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Fields.Up = tc.up })
			c.home(t, tc.home)
			has(t, c.Tenant.Client, kindtest.Widget("web", "w", "w-uid", "spec", kindtest.Object{"color": "red"}))
			c.wants(t, "w", "create w")
			changed(t, c.SuperClient, superNamespace, func(found *unstructured.Unstructured) {
				found.Object["status"] = kindtest.Object{"phase": "Running"}
				found.Object["spec"].(kindtest.Object)["address"] = "10.0.0.1"
			})
			c.wants(t, "w")
			require.Equal(t, tc.want, c.told)
			found := kindtest.Widget("", "", "")
			require.NoError(t, c.Tenant.Client.Get(t.Context(), types.NamespacedName{Namespace: "web", Name: "w"}, found))
			require.Empty(t, cmp.Diff([]any{tc.wantStatus, tc.wantSpec}, []any{found.Object["status"], found.Object["spec"]}))
			c.wants(t, "w")
			require.Empty(t, c.told)
		})
	}
}

// TestCustomLimits: no more objects of a namespace go down than the policy lets, and none that is too large.
func TestCustomLimits(t *testing.T) {
	t.Parallel()
	c := newCustom(t, nil)
	for i := range 4 {
		has(t, c.Tenant.Client, kindtest.Widget("web", fmt.Sprintf("w%d", i), types.UID(fmt.Sprint(i)), "spec", kindtest.Object{}))
	}
	has(t, c.Tenant.Client, kindtest.Widget("web", "large", "large", "spec", kindtest.Object{"text": strings.Repeat("x", 3000)}))
	c.wants(t, "large")
	for i := range 3 {
		c.wants(t, fmt.Sprintf("w%d", i), fmt.Sprintf("create w%d", i))
	}
	c.wants(t, "w3")
	recorded := c.recorded()
	require.Len(t, recorded, 2, "before the cache shows any")
	require.Contains(t, recorded[0], "and at most 2048 are allowed (limits.bytes of SyncPolicy widgets)")
	require.Contains(t, recorded[1], "the namespace may have 3 objects of kind Widget there, and has as many (limits.objects of SyncPolicy widgets)")
	for i := range 3 {
		c.Env.Changed(kind.Change{Kind: kindtest.Widgets, Side: kind.SuperSide, Current: c.super(t, fmt.Sprintf("w%d", i))})
	}
	c.wants(t, "w3")
	gone := c.super(t, "w0")
	require.NoError(t, c.Tenant.Client.Delete(t.Context(), kindtest.Widget("web", "w0", "")))
	c.wants(t, "w0", "delete w0 super-w0")
	woken := c.Env.Changed(kind.Change{Kind: kindtest.Widgets, Side: kind.SuperSide, Old: gone})
	require.Contains(t, woken, engine.Key{Tenant: kindtest.ClusterKey, Kind: kindtest.Widgets, Namespace: "web", Name: "w3"}, "it waits for room")
	c.wants(t, "w3", "create w3")

	// Each namespace has a count of its own, and one of a kind that is gone goes.
	share := kind.Share{Name: kindtest.Widgets + ":objects", PerNamespace: true}
	reserve := func(namespace string) bool {
		_, ok := c.Env.Tally.Reserve(share.Key(engine.Key{Tenant: kindtest.ClusterKey, Kind: kindtest.Widgets, Namespace: namespace, Name: "another"}), true,
			kind.Amount{Objects: 1}, kind.Amount{Objects: 3}, c.clock.Now())
		return ok
	}
	require.True(t, reserve("other"))
	require.False(t, reserve("web"))
	c.follows(t, nil)
	require.False(t, reserve("web"), "it is followed as before")
	c.SetCustom(nil)
	require.True(t, reserve("web"))
}

// TestCustomTotal: all namespaces of a tenant together have a bound, which counts updates, and a SyncPolicy that goes
// and comes again counts each object once.
func TestCustomTotal(t *testing.T) {
	t.Parallel()
	limited := func(spec *tenancyv1alpha1.SyncPolicySpec) {
		spec.Limits = tenancyv1alpha1.SyncLimits{Objects: 100, Bytes: resource.MustParse("64Ki"), TotalObjects: 2, TotalBytes: ptr.To(resource.MustParse("4Ki"))}
	}
	c := newCustom(t, limited)
	for i := range 4 {
		has(t, c.Tenant.Client, kindtest.Widget("web", fmt.Sprintf("w%d", i), types.UID(fmt.Sprint(i)), "spec", kindtest.Object{}))
	}
	shown := func(names ...string) {
		for _, name := range names {
			c.Env.Changed(kind.Change{Kind: kindtest.Widgets, Side: kind.SuperSide, Current: c.super(t, name)})
		}
	}
	key := func(name string) engine.Key {
		return engine.Key{Tenant: kindtest.ClusterKey, Kind: kindtest.Widgets, Namespace: "web", Name: name}
	}
	tooMany := "Warning TenantLimit Super cluster r1: 2 widgets of at most 2 exist (limits.totalObjects, totalBytes of SyncPolicy widgets)"
	c.wants(t, "w0", "create w0")
	c.wants(t, "w1", "create w1")
	c.wants(t, "w2")
	require.Equal(t, []string{tooMany}, c.recorded(), "before the cache shows any")
	shown("w0", "w1")
	c.wants(t, "w2")
	w0 := kindtest.Widget("", "", "")
	require.NoError(t, c.Tenant.Client.Get(t.Context(), types.NamespacedName{Namespace: "web", Name: "w0"}, w0))
	w0.Object["spec"] = kindtest.Object{"text": strings.Repeat("x", 5000)}
	require.NoError(t, c.Tenant.Client.Update(t.Context(), w0))
	c.wants(t, "w0")
	require.Contains(t, strings.Join(c.recorded(), ""), "and at most 4096 are allowed (limits.totalObjects, totalBytes of SyncPolicy widgets)")

	gone := c.super(t, "w1")
	require.NoError(t, c.Tenant.Client.Delete(t.Context(), kindtest.Widget("web", "w1", "")))
	c.wants(t, "w1", "delete w1 super-w1")
	woken := c.Env.Changed(kind.Change{Kind: kindtest.Widgets, Side: kind.SuperSide, Old: gone})
	require.True(t, slices.Contains(woken, key("w0")) || slices.Contains(woken, key("w2")), "one of those that wait")
	c.wants(t, "w2", "create w2")
	shown("w2")

	c.SetCustom(nil)
	c.Env.Changed(kind.Change{Kind: kindtest.Widgets, Side: kind.SuperSide, Old: c.super(t, "w2")})
	c.follows(t, limited)
	shown("w0", "w2")
	c.recorded()
	c.wants(t, "w3")
	require.Equal(t, []string{tooMany}, c.recorded())
}

// TestCustomKeys: keys of such kinds go to one queue, and a kind that is gone makes none.
func TestCustomKeys(t *testing.T) {
	t.Parallel()
	c := newCustom(t, nil)
	has(t, c.Tenant.Client, kindtest.Widget("web", "w", "w-uid", "spec", kindtest.Object{}))
	c.wants(t, "w", "create w")
	c.wants(t, "w")
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kindtest.Widgets, Namespace: "web", Name: "w"}
	require.Contains(t, dynamic.CustomKeys(c.Env), key)
	change := kind.Change{Kind: kindtest.Widgets, Side: kind.SuperSide, Current: c.super(t, "w")}
	require.Equal(t, []engine.Key{key}, c.Env.Changed(change))
	require.True(t, slices.ContainsFunc(c.Env.Specs(), func(spec kind.Spec) bool { return spec.Name == kindtest.Widgets && spec.Aside && spec.Cleared }))
	c.SetCustom(nil)
	require.Empty(t, c.Env.Changed(change))
	require.NotContains(t, dynamic.CustomKeys(c.Env), key)
	_, found := c.Env.Rewatches(change)
	require.False(t, found)
	_, ours := c.Env.SuperKey(kindtest.Widgets, c.super(t, "w"))
	require.True(t, ours, "the key of an event that is still under way; nothing reconciles it")
}

// TestWhatCameUpToNamespacesStays: a SyncPolicy of an earlier version, by which objects of super namespaces came up, is
// refused, and no key of what came up takes anything from a tenant or the super cluster.
func TestWhatCameUpToNamespacesStays(t *testing.T) {
	t.Parallel()
	c := newCustom(t, nil)
	c.Placed(t)
	cameUp := kindtest.Widget("web", "w", "w-uid")
	offer.Mark(cameUp, "r1", offer.Note{Hash: "h"})
	for _, copies := range []tenancyv1alpha1.SyncCopies{tenancyv1alpha1.CopiesKeep, tenancyv1alpha1.CopiesRemove} {
		accepted, refused := syncpolicy.CompileAll([]*tenancyv1alpha1.SyncPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "reports"}, Spec: tenancyv1alpha1.SyncPolicySpec{
			Group: "example.com", Version: "v1", Kind: "Widget", Direction: tenancyv1alpha1.SyncUp, Scope: "Namespaces", Copies: copies,
		}}}, nil)
		require.Empty(t, accepted)
		require.Contains(t, refused["reports"].Message, "What came up stays in tenants as it is")
	}
	has(t, c.Tenant.Client, cameUp)
	for _, followed := range []func(){
		func() { c.SetCustom(nil) },
		func() { // another SyncPolicy for the kind, which has no objects of that name
			c.follows(t, func(spec *tenancyv1alpha1.SyncPolicySpec) {
				spec.Direction, spec.Names = tenancyv1alpha1.SyncUp, []string{"x"}
			})
		},
	} {
		followed()
		const raised = "offer:Widget.v1.example.com"
		c.TenantCache[raised], c.SuperCache[raised] = []client.Object{cameUp}, nil
		for _, name := range []string{"web/w", "w"} {
			_, err := c.Kind(kind.Offer).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Offer, Namespace: raised, Name: name}, 0)
			require.NoError(t, err)
		}
		require.NoError(t, c.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(cameUp), kindtest.Widget("", "", "")))
	}
	require.Empty(t, c.writes)
}

// TestEventOfCustom: Events of super clusters about copies of a kind of a SyncPolicy come up, unless it says otherwise.
func TestEventOfCustom(t *testing.T) {
	t.Parallel()
	const source = "event:Widget.v1.example.com"
	for _, tc := range []struct {
		name    string
		policy  func(*tenancyv1alpha1.SyncPolicySpec)
		super   *unstructured.Unstructured
		watched bool
		want    []string
	}{
		{name: "they come up", super: builders.Owned(kindtest.Widget(superNamespace, "w", "super-w"), kindtest.OwnerOf("w-uid")), watched: true, want: []string{"w.1.r1 of w-uid: no issuer for web/w"}},
		{name: "of an earlier copy", super: builders.Owned(kindtest.Widget(superNamespace, "w", "newer"), kindtest.OwnerOf("w-uid")), watched: true},
		{name: "of another object of the tenant", super: builders.Owned(kindtest.Widget(superNamespace, "w", "super-w"), kindtest.OwnerOf("gone")), watched: true},
		{name: "of an object that is nobody's copy", super: kindtest.Widget(superNamespace, "w", "super-w"), watched: true},
		{name: "they stay", policy: func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Events = tenancyv1alpha1.EventsStay }, super: builders.Owned(kindtest.Widget(superNamespace, "w", "super-w"), kindtest.OwnerOf("w-uid"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCustom(t, tc.policy)
			c.SuperCache[kindtest.Widgets], c.TenantCache[kindtest.Widgets] = []client.Object{tc.super}, []client.Object{kindtest.Widget("web", "w", "w-uid")}
			event := &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: superNamespace, Name: "w.1"},
				InvolvedObject: corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "Widget", Namespace: superNamespace, Name: "w", UID: "super-w"},
				Reason:         "Refused", Message: fmt.Sprintf("no issuer for %s/w", superNamespace), LastTimestamp: metav1.NewTime(c.clock.Now()),
			}
			c.SuperCache[source] = []client.Object{event}
			key, ours := c.EventKey(event)
			require.True(t, ours)
			specs := map[string]kind.Spec{}
			for _, spec := range c.Env.Specs() {
				specs[spec.Name] = spec
			}
			require.Equal(t, tc.watched, slices.Contains(slices.Collect(maps.Keys(specs)), source))
			if tc.watched {
				require.Equal(t, "involvedObject.kind=Widget", specs[source].Super.Fields)
				require.True(t, specs[source].Aside)
				require.Equal(t, []engine.Key{key}, c.Env.Changed(kind.Change{Kind: source, Side: kind.SuperSide, Current: event}))
			}
			_, err := c.Kind(kind.Event).Reconcile(t.Context(), key, time.Minute)
			require.NoError(t, err)
			var events corev1.EventList
			require.NoError(t, c.Tenant.Client.List(t.Context(), &events))
			var got []string
			for i := range events.Items {
				told := &events.Items[i]
				got = append(got, fmt.Sprintf("%s of %s: %s", told.Name, told.InvolvedObject.UID, told.Message))
			}
			require.Equal(t, tc.want, got)
		})
	}
}
