package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/pool"
	"github.com/superpool/superpool/internal/simulation"
)

const (
	// keptPeriod is how often Clusters are asked for their headroom.
	keptPeriod = time.Minute
	// failedFor is how long it is said that a watch failed: it is tried again before that, and says so again. A reflector
	// waits for a minute at most, and a dial takes half of one.
	failedFor = 2 * time.Minute
)

// source is where facts come from.
type source interface {
	// look reads them. It is called by one goroutine at a time.
	look(ctx context.Context) (*facts, error)
	// changes is sent to when there may be other facts. nil: there never are.
	changes() <-chan struct{}
}

// still is a pool of files.
type still struct{ facts *facts }

func (s *still) look(context.Context) (*facts, error) { return s.facts, nil }
func (s *still) changes() <-chan struct{}             { return nil }

// live watches the meta cluster.
type live struct {
	cluster client.Client
	cached  client.Reader
	changed chan struct{}

	mu sync.Mutex
	// kept is headroom, and keptFailure why it is not known.
	kept        map[string]map[corev1.ResourceName]string
	keptFailure string

	failure  string    // of the last watch that failed
	failedAt time.Time // when
}

// watch returns a source that watches until ctx ends, when it has read all. What the person may not list is an error.
func watch(ctx context.Context, c *cli.CLI) (*live, error) {
	config, err := c.Flags.ToRESTConfig()
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the kubeconfig
	}
	cluster, _, err := c.Connect()
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	l := &live{cluster: cluster, changed: make(chan struct{}, 1)}
	kinds := map[string]client.ObjectList{"nodes": &corev1.NodeList{}, "namespaceplacements": &schedulerv1alpha1.NamespacePlacementList{}, "virtualclusters": &tenancyv1alpha1.VirtualClusterList{}}
	for resource, list := range kinds {
		if err := cluster.List(ctx, list, client.Limit(1)); err != nil { // a watch would try it for ever
			return nil, fmt.Errorf("listing %s: %w", resource, err)
		}
	}
	isVirtual, err := labels.NewRequirement(schedulerv1alpha1.LabelVirtualNode, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting virtual Nodes: %w", err)
	}
	config.Timeout = 0 // a watch has no end
	objects := []client.Object{&corev1.Node{}, &schedulerv1alpha1.NamespacePlacement{}, &tenancyv1alpha1.VirtualCluster{}}
	cached, err := cache.New(config, cache.Options{
		Scheme: cluster.Scheme(), Mapper: cluster.RESTMapper(), DefaultTransform: cache.TransformStripManagedFields(), DefaultWatchErrorHandler: l.failed,
		ByObject: map[client.Object]cache.ByObject{objects[0]: {Label: labels.NewSelector().Add(*isVirtual)}},
	})
	if err != nil {
		return nil, fmt.Errorf("watching the meta cluster: %w", err)
	}
	notify := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { l.notify() }, UpdateFunc: func(any, any) { l.notify() }, DeleteFunc: func(any) { l.notify() },
	}
	for _, object := range objects {
		informer, err := cached.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(notify)
		}
		if err != nil {
			return nil, fmt.Errorf("watching the meta cluster: %w", err)
		}
	}
	go func() { _ = cached.Start(ctx) }() // it ends with ctx, and fails only where it was started before
	if !cached.WaitForCacheSync(ctx) {
		return nil, errors.New("reading the meta cluster: " + cmp.Or(l.failing(time.Now()), "it was ended"))
	}
	l.cached = unpaged{cached}
	l.keep(ctx)
	go func() {
		_ = wait.PollUntilContextCancel(ctx, keptPeriod, false, func(ctx context.Context) (bool, error) { // it ends with ctx alone
			l.keep(ctx)
			return false, nil
		})
	}()
	return l, nil
}

func (l *live) changes() <-chan struct{} { return l.changed }

func (l *live) notify() {
	select {
	case l.changed <- struct{}{}:
	default: // it is to be looked at already
	}
}

// failed notes that a watch failed, but for one that has ended as all do.
func (l *live) failed(_ context.Context, _ *toolscache.Reflector, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	l.mu.Lock()
	l.failure, l.failedAt = err.Error(), time.Now()
	l.mu.Unlock()
	l.notify()
}

// failing returns why a watch failed not long ago, "" where none did.
func (l *live) failing(now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.failedAt) > failedFor {
		return ""
	}
	return l.failure
}

// keep asks Clusters for their headroom. It is no part of a look, which waits for nothing: a meta cluster that does not
// answer is waited for here.
func (l *live) keep(ctx context.Context) {
	kept, err := pool.Headrooms(ctx, l.cluster)
	l.mu.Lock()
	l.kept, l.keptFailure = kept, ""
	if err != nil {
		l.keptFailure = err.Error()
	}
	l.mu.Unlock()
	l.notify()
}

// look reads what is cached, by the code of the other verbs.
func (l *live) look(ctx context.Context) (*facts, error) {
	found := &facts{}
	var err error
	if found.pool, err = simulation.Live(ctx, l.cached); err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	if found.tenants, err = cli.VirtualClusters(ctx, l.cached); err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	l.mu.Lock()
	found.kept = l.kept
	if l.keptFailure != "" {
		found.notes = append(found.notes, "headroom is not known: "+l.keptFailure)
	}
	l.mu.Unlock()
	if failure := l.failing(time.Now()); failure != "" {
		found.notes = append(found.notes, "the meta cluster does not answer, and this may be old: "+failure)
	}
	return found, nil
}

// unpaged is a cache, which has no pages, and of which nobody changes what it returns.
type unpaged struct{ client.Reader }

func (u unpaged) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	all := (&client.ListOptions{}).ApplyOptions(options)
	all.Limit, all.UnsafeDisableDeepCopy = 0, ptr.To(true)
	if err := u.Reader.List(ctx, list, all); err != nil {
		return err //nolint:wrapcheck // the caller says what it did
	}
	list.SetContinue("")
	return nil
}
