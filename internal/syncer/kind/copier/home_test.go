package copier_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestHome looks at a load balancer and an Ingress from r1, wherever their home is, by the cache and by a live read.
func TestHome(t *testing.T) {
	t.Parallel()
	// nowhere has decided that nothing is placed, nobody has no NamespacePlacement, and undecided one without a home.
	const nowhere, nobody, undecided = "nowhere", "nobody", "undecided"
	placed := func(home string) *schedulerv1alpha1.NamespacePlacement {
		held := builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Held("r1", 1, "cpu", "1").Held("r2", 1, "cpu", "1")
		switch home {
		case nobody:
			return nil
		case undecided:
			return held.Obj()
		case nowhere:
			np := builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Obj()
			np.Status.Conditions = append(np.Status.Conditions, metav1.Condition{Type: schedulerv1alpha1.ConditionPlaced})
			return np
		}
		return held.Home(home).Obj()
	}
	const (
		none     = ""           // there is no such super object
		balancer = "balancer"   // it is what the home has, with an address
		other    = "cluster-ip" // it is what others have
	)
	for _, tc := range []struct {
		name         string
		cached, live string
		// has is the super object before, and want afterwards.
		has, want string
		// wantTold is whether the tenant knows the address of r1 afterwards, wantEmpty whether it knows none, else it
		// knows the one from before still.
		wantTold, wantEmpty, waits bool
	}{
		{name: "it is made here", cached: "r1", live: "r1", has: none, want: balancer, wantEmpty: true},
		{name: "it is here", cached: "r1", live: "r1", has: balancer, want: balancer, wantTold: true},
		{name: "it becomes one", cached: "r1", live: "r1", has: other, want: balancer, wantEmpty: true},
		{name: "the cache lags: it has gone", cached: "r1", live: "r2", has: balancer, want: balancer, waits: true},
		{name: "it is made elsewhere", cached: "r2", live: "r2", has: none, want: other},
		{name: "it goes elsewhere", cached: "r2", live: "r2", has: balancer, want: other},
		{name: "the cache lags: it has come", cached: "r2", live: "r1", has: balancer, want: balancer, waits: true},
		{name: "the live read says nothing", cached: "r2", live: nobody, has: balancer, want: balancer, waits: true},
		{name: "nothing is placed", cached: nowhere, live: nowhere, has: balancer, want: other, wantEmpty: true},
		{name: "nothing is placed, says the cache", cached: nowhere, live: "r2", has: other, want: other, waits: true},
		{name: "nothing says where, and it is here", cached: nobody, live: nobody, has: balancer, want: balancer},
		{name: "nothing says where, and it is not here", cached: undecided, live: undecided, has: none, want: other},
	} {
		for _, kindName := range []string{kind.Service, kind.Ingress} {
			t.Run(tc.name+", "+kindName, func(t *testing.T) {
				t.Parallel()
				p := kindtest.NewPool(t, interceptor.Funcs{})
				p.Tenant.Policy = &policy.Ref{}
				p.Tenant.Policy.Set(kindtest.Serving(t, "public"))
				p.Assigns(readerOf(t, placed(tc.cached)), readerOf(t, placed(tc.live)))
				o := newHomeObject(t, p, kindName)
				o.exists(t, tc.has == balancer, tc.has == other)
				key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kindName, Namespace: "web", Name: "front"}
				_, err := p.Kind(kindName).Reconcile(t.Context(), key, 0)
				want, waits := tc.want, tc.waits
				if kindName == kind.Ingress && want == other {
					want = none
				}
				var wait *engine.WaitError
				if waits {
					require.ErrorAs(t, err, &wait)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, want, o.there(t))
				switch {
				case tc.wantTold:
					require.Equal(t, "198.51.100.1", o.told(t))
				case tc.wantEmpty:
					require.Empty(t, o.told(t))
				default:
					require.Equal(t, "203.0.113.9", o.told(t), "nobody but the home tells the tenant")
				}
			})
		}
	}
}

// TestNowhereIsTold: of the super clusters that see an object of a namespace that is placed nowhere, the first tells
// its tenant so, once.
func TestNowhereIsTold(t *testing.T) {
	t.Parallel()
	decided := builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Obj()
	decided.Status.Conditions = append(decided.Status.Conditions, metav1.Condition{Type: schedulerv1alpha1.ConditionPlaced})
	other := func(clusters ...string) *schedulerv1alpha1.NamespacePlacement {
		held := builders.Placement(kindtest.ClusterKey, "other")
		for _, cluster := range clusters {
			held = held.Held(cluster, 1, "cpu", "1")
		}
		return held.Obj()
	}
	young, old := time.Unix(1_000_000-29, 0), time.Unix(1_000_000-30, 0)
	for _, tc := range []struct {
		name       string
		placements []client.Object
		created    time.Time
		forbidden  bool
		want       bool
	}{
		{name: "the first says so", placements: []client.Object{decided, other("r1", "r2")}, created: young, want: true},
		{name: "another one does", placements: []client.Object{decided, other("r0", "r1")}, created: young},
		{name: "nothing of the tenant is here any more", placements: []client.Object{decided, other("r2")}, created: young},
		{name: "it has no quota", placements: []client.Object{other("r1")}, created: old, want: true},
		{name: "it may get one in a moment", placements: []client.Object{other("r1")}, created: young},
		{name: "it may be published nowhere", placements: []client.Object{decided, other("r1")}, created: old, forbidden: true},
	} {
		for _, kind := range []string{kind.Service, kind.Ingress} {
			t.Run(tc.name+", "+kind, func(t *testing.T) {
				t.Parallel()
				p := kindtest.NewPool(t, interceptor.Funcs{})
				p.Tenant.Policy = &policy.Ref{}
				if !tc.forbidden {
					p.Tenant.Policy.Set(kindtest.Serving(t, "public"))
				}
				meta := builders.Client(kindtest.PlacementScheme(t)).WithObjects(tc.placements...).Build()
				p.Assigns(meta, meta)
				o := newHomeObject(t, p, kind)
				told := 0
				for range 2 {
					require.NoError(t, o.tenant.Get(t.Context(), client.ObjectKey{Namespace: "web", Name: "front"}, p.TenantCache[kind][0]))
					p.TenantCache[kind][0].SetCreationTimestamp(metav1.NewTime(tc.created))
					_, err := p.Kind(kind).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind, Namespace: "web", Name: "front"}, 0)
					require.NoError(t, err)
					for _, event := range p.Told() {
						if strings.HasPrefix(event, "Warning NamespaceNotPlaced ") {
							told++
						}
					}
				}
				require.Equal(t, tc.want, told == 1)
				require.Less(t, told, 2, "once")
			})
		}
	}
}

func readerOf(t *testing.T, np *schedulerv1alpha1.NamespacePlacement) client.WithWatch {
	t.Helper()
	builder := builders.Client(kindtest.PlacementScheme(t))
	if np != nil {
		builder.WithObjects(np)
	}
	return builder.Build()
}

// homeObject is one object on both sides.
type homeObject struct {
	p      *kindtest.Pool
	tenant client.Client
	kind   string
}

// newHomeObject makes a tenant's object that knows an address.
func newHomeObject(t *testing.T, p *kindtest.Pool, kindName string) *homeObject {
	t.Helper()
	var object client.Object
	if kindName == kind.Service {
		service := kindtest.ServiceAt("web", "front", "", corev1.ServicePort{Port: 80})
		service.UID, service.Spec.Type = "service-uid", corev1.ServiceTypeLoadBalancer
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
		object = service
	} else {
		ingress := kindtest.IngressTo("front", "www.example.com")
		ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "203.0.113.9"}}
		object = ingress
	}
	built := kindtest.NewClientBuilder().WithObjects(object).WithStatusSubresource(object).Build()
	p.Tenant.Client = kindtest.Answering(built, kindtest.TenantUID)
	stored, _ := object.DeepCopyObject().(client.Object)
	require.NoError(t, built.Get(t.Context(), client.ObjectKeyFromObject(object), stored))
	p.TenantCache[kindName] = []client.Object{stored}
	return &homeObject{p: p, tenant: p.Tenant.Client, kind: kindName}
}

// exists lets the super object be there as the home has it, with an address, or as others have it.
func (o *homeObject) exists(t *testing.T, asHome, asOther bool) {
	t.Helper()
	if !asHome && (!asOther || o.kind == kind.Ingress) {
		return
	}
	owner := kindtest.OwnerOf(o.p.TenantCache[o.kind][0].GetUID())
	var object client.Object
	if o.kind == kind.Service {
		service := kindtest.ServiceAt(kindtest.ClusterKey+"-web", "front", "", corev1.ServicePort{Port: 80})
		if asHome {
			service.Spec.Type = corev1.ServiceTypeLoadBalancer
			service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
		}
		object = builders.Owned(service, owner)
	} else {
		ingress := kindtest.IngressTo("front", "www.example.com")
		ingress.Namespace = kindtest.ClusterKey + "-web"
		ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "198.51.100.1"}}
		object = builders.Owned(ingress, owner)
	}
	object.SetUID("super-uid")
	object.SetResourceVersion("")
	require.NoError(t, o.p.SuperClient.Create(t.Context(), object))
	o.p.SuperCache[o.kind] = []client.Object{object}
}

// there returns what the super cluster has: none, balancer or other.
func (o *homeObject) there(t *testing.T) string {
	t.Helper()
	name := types.NamespacedName{Namespace: kindtest.ClusterKey + "-web", Name: "front"}
	if o.kind == kind.Ingress {
		if isGone(t.Context(), o.p.SuperClient, name, &networkingv1.Ingress{}) {
			return ""
		}
		return "balancer"
	}
	service := &corev1.Service{}
	switch {
	case isGone(t.Context(), o.p.SuperClient, name, service):
		return ""
	case service.Spec.Type == corev1.ServiceTypeLoadBalancer:
		return "balancer"
	}
	return "cluster-ip"
}

// can returns what there returns where a Service is what want says: there is no less of an Ingress.
func (o *homeObject) can(want string) string {
	if o.kind == kind.Ingress && want == "cluster-ip" {
		return ""
	}
	return want
}

func isGone(ctx context.Context, from client.Client, name types.NamespacedName, object client.Object) bool {
	return from.Get(ctx, name, object) != nil
}

// told returns the address that the tenant knows.
func (o *homeObject) told(t *testing.T) string {
	t.Helper()
	name := types.NamespacedName{Namespace: "web", Name: "front"}
	if o.kind == kind.Ingress {
		ingress := &networkingv1.Ingress{}
		require.NoError(t, o.tenant.Get(t.Context(), name, ingress))
		for _, at := range ingress.Status.LoadBalancer.Ingress {
			return at.IP
		}
		return ""
	}
	service := &corev1.Service{}
	require.NoError(t, o.tenant.Get(t.Context(), name, service))
	for _, at := range service.Status.LoadBalancer.Ingress {
		return at.IP
	}
	return ""
}

// TestUnlistedAnnotations: what a tenant asks of controllers may be what keeps callers away, so nothing is published
// without it. What is published already keeps what it has.
func TestUnlistedAnnotations(t *testing.T) {
	t.Parallel()
	keys := map[string]string{kind.Ingress: "nginx.ingress.kubernetes.io/auth-url", kind.Service: "service.beta.kubernetes.io/internal"}
	const none, balancer, other = "", "balancer", "cluster-ip"
	for _, tc := range []struct {
		name string
		// has is the super object before, had the value of its annotation.
		has, had string
		// asks is what the tenant's object has, "" for no annotation.
		asks   string
		listed bool
		// want is the super object afterwards, and wantValue that of the annotation.
		want, wantValue, wantEvent string
	}{
		{name: "none is asked for", want: balancer},
		{name: "a new one", asks: "a", want: other, wantEvent: "PolicyForbids"},
		{name: "a new one that is listed", asks: "a", listed: true, want: balancer, wantValue: "a"},
		{name: "an existing one had it", has: balancer, had: "a", asks: "a", want: balancer, wantValue: "a", wantEvent: "AnnotationsLeftOut"},
		{name: "an existing one had another", has: balancer, had: "a", asks: "b", want: balancer, wantValue: "a", wantEvent: "AnnotationsLeftOut"},
		{name: "an existing one had none", has: balancer, asks: "a", want: balancer, wantEvent: "AnnotationsLeftOut"},
		{name: "the tenant takes it off", has: balancer, had: "a", want: balancer},
		{name: "it is listed again", has: balancer, had: "a", asks: "b", listed: true, want: balancer, wantValue: "b"},
		{name: "a Service becomes one", has: other, asks: "a", want: other, wantEvent: "PolicyForbids"},
		{name: "a Service becomes one, and it is listed", has: other, asks: "a", listed: true, want: balancer, wantValue: "a"},
	} {
		for kindName, annotation := range keys {
			if kindName == kind.Ingress && tc.has == other {
				continue
			}
			t.Run(tc.name+", "+kindName, func(t *testing.T) {
				t.Parallel()
				p := kindtest.NewPool(t, interceptor.Funcs{})
				p.Tenant.Policy = &policy.Ref{}
				p.Tenant.Policy.Set(kindtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
					spec.Limits.LoadBalancers, spec.Limits.NodePorts = 4, 100
					spec.Traffic.IngressClass, spec.Traffic.IngressHosts = "public", []string{"*.example.com"}
					if tc.listed {
						spec.Traffic.Annotations = []string{annotation}
					}
				}))
				meta := readerOf(t, builders.Placement(kindtest.ClusterKey, "web").NamespaceUID("ns-uid").Held("r1", 1, "cpu", "1").Home("r1").Obj())
				p.Assigns(meta, meta)
				o := newHomeObject(t, p, kindName)
				if tc.asks != "" {
					p.TenantCache[kindName][0].SetAnnotations(map[string]string{annotation: tc.asks, "kubectl.kubernetes.io/last-applied-configuration": "{}", "plain": "x"})
				}
				o.exists(t, tc.has == balancer, tc.has == other)
				name := types.NamespacedName{Namespace: kindtest.ClusterKey + "-web", Name: "front"}
				read := func() client.Object {
					object := map[string]client.Object{kind.Ingress: &networkingv1.Ingress{}, kind.Service: &corev1.Service{}}[kindName]
					if isGone(t.Context(), p.SuperClient, name, object) {
						return nil
					}
					return object
				}
				if tc.had != "" {
					had := read()
					annotations := had.GetAnnotations()
					annotations[annotation], annotations["tenancy.x-k8s.io/copied-annotations"] = tc.had, annotation
					had.SetAnnotations(annotations)
					require.NoError(t, p.SuperClient.Update(t.Context(), had))
					p.SuperCache[kindName] = []client.Object{had}
				}
				for range 3 {
					_, err := p.Kind(kindName).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kindName, Namespace: "web", Name: "front"}, 0)
					require.NoError(t, err)
					tenantObject, _ := p.TenantCache[kindName][0].DeepCopyObject().(client.Object)
					require.NoError(t, o.tenant.Get(t.Context(), client.ObjectKeyFromObject(tenantObject), tenantObject))
					tenantObject.SetAnnotations(p.TenantCache[kindName][0].GetAnnotations())
					p.TenantCache[kindName] = []client.Object{tenantObject}
					if now := read(); now != nil {
						if now.GetUID() == "" {
							now.SetUID("super-uid")
						}
						p.SuperCache[kindName] = []client.Object{now}
					}
				}
				want := o.can(tc.want)
				require.Equal(t, want, o.there(t))
				if want != none {
					require.Equal(t, tc.wantValue, read().GetAnnotations()[annotation])
				}
				if tc.wantEvent == "" {
					require.Empty(t, p.Events.Events)
					return
				}
				require.Len(t, p.Events.Events, 1)
				event := <-p.Events.Events
				require.Contains(t, event, tc.wantEvent)
				require.Contains(t, event, annotation)
			})
		}
	}
}
