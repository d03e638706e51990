package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/offer"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/syncer/kinds/dynamic"
	"github.com/superpool/superpool/internal/syncer/kinds/events"
	"github.com/superpool/superpool/internal/syncpolicy"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

const raisedWidgets = "offer:Widget.v1.example.com"

// raising is a pool with a SyncPolicy that raises Widgets. Its caches are what its clients have.
type raising struct {
	*pool
	clock *testingclock.FakePassiveClock
	// writes are the writes to the tenant, and operator the Events on the virtual Node.
	writes   []string
	operator *record.FakeRecorder
}

func newRaising(t *testing.T, change func(*tenancyv1alpha1.SyncPolicySpec)) *raising {
	t.Helper()
	r := &raising{pool: newPool(t, interceptor.Funcs{}), clock: testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0)), operator: record.NewFakeRecorder(100)}
	r.placed(t)
	r.env.Clock, r.env.MetaRecorder = r.clock, r.operator
	r.env.VirtualNode = func() *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1"}} }
	scheme := func() *runtime.Scheme {
		made := runtime.NewScheme()
		require.NoError(t, clientgoscheme.AddToScheme(made))
		return made
	}
	superNamespace, _ := r.namespace.DeepCopyObject().(client.Object)
	r.superClient = answering(builders.Client(scheme()).WithObjects(superNamespace).Build(), superUID)
	r.env.Super = r.superClient
	noted := func(verb string, made client.Object) { r.writes = append(r.writes, verb+" "+made.GetName()) }
	r.tenant.Client = answering(interceptor.NewClient(builders.Client(scheme()).WithStatusSubresource(widget("", "", "")).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, to client.WithWatch, made client.Object, options ...client.CreateOption) error {
			noted("create", made)
			if untyped, ok := made.(*unstructured.Unstructured); ok { // as an API server does, and the fake client does not
				delete(untyped.Object, "status")
			}
			return to.Create(ctx, made, options...)
		},
		Update: func(ctx context.Context, to client.WithWatch, made client.Object, options ...client.UpdateOption) error {
			noted("update", made)
			return to.Update(ctx, made, options...)
		},
		SubResourceUpdate: func(ctx context.Context, to client.Client, name string, made client.Object, options ...client.SubResourceUpdateOption) error {
			noted(name, made)
			return to.SubResource(name).Update(ctx, made, options...)
		},
		Delete: func(ctx context.Context, to client.WithWatch, made client.Object, _ ...client.DeleteOption) error {
			noted("delete", made)
			return to.Delete(ctx, made)
		},
	}), tenantUID)
	r.follows(t, nil, change)
	return r
}

// follows puts a SyncPolicy in force; removes is the error of a live read of it.
func (r *raising) follows(t *testing.T, removes error, change func(*tenancyv1alpha1.SyncPolicySpec)) {
	t.Helper()
	policy := &tenancyv1alpha1.SyncPolicy{ObjectMeta: metav1.ObjectMeta{Name: "reports"}, Spec: tenancyv1alpha1.SyncPolicySpec{
		Group: "example.com", Version: "v1", Kind: "Widget", Direction: tenancyv1alpha1.SyncUp, Scope: tenancyv1alpha1.SyncNamespaces,
		Fields: tenancyv1alpha1.SyncFields{Up: []string{"status"}}, Limits: tenancyv1alpha1.SyncLimits{Objects: 2, Bytes: resource.MustParse("1Ki")},
	}}
	if change != nil {
		change(&policy.Spec)
	}
	rules, refusal := syncpolicy.Compile(policy, nil)
	require.Nil(t, refusal)
	kinds.SetCustom(r.env, []dynamic.Custom{{Rules: rules, Resource: "widgets", Removes: func(_ context.Context, name string) (proof.Proof, error) {
		require.NotContains(t, name, "/")
		return proof.NotNeeded("the policy says so"), removes
	}}})
}

// wants reconciles a Widget of namespace web, with caches that are filled from the clients, and demands what is written
// to the tenant.
func (r *raising) wants(t *testing.T, name string, want ...string) {
	t.Helper()
	require.NoError(t, r.reconcile(t, name))
	require.Equal(t, want, r.writes)
}

func (r *raising) reconcile(t *testing.T, name string) error {
	t.Helper()
	fill := func(to cache, from client.Client, options ...client.ListOption) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(widget("", "", "").GroupVersionKind().GroupVersion().WithKind("WidgetList"))
		require.NoError(t, from.List(t.Context(), list, options...))
		to[raisedWidgets] = nil
		for i := range list.Items {
			to[raisedWidgets] = append(to[raisedWidgets], &list.Items[i])
		}
	}
	fill(r.superCache, r.superClient)
	fill(r.tenantCache, r.tenant.Client, client.HasLabels{tenancyv1alpha1.LabelOffered})
	before := []cache{copyOfRaised(r.superCache), copyOfRaised(r.tenantCache)}
	r.writes = nil
	_, err := r.kind(kind.Offer).Reconcile(t.Context(), raisedKey(name), 0)
	require.Empty(t, cmp.Diff(before, []cache{copyOfRaised(r.superCache), copyOfRaised(r.tenantCache)}), "cached objects are never changed")
	return err
}

func copyOfRaised(of cache) cache {
	copied := cache{}
	for _, cached := range of[raisedWidgets] {
		copied[raisedWidgets] = append(copied[raisedWidgets], cached.DeepCopyObject().(client.Object))
	}
	return copied
}

func raisedKey(name string) engine.Key {
	return engine.Key{Tenant: clusterKey, Kind: kind.Offer, Namespace: raisedWidgets, Name: "web/" + name}
}

// has returns what the tenant has of a Widget of namespace web, nil for nothing.
func (r *raising) has(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	found := widget("", "", "")
	if err := r.tenant.Client.Get(t.Context(), types.NamespacedName{Namespace: "web", Name: name}, found); err != nil {
		require.NoError(t, client.IgnoreNotFound(err))
		return nil
	}
	return found
}

// told returns the Events that the tenant and the operator have got.
func (r *raising) told() (tenant, operator []string) {
	for len(r.events.Events) > 0 {
		tenant = append(tenant, <-r.events.Events)
	}
	for len(r.operator.Events) > 0 {
		operator = append(operator, <-r.operator.Events)
	}
	return tenant, operator
}

// TestRaised follows an object that a controller of the super cluster makes: it comes up, with the tenant's names, it
// changes on either side, and it goes.
func TestRaised(t *testing.T) {
	t.Parallel()
	r := newRaising(t, func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Fields.Stay = []string{"spec.node"} })
	made := widget(superNamespace, "w", "super-w", "spec", object{
		"node": "n1", "of": superNamespace + "/p", "by": []any{"svc." + superNamespace + ".svc", "tls-" + superNamespace + "-0"}, superNamespace: "1",
	}, "status", object{"phase": "Done"})
	made.SetLabels(map[string]string{"of": "r1"})
	made.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Job", Name: "j", UID: "u"}})
	has(t, r.superClient, made)
	r.wants(t, "w", "create w")
	r.wants(t, "w", "status w")
	r.wants(t, "w")
	mine := r.has(t, "w")
	require.Empty(t, cmp.Diff(object{"of": "web/p", "by": []any{"svc.web.svc", "tls-web-0"}, "web": "1"}, mine.Object["spec"]))
	require.Equal(t, object{"phase": "Done"}, mine.Object["status"])
	require.Empty(t, mine.GetOwnerReferences())
	require.Equal(t, map[string]string{tenancyv1alpha1.LabelOffered: "true"}, mine.GetLabels())
	require.Equal(t, []string{"r1"}, offer.By(mine))

	changed(t, r.superClient, superNamespace, func(found *unstructured.Unstructured) { found.Object["status"] = object{"phase": "Failed"} })
	r.wants(t, "w", "update w") // the note of what this super cluster has
	r.wants(t, "w", "status w")
	r.wants(t, "w")
	require.Equal(t, object{"phase": "Failed"}, r.has(t, "w").Object["status"])
	changed(t, r.tenant.Client, "web", func(found *unstructured.Unstructured) { found.Object["spec"].(object)["of"] = "forged" })
	r.clock.SetTime(r.clock.Now().Add(time.Minute))
	r.wants(t, "w", "update w")
	require.Equal(t, "web/p", r.has(t, "w").Object["spec"].(object)["of"])

	require.NoError(t, r.superClient.Delete(t.Context(), made))
	r.wants(t, "w", "delete w")
	r.wants(t, "w")
	tenant, operator := r.told()
	require.Empty(t, append(tenant, operator...))
}

// TestNotRaised: what does not come up, what stays as it is, and what goes.
func TestNotRaised(t *testing.T) {
	t.Parallel()
	const hash = "another"
	report := func(content ...any) *unstructured.Unstructured {
		return widget(superNamespace, "w", "super-w", content...)
	}
	marked := func(superCluster, hash string) *unstructured.Unstructured {
		object := widget("web", "w", "w-uid")
		offer.Mark(object, superCluster, offer.Note{Hash: hash})
		return object
	}
	other := builders.Owned(builders.Namespace("other-web"), tenancy.Owner{
		ClusterKey: "other", VirtualCluster: types.NamespacedName{Namespace: "other", Name: "vc"}, VirtualClusterUID: "o", Namespace: "web", UID: "o",
	})
	for _, tc := range []struct {
		name   string
		policy func(*tenancyv1alpha1.SyncPolicySpec)
		super  *unstructured.Unstructured
		tenant []*unstructured.Unstructured
		setUp  func(*raising)
		want   []string
		// wantTenant and wantOperator begin the Events that they get.
		wantTenant, wantOperator string
		waits                    bool
	}{
		{name: "what names lists", policy: func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Names = []string{"w"} }, super: report(), want: []string{"create w"}},
		{name: "not what it does not list", policy: func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Names = []string{"v"} }, super: report()},
		{name: "what it lists no more goes", policy: func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Names = []string{"v"} }, super: report(), tenant: []*unstructured.Unstructured{marked("r1", hash)}, want: []string{"delete w"}},
		{name: "a copy of a tenant's", super: builders.Owned(report(), ownerOf("w-uid"))},
		{name: "a copy in place of what came up", super: builders.Owned(report(), ownerOf("w-uid")), tenant: []*unstructured.Unstructured{marked("r1", hash)}, want: []string{"delete w"}},
		{name: "for other tenants", policy: func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.TenantPolicies = []string{"gold"} }, super: report(), tenant: []*unstructured.Unstructured{marked("r1", hash)}},
		{
			name: "it is too large", super: report("spec", object{"text": strings.Repeat("x", 2000)}),
			wantTenant: "Warning TenantLimit Super cluster r1: Widget w has 20",
		},
		{
			name: "it has become too large, and stays as it was", super: report("spec", object{"text": strings.Repeat("x", 2000)}), tenant: []*unstructured.Unstructured{marked("r1", hash)},
			wantTenant: "Warning TenantLimit Super cluster r1: Widget w has 20",
		},
		{
			name: "the tenant has as many as it may", super: report(), tenant: []*unstructured.Unstructured{renamed(marked("r1", hash), "a"), renamed(marked("r2", hash), "b")},
			wantTenant: "Warning TenantLimit Super cluster r1 has objects of kind Widget for this namespace that do not come up: 2 may",
		},
		{
			name: "it names another tenant's namespace", super: report("spec", object{"of": "pod other-web/p"}), setUp: func(r *raising) {
				r.superCache[kind.Namespace] = append(r.superCache[kind.Namespace], other)
			},
			wantOperator: "Warning NotRaised Widget " + superNamespace + "/w of super cluster r1 does not come up to " + clusterKey + ": it names namespace other-web",
		},
		{
			name: "it names what is called after another tenant's namespace", super: report("spec", object{"of": "secret other-web-tls"}), setUp: func(r *raising) {
				r.superCache[kind.Namespace] = append(r.superCache[kind.Namespace], other)
			},
			wantOperator: "Warning NotRaised Widget " + superNamespace + "/w of super cluster r1 does not come up to " + clusterKey + ": it names namespace other-web",
		},
		{
			name: "what stays may", super: report("spec", object{"of": "pod other-web/p"}), policy: func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Fields.Stay = []string{"spec.of"} },
			setUp: func(r *raising) {
				r.superCache[kind.Namespace] = append(r.superCache[kind.Namespace], other)
			},
			want: []string{"create w"},
		},
		{name: "it looks like a list", super: report("items", "none"), wantOperator: "Warning NotRaised Widget "},
		{
			name: "the tenant's own", super: report(), tenant: []*unstructured.Unstructured{widget("web", "w", "w-uid", "spec", object{"color": "mine"})}, want: []string{"create w"},
			wantTenant: "Warning NotOffered Super cluster r1 offers a Widget of this name. This one is the tenant's own",
		},
		{
			name: "another super cluster was first", super: report("spec", object{"color": "red"}), tenant: []*unstructured.Unstructured{marked("r2", hash)},
			wantOperator: "Warning OffersDiffer Widget web/w of super cluster r1 differs from that of super cluster r2",
		},
		{name: "the namespace was made again", super: report(), setUp: func(r *raising) {
			r.tenantCache[kind.Namespace] = []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "new"}}}
		}},
		{name: "and holds what came up to it from here", super: report(), tenant: []*unstructured.Unstructured{marked("r1", hash)}, setUp: func(r *raising) {
			r.tenantCache[kind.Namespace] = []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "new"}}}
		}, want: []string{"delete w"}},
		{name: "a cache says that the super namespace is another's", super: report(), tenant: []*unstructured.Unstructured{marked("r1", hash)}, setUp: func(r *raising) {
			r.superCache[kind.Namespace] = []client.Object{other}
		}, waits: true},
		{name: "the namespace is being deleted", super: report(), setUp: func(r *raising) {
			r.tenantCache[kind.Namespace] = []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "ns-uid", DeletionTimestamp: &metav1.Time{}}}}
		}},
		{name: "the super cluster has deleted it, and another has it", tenant: []*unstructured.Unstructured{func() *unstructured.Unstructured {
			object := marked("r1", hash)
			offer.Mark(object, "r2", offer.Note{Hash: hash})
			return object
		}()}, want: []string{"update w"}},
		{name: "all are to go", policy: func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Copies = tenancyv1alpha1.CopiesRemove }, super: report(), tenant: []*unstructured.Unstructured{marked("r1", hash)}, want: []string{"delete w"}},
		{name: "another control plane answers", tenant: []*unstructured.Unstructured{marked("r1", hash)}, setUp: func(r *raising) { r.env.SuperUID = "another" }, waits: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRaising(t, tc.policy)
			if tc.super != nil {
				has(t, r.superClient, tc.super)
			}
			for _, object := range tc.tenant {
				has(t, r.tenant.Client, object)
			}
			if tc.setUp != nil {
				tc.setUp(r)
			}
			err := r.reconcile(t, "w")
			require.Equal(t, tc.waits, err != nil, "%v", err)
			require.Equal(t, tc.want, r.writes)
			tenant, operator := r.told()
			for _, told := range []struct {
				want string
				got  []string
			}{{tc.wantTenant, tenant}, {tc.wantOperator, operator}} {
				if told.want == "" {
					require.Empty(t, told.got)
					continue
				}
				require.Len(t, told.got, 1)
				require.Contains(t, told.got[0], told.want)
			}
			require.NotContains(t, strings.Join(tenant, ""), "other-web")
		})
	}
}

// renamed returns an object with another name.
func renamed(object *unstructured.Unstructured, name string) *unstructured.Unstructured {
	object.SetName(name)
	return object
}

// TestRaisedRoomComesBack: what came up and is gone takes no room, however soon.
func TestRaisedRoomComesBack(t *testing.T) {
	t.Parallel()
	r := newRaising(t, nil)
	for i := range 4 {
		name := fmt.Sprintf("w%d", i)
		made := widget(superNamespace, name, types.UID("super-"+name))
		has(t, r.superClient, made)
		r.wants(t, name, "create "+name)
		r.env.Changed(kind.Change{Kind: raisedWidgets, Side: kind.TenantSide, Tenant: clusterKey, Current: r.has(t, name)})
		require.NoError(t, r.superClient.Delete(t.Context(), made))
		r.wants(t, name, "delete "+name)
	}
	for i := range 3 {
		name := fmt.Sprintf("w%d", i)
		has(t, r.superClient, widget(superNamespace, name, types.UID("super-"+name)))
	}
	r.wants(t, "w0", "create w0")
	r.wants(t, "w1", "create w1")
	r.wants(t, "w2")
	tenant, _ := r.told()
	require.Len(t, tenant, 1)
}

// TestRaisedRemovesByLiveRead: that the policy says so in a cache deletes nothing.
func TestRaisedRemovesByLiveRead(t *testing.T) {
	t.Parallel()
	r := newRaising(t, nil)
	has(t, r.superClient, widget(superNamespace, "w", "super-w"))
	r.wants(t, "w", "create w")
	kept := errors.New("it removes nothing")
	r.follows(t, kept, func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Copies = tenancyv1alpha1.CopiesRemove })
	require.ErrorIs(t, r.reconcile(t, "w"), kept)
	require.Empty(t, r.writes)
}

// TestRaisedDoesNotStay: what the tenant does not keep is written ever more rarely.
func TestRaisedDoesNotStay(t *testing.T) {
	t.Parallel()
	r := newRaising(t, nil)
	has(t, r.superClient, widget(superNamespace, "w", "super-w", "spec", object{"color": "red"}))
	r.wants(t, "w", "create w")
	writes := 0
	for range 6 * 60 { // a quarter of a day of patrols
		r.clock.SetTime(r.clock.Now().Add(time.Minute))
		changed(t, r.tenant.Client, "web", func(found *unstructured.Unstructured) { found.Object["spec"] = object{"color": "mine"} })
		require.NoError(t, r.reconcile(t, "w"))
		writes += len(r.writes)
	}
	require.InDelta(t, 17, writes, 2)
}

// TestRaisedKeys: what changes enqueue.
func TestRaisedKeys(t *testing.T) {
	t.Parallel()
	r := newRaising(t, func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Names = []string{"w", "x"} })
	made, copied := widget(superNamespace, "w", "super-w"), builders.Owned(widget(superNamespace, "x", "super-x"), ownerOf("x-uid"))
	r.superCache[raisedWidgets] = []client.Object{made, copied, widget(superNamespace, "unlisted", "u"), widget("operators", "w", "o")}
	require.Contains(t, dynamic.CustomKeys(r.env), raisedKey("w"))
	require.NotContains(t, dynamic.CustomKeys(r.env), raisedKey("x"))
	require.NotContains(t, dynamic.CustomKeys(r.env), raisedKey("unlisted"))
	require.Equal(t, []engine.Key{raisedKey("w")}, r.env.Changed(kind.Change{Kind: raisedWidgets, Side: kind.SuperSide, Current: made}))
	require.Equal(t, []engine.Key{raisedKey("w")}, r.env.Changed(kind.Change{Kind: raisedWidgets, Side: kind.TenantSide, Tenant: clusterKey, Old: widget("web", "w", "w-uid")}))
	for _, nobodys := range []string{"operators", "none"} {
		require.Empty(t, r.env.Changed(kind.Change{Kind: raisedWidgets, Side: kind.SuperSide, Current: widget(nobodys, "w", "o")}))
	}
	for _, change := range []kind.Change{
		{Kind: kind.Namespace, Side: kind.SuperSide, Current: r.namespace},
		{Kind: kind.Namespace, Side: kind.SuperSide, Old: builders.Namespace(superNamespace), Current: r.namespace},
		{Kind: kind.Namespace, Side: kind.TenantSide, Tenant: clusterKey, Current: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}},
	} {
		require.Contains(t, r.env.Changed(change), raisedKey("w"))
	}
	require.NotContains(t, r.env.Changed(kind.Change{Kind: kind.Namespace, Side: kind.SuperSide, Old: r.namespace, Current: r.namespace}), raisedKey("w"))
	watched := slices.IndexFunc(r.env.Specs(), func(spec kind.Spec) bool { return spec.Name == raisedWidgets })
	spec := r.env.Specs()[watched]
	require.True(t, spec.Aside && !spec.ClusterScoped && !spec.PerNamespace() && spec.Wanted(r.env, r.tenant))
	require.Nil(t, spec.Super.Labels, "all of the kind are watched")
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
		{name: "they come up", super: builders.Owned(widget(superNamespace, "w", "super-w"), ownerOf("w-uid")), watched: true, want: []string{"w.1.r1 of w-uid: no issuer for web/w"}},
		{name: "of an earlier copy", super: builders.Owned(widget(superNamespace, "w", "newer"), ownerOf("w-uid")), watched: true},
		{name: "of another object of the tenant", super: builders.Owned(widget(superNamespace, "w", "super-w"), ownerOf("gone")), watched: true},
		{name: "of an object that is nobody's copy", super: widget(superNamespace, "w", "super-w"), watched: true},
		{name: "they stay", policy: func(spec *tenancyv1alpha1.SyncPolicySpec) { spec.Events = tenancyv1alpha1.EventsStay }, super: builders.Owned(widget(superNamespace, "w", "super-w"), ownerOf("w-uid"))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCustom(t, tc.policy)
			c.superCache[widgets], c.tenantCache[widgets] = []client.Object{tc.super}, []client.Object{widget("web", "w", "w-uid")}
			event := &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: superNamespace, Name: "w.1"},
				InvolvedObject: corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "Widget", Namespace: superNamespace, Name: "w", UID: "super-w"},
				Reason:         "Refused", Message: fmt.Sprintf("no issuer for %s/w", superNamespace), LastTimestamp: metav1.NewTime(c.clock.Now()),
			}
			c.superCache[source] = []client.Object{event}
			key, ours := events.EventKey(c.superCache, event)
			require.True(t, ours)
			specs := map[string]kind.Spec{}
			for _, spec := range c.env.Specs() {
				specs[spec.Name] = spec
			}
			require.Equal(t, tc.watched, slices.Contains(slices.Collect(maps.Keys(specs)), source))
			if tc.watched {
				require.Equal(t, "involvedObject.kind=Widget", specs[source].Super.Fields)
				require.True(t, specs[source].Aside)
				require.Equal(t, []engine.Key{key}, c.env.Changed(kind.Change{Kind: source, Side: kind.SuperSide, Current: event}))
			}
			_, err := c.kind(kind.Event).Reconcile(t.Context(), key, time.Minute)
			require.NoError(t, err)
			var events corev1.EventList
			require.NoError(t, c.tenant.Client.List(t.Context(), &events))
			var got []string
			for i := range events.Items {
				told := &events.Items[i]
				got = append(got, fmt.Sprintf("%s of %s: %s", told.Name, told.InvolvedObject.UID, told.Message))
			}
			require.Equal(t, tc.want, got)
		})
	}
}
