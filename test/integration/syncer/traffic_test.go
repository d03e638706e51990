package syncer_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/await"
)

// traffic is two tenants in two super clusters, whose namespaces web are placed in both: the home of mine is r1, that
// of theirs is r2. The test plays the super clusters' controllers of load balancers and Ingresses.
type traffic struct {
	mine, theirs *world
	// whole is the test that syncers run for: they outlive the parts that start them.
	whole *testing.T
	// metrics and stop are of the syncers of r1 and r2 that run.
	metrics map[string]*prometheus.Registry
	stop    map[string]func()
}

// TestTraffic lets traffic from outside come in at the home of a namespace, wherever that is.
func TestTraffic(t *testing.T) {
	w := newWorld(t, needs{r2: true})
	tr := &traffic{whole: t, mine: w, theirs: w.neighbour(t, "b"), metrics: map[string]*prometheus.Registry{}, stop: map[string]func(){}}
	for _, each := range []*world{tr.mine, tr.theirs} {
		each.followTraffic(t, 10)
	}
	tr.mine.place(t, "web", "r1", "r2")
	tr.theirs.place(t, "web", "r2", "r1")
	tr.start(t, "r1")
	tr.start(t, "r2")
	t.Run("a load balancer is in the home", tr.testLoadBalancer)
	t.Run("an Ingress is in the home", tr.testIngress)
	t.Run("what a policy forbids is refused", tr.testRefused)
	t.Run("nothing is written again after a restart", tr.testRestart)
	t.Run("the home moves in a drain", tr.testDrain)
	t.Run("the home is lost, and comes back", tr.testLost)
	t.Run("a namespace without a home has no address", tr.testHomeless)
	t.Run("what the tenant deletes goes", tr.testDeletion)
}

// followTraffic puts a policy in force that allows so many load balancers, and Ingresses.
func (w *world) followTraffic(t *testing.T, loadBalancers int32) {
	t.Helper()
	w.follow(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.LoadBalancers, spec.Limits.NodePorts = loadBalancers, 30
		spec.Traffic = tenancyv1alpha1.TrafficRules{
			LoadBalancerClasses: []string{"example.com/lb"}, IngressClasses: []string{"internal"}, IngressClass: "public", IngressHosts: []string{"*.example.com"},
			Annotations: []string{"service.beta.kubernetes.io/pool", "nginx.ingress.kubernetes.io/*"},
		}
	})
}

// start starts the syncer of a super cluster, which serves both tenants.
func (tr *traffic) start(t *testing.T, id string) {
	t.Helper()
	r := tr.mine.startSyncerWith(tr.whole, tr.config(id), engaging([]*tenants.Tenant{tr.mine.engaged(tr.mine.tenantConfig), tr.theirs.engaged(tr.theirs.tenantConfig)}))
	closes(t, r.ready, "the tenants' caches are synced")
	tr.metrics[id], tr.stop[id] = r.numbers, func() {
		r.stop()
		require.NoError(t, r.err, "running the manager")
	}
}

// settle lets the home of a namespace be elsewhere, as vc-scheduler does.
func (w *world) settle(t *testing.T, namespace, home string) {
	t.Helper()
	np := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: w.key, Name: namespace}}
	await.Change(t, w.meta, np, func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Home = home }, "status")
}

// of returns the super cluster with an id.
func (w *world) of(id string) client.Client {
	if id == "r2" {
		return w.super2
	}
	return w.super
}

func ofType(kind corev1.ServiceType) func(*corev1.Service) bool {
	return func(service *corev1.Service) bool { return service.Spec.Type == kind }
}

// addresses returns the IP addresses of a load balancer.
func addresses(service *corev1.Service) []string {
	var found []string
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		found = append(found, ingress.IP)
	}
	return found
}

func at(want ...string) func(*corev1.Service) bool {
	return func(service *corev1.Service) bool { return slices.Equal(want, addresses(service)) }
}

// give plays the controller of load balancers in a super cluster, which gives a Service an address.
func (w *world) give(t *testing.T, id, namespace, name, address string) {
	t.Helper()
	service := appears(t, w.of(id), w.key+"-"+namespace, name, &corev1.Service{}, ofType(corev1.ServiceTypeLoadBalancer))
	await.Change(t, w.of(id), service, func(service *corev1.Service) {
		service.Status.LoadBalancer = corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: address, IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)}}}
	}, "status")
}

// giveIngress plays an ingress controller.
func (w *world) giveIngress(t *testing.T, id, namespace, name, hostname string) {
	t.Helper()
	ingress := appears(t, w.of(id), w.key+"-"+namespace, name, &networkingv1.Ingress{}, nil)
	await.Change(t, w.of(id), ingress, func(ingress *networkingv1.Ingress) {
		ingress.Status.LoadBalancer = networkingv1.IngressLoadBalancerStatus{Ingress: []networkingv1.IngressLoadBalancerIngress{{Hostname: hostname}}}
	}, "status")
}

// named returns whether an Ingress has this hostname as its address, "" for none.
func named(hostname string) func(*networkingv1.Ingress) bool {
	return func(ingress *networkingv1.Ingress) bool {
		got := ingress.Status.LoadBalancer.Ingress
		return hostname == "" && len(got) == 0 || len(got) == 1 && got[0].Hostname == hostname
	}
}

func newLoadBalancer(namespace, name string) *corev1.Service {
	service := newService(namespace, name, "")
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	return service
}

func newIngress(namespace, name, host string) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: networkingv1.IngressSpec{
			TLS: []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: "certificate"}},
			Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{
					Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
					Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "front", Port: networkingv1.ServiceBackendPort{Number: 80}}},
				}},
			}}}},
		},
	}
}

func (tr *traffic) testLoadBalancer(t *testing.T) {
	for each, home := range map[*world]string{tr.mine: "r1", tr.theirs: "r2"} {
		other := map[string]string{"r1": "r2", "r2": "r1"}[home]
		front := newLoadBalancer("web", "front")
		front.Annotations = map[string]string{"service.beta.kubernetes.io/pool": "blue"}
		front.Spec.ExternalTrafficPolicy, front.Spec.LoadBalancerSourceRanges = corev1.ServiceExternalTrafficPolicyLocal, []string{"192.0.2.0/24"}
		front.Spec.LoadBalancerClass = ptr.To("example.com/lb")
		create(t, each.tenant, front)
		create(t, each.tenant, newSlice("web", "front", "r1.n1", "r2.m1"))
		superName := each.key + "-web"
		service := appears(t, each.of(home), superName, "front", &corev1.Service{}, ofType(corev1.ServiceTypeLoadBalancer))
		require.Equal(t, "example.com/lb", *service.Spec.LoadBalancerClass)
		require.Equal(t, []string{"192.0.2.0/24"}, service.Spec.LoadBalancerSourceRanges)
		require.Equal(t, corev1.ServiceExternalTrafficPolicyLocal, service.Spec.ExternalTrafficPolicy)
		require.NotZero(t, service.Spec.HealthCheckNodePort)
		require.Equal(t, "blue", service.Annotations["service.beta.kubernetes.io/pool"])
		await.Change(t, each.tenant, front, func(front *corev1.Service) { front.Annotations["service.beta.kubernetes.io/other"] = "x" })
		each.warned(t, "web", "front", "AnnotationsLeftOut")
		require.NoError(t, each.of(home).Get(t.Context(), client.ObjectKeyFromObject(service), service))
		require.NotContains(t, service.Annotations, "service.beta.kubernetes.io/other")
		await.Change(t, each.tenant, front, func(front *corev1.Service) {
			delete(front.Annotations, "service.beta.kubernetes.io/other") // another home would make none with it
		})
		elsewhere := appears(t, each.of(other), superName, "front", &corev1.Service{}, ofType(corev1.ServiceTypeClusterIP))
		require.Zero(t, elsewhere.Spec.Ports[0].NodePort)
		require.NotContains(t, elsewhere.Annotations, "service.beta.kubernetes.io/pool")

		address := map[string]string{"r1": "198.51.100.1", "r2": "198.51.100.2"}[home]
		each.give(t, home, "web", "front", address)
		told := appears(t, each.tenant, "web", "front", front, at(address))
		require.Equal(t, corev1.LoadBalancerIPModeVIP, *told.Status.LoadBalancer.Ingress[0].IPMode)

		// What the tenant forges, and what others change in the super cluster, is put back.
		await.Change(t, each.tenant, front, func(front *corev1.Service) { front.Status.LoadBalancer.Ingress[0].IP = "203.0.113.1" }, "status")
		appears(t, each.tenant, "web", "front", front, at(address))
		await.Change(t, each.of(home), service, func(service *corev1.Service) { service.Spec.LoadBalancerSourceRanges = nil })
		appears(t, each.of(home), superName, "front", service, func(service *corev1.Service) bool { return len(service.Spec.LoadBalancerSourceRanges) == 1 })
		await.Change(t, each.tenant, front, func(front *corev1.Service) { front.Spec.LoadBalancerSourceRanges = []string{"192.0.2.128/25"} })
		appears(t, each.of(home), superName, "front", service, func(service *corev1.Service) bool {
			return slices.Equal(service.Spec.LoadBalancerSourceRanges, []string{"192.0.2.128/25"}) && at(address)(service)
		})
	}
}

func (tr *traffic) testIngress(t *testing.T) {
	for each, home := range map[*world]string{tr.mine: "r1", tr.theirs: "r2"} {
		create(t, each.tenant, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "certificate"}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: []byte("c"), corev1.TLSPrivateKeyKey: []byte("k")},
		})
		public := newIngress("web", "public", "www.example.com")
		public.Annotations = map[string]string{
			"nginx.ingress.kubernetes.io/rewrite-target": "/", "nginx.ingress.kubernetes.io/configuration-snippet": "evil;", "haproxy.org/timeout": "1s",
		}
		create(t, each.tenant, public)
		superName := each.key + "-web"
		each.warned(t, "web", "public", "PolicyForbids")
		require.True(t, apierrors.IsNotFound(each.of(home).Get(t.Context(), types.NamespacedName{Namespace: superName, Name: "public"}, &networkingv1.Ingress{})))
		unlisted := public.Annotations
		annotate := func(annotations map[string]string) {
			await.Change(t, each.tenant, public, func(public *networkingv1.Ingress) { public.Annotations = annotations })
		}
		annotate(map[string]string{"nginx.ingress.kubernetes.io/rewrite-target": "/"})
		super := appears(t, each.of(home), superName, "public", &networkingv1.Ingress{}, nil)
		require.Equal(t, "public", *super.Spec.IngressClassName)
		require.Empty(t, cmp.Diff(public.Spec.Rules, super.Spec.Rules))
		require.Empty(t, cmp.Diff(public.Spec.TLS, super.Spec.TLS))
		require.Equal(t, "/", super.Annotations["nginx.ingress.kubernetes.io/rewrite-target"])
		annotate(unlisted)
		each.warned(t, "web", "public", "AnnotationsLeftOut")
		require.NoError(t, each.of(home).Get(t.Context(), client.ObjectKeyFromObject(super), super))
		require.NotContains(t, super.Annotations, "nginx.ingress.kubernetes.io/configuration-snippet")
		require.NotContains(t, super.Annotations, "haproxy.org/timeout")
		annotate(map[string]string{"nginx.ingress.kubernetes.io/rewrite-target": "/"}) // none is made again with the others
		appears(t, each.of(home), superName, "certificate", &corev1.Secret{}, func(secret *corev1.Secret) bool { return secret.Type == corev1.SecretTypeTLS })
		each.giveIngress(t, home, "web", "public", home+".example.net")
		appears(t, each.tenant, "web", "public", public, named(home+".example.net"))

		await.Change(t, each.tenant, public, func(public *networkingv1.Ingress) {
			public.Spec.IngressClassName, public.Spec.Rules[0].HTTP.Paths[0].Path = ptr.To("internal"), "/shop"
		})
		isUpdated := func(super *networkingv1.Ingress) bool {
			return *super.Spec.IngressClassName == "internal" && super.Spec.Rules[0].HTTP.Paths[0].Path == "/shop" && named(home+".example.net")(super)
		}
		appears(t, each.of(home), superName, "public", super, isUpdated)
		await.Change(t, each.of(home), super, func(super *networkingv1.Ingress) { super.Spec.IngressClassName = ptr.To("public") })
		appears(t, each.of(home), superName, "public", super, isUpdated)
		require.NoError(t, each.of(home).Delete(t.Context(), super))
		appears(t, each.of(home), superName, "public", super, nil)
		appears(t, each.tenant, "web", "public", public, named(""))
		each.giveIngress(t, home, "web", "public", home+".example.net")
		appears(t, each.tenant, "web", "public", public, named(home+".example.net"))
	}
	for id, each := range map[string]*world{"r2": tr.mine, "r1": tr.theirs} {
		var elsewhere networkingv1.IngressList
		require.NoError(t, each.of(id).List(t.Context(), &elsewhere, client.InNamespace(each.key+"-web")))
		require.Empty(t, elsewhere.Items, "the home is the other one")
	}
}

func (tr *traffic) testRefused(t *testing.T) {
	w := tr.mine
	classed := newLoadBalancer("web", "classed")
	classed.Spec.LoadBalancerClass = ptr.To("example.com/other")
	create(t, w.tenant, classed)
	w.warned(t, "web", "classed", "PolicyForbids")
	create(t, w.tenant, newIngress("web", "others-host", "www.example.org"))
	w.warned(t, "web", "others-host", "PolicyForbids")
	everybody := newIngress("web", "everybody", "")
	everybody.Spec.TLS = nil
	create(t, w.tenant, everybody)
	w.warned(t, "web", "everybody", "PolicyForbids")
	unknown := newIngress("web", "unknown-class", "a.example.com")
	unknown.Spec.IngressClassName = ptr.To("secret")
	create(t, w.tenant, unknown)
	w.warned(t, "web", "unknown-class", "PolicyForbids")
	named := newService("web", "elsewhere", "")
	named.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "metadata.internal"}
	create(t, w.tenant, named)

	// The limit is of all namespaces together, and a change of the policy lets in what waits.
	w.followTraffic(t, 1)
	create(t, w.tenant, newLoadBalancer("web", "second"))
	w.warned(t, "web", "second", "TenantLimit")
	for _, name := range []string{"classed", "second"} {
		appears(t, w.super, w.superName("web"), name, &corev1.Service{}, ofType(corev1.ServiceTypeClusterIP))
	}
	for _, object := range []client.Object{newIngress("web", "others-host", ""), everybody, unknown, named} {
		missing, _ := object.DeepCopyObject().(client.Object)
		err := w.super.Get(t.Context(), types.NamespacedName{Namespace: w.superName("web"), Name: object.GetName()}, missing)
		require.True(t, client.IgnoreNotFound(err) == nil && err != nil, "%s: %v", object.GetName(), err)
	}
	w.followTraffic(t, 10)
	appears(t, w.super, w.superName("web"), "second", &corev1.Service{}, ofType(corev1.ServiceTypeLoadBalancer))
	for _, object := range []client.Object{classed, newIngress("web", "others-host", ""), everybody, unknown, newLoadBalancer("web", "second"), named} {
		require.NoError(t, w.tenant.Delete(t.Context(), object))
	}
	vanishes(t, w.super, w.superName("web"), "second", &corev1.Service{})
}

func (tr *traffic) testRestart(t *testing.T) {
	before := tr.mine.settled(t, tr.metrics["r1"])
	tr.stop["r1"]()
	tr.start(t, "r1")
	patrols(t, tr.metrics["r1"])
	require.Empty(t, cmp.Diff(before, tr.mine.versions(t)))
}

// testDrain moves the home of mine from r1 to r2, while r1 holds the namespace still.
func (tr *traffic) testDrain(t *testing.T) {
	w := tr.mine
	w.settle(t, "web", "r2")
	appears(t, w.super2, w.superName("web"), "front", &corev1.Service{}, ofType(corev1.ServiceTypeLoadBalancer))
	appears(t, w.super, w.superName("web"), "front", &corev1.Service{}, func(service *corev1.Service) bool {
		return service.Spec.Type == corev1.ServiceTypeClusterIP && len(addresses(service)) == 0
	})
	appears(t, w.tenant, "web", "front", &corev1.Service{}, at())
	vanishes(t, w.super, w.superName("web"), "public", &networkingv1.Ingress{})
	appears(t, w.super2, w.superName("web"), "public", &networkingv1.Ingress{}, nil)
	appears(t, w.tenant, "web", "public", &networkingv1.Ingress{}, named(""))
	w.give(t, "r2", "web", "front", "198.51.100.20")
	w.giveIngress(t, "r2", "web", "public", "new.example.net")
	appears(t, w.tenant, "web", "front", &corev1.Service{}, at("198.51.100.20"))
	appears(t, w.tenant, "web", "public", &networkingv1.Ingress{}, named("new.example.net"))
}

// testLost moves the home of mine from r2 back to r1 while nobody works on r2. What is there tells the tenant nothing
// when somebody does again, and goes.
func (tr *traffic) testLost(t *testing.T) {
	w := tr.mine
	tr.stop["r2"]()
	w.settle(t, "web", "r1")
	appears(t, w.tenant, "web", "front", &corev1.Service{}, at())
	appears(t, w.tenant, "web", "public", &networkingv1.Ingress{}, named(""))
	w.give(t, "r1", "web", "front", "198.51.100.11")
	w.giveIngress(t, "r1", "web", "public", "again.example.net")
	front := appears(t, w.tenant, "web", "front", &corev1.Service{}, at("198.51.100.11"))
	public := appears(t, w.tenant, "web", "public", &networkingv1.Ingress{}, named("again.example.net"))

	w.give(t, "r2", "web", "front", "198.51.100.21")
	w.giveIngress(t, "r2", "web", "public", "stale.example.net")
	tr.start(t, "r2")
	appears(t, w.super2, w.superName("web"), "front", &corev1.Service{}, ofType(corev1.ServiceTypeClusterIP))
	vanishes(t, w.super2, w.superName("web"), "public", &networkingv1.Ingress{})
	for _, object := range []client.Object{front, public} {
		version := object.GetResourceVersion()
		require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		require.Equal(t, version, object.GetResourceVersion(), "the home alone writes %s", object.GetName())
	}
}

// testHomeless takes the placements of mine away, and gives them back.
func (tr *traffic) testHomeless(t *testing.T) {
	w := tr.mine
	w.place(t, "other", "r1", "r2") // so that Services of web stay where they can be called
	w.place(t, "web")
	appears(t, w.tenant, "web", "front", &corev1.Service{}, at())
	appears(t, w.tenant, "web", "public", &networkingv1.Ingress{}, named(""))
	appears(t, w.super, w.superName("web"), "front", &corev1.Service{}, ofType(corev1.ServiceTypeClusterIP))
	vanishes(t, w.super, w.superName("web"), "public", &networkingv1.Ingress{})
	w.warned(t, "web", "front", "NamespaceNotPlaced")
	w.warned(t, "web", "public", "NamespaceNotPlaced")
	w.place(t, "web", "r1", "r2")
	w.give(t, "r1", "web", "front", "198.51.100.12")
	w.giveIngress(t, "r1", "web", "public", "third.example.net")
	appears(t, w.tenant, "web", "front", &corev1.Service{}, at("198.51.100.12"))
	appears(t, w.tenant, "web", "public", &networkingv1.Ingress{}, named("third.example.net"))
}

func (tr *traffic) testDeletion(t *testing.T) {
	for _, each := range []*world{tr.mine, tr.theirs} {
		require.NoError(t, each.tenant.Delete(t.Context(), newIngress("web", "public", "")))
		require.NoError(t, each.tenant.Delete(t.Context(), newService("web", "front", "")))
		for _, super := range []client.Client{each.super, each.super2} {
			vanishes(t, super, fmt.Sprint(each.key, "-web"), "public", &networkingv1.Ingress{})
			vanishes(t, super, fmt.Sprint(each.key, "-web"), "front", &corev1.Service{})
		}
	}
}
