package syncer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/syncer/kinds/namespaces"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/builders"
)

// filling is an informer that is synced once it is told so.
type filling struct {
	toolscache.SharedIndexInformer
	synced atomic.Bool
	asked  atomic.Int32
}

func (f *filling) HasSynced() bool {
	f.asked.Add(1)
	return f.synced.Load()
}

func newFilling() *filling {
	return &filling{SharedIndexInformer: toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &corev1.Node{}, 0, podIndexers())}
}

// running is an informer without a handler: it is synced once what it has listed is in its store.
func running(shared toolscache.SharedIndexInformer) *informer {
	return &informer{SharedIndexInformer: shared, handled: shared.HasSynced, stop: func() {}}
}

// superOf returns the caches of a super cluster that has one informer.
func superOf(nodes *filling) *informers {
	return &informers{running: map[source]*informer{{kind: kind.Node}: running(nodes)}}
}

// TestSessionOfATenantThatHoldsNothing lets placements elsewhere change: the Nodes and volumes of the tenant are asked
// for once.
func TestSessionOfATenantThatHoldsNothing(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	var lists atomic.Int32
	nodes := interceptor.NewClient(builders.Client(ownScheme()).Build(), interceptor.Funcs{
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			switch list.(type) {
			case *corev1.NodeList:
				if lists.Add(1) > 1 {
					<-ctx.Done()
				}
			case *corev1.PersistentVolumeList, *metav1.PartialObjectMetadataList: // whether anything is left of what super clusters have offered
				return nil
			case *schedulingv1.PriorityClassList: // it wants those
			default:
				return fmt.Errorf("%T is listed", list)
			}
			return inner.List(ctx, list, options...)
		},
	})
	super := newFilling()
	s, _ := listen(t, kind.Pod)
	s.super.running = superOf(super).running
	s.env.ID, s.env.Assignments = "r1", &assign.Pooled{SuperCluster: "r1", Meta: builders.Client(scheme).Build(), Sides: namespaces.Sides(s.env)}
	made, err := s.newSession(&tenants.Tenant{Key: "a", Config: &rest.Config{}})
	require.NoError(t, err)
	made.cache.client = nodes

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group errgroup.Group
	group.Go(func() error { return made.run(ctx, func() {}) })
	require.Eventually(t, func() bool { return super.asked.Load() > 0 }, 10*time.Second, time.Millisecond)
	for range 2 { // the second look comes after the first has ended
		made.changed <- struct{}{}
	}
	require.Zero(t, lists.Load(), "nothing is asked for before the super cluster's caches are synced")
	super.synced.Store(true)
	made.wake()
	running := func() int {
		made.cache.mu.RLock()
		defer made.cache.mu.RUnlock()
		return len(made.cache.running)
	}
	err = wait.PollUntilContextTimeout(ctx, time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return lists.Load() > 0 && running() == 0, nil
	})
	require.NoError(t, err, "no Node is left, and nothing is watched")
	for range 10 {
		made.changed <- struct{}{}
	}
	require.Zero(t, running())
	cancel()
	require.NoError(t, group.Wait())
	made.cache.wait()
	require.EqualValues(t, 1, lists.Load())
}

// servedTenant are Assignments of a tenant with one namespace here.
type servedTenant struct{ *assign.Pooled }

func (servedTenant) Namespaces(context.Context, string) ([]string, error) {
	return []string{"web"}, nil
}

// servedSession returns the session of a tenant that is served and wants nothing that is optional, once it is synced.
func servedSession(t *testing.T, tenantClient client.WithWatch) (*session, context.Context) {
	t.Helper()
	s, _ := listen(t, kind.Pod)
	super := newFilling()
	super.synced.Store(true)
	s.super.running = superOf(super).running
	s.env.ID, s.env.Assignments = "r1", servedTenant{&assign.Pooled{SuperCluster: "r1", Sides: namespaces.Sides(s.env)}}
	made, err := s.newSession(&tenants.Tenant{Key: "a", Config: &rest.Config{}})
	require.NoError(t, err)
	require.Empty(t, made.tenant.Policy.Get().Spec().Offers.VolumeSnapshotClasses)
	made.cache.client = tenantClient
	s.setSession("a", made)

	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	t.Cleanup(func() {
		cancel()
		require.NoError(t, group.Wait())
		made.cache.wait()
	})
	synced := make(chan struct{})
	group.Go(func() error { return made.run(ctx, sync.OnceFunc(func() { close(synced) })) })
	<-synced
	return made, ctx
}

// listMetadata lists metadata page by page, which the fake client does not.
func listMetadata(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	metadata, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok {
		return inner.List(ctx, list, options...)
	}
	var asked client.ListOptions
	asked.ApplyOptions(options)
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(list.GetObjectKind().GroupVersionKind())
	if err := inner.List(ctx, all, client.InNamespace(asked.Namespace)); err != nil {
		return err
	}
	begin, _ := strconv.Atoi(asked.Continue)
	end := min(begin+int(asked.Limit), len(all.Items))
	metadata.Items, metadata.Continue = nil, ""
	if end < len(all.Items) {
		metadata.Continue = strconv.Itoa(end)
	}
	for _, item := range all.Items[begin:end] {
		metadata.Items = append(metadata.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: item.GetNamespace(), Name: item.GetName(), Labels: item.GetLabels(), Annotations: item.GetAnnotations(), Finalizers: item.GetFinalizers(),
		}})
	}
	return nil
}

// TestNothingIsReadOfWhatNobodyWants: of kinds of which a tenant's policy wants none, the metadata of one object is
// read, and of more only if there is one; nothing is kept or watched.
func TestNothingIsReadOfWhatNobodyWants(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		snapshots, wantRequests int
		unserved                bool
	}{
		"none": {wantRequests: 1}, "many": {snapshots: 1_200, wantRequests: 4}, "of a type that is not served": {wantRequests: 1, unserved: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := builders.Client(ownScheme()).Build()
			for i := range max(1, tc.snapshots) {
				snapshot := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"large": strings.Repeat("x", 10<<10)}}}
				snapshot.SetGroupVersionKind(schema.GroupVersionKind{Group: "snapshot.storage.k8s.io", Version: "v1", Kind: "VolumeSnapshot"})
				snapshot.SetNamespace("web")
				snapshot.SetName(fmt.Sprint("s", i))
				require.NoError(t, api.Create(t.Context(), snapshot))
				if tc.snapshots == 0 { // the fake client knows the kind
					require.NoError(t, api.Delete(t.Context(), snapshot))
				}
			}
			var requests, read, others atomic.Int64
			made, ctx := servedSession(t, interceptor.NewClient(api, interceptor.Funcs{
				List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					err := listMetadata(ctx, inner, list, options...)
					if list.GetObjectKind().GroupVersionKind().Kind != "VolumeSnapshotList" {
						return err
					}
					text, failure := json.Marshal(list)
					if assert.NoError(t, failure) {
						read.Add(int64(len(text)))
					}
					if tc.unserved {
						err = apierrors.NewNotFound(schema.GroupResource{Resource: "volumesnapshots"}, "")
					}
					if requests.Add(1); !is[*metav1.PartialObjectMetadataList](list) {
						others.Add(1)
					}
					return err
				},
				Watch: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
					if list.GetObjectKind().GroupVersionKind().Kind == "VolumeSnapshotList" {
						others.Add(1)
					}
					return inner.Watch(ctx, list, options...)
				},
			}))
			for range 10 {
				select {
				case made.changed <- struct{}{}:
				case <-ctx.Done():
				}
			}
			_, known := made.cache.Get(kind.Snapshot, "", "")
			require.False(t, known)
			require.Zero(t, others.Load(), "whole objects are read, or watched")
			require.EqualValues(t, tc.wantRequests, requests.Load())
			require.Less(t, read.Load(), int64(300*max(10, tc.snapshots)))
		})
	}
}

// is returns whether a value has a type.
func is[T any](value any) bool {
	_, ok := value.(T)
	return ok
}

// TestSessionOfATenantThatWantsNoSnapshots: they are watched while one has our finalizer, whatever the policy says, and
// no longer than that.
func TestSessionOfATenantThatWantsNoSnapshots(t *testing.T) {
	t.Parallel()
	snapshot := &unstructured.Unstructured{}
	snapshot.SetGroupVersionKind(schema.GroupVersionKind{Group: "snapshot.storage.k8s.io", Version: "v1", Kind: "VolumeSnapshot"})
	snapshot.SetNamespace("web")
	snapshot.SetName("s")
	snapshot.SetFinalizers([]string{"claim.tenancy.x-k8s.io/r1"})
	tenantClient := interceptor.NewClient(builders.Client(ownScheme()).WithObjects(snapshot).Build(), interceptor.Funcs{List: listMetadata})
	made, ctx := servedSession(t, tenantClient)
	known := func() bool {
		_, known := made.cache.Get(kind.Snapshot, "", "")
		return known
	}
	require.Eventually(t, known, 10*time.Second, time.Millisecond, "what was not wanted at its first list is watched for what has our finalizer")
	for range 10 {
		made.changed <- struct{}{}
	}
	require.True(t, known())
	require.Len(t, made.cache.List(kind.Snapshot), 1)

	require.NoError(t, tenantClient.Get(ctx, client.ObjectKeyFromObject(snapshot), snapshot))
	snapshot.SetFinalizers(nil)
	require.NoError(t, tenantClient.Update(ctx, snapshot))
	require.Eventually(t, func() bool { return !known() }, 10*time.Second, time.Millisecond, "nothing of ours is left")
	made.changed <- struct{}{}
	made.changed <- struct{}{}
	require.False(t, known())
}

// TestEngageForgets lets a tenant leave: nothing is remembered of it.
func TestEngageForgets(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	s, _ := listen(t, kind.Pod)
	s.env.Assignments = &assign.Pooled{SuperCluster: "r1", Meta: builders.Client(scheme).Build(), Sides: namespaces.Sides(s.env)}
	s.super.client, s.super.filled = builders.Client(ownScheme()).Build(), s.superFilled
	var err error
	s.super.watched, err = watchedOf(s.env, kinds.Specs(), kind.SuperSide)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(s.super.wait)
	t.Cleanup(cancel)
	require.NoError(t, s.super.watch(ctx, []source{{kind: kind.Namespace}}))

	leaving, left := context.WithCancel(ctx)
	var group errgroup.Group
	ready := make(chan struct{})
	group.Go(func() error {
		return s.Engage(leaving, &tenants.Tenant{Key: "a", Config: &rest.Config{Host: server.URL}}, func() { close(ready) })
	})
	<-ready
	require.NotNil(t, s.tenant("a"))
	for _, tenant := range []string{"a", "b"} {
		s.env.QuotaWaiters.Add(engine.Key{Tenant: tenant, Namespace: "web", Name: "waits"})
	}
	left()
	require.NoError(t, group.Wait())
	require.Nil(t, s.tenant("a"))
	_, waits := s.env.QuotaWaiters.Next("a", "web")
	require.False(t, waits)
	_, waits = s.env.QuotaWaiters.Next("b", "web")
	require.True(t, waits)
}

// ownScheme returns a scheme for one fake client, which adds kinds to it that it does not know.
func ownScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	return scheme
}
