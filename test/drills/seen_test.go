//go:build drills

package drills_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchAll calls seen, until the end of the test, with all that a watch of the tenant says.
func (b *bed) watchAll(ctx context.Context, t *testing.T, list client.ObjectList, seen func(client.Object), options ...client.ListOption) {
	t.Helper()
	events, err := b.tenant.Watch(ctx, list, options...)
	require.NoError(t, err)
	var group sync.WaitGroup
	group.Go(func() {
		for event := range events.ResultChan() {
			if object, ok := event.Object.(client.Object); ok && event.Type != watch.Deleted {
				seen(object)
			}
		}
	})
	t.Cleanup(func() {
		events.Stop()
		group.Wait()
	})
}

// service is to which nodes a Service sends requests, from the beginning of a drill.
type service struct {
	mu    sync.Mutex
	began time.Time
	lines []string
	last  string
}

// watchService watches the Service web.
func (b *bed) watchService(ctx context.Context, t *testing.T) *service {
	t.Helper()
	s := &service{}
	b.watchAll(ctx, t, &discoveryv1.EndpointSliceList{}, func(object client.Object) {
		if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
			s.sends(slice)
		}
	}, client.InNamespace("web"), client.MatchingLabels{discoveryv1.LabelServiceName: "web"})
	return s
}

func (s *service) sends(slice *discoveryv1.EndpointSlice) {
	nodes := []string{}
	for _, endpoint := range slice.Endpoints {
		if ptr.Deref(endpoint.Conditions.Ready, true) {
			nodes = append(nodes, ptr.Deref(endpoint.NodeName, ""))
		}
	}
	slices.Sort(nodes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if line := strings.Join(nodes, " "); line != s.last || len(s.lines) == 0 {
		s.last = line
		s.add()
	}
}

// add writes down what is so now.
func (s *service) add() {
	seconds := 0
	if !s.began.IsZero() {
		seconds = int(time.Since(s.began).Seconds())
	}
	s.lines = append(s.lines, fmt.Sprintf("    %d s: %s", seconds, s.last))
}

func (s *service) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.lines = time.Now(), nil
	s.add()
}

// seen returns what the tenant saw.
func (s *service) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "  what the tenant saw: seconds from the beginning, and the nodes of pods that the Service sends requests to\n" + strings.Join(s.lines, "\n")
}

// describe logs the tenant's pods and nodes, and what its VirtualCluster says.
func (b *bed) describe(ctx context.Context, t *testing.T) {
	t.Helper()
	var text strings.Builder
	var pods corev1.PodList
	var nodes corev1.NodeList
	_ = b.tenant.List(ctx, &pods)
	_ = b.tenant.List(ctx, &nodes)
	for i := range pods.Items {
		pod := &pods.Items[i]
		fmt.Fprintf(&text, "  pod %s/%s: %s on %q, deleted %v\n", pod.Namespace, pod.Name, pod.Status.Phase, pod.Spec.NodeName, pod.DeletionTimestamp)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		fmt.Fprintf(&text, "  node %s: taints %v\n", node.Name, node.Spec.Taints)
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				fmt.Fprintf(&text, "    ready %s: %s\n", condition.Status, condition.Reason)
			}
		}
	}
	vc, _ := b.VirtualCluster(ctx, b.Tenants[0])
	fmt.Fprintf(&text, "  virtual cluster: %v", vc.Status.Conditions)
	t.Log(text.String())
}
