package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/test/controlplane"
)

// The control planes of a pool, by name: a meta cluster, the super clusters, and those of tenants.
const (
	metaCluster = "meta"
	ofTenant    = "tenant"
)

// services are the addresses of Services in the control planes of a pool.
var services = map[string]string{
	"r1": superServices, "r2": superServices, ofTenant: tenantServices, "b": "10.0.129.0/24", "a": "10.0.130.0/24",
}

// roleOf returns what a control plane of a pool is for.
func roleOf(name string) controlplane.Role {
	switch name {
	case metaCluster:
		return controlplane.Meta
	case "r1", "r2":
		return controlplane.Super
	default:
		return controlplane.Tenant
	}
}

// pool is control planes without controllers, each started when a test first needs it.
type pool struct {
	// quotas is whether API servers admit by ResourceQuotas.
	quotas bool
	planes map[string]*plane
	// used are the names of those that the test which runs has asked for.
	used  map[string]bool
	stops []func()
}

// plane is a control plane of a pool.
type plane struct {
	*controlplane.ControlPlane
	client client.Client
	// account is how a syncer reaches it.
	account *rest.Config
	// discovery and objects are what restore works with.
	discovery discovery.DiscoveryInterface
	objects   dynamic.Interface
	// before is what is in it when no test works on it, if tests share it.
	before map[identity]*unstructured.Unstructured
}

func newPool(quotas bool) *pool {
	return &pool{quotas: quotas, planes: map[string]*plane{}, used: map[string]bool{}}
}

// shared are the pools that tests share, by quotas. Tests run one after another.
var shared = map[bool]*pool{}

// share returns a pool that tests share. Once the test has ended, and its syncers with it, the pool is made what it was
// before: each test finds what it would find in control planes of its own. A test that fails, or leaves what cannot be
// removed in time, leaves its pool to nobody, and the next starts another: no failure brings about a second one.
// TestSharedPool fails if nothing can be shared.
func share(t *testing.T, quotas bool) *pool {
	t.Helper()
	p := shared[quotas]
	if p == nil {
		p = newPool(quotas)
		shared[quotas] = p
	}
	t.Cleanup(func() {
		asBefore := false
		if !t.Failed() {
			err := p.restore(context.WithoutCancel(t.Context()))
			if asBefore = err == nil; !asBefore {
				t.Logf("the next test has control planes of its own: %v", err)
			}
		}
		clear(p.used)
		if !asBefore {
			delete(shared, quotas)
			p.stop()
		}
	})
	return p
}

// stopShared stops all pools that tests share.
func stopShared() {
	for _, p := range shared {
		p.stop()
	}
}

func (p *pool) stop() {
	for _, stop := range p.stops {
		stop()
	}
}

// need starts those control planes that do not run yet.
func (p *pool) need(t *testing.T, names ...string) {
	t.Helper()
	crds, err := controlplane.SuperpoolCRDs()
	require.NoError(t, err)
	var missing []string
	var options []controlplane.Options
	for _, name := range names {
		p.used[name] = true
		if p.planes[name] != nil {
			continue
		}
		option := controlplane.Options{Role: roleOf(name), ServiceClusterIPRange: services[name]}
		if !p.quotas {
			option.DisableAdmission = []string{"ResourceQuota"}
		}
		if name == metaCluster {
			option.CRDs = []string{crds}
		}
		missing, options = append(missing, name), append(options, option)
	}
	if len(missing) == 0 {
		return
	}
	started, stop, err := controlplane.Start(options...)
	p.stops = append(p.stops, stop)
	require.NoError(t, err)
	for i, name := range missing {
		made := newPlane(t, name, started[i])
		if p == shared[p.quotas] {
			made.before, err = made.contents(t.Context())
			require.NoError(t, err)
		}
		p.planes[name] = made
	}
}

// newPlane makes a control plane a meta cluster, a super cluster or that of a tenant.
func newPlane(t *testing.T, name string, started *controlplane.ControlPlane) *plane {
	t.Helper()
	made, err := client.New(started.Config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	p := &plane{ControlPlane: started, client: made}
	quiet := rest.CopyConfig(started.Config)
	quiet.WarningHandler = rest.NoWarnings{} // some kinds are deprecated
	p.discovery, err = discovery.NewDiscoveryClientForConfig(quiet)
	require.NoError(t, err)
	p.objects, err = dynamic.NewForConfig(quiet)
	require.NoError(t, err)
	uidOf(t, p.client)
	grants := func(file, namespace, account string) {
		user, err := controlplane.Account(t.Context(), started, file, namespace, account)
		require.NoError(t, err)
		p.account = user.Config
	}
	switch roleOf(name) {
	case controlplane.Meta:
		grants("base/vc-syncer-rbac.yaml", "vc-manager", "vc-syncer")
	case controlplane.Super:
		grants("supercluster/syncer.yaml", "superpool-system", "syncer")
		create(t, p.client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "supercluster-info"}, Data: map[string]string{"id": name}})
	case controlplane.Tenant:
		grants("tenant/rbac.yaml", "superpool-system", "superpool")
		ofSyncPolicies(t, p.client)
	}
	return p
}

// ofSyncPolicies grants what the SyncPolicies of tests need in a tenant, as docs/sync-policies.md has it.
func ofSyncPolicies(t *testing.T, tenant client.Client) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "superpool:pool:kinds"}
	create(t, tenant, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"example.com", "gateway.networking.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "patch"}},
		// Those that come up.
		{APIGroups: []string{"example.com"}, Resources: []string{"planets"}, Verbs: []string{"create", "update", "delete"}},
		{APIGroups: []string{"gateway.networking.k8s.io"}, Resources: []string{"gatewayclasses"}, Verbs: []string{"create", "update", "delete"}},
	}})
	create(t, tenant, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "superpool-system", Name: "superpool"}},
	})
}

// restore makes the control planes that a test has used what they were before.
func (p *pool) restore(ctx context.Context) error {
	var group errgroup.Group
	for name := range p.used {
		each := p.planes[name]
		group.Go(func() error {
			if err := each.restore(ctx); err != nil {
				return fmt.Errorf("control plane %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// until waits until check returns nil.
func until(ctx context.Context, check func(ctx context.Context) error) error {
	var last error
	if err := wait.PollUntilContextTimeout(ctx, interval, deadline, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	}); err != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return nil
}

// identity is an object's resource and name.
type identity struct {
	schema.GroupVersionResource
	types.NamespacedName
}

// contents returns what is in a control plane, but for what API servers write themselves.
func (p *plane) contents(ctx context.Context) (map[identity]*unstructured.Unstructured, error) {
	kinds, err := p.allKinds()
	if err != nil {
		return nil, err
	}
	return p.contentsOf(ctx, kinds)
}

// kinds are resources of an API server.
type kinds = sets.Set[schema.GroupVersionResource]

// allKinds returns the kinds whose objects tests can make and delete.
func (p *plane) allKinds() (kinds, error) {
	lists, err := p.discovery.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	found := kinds{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for i := range list.APIResources {
			kind := &list.APIResources[i]
			resource := version.WithResource(kind.Name)
			if sets.New(kind.Verbs...).HasAll("list", "create", "delete") && !isServersKind(resource.GroupResource()) {
				found.Insert(resource)
			}
		}
	}
	return found, nil
}

// contentsOf is contents of these kinds. One that is not served any more has no objects.
func (p *plane) contentsOf(ctx context.Context, kinds kinds) (map[identity]*unstructured.Unstructured, error) {
	found := map[identity]*unstructured.Unstructured{}
	for kind := range kinds {
		items, err := p.objects.Resource(kind).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind.GroupResource(), err)
		}
		for i := range items.Items {
			if object := &items.Items[i]; !isServers(kind.Resource, object) {
				found[identity{kind, client.ObjectKeyFromObject(object)}] = object
			}
		}
	}
	return found, nil
}

// isServersKind returns whether API servers keep objects of a kind to themselves, or serve them by another name, too.
func isServersKind(kind schema.GroupResource) bool {
	switch kind.Group {
	case "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io", "events.k8s.io":
		return true
	case "networking.k8s.io":
		return kind.Resource == "ipaddresses" || kind.Resource == "servicecidrs"
	}
	return false
}

// isServers returns whether API servers write an object themselves, at any time.
func isServers(resource string, object *unstructured.Unstructured) bool {
	name, namespace := object.GetName(), object.GetNamespace()
	switch resource {
	case "namespaces":
		return slices.Contains([]string{"default", "kube-system", "kube-public", "kube-node-lease"}, name)
	case "services", "endpoints", "endpointslices":
		return namespace == "default" && name == "kubernetes"
	case "configmaps":
		return namespace == "kube-system" && (name == "extension-apiserver-authentication" || name == "kube-apiserver-legacy-service-account-token-tracking")
	case "leases":
		return namespace == "kube-system"
	case "priorityclasses":
		return strings.HasPrefix(name, "system-")
	}
	return object.GetLabels()["kubernetes.io/bootstrapping"] != ""
}

// restore deletes what a test has made, and puts back what it has changed or deleted, but for statuses, which nothing
// of a pool has, until a control plane is what it was before. Nobody else writes then: after the first look it looks
// again at the kinds alone that it has written.
//
// What an API server keeps in memory follows within moments, but for ValidatingAdmissionPolicies, which it reads once a
// second: a test that makes some waits until they have no effect. See refuseClaims.
func (p *plane) restore(ctx context.Context) error {
	left, err := p.allKinds()
	if err != nil {
		return err
	}
	return until(ctx, func(ctx context.Context) error {
		written, err := p.restoreKinds(ctx, left)
		if err != nil {
			return err
		}
		if left = written; len(left) > 0 {
			return fmt.Errorf("not all is as before of %v", left.UnsortedList())
		}
		return nil
	})
}

// restoreKinds makes one step of restore with the objects of these kinds, and returns the kinds that it has written. It
// plays the controllers that would take finalizers off, of namespaces once nothing is in them any more.
func (p *plane) restoreKinds(ctx context.Context, of kinds) (written kinds, err error) {
	now, err := p.contentsOf(ctx, of)
	if err != nil {
		return nil, err
	}
	written = kinds{}
	var writes errgroup.Group
	writes.SetLimit(16)
	write := func(kind schema.GroupVersionResource, one func() error) {
		written.Insert(kind)
		writes.Go(one)
	}
	var namespaces []*unstructured.Unstructured
	for id, object := range now {
		before, was := p.before[id]
		at := p.objects.Resource(id.GroupVersionResource).Namespace(id.Namespace)
		switch {
		case was && isSame(before, object):
		case was:
			put := before.DeepCopy()
			put.SetResourceVersion(object.GetResourceVersion())
			put.SetUID(object.GetUID())
			write(id.GroupVersionResource, func() error {
				_, err := at.Update(ctx, put, metav1.UpdateOptions{})
				return err
			})
		case id.Resource == "namespaces":
			namespaces = append(namespaces, object)
		default:
			write(id.GroupVersionResource, func() error { return remove(ctx, at, object) })
		}
	}
	for id, before := range p.before {
		if now[id] != nil || !of.Has(id.GroupVersionResource) {
			continue
		}
		put := before.DeepCopy()
		put.SetResourceVersion("")
		put.SetUID("")
		write(id.GroupVersionResource, func() error {
			_, err := p.objects.Resource(id.GroupVersionResource).Namespace(id.Namespace).Create(ctx, put, metav1.CreateOptions{})
			return err
		})
	}
	isEmpty := len(written) == 0
	for _, namespace := range namespaces {
		written.Insert(namespacesKind)
		if isEmpty {
			writes.Go(func() error { return finalize(ctx, p.objects.Resource(namespacesKind), namespace) })
		}
	}
	return written, writes.Wait()
}

var namespacesKind = corev1.SchemeGroupVersion.WithResource("namespaces")

// isSame returns whether an object is as before.
func isSame(before, now *unstructured.Unstructured) bool {
	return cmp.Equal(content(before), content(now))
}

// content returns an object without its status, and without what API servers write of it.
func content(object *unstructured.Unstructured) map[string]any {
	all := maps.Clone(object.Object)
	delete(all, "status")
	metadata, _ := all["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	for _, key := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
		delete(metadata, key)
	}
	all["metadata"] = metadata
	return all
}

// remove deletes an object at once. The finalizer of a definition is the API server's own to take off.
func remove(ctx context.Context, at dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	if len(object.GetFinalizers()) > 0 && object.GetKind() != "CustomResourceDefinition" {
		none := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := at.Patch(ctx, object.GetName(), types.MergePatchType, none, metav1.PatchOptions{}); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return client.IgnoreNotFound(at.Delete(ctx, object.GetName(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
}

// finalize deletes a namespace, as the namespace controller does.
func finalize(ctx context.Context, at dynamic.NamespaceableResourceInterface, namespace *unstructured.Unstructured) error {
	if err := at.Delete(ctx, namespace.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsConflict(err) {
		return client.IgnoreNotFound(err)
	}
	deleted, err := at.Get(ctx, namespace.GetName(), metav1.GetOptions{})
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if deleted.GetUID() != namespace.GetUID() {
		return errors.New("a namespace was made again while it was deleted")
	}
	unstructured.RemoveNestedField(deleted.Object, "spec", "finalizers")
	_, err = at.Update(ctx, deleted, metav1.UpdateOptions{}, "finalize")
	return client.IgnoreNotFound(err)
}

// TestSharedPool leaves what restore has to find: objects with finalizers, a kind of its own, a pod with a grace
// period, and objects of the pool that were changed or deleted.
func TestSharedPool(t *testing.T) {
	w := newWorld(t, needs{})
	r1 := w.pool.planes["r1"]
	serve(t, w.super, "Widget", "Namespaced", true)
	grant(t, w.super, "widgets")
	create(t, w.super, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left"}})
	held := widget("Widget", "left", "held", nil)
	held.SetFinalizers([]string{"example.com/held"})
	create(t, w.super, held)
	create(t, w.super, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "left", Name: "default"}})
	pod := newPod("left", "pod")
	pod.Finalizers = []string{"example.com/held"}
	create(t, w.super, pod)
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	require.NoError(t, w.super.SubResource("binding").Create(t.Context(), pod, binding))
	claim := newClaim("left", "data", "")
	create(t, w.super, claim)
	provision(t, w.super, claim, "pvc-left")
	create(t, w.super, newService("default", "left", ""))
	create(t, w.super, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "left", Name: "left"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "left", Name: "pod"},
	})
	require.NoError(t, w.super.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left"}}))
	change(t, w.super, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "superpool-system"}}, func(object client.Object) {
		object.SetLabels(map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	})
	require.NoError(t, w.super.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "supercluster-info"}}))

	require.NoError(t, w.pool.restore(t.Context()))
	now, err := r1.contents(t.Context())
	require.NoError(t, err)
	strip := func(all map[identity]*unstructured.Unstructured) map[identity]any {
		contents := map[identity]any{}
		for id, object := range all {
			contents[id] = content(object)
		}
		return contents
	}
	require.Empty(t, cmp.Diff(strip(r1.before), strip(now)))
	var namespaces corev1.NamespaceList
	require.NoError(t, w.meta.List(t.Context(), &namespaces))
	for i := range namespaces.Items {
		require.NotContains(t, []string{"acme", w.key}, namespaces.Items[i].Name)
	}
	_, err = syncer.Identify(t.Context(), w.superConfig)
	require.NoError(t, err, "the super cluster has its id again")
}
