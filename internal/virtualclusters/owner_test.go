package virtualclusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

var errBroken = errors.New("connection reset by peer")

// fault is one kind of request that the meta cluster does not answer, while it lasts.
type fault struct {
	request string // get, list, create, patch, delete or status, and the type, as "get *v1.Namespace"
	mended  bool
}

func (f *fault) hits(request string, object any) error {
	if !f.mended && f.request == fmt.Sprintf("%s %T", request, object) {
		return errBroken
	}
	return nil
}

// owner returns an Owner over a meta cluster with these objects, and with the fault.
func (f *fault) owner(t *testing.T, objects ...client.Object) *Owner {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(scheme.AddToScheme(s), tenancyv1alpha1.AddToScheme(s), schedulerv1alpha1.AddToScheme(s)))
	c := builders.Client(s).WithObjects(objects...).WithStatusSubresource(&tenancyv1alpha1.VirtualCluster{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				return cmp.Or(f.hits("get", o), c.Get(ctx, key, o, options...))
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				return cmp.Or(f.hits("list", list), c.List(ctx, list, options...))
			},
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if err := f.hits("create", o); err != nil {
					return err
				}
				return c.Create(ctx, o, options...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
				if err := f.hits("delete", o); err != nil {
					return err
				}
				return c.Delete(ctx, o, options...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
				if err := f.hits("patch", o); err != nil {
					return err
				}
				return c.Patch(ctx, o, patch, options...)
			},
			SubResourcePatch: func(
				ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
			) error {
				if err := f.hits(sub, o); err != nil {
					return err
				}
				return c.SubResource(sub).Patch(ctx, o, patch, options...)
			},
		}).Build()
	return &Owner{Client: c, Reader: c, Recorder: record.NewFakeRecorder(10)}
}

// keyed is a VirtualCluster with its finalizer and cluster key "key", as Prepare leaves it.
func keyed(name string) *tenancyv1alpha1.VirtualCluster {
	vc := builders.VirtualCluster(name)
	vc.Finalizers, vc.Status.ClusterNamespace = []string{FinalizerPlacements}, "key"
	return vc
}

// TestPrepareAfterAFailure lets each request of Prepare fail until the second attempt: the error names the step, and
// the second attempt ends as one that nothing disturbed.
func TestPrepareAfterAFailure(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, request, wantErr string }{
		{name: "the finalizer", request: "patch *v1alpha1.VirtualCluster", wantErr: "adding the finalizer: connection reset by peer"},
		{name: "reading the root namespace", request: "get *v1.Namespace", wantErr: "making the root namespace "},
		{name: "the root namespace", request: "create *v1.Namespace", wantErr: "making the root namespace "},
		{name: "the cluster key", request: "status *v1alpha1.VirtualCluster", wantErr: "writing the cluster key: connection reset by peer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			broken := &fault{request: tc.request}
			owner := broken.owner(t, builders.VirtualCluster("a"))
			_, err := owner.Prepare(t.Context(), owner.stored(t, "a"))
			require.ErrorIs(t, err, errBroken)
			require.ErrorContains(t, err, tc.wantErr)
			require.Empty(t, owner.stored(t, "a").Status.ClusterNamespace, "the key is written last: whoever reads it finds the namespace")

			broken.mended = true
			got, err := owner.Prepare(t.Context(), owner.stored(t, "a"))
			require.NoError(t, err)
			require.Empty(t, got)
			vc := owner.stored(t, "a")
			require.Equal(t, []string{FinalizerPlacements}, vc.Finalizers)
			root := &corev1.Namespace{}
			require.NoError(t, owner.Client.Get(t.Context(), client.ObjectKey{Name: vc.Status.ClusterNamespace}, root))
			require.True(t, ownsRoot(vc, root))
		})
	}
}

// TestPrepareOverAForeignNamespace: a namespace that exists under the key is left as it is, and the VirtualCluster
// gets no key.
func TestPrepareOverAForeignNamespace(t *testing.T) {
	t.Parallel()
	foreign := builders.Namespace(tenancy.ClusterKey(builders.VirtualCluster("a")))
	owner := (&fault{}).owner(t, builders.VirtualCluster("a"), foreign)
	got, err := owner.Prepare(t.Context(), owner.stored(t, "a"))
	require.NoError(t, err)
	require.Equal(t, tenancyv1alpha1.ReasonKeyConflict, got.Reason)
	require.Empty(t, owner.stored(t, "a").Status.ClusterNamespace)
	after := &corev1.Namespace{}
	require.NoError(t, owner.Client.Get(t.Context(), client.ObjectKeyFromObject(foreign), after))
	require.Empty(t, after.Annotations)
}

// TestPrepareLosesARace: another wrote the VirtualCluster since it was read from the cache.
func TestPrepareLosesARace(t *testing.T) {
	t.Parallel()
	owner := (&fault{}).owner(t, builders.VirtualCluster("a"))
	stale := owner.stored(t, "a")
	newer := stale.DeepCopy()
	newer.Labels = map[string]string{"team": "a"}
	require.NoError(t, owner.Client.Update(t.Context(), newer))
	_, err := owner.Prepare(t.Context(), stale)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.Equal(t, newer.Labels, owner.stored(t, "a").Labels)
}

func TestRecognize(t *testing.T) {
	t.Parallel()
	owner := (&fault{}).owner(t, keyed("a"))
	stale := owner.stored(t, "a")
	require.NoError(t, owner.Recognize(t.Context(), owner.stored(t, "a"), "u1"))
	err := owner.Recognize(t.Context(), stale, "u2")
	require.True(t, apierrors.IsConflict(err), "the first of two processes wins: %v", err)
	require.Equal(t, types.UID("u1"), owner.stored(t, "a").Status.ControlPlaneUID)
}

// TestRecognizeWithAnOldCRD: an API server prunes a field that its CRD does not have, and answers without an error.
func TestRecognizeWithAnOldCRD(t *testing.T) {
	t.Parallel()
	owner := (&fault{}).owner(t, keyed("a"))
	owner.Client = interceptor.NewClient(owner.Client.(client.WithWatch), interceptor.Funcs{SubResourcePatch: func(
		_ context.Context, _ client.Client, _ string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
	) error {
		o.(*tenancyv1alpha1.VirtualCluster).Status.ControlPlaneUID = ""
		return nil
	}})
	require.ErrorContains(t, owner.Recognize(t.Context(), owner.stored(t, "a"), "u1"), "apply the CRDs of this version")
}

func TestRelease(t *testing.T) {
	t.Parallel()
	vc := keyed("a")
	own := func(change func(*corev1.Namespace)) *corev1.Namespace {
		root := newRoot(vc, "key")
		root.UID = builders.UID("key")
		change(root)
		return root
	}
	for _, tc := range []struct {
		name      string
		unheld    bool // without the finalizer
		objects   []client.Object
		request   string // that fails
		wantAgain time.Duration
		wantErr   string
		wantRoot  bool // it is still there
		// left are the super clusters that hold something.
		left        []string
		leftErr     error
		wantWaits   string // the message of condition Ready
		wantHeld    bool   // the finalizer is still there
		wantPlaced  int
		wantForeign int
	}{
		{name: "nothing is left"},
		{name: "it never was prepared", unheld: true, objects: []client.Object{own(func(*corev1.Namespace) {})}, wantRoot: true},
		{name: "an empty root namespace", objects: []client.Object{own(func(*corev1.Namespace) {})}},
		{
			name: "placements go first", wantAgain: drainRetryAfter, wantRoot: true, wantHeld: true, wantForeign: 1,
			objects: []client.Object{
				own(func(*corev1.Namespace) {}), builders.Placement("key", "web").Obj(), builders.Placement("key", "db").Obj(),
				builders.Placement("other", "web").Obj(),
			},
		},
		{
			name: "a placement that a finalizer holds is waited for", wantAgain: drainRetryAfter, wantRoot: true, wantHeld: true, wantPlaced: 1,
			objects: []client.Object{own(func(*corev1.Namespace) {}), leaving("web")},
		},
		{
			name: "a namespace of another VirtualCluster", wantRoot: true, wantPlaced: 1,
			objects: []client.Object{
				own(func(root *corev1.Namespace) { root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID] = "other" }), builders.Placement("key", "web").Obj(),
			},
		},
		{
			name: "a namespace that only has the name", wantRoot: true, wantPlaced: 1,
			objects: []client.Object{own(func(root *corev1.Namespace) { root.Annotations = nil }), builders.Placement("key", "web").Obj()},
		},
		{
			name: "a root namespace that goes already", wantRoot: true,
			objects: []client.Object{own(func(root *corev1.Namespace) {
				root.DeletionTimestamp, root.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"kubernetes"}
			})},
		},
		{
			name: "reading the root namespace fails", request: "get *v1.Namespace", wantErr: "getting the root namespace: ", wantRoot: true, wantHeld: true,
			objects: []client.Object{own(func(*corev1.Namespace) {})},
		},
		{
			name: "listing fails", request: "list *v1alpha1.NamespacePlacementList", wantErr: "listing the placements in key: ",
			wantAgain: drainRetryAfter, wantRoot: true, wantHeld: true, objects: []client.Object{own(func(*corev1.Namespace) {})},
		},
		{
			name: "deleting a placement fails", request: "delete *v1alpha1.NamespacePlacement", wantErr: "deleting placement key/web: ",
			wantAgain: drainRetryAfter, wantRoot: true, wantHeld: true, wantPlaced: 1,
			objects: []client.Object{own(func(*corev1.Namespace) {}), builders.Placement("key", "web").Obj()},
		},
		{
			name: "deleting the root namespace fails", request: "delete *v1.Namespace", wantErr: "deleting the root namespace key: ", wantRoot: true, wantHeld: true,
			objects: []client.Object{own(func(*corev1.Namespace) {})},
		},
		{
			name: "super clusters hold something of it", objects: []client.Object{own(func(*corev1.Namespace) {})}, left: []string{"r1", "r3"},
			wantAgain: drainRetryAfter, wantRoot: true, wantHeld: true, wantWaits: "Waiting until these super clusters say that they hold nothing of the tenant: r1, r3",
		},
		{
			name: "super clusters hold something of it, and the root namespace is gone", left: []string{"r1"}, wantAgain: drainRetryAfter, wantHeld: true,
			wantWaits: "Waiting until these super clusters say that they hold nothing of the tenant: r1",
		},
		{
			name: "nobody says what super clusters hold", objects: []client.Object{own(func(*corev1.Namespace) {})}, leftErr: errBroken, wantErr: "connection reset",
			wantAgain: drainRetryAfter, wantRoot: true, wantHeld: true,
		},
		{
			name: "saying what it waits for fails", request: "status *v1alpha1.VirtualCluster", left: []string{"r1"}, wantErr: "writing the conditions: ",
			wantAgain: drainRetryAfter, wantHeld: true,
		},
		{name: "removing the finalizer fails", request: "patch *v1alpha1.VirtualCluster", wantErr: "removing the finalizer: ", wantHeld: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			released := vc.DeepCopy()
			if tc.unheld {
				released.Finalizers = nil
			}
			broken := &fault{request: tc.request}
			owner := broken.owner(t, append(tc.objects, released)...)
			owner.Left = func(_ context.Context, key string, uid types.UID) ([]string, error) {
				require.Equal(t, []string{"key", string(released.UID)}, []string{key, string(uid)})
				return tc.left, tc.leftErr
			}
			again, err := owner.Release(t.Context(), owner.stored(t, "a"))
			if tc.wantErr != "" {
				require.ErrorIs(t, err, errBroken)
				require.ErrorContains(t, err, tc.wantErr)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.wantAgain, again)

			broken.mended = true
			err = owner.Client.Get(t.Context(), client.ObjectKey{Name: "key"}, &corev1.Namespace{})
			require.Equal(t, tc.wantRoot, err == nil, "%v", err)
			require.Equal(t, tc.wantHeld, len(owner.stored(t, "a").Finalizers) > 0)
			ready, message := meta.FindStatusCondition(owner.stored(t, "a").Status.Conditions, tenancyv1alpha1.ConditionReady), ""
			if ready != nil {
				require.Equal(t, []string{"False", tenancyv1alpha1.ReasonDeleting}, []string{string(ready.Status), ready.Reason})
				message = ready.Message
			}
			require.Equal(t, tc.wantWaits, message)
			var placements schedulerv1alpha1.NamespacePlacementList
			require.NoError(t, owner.Client.List(t.Context(), &placements, client.InNamespace("key")))
			require.Len(t, placements.Items, tc.wantPlaced)
			require.NoError(t, owner.Client.List(t.Context(), &placements, client.InNamespace("other")))
			require.Len(t, placements.Items, tc.wantForeign)
		})
	}
}

// leaving is a placement that is being deleted, and that a finalizer holds.
func leaving(namespace string) *schedulerv1alpha1.NamespacePlacement {
	np := builders.Placement("key", namespace).Obj()
	np.DeletionTimestamp, np.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/hold"}
	return np
}

// TestReportAfterAFailure: an Event is about what was written, so that a lost write has none.
func TestReportAfterAFailure(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, request, wantErr string }{
		{name: "writing", request: "status *v1alpha1.VirtualCluster", wantErr: "writing the conditions: "},
		{name: "listing", request: "list *v1alpha1.VirtualClusterList", wantErr: "listing VirtualClusters: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			vc := builders.VirtualCluster("a")
			vc.Spec.ServiceCIDRs = []string{"10.96.0.0/12"}
			broken := &fault{request: tc.request}
			owner := broken.owner(t, vc)
			unreachable := tenancy.Reason{Reason: tenancyv1alpha1.ReasonUnreachable, Message: "no answer"}
			_, err := owner.Report(t.Context(), owner.stored(t, "a"), unreachable, tenancy.Reason{}, nil)
			require.ErrorIs(t, err, errBroken)
			require.ErrorContains(t, err, tc.wantErr)
			recorder := owner.Recorder.(*record.FakeRecorder)
			require.Empty(t, recorder.Events)

			broken.mended = true
			_, err = owner.Report(t.Context(), owner.stored(t, "a"), unreachable, tenancy.Reason{}, nil)
			require.NoError(t, err)
			require.Equal(t, "Warning Unreachable no answer", <-recorder.Events)
		})
	}
}

// TestReportOfOneThatIsGone: nothing is left to report about, which is no error.
func TestReportOfOneThatIsGone(t *testing.T) {
	t.Parallel()
	owner := (&fault{}).owner(t, builders.VirtualCluster("a"))
	vc := owner.stored(t, "a")
	require.NoError(t, owner.Client.Delete(t.Context(), vc.DeepCopy()))
	_, err := owner.Report(t.Context(), vc, tenancy.Reason{Reason: tenancyv1alpha1.ReasonUnreachable}, tenancy.Reason{}, nil)
	require.NoError(t, err)
	require.Empty(t, owner.Recorder.(*record.FakeRecorder).Events)
}

// TestReportOfAnOverlap goes through its life: it comes, stays, names another, and goes.
func TestReportOfAnOverlap(t *testing.T) {
	t.Parallel()
	first, second := builders.VirtualCluster("a"), builders.VirtualCluster("b")
	first.Spec.ServiceCIDRs = []string{"10.96.0.0/12"}
	owner := (&fault{}).owner(t, first, second)
	recorder := owner.Recorder.(*record.FakeRecorder)
	for _, tc := range []struct {
		name, theirs string
		want         bool
		wantEvents   int
	}{
		{name: "the other has no range", wantEvents: 1}, // Connected
		{name: "the other takes a part", theirs: "10.96.1.0/24", want: true, wantEvents: 1},
		{name: "nothing changed", theirs: "10.96.1.0/24", want: true},
		{name: "the other takes another part", theirs: "10.97.0.0/16", want: true, wantEvents: 1},
		{name: "the other moves away", theirs: "10.112.0.0/16"},
		{name: "the other's is no range", theirs: "10.96.0.0"},
	} {
		other := owner.stored(t, "b")
		other.Spec.ServiceCIDRs = nil
		if tc.theirs != "" {
			other.Spec.ServiceCIDRs = []string{tc.theirs}
		}
		require.NoError(t, owner.Client.Update(t.Context(), other), tc.name)
		again, err := owner.Report(t.Context(), owner.stored(t, "a"), tenancy.Reason{Reason: tenancyv1alpha1.ReasonConnected}, tenancy.Reason{}, nil)
		require.NoError(t, err, tc.name)
		require.Equal(t, tc.want, again == conflictRetryAfter, tc.name)
		overlap := meta.FindStatusCondition(owner.stored(t, "a").Status.Conditions, tenancyv1alpha1.ConditionServiceCIDRsOverlap)
		require.Equal(t, tc.want, overlap != nil, tc.name)
		if tc.want {
			require.Contains(t, overlap.Message, tc.theirs+" of default/b:", tc.name)
		}
		require.Len(t, recorder.Events, tc.wantEvents, tc.name)
		for range tc.wantEvents {
			<-recorder.Events
		}
	}
}

func TestReaderPrepares(t *testing.T) {
	t.Parallel()
	recognized := keyed("a")
	recognized.Status.ControlPlaneUID = "u1"
	for _, tc := range []struct {
		name       string
		objects    []client.Object
		request    string
		wantReason string
		wantErr    string
	}{
		{name: "all is there", objects: []client.Object{newRoot(recognized, "key")}},
		{name: "no root namespace", wantReason: tenancyv1alpha1.ReasonConnecting},
		{name: "a foreign one", objects: []client.Object{builders.Namespace("key")}, wantReason: tenancyv1alpha1.ReasonKeyConflict},
		{name: "it cannot be read", request: "get *v1.Namespace", wantErr: "getting the root namespace key: connection reset by peer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			reader := Reader{Reader: (&fault{request: tc.request}).owner(t, tc.objects...).Client}
			got, err := reader.Prepare(t.Context(), recognized.DeepCopy())
			if tc.wantErr != "" {
				require.EqualError(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.wantReason, got.Reason)
		})
	}
}

func TestServiceCIDRs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		texts []string
		want  int
		ok    bool
	}{
		{name: "none", ok: true},
		{name: "both families", texts: []string{"10.96.0.0/12", "fd00::/108"}, want: 2, ok: true},
		{name: "an address", texts: []string{"10.96.0.1"}},
		{name: "one of two", texts: []string{"10.96.0.0/12", "no"}},
		{name: "too long a prefix", texts: []string{"10.96.0.0/33"}},
		{name: "empty", texts: []string{""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			vc := builders.VirtualCluster("a")
			vc.Spec.ServiceCIDRs = tc.texts
			got, err := ServiceCIDRs(vc)
			require.Equal(t, tc.ok, err == nil, "%v", err)
			require.Len(t, got, tc.want)
		})
	}
}
