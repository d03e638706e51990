//go:build upgrade

package upgrade_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/pool"
)

var from = flag.String("from", "", "the folder of the source tree, built, of the version before")

const (
	// patience is how long one turn of the load may take, the start of a program included.
	patience = 3 * time.Minute
	tick     = 200 * time.Millisecond
	// replicas is how many pods run all the time.
	replicas = 20
)

// TestUpgrade upgrades a pool in the order of docs/operating.md, and goes back. After each step what ran runs on where
// it was, and pods still come and go. The program that was replaced is then started again, and writes nothing: what it
// had to write of its version it wrote once. vn-agent copies nothing and keeps nothing; test/realnodes replaces it.
func TestUpgrade(t *testing.T) {
	deadline, _ := t.Deadline()
	ctx, stop := pool.Interruptible(t.Context(), deadline)
	defer stop()
	ctrl.SetLogger(klog.Background())
	root, err := controlplane.Root()
	require.NoError(t, err)
	before, err := filepath.Abs(*from)
	require.NoError(t, err)
	b := newBed(ctx, t, before)
	replace := func(program int) func(string) error {
		return func(source string) error { return b.Replace(b.Programs[program], source) }
	}
	apply := func(source string) error { return b.Apply(ctx, source) }
	steps := []step{{"CRDs and rights", apply}, {"vc-scheduler", replace(0)}, {"the syncer of r1", replace(1)}, {"the syncer of r2", replace(2)}}
	back := slices.Clone(steps)
	slices.Reverse(back)

	ran := b.look(ctx, t)
	for _, way := range []struct {
		name, source string
		steps        []step
	}{{"up", root, steps}, {"back", before, back}} {
		for _, step := range way.steps {
			passed := t.Run(way.name+"/"+step.name, func(t *testing.T) {
				require.NoError(t, step.do(way.source))
				b.turns(ctx, t, 2)
				changed := b.look(ctx, t)
				require.Empty(t, cmp.Diff(ran, changed, cmpopts.IgnoreFields(seen{}, "Object")), "something did not stay as it was")
				require.NoError(t, step.do(way.source))
				b.turns(ctx, t, 2)
				require.Empty(t, cmp.Diff(changed, b.look(ctx, t)), "something was written that had been written")
			})
			require.True(t, passed)
		}
	}
}

// step is one of an upgrade; do goes to the version of a source tree, from whichever.
type step struct {
	name string
	do   func(source string) error
}

// bed is a pool of super clusters r1 and r2 with a tenant, and another one whose pods are the load: addresses of a
// tenant's pods are in the NetworkPolicies of all its namespaces, which are written as pods come and go.
type bed struct {
	*pool.Pool
	tenant, loaded client.Client
	// key is that of tenant.
	key string
	// turn counts the turns of the load that have ended.
	mu   sync.Mutex
	turn int
}

// newBed starts a pool of the version of a source tree. Once it returns pods run in both super clusters, and the load
// goes on until the end of the test.
func newBed(ctx context.Context, t *testing.T, source string) *bed {
	t.Helper()
	root, err := controlplane.Root()
	require.NoError(t, err)
	b := &bed{}
	b.Pool, err = pool.New(pool.Options{
		Supers: []string{"r1", "r2"}, Tenants: []string{"tenant", "loaded"}, Unlimited: true, Source: source,
		Log: t.Output(), Keep: filepath.Join(root, "_output", "upgrade-logs"),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop()) })
	require.NoError(t, b.StartControlPlanes(ctx))
	for _, super := range b.Supers {
		node := pool.Node("node-1", "cpu", "32", "memory", "64Gi", "pods", "110")
		require.NoError(t, b.Join(ctx, super, []*corev1.Node{node}, "--node-lease-duration-seconds", "40")) // else it is lost after 50 s
	}
	require.NoError(t, b.StartPrograms(ctx))
	require.NoError(t, b.Import(ctx))
	vc, err := b.VirtualCluster(ctx, b.Tenants[0])
	require.NoError(t, err)
	b.tenant, b.loaded, b.key = b.Tenants[0].Client, b.Tenants[1].Client, vc.Status.ClusterNamespace

	require.NoError(t, controlplane.Create(ctx, b.tenant,
		namespace("web", `{"cpu":"1","memory":"1Gi"}`), builders.Quota("web", "web", "cpu", "2", "memory", "2Gi"),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web"}, Data: map[string]string{"key": "value"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web"}, StringData: map[string]string{"key": "value"}},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web"},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
		}, deployment()))
	require.NoError(t, controlplane.Create(ctx, b.loaded,
		// A slice holds one pod of the load, so that of each turn's two pods each super cluster gets one.
		namespace("load", `{"cpu":"100m","memory":"100Mi"}`), builders.Quota("load", "load", "cpu", "200m", "memory", "200Mi")))
	b.eventually(ctx, t, func(ctx context.Context) error {
		web := &appsv1.Deployment{}
		if err := b.tenant.Get(ctx, client.ObjectKey{Namespace: "web", Name: "web"}, web); err != nil {
			return err
		}
		if ready := web.Status.ReadyReplicas; ready != replicas {
			return fmt.Errorf("%d of %d pods are ready", ready, replicas)
		}
		for _, super := range b.Supers {
			copies := &discoveryv1.EndpointSliceList{}
			if err := super.Client.List(ctx, copies, client.InNamespace(tenancy.SuperNamespace(b.key, "web"))); err != nil {
				return err
			}
			endpoints := 0
			for i := range copies.Items {
				endpoints += len(copies.Items[i].Endpoints)
			}
			if endpoints != replicas {
				return fmt.Errorf("%d of %d endpoints are in %s", endpoints, replicas, super.Name)
			}
		}
		return nil
	})
	loading, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		if err := b.load(loading); err != nil && loading.Err() == nil {
			t.Errorf("pods come and go: %v", err)
		}
	})
	t.Cleanup(func() { end(); group.Wait() })
	b.turns(ctx, t, 1)
	return b
}

func namespace(name, slice string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{schedulerv1alpha1.AnnotationSlice: slice}}}
}

// deployment has pods that use a ConfigMap and a Secret, ten for each slice of its namespace.
func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "web"}
	pod := builders.Pod("", "", "cpu", "100m", "memory", "100Mi").Obj()
	pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}},
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}
}

// load makes two pods, waits until both run, deletes them and waits until they are gone, turn by turn until ctx ends.
func (b *bed) load(ctx context.Context) error {
	for {
		pods := []*corev1.Pod{builders.Pod("load", "one", "cpu", "100m", "memory", "100Mi").Obj(), builders.Pod("load", "other", "cpu", "100m", "memory", "100Mi").Obj()}
		for _, pod := range pods {
			if err := b.create(ctx, pod); err != nil {
				return err
			}
		}
		if err := b.each(ctx, pods, "does not run", func(pod *corev1.Pod, err error) bool { return err == nil && pod.Status.Phase == corev1.PodRunning }); err != nil {
			return err
		}
		for _, pod := range pods {
			if err := b.loaded.Delete(ctx, pod); err != nil {
				return err
			}
		}
		if err := b.each(ctx, pods, "is there", func(_ *corev1.Pod, err error) bool { return apierrors.IsNotFound(err) }); err != nil {
			return err
		}
		b.mu.Lock()
		b.turn++
		b.mu.Unlock()
	}
}

// create creates a pod. The tenant's quota counts one that is gone until its controller has looked.
func (b *bed) create(ctx context.Context, pod *corev1.Pod) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, tick, patience, true, func(ctx context.Context) (bool, error) {
		last = b.loaded.Create(ctx, pod)
		if apierrors.IsForbidden(last) && strings.Contains(last.Error(), "exceeded quota") {
			return false, nil
		}
		return last == nil, last
	})
	if err != nil {
		return errors.Join(fmt.Errorf("creating %s: %w", pod.Name, err), last)
	}
	return nil
}

// each waits until something holds for each pod, or what was read of it.
func (b *bed) each(ctx context.Context, pods []*corev1.Pod, yet string, holds func(*corev1.Pod, error) bool) error {
	for _, pod := range pods {
		var last error
		err := wait.PollUntilContextTimeout(ctx, tick, patience, true, func(ctx context.Context) (bool, error) {
			last = b.loaded.Get(ctx, client.ObjectKeyFromObject(pod), pod)
			return holds(pod, last), nil
		})
		if err != nil {
			return errors.Join(fmt.Errorf("%s %s after %s: %v: %w", pod.Name, yet, patience, pod.Status.Conditions, err), last)
		}
	}
	return nil
}

// turns waits until the load has begun and ended so many turns.
func (b *bed) turns(ctx context.Context, t *testing.T, count int) {
	t.Helper()
	end := b.ended() + 1 + count // one is under way
	b.eventually(ctx, t, func(context.Context) error {
		if ended := b.ended(); ended < end {
			return fmt.Errorf("%d turns have ended, not %d", ended, end)
		}
		return nil
	})
}

func (b *bed) ended() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.turn
}

func (b *bed) eventually(ctx context.Context, t *testing.T, done func(context.Context) error) {
	t.Helper()
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-time.Minute))
		defer cancel()
	}
	require.NoError(t, b.Eventually(ctx, done))
}

// seen is what is to stay of an object; a program that is replaced may write it once, and nothing writes it without
// cause.
type seen struct {
	UID types.UID
	// Restarts counts those of a pod's containers, Where is its node, or where a namespace is placed.
	Restarts int32
	Where    string
	// Object tells in a test that fails what was written.
	Object client.Object
}

// look returns what there is of the Deployment's namespace, on all sides, by cluster, kind and name.
func (b *bed) look(ctx context.Context, t *testing.T) map[string]seen {
	t.Helper()
	found := map[string]seen{}
	add := func(cluster *pool.Cluster, list client.ObjectList, options ...client.ListOption) {
		require.NoError(t, cluster.Client.List(ctx, list, options...))
		require.NoError(t, meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			found[fmt.Sprintf("%s %T %s", cluster.Name, object, object.GetName())] = of(object)
			return nil
		}))
	}
	copied := func() []client.ObjectList {
		return []client.ObjectList{
			&corev1.PodList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ResourceQuotaList{},
			&discoveryv1.EndpointSliceList{}, &networkingv1.NetworkPolicyList{}, &corev1.ServiceAccountList{},
		}
	}
	add(b.Meta, &schedulerv1alpha1.NamespacePlacementList{}, client.InNamespace(b.key), client.MatchingFields{"metadata.name": "web"})
	for _, list := range append(copied(), &appsv1.DeploymentList{}) {
		add(b.Tenants[0], list, client.InNamespace("web"))
	}
	add(b.Tenants[0], &corev1.NamespaceList{}, client.MatchingFields{"metadata.name": "web"})
	for _, super := range b.Supers {
		name := tenancy.SuperNamespace(b.key, "web")
		add(super, &corev1.NamespaceList{}, client.MatchingFields{"metadata.name": name})
		for _, list := range copied() {
			add(super, list, client.InNamespace(name))
		}
	}
	return found
}

func of(object client.Object) seen {
	s := seen{UID: object.GetUID(), Object: object}
	switch object := object.(type) {
	case *corev1.Pod:
		s.Where = object.Spec.NodeName
		for i := range object.Status.ContainerStatuses {
			s.Restarts += object.Status.ContainerStatuses[i].RestartCount
		}
	case *schedulerv1alpha1.NamespacePlacement:
		for i := range object.Status.Placements {
			s.Where += object.Status.Placements[i].Cluster + " "
		}
	case *corev1.Namespace:
		s.Where = object.Annotations[schedulerv1alpha1.AnnotationPlacements]
	}
	return s
}
