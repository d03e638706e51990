package podscheduler

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	podgroupclient "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned/typed/scheduling/v1alpha1"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/plugins/coscheduling"
)

// podGroups are the PodGroups of a tenant, as far as its control plane serves them. They are read beside the tenant's
// other objects: a control plane without the CRD has a pod scheduler, too.
type podGroups struct {
	informer cache.SharedIndexInformer
	source   *engage.OptionalSource

	mu      sync.Mutex
	changed []func(group types.NamespacedName)
}

var _ coscheduling.Groups = &podGroups{}

// newPodGroups returns the PodGroups that source lists and watches. run reads them.
func newPodGroups(source *cache.ListWatch) *podGroups {
	empty := func() client.ObjectList { return &podgroupv1alpha1.PodGroupList{} }
	g := &podGroups{source: engage.Optional(source, empty, engage.UnservedRetry)}
	g.informer = cache.NewSharedIndexInformer(g.source, &podgroupv1alpha1.PodGroup{}, 0, cache.Indexers{})
	return g
}

// podGroupsOf returns the source of a tenant's PodGroups.
func podGroupsOf(cfg *rest.Config) (*cache.ListWatch, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // as custom resources are
	api, err := podgroupclient.NewForConfig(rest.AddUserAgent(cfg, tenantevents.ControllerName))
	if err != nil {
		return nil, fmt.Errorf("building a client of PodGroups: %w", err)
	}
	groups := api.PodGroups(metav1.NamespaceAll)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			tenantclient.Paged(&options)
			return groups.List(ctx, options) //nolint:wrapcheck // the informer asks what kind of error it is
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return groups.Watch(ctx, options) //nolint:wrapcheck // as above
		},
	}, nil
}

// run reads PodGroups until ctx ends, and counts them towards bounds. A panic of a handler is passed to fail.
func (g *podGroups) run(ctx context.Context, bounds *tenantclient.Bounds, fail func(error)) {
	account := bounds.Account()
	defer account.Close()
	tell := func(group *podgroupv1alpha1.PodGroup) {
		g.mu.Lock()
		changed := g.changed
		g.mu.Unlock()
		for _, f := range changed {
			f(types.NamespacedName{Namespace: group.Namespace, Name: group.Name})
		}
	}
	_, _ = account.Follow(g.informer, nil, engage.Handler(ctx, "informer of PodGroups", fail, engage.ObjectHandler(tell, tell))) // it has not started
	g.informer.RunWithContext(ctx)
}

// start is run in a goroutine of its own. The channel is closed when it has ended.
func (g *podGroups) start(ctx context.Context, bounds *tenantclient.Bounds, fail func(error)) <-chan struct{} {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		g.run(ctx, bounds, fail)
	}()
	return stopped
}

// OnChange implements coscheduling.Groups.
func (g *podGroups) OnChange(changed func(group types.NamespacedName)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed = append(g.changed, changed)
}

// Get implements coscheduling.Groups.
func (g *podGroups) Get(group types.NamespacedName) (*podgroupv1alpha1.PodGroup, error) {
	object, exists, err := g.informer.GetStore().GetByKey(group.String())
	switch {
	case err == nil && exists:
		return object.(*podgroupv1alpha1.PodGroup), nil //nolint:forcetypeassert // the informer is one of PodGroups
	case apierrors.IsNotFound(g.source.Absent()):
		return nil, fmt.Errorf("there is no PodGroup %s: this control plane does not serve %s, for lack of the CRD or of this version of it", group.Name, podgroupv1alpha1.SchemeGroupVersion)
	case g.source.Absent() != nil:
		return nil, fmt.Errorf("PodGroup %s is unknown: vc-scheduler may not list them in this control plane", group.Name)
	case !g.informer.HasSynced():
		return nil, coscheduling.ErrUnlisted
	}
	return nil, fmt.Errorf("there is no PodGroup %s", group.Name)
}

// gangLimit returns how many members of a gang of a tenant may wait at a time, and what says so.
func gangLimit(ref *policy.Ref) func() (int, string) {
	return func() (int, string) {
		current := ref.Get()
		return int(current.Spec().Limits.PendingPods), "limits.pendingPods of TenantPolicy " + current.Name()
	}
}
