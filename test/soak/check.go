package soak

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kinds/config"
	"github.com/superpool/superpool/internal/syncer/kinds/services"
	"github.com/superpool/superpool/internal/tenancy"
)

// object is one that a control plane holds, with what a check asks of any.
type object struct {
	resource string
	*unstructured.Unstructured
}

func (o *object) String() string {
	return fmt.Sprintf("%s %s/%s", o.resource, o.GetNamespace(), o.GetName())
}

// everything lists all objects of all kinds that a control plane lists, but for Events, with a label if one is given.
func everything(ctx context.Context, c *cluster, label string) ([]object, error) {
	lists, err := discovery.ServerPreferredResources(c.typed.Discovery())
	if err != nil {
		return nil, fmt.Errorf("asking %s for its kinds: %w", c.name, err)
	}
	var all []object
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("reading the kinds of %s: %w", c.name, err)
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			if !slices.Contains(resource.Verbs, "list") || resource.Name == "events" || resource.Name == "componentstatuses" {
				continue
			}
			found, err := c.dynamic.Resource(group.WithResource(resource.Name)).List(ctx, metav1.ListOptions{LabelSelector: label})
			if err != nil {
				return nil, fmt.Errorf("listing %s of %s: %w", resource.Name, c.name, err)
			}
			for j := range found.Items {
				all = append(all, object{resource.Name, &found.Items[j]})
			}
		}
	}
	return all, nil
}

// checker compares both sides, object by object. What it reads may change meanwhile: findings count once they stay.
type checker struct {
	*bed
	findings []string
	compared int
}

func (c *checker) found(format string, args ...any) {
	c.findings = append(c.findings, fmt.Sprintf(format, args...))
}

// check returns what does not agree, and how many objects it has compared.
func (b *bed) check(ctx context.Context) (findings []string, compared int, err error) {
	c := &checker{bed: b}
	alive := map[string]map[types.UID]bool{}
	for _, tenant := range b.tenants {
		key, err := c.tenant(ctx, tenant, alive)
		if err != nil {
			return nil, 0, fmt.Errorf("checking tenant %s (%s): %w", tenant.name, key, err)
		}
	}
	for _, super := range b.supers {
		if err := c.owned(ctx, super, alive); err != nil {
			return nil, 0, err
		}
	}
	slices.Sort(c.findings)
	return c.findings, c.compared, nil
}

// owned finds what is in a super cluster without a live owner.
func (c *checker) owned(ctx context.Context, super *cluster, alive map[string]map[types.UID]bool) error {
	all, err := everything(ctx, super, tenancyv1alpha1.LabelCluster)
	if err != nil {
		return err
	}
	for i := range all {
		copied := &all[i]
		c.compared++
		owner, complete := tenancy.GetOwner(copied)
		switch {
		case !complete:
			c.found("%s in %s has incomplete marks", copied, super.name)
		case !alive[owner.ClusterKey][owner.UID]:
			c.found("%s in %s has no live owner %s of namespace %s", copied, super.name, owner.UID, owner.Namespace)
		case copied.GetDeletionTimestamp() != nil:
			c.found("%s in %s is being deleted", copied, super.name)
		}
	}
	return nil
}

// tenant compares what a tenant has with what is in super clusters. It adds the UIDs of its objects to alive.
func (c *checker) tenant(ctx context.Context, tenant *cluster, alive map[string]map[types.UID]bool) (key string, err error) {
	vc, err := c.virtualCluster(ctx, tenant)
	if err != nil {
		return "", err
	}
	key = tenancy.ClusterKey(vc)
	placed, err := c.placements(ctx, key)
	if err != nil {
		return key, err
	}
	all, err := everything(ctx, tenant, "")
	if err != nil {
		return key, err
	}
	alive[key] = map[types.UID]bool{}
	for i := range all {
		alive[key][all[i].GetUID()] = true
		if all[i].GetDeletionTimestamp() != nil {
			c.found("%s of %s is being deleted", &all[i], tenant.name)
		}
	}
	for _, super := range c.supers {
		pair := &pair{checker: c, tenant: tenant, super: super, key: key, vc: vc, placed: placed[super.name]}
		if len(pair.placed) == 0 {
			continue
		}
		if err := pair.compare(ctx); err != nil {
			return key, err
		}
	}
	return key, c.workloads(ctx, tenant)
}

// placements returns which namespaces of a tenant are placed in which super cluster, by its id, and whether that is
// their home.
func (c *checker) placements(ctx context.Context, key string) (map[string]map[string]bool, error) {
	var list schedulerv1alpha1.NamespacePlacementList
	if err := c.meta.client.List(ctx, &list, client.InNamespace(key)); err != nil {
		return nil, err
	}
	placed := map[string]map[string]bool{}
	for i := range list.Items {
		for _, placement := range list.Items[i].Status.Placements {
			if placement.Leaving != nil {
				c.found("%s/%s leaves %s: %s", key, list.Items[i].Name, placement.Cluster, placement.Leaving.Reason)
			}
			if placed[placement.Cluster] == nil {
				placed[placement.Cluster] = map[string]bool{}
			}
			placed[placement.Cluster][list.Items[i].Name] = list.Items[i].Status.Home == placement.Cluster
		}
	}
	return placed, nil
}

// workloads finds pods that do not run, and Deployments that lack pods.
func (c *checker) workloads(ctx context.Context, tenant *cluster) error {
	var deployments appsv1.DeploymentList
	if err := tenant.client.List(ctx, &deployments); err != nil {
		return err
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if d.Status.ObservedGeneration != d.Generation || d.Status.ReadyReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas {
			c.found("Deployment %s/%s of %s has %d replicas, %d ready, and wants %d", d.Namespace, d.Name, tenant.name, d.Status.Replicas, d.Status.ReadyReplicas, *d.Spec.Replicas)
		}
	}
	var pods corev1.PodList
	if err := tenant.client.List(ctx, &pods); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == "" {
			c.found("pod %s/%s of %s is bound to no Node: superCluster %q, %s", pod.Namespace, pod.Name, tenant.name, pod.Labels[schedulerv1alpha1.LabelSuperCluster], conditions(pod))
		}
	}
	return nil
}

func conditions(pod *corev1.Pod) string {
	var all []string
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		all = append(all, fmt.Sprintf("%s=%s %s %s", condition.Type, condition.Status, condition.Reason, condition.Message))
	}
	return strings.Join(all, "; ")
}

// pair is a tenant and a super cluster where it has placements.
type pair struct {
	*checker
	tenant, super *cluster
	key           string
	vc            *tenancyv1alpha1.VirtualCluster
	// placed are the namespaces that the super cluster holds, by whether it is their home.
	placed map[string]bool
}

func (p *pair) compare(ctx context.Context) error {
	for _, compare := range []func(context.Context) error{
		func(ctx context.Context) error {
			return compareKind(ctx, p, &corev1.ConfigMapList{}, copied[*corev1.ConfigMap]{placed: true, name: func(name string) string {
				return strings.Replace(name, "kube-root-ca.crt", "tenant-kube-root-ca.crt", 1)
			}, translate: config.SuperConfigMap})
		},
		func(ctx context.Context) error {
			return compareKind(ctx, p, &corev1.SecretList{}, p.secrets())
		},
		func(ctx context.Context) error {
			return compareKind(ctx, p, &corev1.ServiceAccountList{}, copied[*corev1.ServiceAccount]{placed: true, translate: config.SuperServiceAccount})
		},
		func(ctx context.Context) error {
			return compareKind(ctx, p, &corev1.ServiceList{}, copied[*corev1.Service]{translate: p.service, differences: func(from, there *corev1.Service) differences {
				return serviceDifferences(from, there, p.placed[from.Namespace])
			}})
		},
		func(ctx context.Context) error {
			return compareKind(ctx, p, &discoveryv1.EndpointSliceList{}, copied[*discoveryv1.EndpointSlice]{translate: func(from, to *discoveryv1.EndpointSlice) {
				services.SuperEndpointSlice(from, to, p.super.name)
			}, differences: func(from, there *discoveryv1.EndpointSlice) differences {
				return endpointSliceDifferences(from, there, p.super.name)
			}})
		},
		func(ctx context.Context) error {
			return compareKind(ctx, p, &networkingv1.NetworkPolicyList{}, copied[*networkingv1.NetworkPolicy]{placed: true})
		},
		p.claims,
		p.pods,
	} {
		if err := compare(ctx); err != nil {
			return err
		}
	}
	return nil
}

// secrets says how Secrets are copied.
func (p *pair) secrets() copied[*corev1.Secret] {
	return copied[*corev1.Secret]{placed: true, translate: config.SuperSecret, differences: secretDifferences}
}

// service is what a syncer makes of a Service: a load balancer is one in the home of its namespace alone, whose address
// the tenant reads.
func (p *pair) service(from, to *corev1.Service) {
	balanced, home := from.Spec.Type == corev1.ServiceTypeLoadBalancer, p.placed[from.Namespace]
	switch {
	case balanced && home && !equality.Semantic.DeepEqual(from.Status.LoadBalancer, to.Status.LoadBalancer):
		p.found("Service %s/%s of %s says %v, and its home %s %v", from.Namespace, from.Name, p.tenant.name, from.Status.LoadBalancer, p.super.name, to.Status.LoadBalancer)
	case balanced && home && len(to.Status.LoadBalancer.Ingress) == 0:
		p.found("Service %s/%s of %s has no address in its home %s", from.Namespace, from.Name, p.tenant.name, p.super.name)
	case balanced && !home:
		from = from.DeepCopy()
		from.Spec.Type, from.Spec.ExternalTrafficPolicy, from.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeClusterIP, "", nil
	}
	services.SuperService(from, to, []netip.Prefix{}, utilnet.PortRange{})
}

// claims compares the claims that are bound to volumes of the super cluster.
func (p *pair) claims(ctx context.Context) error {
	var list corev1.PersistentVolumeClaimList
	if err := p.tenant.client.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		claim := &list.Items[i]
		there := &corev1.PersistentVolumeClaim{}
		err := p.super.client.Get(ctx, client.ObjectKey{Namespace: tenancy.SuperNamespace(p.key, claim.Namespace), Name: claim.Name}, there)
		missing := apierrors.IsNotFound(err)
		if err != nil && !missing {
			return err
		}
		p.compared++
		here := strings.HasPrefix(claim.Spec.VolumeName, p.super.name+".")
		where := fmt.Sprintf("claim %s/%s of %s", claim.Namespace, claim.Name, p.tenant.name)
		owner, _ := tenancy.GetOwner(there)
		switch {
		case !here && !missing && there.Spec.VolumeName != "":
			p.found("%s has volume %q, and one in %s, too", where, claim.Spec.VolumeName, p.super.name)
		case !here:
		case missing:
			p.found("%s has volume %s, and is not in %s", where, claim.Spec.VolumeName, p.super.name)
		case owner.UID != claim.UID:
			p.found("%s is that of %s in %s, and not of %s", where, owner.UID, p.super.name, claim.UID)
		case claim.Status.Phase != corev1.ClaimBound || there.Status.Phase != corev1.ClaimBound:
			p.found("%s is %s, and in %s %s", where, claim.Status.Phase, p.super.name, there.Status.Phase)
		}
	}
	return nil
}

// copied says how objects of a kind are copied.
type copied[T client.Object] struct {
	// placed is whether only those of placed namespaces are.
	placed bool
	// name returns the name of the copy; nil keeps it.
	name func(string) string
	// translate sets what the syncer owns of a copy; nil: it is enough that the copy is there.
	translate func(from, to T)
	// differences returns what a copy has otherwise than is expected by what this package says of the kind; nil: it
	// says nothing.
	differences func(from, there T) differences
}

// itemsOf returns the items of a list.
func itemsOf[T client.Object](list client.ObjectList) ([]T, error) {
	var items []T
	err := apimeta.EachListItem(list, func(item runtime.Object) error {
		typed, ok := item.(T)
		if !ok {
			return fmt.Errorf("a list has an item of type %T", item)
		}
		items = append(items, typed)
		return nil
	})
	return items, err
}

// compareKind compares the objects of a kind.
func compareKind[T client.Object](ctx context.Context, p *pair, list client.ObjectList, how copied[T]) error {
	if err := p.tenant.client.List(ctx, list); err != nil {
		return err
	}
	items, err := itemsOf[T](list)
	if err != nil {
		return err
	}
	for _, item := range items {
		if _, placed := p.placed[item.GetNamespace()]; how.placed && !placed || strings.HasPrefix(item.GetNamespace(), "kube-") || item.GetNamespace() == metav1.NamespaceDefault {
			continue
		}
		if err := compareObject(ctx, p, item, how); err != nil {
			return err
		}
	}
	return nil
}

// compareObject compares an object of a tenant with its copy.
func compareObject[T client.Object](ctx context.Context, p *pair, item T, how copied[T]) error {
	name := item.GetName()
	if how.name != nil {
		name = how.name(name)
	}
	there, ok := reflect.New(reflect.TypeOf(item).Elem()).Interface().(T) // an empty one: what is read is merged into it
	if !ok {
		return fmt.Errorf("a new %T has another type", item)
	}
	err := p.super.client.Get(ctx, client.ObjectKey{Namespace: tenancy.SuperNamespace(p.key, item.GetNamespace()), Name: name}, there)
	p.compared++
	where := fmt.Sprintf("%T %s/%s of %s in %s", item, item.GetNamespace(), item.GetName(), p.tenant.name, p.super.name)
	if apierrors.IsNotFound(err) {
		p.found("%s is missing", where)
		return nil
	} else if err != nil {
		return err
	}
	if owner, owned := tenancy.GetOwner(there); !owned || owner.UID != item.GetUID() {
		p.found("%s is that of %s, and not of %s", where, owner.UID, item.GetUID())
	}
	if how.differences != nil {
		for _, difference := range how.differences(item, there) {
			p.found("%s: %s", where, difference)
		}
	}
	if how.translate == nil {
		return nil
	}
	want, _ := there.DeepCopyObject().(T) // of the type of there
	how.translate(item, want)
	if !equality.Semantic.DeepEqual(want, there) {
		p.found("%s differs", where)
	}
	return nil
}

// pods compares the pods that are bound to Nodes of the super cluster.
func (p *pair) pods(ctx context.Context) error {
	var list, super corev1.PodList
	if err := p.tenant.client.List(ctx, &list); err != nil {
		return err
	}
	if err := p.super.client.List(ctx, &super, client.MatchingLabels{tenancyv1alpha1.LabelCluster: p.key}); err != nil {
		return err
	}
	there := map[types.UID]*corev1.Pod{}
	for i := range super.Items {
		if owner, owned := tenancy.GetOwner(&super.Items[i]); owned {
			there[owner.UID] = &super.Items[i]
		}
	}
	for i := range list.Items {
		pod := &list.Items[i]
		node, here := strings.CutPrefix(pod.Spec.NodeName, p.super.name+".")
		if !here {
			continue
		}
		p.compared++
		superPod := there[pod.UID]
		delete(there, pod.UID)
		where := fmt.Sprintf("pod %s/%s of %s", pod.Namespace, pod.Name, p.tenant.name)
		switch {
		case superPod == nil:
			p.found("%s is bound to %s, and is not in %s", where, pod.Spec.NodeName, p.super.name)
		case superPod.Spec.NodeName != node:
			p.found("%s is bound to %s, and in %s to %s", where, pod.Spec.NodeName, p.super.name, superPod.Spec.NodeName)
		case superPod.Status.Phase != pod.Status.Phase || isReady(superPod) != isReady(pod):
			p.found("%s is %s, ready %t, and in %s %s, ready %t", where, pod.Status.Phase, isReady(pod), p.super.name, superPod.Status.Phase, isReady(superPod))
		case !isReady(pod) && !ended(pod):
			p.found("%s is not ready: %s", where, conditions(pod))
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(there)) {
		p.found("pod %s/%s in %s is not bound to a Node of it in %s", there[uid].Namespace, there[uid].Name, p.super.name, p.tenant.name)
	}
	return nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}
