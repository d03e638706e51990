package syncer_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenants"
)

const (
	// slowWrite is what each write takes in a slow control plane: longer than a reconcile may take (12 s).
	slowWrite = 20 * time.Second
)

// slowWrites stands before the API server of a tenant, and lets its writes take slowWrite. It is a transport and no
// proxy, because its client is to know at once that a request has ended: so held is exact.
type slowWrites struct {
	http.RoundTripper
	// slow is whether they do already.
	slow *atomic.Bool
	// held counts the writes for pods that wait now, given those that waited until the client gave up.
	held, given *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (s *slowWrites) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodGet || !s.slow.Load() {
		return s.RoundTripper.RoundTrip(request)
	}
	isOfPod := strings.Contains(request.URL.Path, "/pods/")
	if isOfPod {
		s.held.Add(1)
		defer s.held.Add(-1)
	}
	select {
	case <-time.After(slowWrite):
		return s.RoundTripper.RoundTrip(request)
	case <-request.Context().Done():
		if isOfPod {
			s.given.Add(1)
		}
		return nil, request.Context().Err()
	}
}

// TestThirdTenant: beside two tenants whose writes take 20 seconds, the pods of a third one do not wait for their
// turns. Both together have at most half of the workers, and fewer of their turns end while the pods come than there
// are pods: a step of a pod that had to wait for a worker would wait for the end of one. How long the pods take is
// logged alone, because that is the machine's.
func TestThirdTenant(t *testing.T) {
	const pods = 10
	w := newWorld(t, needs{})
	others := []*world{w.neighbour(t, "a"), w.neighbour(t, "b")}
	var slow atomic.Bool
	var held atomic.Int64 // of both
	given := make([]atomic.Int64, len(others))
	served := []*tenants.Tenant{w.engaged(w.tenantConfig)}
	for i, other := range others {
		config := rest.CopyConfig(other.tenantConfig)
		config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
			return &slowWrites{RoundTripper: inner, slow: &slow, held: &held, given: &given[i]}
		})
		served = append(served, other.engaged(config))
	}
	all := append(others, w)
	for _, each := range all {
		each.placeWith(t, "web", []string{"cpu", "10", "memory", "10Gi", "pods", "100"}, "r1")
	}

	create(t, w.super, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	r := w.startSyncerWith(t, w.superConfig, engaging(served))
	closes(t, r.ready, "the tenants' caches are synced")
	w.playKubelet(t)
	for _, each := range all {
		each.comes(t, "first") // which makes the tenant's Node
	}
	alone := w.median(t, "alone", pods)

	slow.Store(true)
	for _, other := range others {
		for i := range 20 {
			create(t, other.tenant, newPod("web", fmt.Sprint("slow-", i)))
		}
	}
	eventually(t, func() error { // by then it is known that both are slow
		a, b, all := given[0].Load(), given[1].Load(), held.Load()
		if a == 0 || b == 0 || all > engine.DefaultWorkers/2 {
			return fmt.Errorf("%d and %d writes have been given up, and %d wait", a, b, all)
		}
		return nil
	})
	most := int64(0)
	stopCounting := repeat(t, func(context.Context) { most = max(most, held.Load()) })
	turns := -given[0].Load() - given[1].Load()
	beside := w.median(t, "beside", pods)
	turns += given[0].Load() + given[1].Load()
	stopCounting()
	t.Logf("median of %d pods: alone %s, beside two slow tenants, of which %d writes waited at a time and %d ended, %s", pods, alone, most, turns, beside)
	require.Positive(t, most, "nobody was slow")
	require.LessOrEqual(t, most, int64(engine.DefaultWorkers/2), "the slow tenants had more than half of the workers")
	require.Less(t, turns, int64(pods), "the pods waited for turns of the slow tenants")
}

// engaging returns what lets a syncer serve these tenants.
func engaging(served []*tenants.Tenant) func(ctrl.Manager, *syncer.Syncer, func()) func(context.Context) error {
	return func(_ ctrl.Manager, made *syncer.Syncer, ready func()) func(context.Context) error {
		var waiting atomic.Int64
		waiting.Store(int64(len(served)))
		return func(ctx context.Context) error {
			var group errgroup.Group
			for _, tenant := range served {
				group.Go(func() error {
					return made.Engage(ctx, tenant, func() {
						if waiting.Add(-1) == 0 {
							ready()
						}
					})
				})
			}
			return group.Wait()
		}
	}
}

// median returns how long half of some pods take at most, one after the other.
func (w *world) median(t *testing.T, name string, pods int) time.Duration {
	t.Helper()
	var took []time.Duration
	for i := range pods {
		took = append(took, w.comes(t, fmt.Sprint(name, "-", i)))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// comes returns how long it takes until a new pod runs.
func (w *world) comes(t *testing.T, name string) time.Duration {
	t.Helper()
	begun := time.Now()
	create(t, w.tenant, newPod("web", name))
	appears(t, w.tenant, "web", name, &corev1.Pod{}, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	return time.Since(begun)
}

// playKubelet runs all pods of r1 on node n1 from now on.
func (w *world) playKubelet(t *testing.T) {
	repeat(t, func(ctx context.Context) {
		var pods corev1.PodList
		if err := w.super.List(ctx, &pods); err != nil {
			return // the next time
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Spec.NodeName == "" {
				binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
				_ = w.super.SubResource("binding").Create(ctx, pod, binding)
				continue
			}
			if pod.Status.Phase != corev1.PodRunning {
				patch := `{"status":{"phase":"Running","podIP":"10.1.2.3","podIPs":[{"ip":"10.1.2.3"}]}}`
				_ = w.super.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
			}
		}
	})
}

// repeat calls step again and again until the function that it returns is called, or the test ends.
func repeat(t *testing.T, step func(ctx context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for ctx.Err() == nil {
			step(ctx)
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}
