package provision

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// exposed returns condition Exposed, and where the tenant's Service kubernetes leads.
func (b *bed) exposed() (said *metav1.Condition, addresses []string, port int32) {
	b.t.Helper()
	vc := b.vc()
	said = meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionExposed)
	slice, err := b.tenant.DiscoveryV1().EndpointSlices("default").Get(b.t.Context(), "kubernetes", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return said, nil, 0
	}
	require.NoError(b.t, err)
	for _, endpoint := range slice.Endpoints {
		addresses = append(addresses, endpoint.Addresses...)
	}
	return said, addresses, *slice.Ports[0].Port
}

// expose changes how the API servers are exposed.
func (b *bed) expose(exposure *tenancyv1alpha1.Exposure) {
	b.t.Helper()
	vc := b.vc()
	vc.Spec.Exposure = exposure
	require.NoError(b.t, b.reconciler.Client.Update(b.t.Context(), vc))
}

// server returns the URL in the kubeconfig that is handed out, "" where there is none.
func (b *bed) server() string {
	b.t.Helper()
	secret := &corev1.Secret{}
	err := b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: "acme-kubeconfig"}, secret)
	if apierrors.IsNotFound(err) {
		return ""
	}
	require.NoError(b.t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	require.NoError(b.t, err)
	return config.Host
}

// TestExposure: the kubeconfig, the certificate and the tenant's Service kubernetes follow the Service of the API servers.
func TestExposure(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	inside := "https://kube-apiserver." + root + ".svc:6443"
	said, addresses, port := b.exposed()
	require.Equal(t, metav1.ConditionTrue, said.Status)
	require.Equal(t, []string{"10.96.3.4"}, addresses)
	require.EqualValues(t, 6443, port)
	require.Equal(t, inside, b.server())
	require.Equal(t, inside, b.vc().Status.Endpoint)
	endpoints, err := b.tenant.CoreV1().Endpoints("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "10.96.3.4", endpoints.Subsets[0].Addresses[0].IP)

	b.expose(&tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeNodePort, Hosts: []string{"192.0.2.7"}})
	b.reconcile()
	b.reconcile()
	said, addresses, port = b.exposed()
	require.Equal(t, metav1.ConditionTrue, said.Status)
	require.Equal(t, []string{"192.0.2.7"}, addresses)
	require.EqualValues(t, 30123, port)
	require.Equal(t, "https://192.0.2.7:30123", b.server())

	b.expose(&tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer})
	b.reconcile()
	b.reconcile()
	said, _, _ = b.exposed()
	require.Equal(t, metav1.ConditionFalse, said.Status)
	require.Contains(t, said.Message, "no load balancer has given Service kube-apiserver an address")
	require.Equal(t, "https://192.0.2.7:30123", b.server(), "until it has one")
	b.balance("198.51.100.7")
	b.reconcile()
	said, addresses, port = b.exposed()
	require.Equal(t, metav1.ConditionTrue, said.Status)
	require.Equal(t, []string{"198.51.100.7"}, addresses)
	require.EqualValues(t, 6443, port)
	require.Equal(t, "https://198.51.100.7:6443", b.server())

	b.balance("")
	b.reconcile()
	require.Equal(t, mendingPeriod, b.reconcile().RequeueAfter)
	require.Equal(t, "https://198.51.100.7:6443", b.server(), "a load balancer that has lost its address")
	vc := b.vc()
	vc.Status.Endpoint = ""
	require.NoError(t, b.reconciler.Client.Status().Update(t.Context(), vc))
	b.reconcile()
	require.Equal(t, "https://198.51.100.7:6443", b.server(), "whatever is said of it")
	require.Equal(t, "https://198.51.100.7:6443", b.vc().Status.Endpoint)
	block, _ := pem.Decode(b.secret(root, "apiserver").Data[corev1.TLSCertKey])
	shown, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	require.NoError(t, shown.VerifyHostname("198.51.100.7"))
	require.Zero(t, b.asked, "all connections are ended")
}

// balance gives the Service of the API servers an address, "" for none.
func (b *bed) balance(address string) {
	b.t.Helper()
	service := &corev1.Service{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: root, Name: "kube-apiserver"}, service))
	service.Status.LoadBalancer.Ingress = nil
	if address != "" {
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	}
	require.NoError(b.t, b.reconciler.Client.Status().Update(b.t.Context(), service))
}

// TestNotExposedYet: nobody gets a kubeconfig that leads nowhere, and the parts are made.
func TestNotExposedYet(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(vc *tenancyv1alpha1.VirtualCluster) {
		vc.Spec.Exposure = &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer}
	})
	b.made()
	missing, _ := b.conditions()
	require.Empty(t, cmp.Diff(map[string]string{"Exposed": "Progressing"}, missing), "no part waits for it")
	require.Equal(t, "v1.37.2", b.version())
	require.Empty(t, b.server())
	require.NotContains(t, b.secret(root, "admin-kubeconfig").Data, "value")
	b.balance("198.51.100.7")
	b.reconcile()
	missing, _ = b.conditions()
	require.Empty(t, missing)
	require.Equal(t, "https://198.51.100.7:6443", b.server())
}

// TestWhatIsNotLed: what DNS or a tenant's API server does wrong is said, and tried again.
func TestWhatIsNotLed(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(vc *tenancyv1alpha1.VirtualCluster) {
		vc.Spec.Exposure = &tenancyv1alpha1.Exposure{Hosts: []string{"acme.example.com"}}
	})
	b.made()
	says := func(reason, message string) {
		t.Helper()
		require.Equal(t, mendingPeriod, b.reconcile().RequeueAfter)
		said, _, _ := b.exposed()
		require.Equal(t, reason, said.Reason)
		require.Contains(t, said.Message, message)
		require.Zero(t, b.asked)
	}
	b.reconcile()
	says("Failed", "Leading Service kubernetes to https://acme.example.com:6443: DNS knows no addresses of acme.example.com")
	found := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("2001:db8::7")}
	b.reconciler.LookUp = func(_ context.Context, name string) ([]netip.Addr, error) {
		require.Equal(t, "acme.example.com", name)
		return found, nil
	}
	b.reconcile()
	says("Invalid", "https://acme.example.com:6443 has 2 addresses: none is of the family of spec.serviceCIDRs")
	found = []netip.Addr{netip.MustParseAddr("192.0.2.7")}
	refusal := error(apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, "kubernetes", errors.New("a webhook of the tenant")))
	b.tenant.PrependReactor("patch", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) { return refusal != nil, nil, refusal })
	b.reconcile()
	says("Failed", "the tenant's API server refused it: see")
	refusal = errors.New("read tcp 10.0.0.1:32768: connection reset")
	b.reconcile()
	says("Failed", "the tenant's API server did not answer")
	refusal = nil
	b.reconcile()
	missing, _ := b.conditions()
	require.Empty(t, missing)
	_, addresses, _ := b.exposed()
	require.Equal(t, []string{"192.0.2.7"}, addresses)
}

// TestTheMetaClusterIsClosed: no API server of a tenant reaches that of the meta cluster, also when it moves.
func TestTheMetaClusterIsClosed(t *testing.T) {
	t.Parallel()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		Ports:      []discoveryv1.EndpointPort{{Port: ptr.To[int32](6443)}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.9"}}, {Addresses: []string{"203.0.113.8"}}},
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"}, Spec: corev1.ServiceSpec{
		ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 443}},
	}}
	b := newBed(t, nil, slice, service)
	b.reconciler.Network.Reachable = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	b.whole()
	closed := func() (addresses []string) {
		policy := &networkingv1.NetworkPolicy{}
		require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "kube-apiserver"}, policy))
		for _, rule := range policy.Spec.Egress {
			for _, peer := range rule.To {
				if peer.IPBlock != nil && len(rule.Ports) > 0 {
					addresses = append(addresses, fmt.Sprintf("%s %d", peer.IPBlock.CIDR, *rule.Ports[1].EndPort+1))
				}
			}
		}
		return addresses
	}
	require.Equal(t, []string{"10.96.0.1/32 443", "203.0.113.8/32 6443", "203.0.113.9/32 6443"}, closed())
	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.10"}}}
	require.NoError(t, b.reconciler.Client.Update(t.Context(), slice))
	b.reconcile()
	require.Equal(t, []string{"10.96.0.1/32 443", "203.0.113.10/32 6443"}, closed())
}

// TestExposedWhateverElse: endpoints follow the load balancer while another part is not whole, or a version is refused.
func TestExposedWhateverElse(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(vc *tenancyv1alpha1.VirtualCluster) {
		vc.Spec.Exposure = &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer}
	})
	b.made()
	leads := func(address string) {
		t.Helper()
		b.balance(address)
		b.reconcile()
		said, addresses, _ := b.exposed()
		require.Equal(t, metav1.ConditionTrue, said.Status)
		require.Equal(t, []string{address}, addresses)
		require.Equal(t, "https://"+address+":6443", b.server())
	}
	leads("198.51.100.7")
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v1.30.0" })
	leads("198.51.100.8")
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.KubernetesVersion, version.Etcd.Image = "v1.37.2", "newer"
	})
	b.reconcile()
	b.revise("newer")
	leads("198.51.100.9")
	missing, _ := b.conditions()
	require.Equal(t, "Progressing", missing["EtcdReady"])

	b.balance("198.51.100.10")
	broken := errors.New("the meta cluster has an internal error")
	r := *b.reconciler
	r.Reader = interceptor.NewClient(b.reconciler.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken },
	})
	_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: "acme"}})
	require.ErrorIs(t, err, broken)
	_, addresses, _ := b.exposed()
	require.Equal(t, []string{"198.51.100.10"}, addresses)
	require.Equal(t, "https://198.51.100.10:6443", b.vc().Status.Endpoint)
	missing, _ = b.conditions()
	require.Equal(t, "Progressing", missing["EtcdReady"], "what is known of the parts stays said")
}

// TestTenantsThatAreSlow: who asks tenants' API servers keeps no worker from what no tenant delays.
func TestTenantsThatAreSlow(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	for range concurrentExposed {
		b.reconciler.exposing <- struct{}{}
	}
	b.tenant.ClearActions()
	require.Equal(t, storePeriod, b.reconcile().RequeueAfter)
	require.Empty(t, b.tenant.Actions())
	said, _, _ := b.exposed()
	require.Equal(t, metav1.ConditionTrue, said.Status, "it stays said")
	<-b.reconciler.exposing
	require.Equal(t, patrolPeriod, b.reconcile().RequeueAfter)
	require.NotEmpty(t, b.tenant.Actions())
	require.Len(t, b.reconciler.exposing, concurrentExposed-1)
}

// TestConnectionsAreClosed: nothing that was connected to a tenant stays when it is not asked any more.
func TestConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	var open atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind": "Endpoints", "apiVersion": "v1"}`)) // else the client says so
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		default:
		}
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	api, done, err := DialTenant(&rest.Config{Host: server.URL, UserAgent: "vc-manager", TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	require.NoError(t, err)
	_, err = api.CoreV1().Endpoints("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, open.Load())
	done()
	require.Eventually(t, func() bool { return open.Load() == 0 }, 10*time.Second, 10*time.Millisecond)
}
