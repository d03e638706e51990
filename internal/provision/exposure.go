package provision

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenantclient"
)

const (
	// tenantTimeout is how long DNS and a tenant's API server may take in one reconcile.
	tenantTimeout = 5 * time.Second
	// concurrentExposed is how many reconciles ask them at a time: the others go on with what no tenant delays.
	concurrentExposed = ConcurrentTenants / 2
)

// DialTenant connects to a tenant's API server, whose answers are bounded, as nobody knows what it runs. done closes its
// connections, used or idle.
func DialTenant(config *rest.Config) (api kubernetes.Interface, done func(), err error) {
	dialer := connrotation.NewDialer((&net.Dialer{}).DialContext)
	config = tenantclient.New(nil).Config(config)
	config.Dial = dialer.DialContext
	config.Proxy = http.ProxyFromEnvironment // so that client-go does not keep the connections for others
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to a tenant's API server: %w", err)
	}
	api, err = kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to a tenant's API server: %w", err)
	}
	return api, dialer.CloseAll, nil
}

// service reads the Service of the API servers, nil for none. The cache has none of others.
func (r *Reconciler) service(ctx context.Context, namespace string) (*corev1.Service, error) {
	service := &corev1.Service{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: controlplane.APIServer}, service)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting Service %s/%s: %w", namespace, controlplane.APIServer, err)
	case !controlplane.IsManaged(service):
		return nil, nil // apply says so
	}
	return service, nil
}

// locate reads where the API servers are reached: also where that was before, if that is not known now and the status of
// the VirtualCluster has lost it.
func (r *Reconciler) locate(ctx context.Context, plane *controlplane.ControlPlane, report *report) error {
	service, err := r.service(ctx, plane.Namespace)
	if err != nil {
		return err
	}
	plane.Service = service
	at, _ := plane.Endpoint()
	if at.URL() == "" {
		own := r.keeper(plane.Namespace)
		secret, err := own.Get(ctx, tenancyv1alpha1.SecretAdminKubeconfig)
		if err != nil || secret == nil {
			return client.IgnoreNotFound(err) //nolint:wrapcheck // it says what it did
		}
		plane.Tenant = plane.Tenant.DeepCopy()
		plane.Tenant.Status.Endpoint = serverOf(secret)
		at, _ = plane.Endpoint()
	}
	report.endpoint = at.URL()
	return nil
}

// expose says where the API servers are reached, and leads Service kubernetes of the tenant there, as soon as one of them
// answers, whatever else is not whole. again is shortened to when it is tried again. What a tenant's API server does
// wrong, or DNS, is said, and nothing else waits for it.
func (r *Reconciler) expose(ctx context.Context, plane *controlplane.ControlPlane, report *report, again *time.Duration) error {
	servers := &appsv1.Deployment{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: plane.Namespace, Name: controlplane.APIServer}, servers)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("getting the API servers of %s: %w", plane.Namespace, err)
	case servers.Status.AvailableReplicas == 0:
		return nil // when one is there is an event
	}
	select {
	case r.exposing <- struct{}{}:
		defer func() { <-r.exposing }()
	default:
		report.leave(tenancyv1alpha1.ConditionExposed)
		*again = min(*again, storePeriod)
		return nil
	}
	why, err := r.lead(ctx, plane)
	if err != nil {
		return err
	}
	report.set(tenancyv1alpha1.ConditionExposed, why)
	if why != (tenancy.Reason{}) {
		*again = min(*again, mendingPeriod)
	}
	return nil
}

// lead leads Service kubernetes of the tenant to where its API servers are reached, and returns why it does not.
func (r *Reconciler) lead(ctx context.Context, plane *controlplane.ControlPlane) (tenancy.Reason, error) {
	at, why := plane.Endpoint()
	if why != "" {
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: why}, nil
	}
	config, err := r.tenantConfig(ctx, plane)
	if err != nil {
		return tenancy.Reason{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, tenantTimeout)
	defer cancel()
	found, err := r.resolve(ctx, plane, at)
	if err != nil {
		return failedToExpose(ctx, at, err), nil
	}
	addresses := plane.ServiceAddresses(found)
	switch {
	case len(found) == 0:
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonProgressing, Message: fmt.Sprintf("Service %s has no address yet", controlplane.APIServer)}, nil
	case len(addresses) == 0:
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonInvalid, Message: fmt.Sprintf(
			"%s has %d addresses: none is of the family of spec.serviceCIDRs and reached from elsewhere, so Service kubernetes leads nowhere", at.URL(), len(found))}, nil
	}
	api, done, err := r.DialTenant(config)
	if err != nil {
		return tenancy.Reason{}, err
	}
	defer done()
	if err := apply(ctx, api, addresses, at.Port); err != nil {
		return failedToExpose(ctx, at, err), nil
	}
	return tenancy.Reason{}, nil
}

// failedToExpose says of an error what kind it is, and logs the rest: a tenant's API server has other words each time, and
// DNS other ports, and each would be a write.
func failedToExpose(ctx context.Context, at controlplane.Endpoint, err error) tenancy.Reason {
	klog.FromContext(ctx).Info("Leading Service kubernetes of a tenant", "endpoint", at.URL(), "err", tenancy.Cut(err.Error(), tenancy.MaxEventNote))
	why, unknown, answer := "the tenant's API server did not answer", (*net.DNSError)(nil), apierrors.APIStatus(nil)
	switch {
	case errors.As(err, &unknown) && unknown.IsNotFound:
		why = "DNS knows no addresses of " + at.Host
	case errors.As(err, &unknown):
		why = "DNS did not answer"
	case errors.As(err, &answer):
		why = "the tenant's API server refused it"
	}
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonFailed, Message: fmt.Sprintf("Leading Service kubernetes to %s: %s: see the log of vc-manager", at.URL(), why)}
}

// resolve returns the addresses of an endpoint.
func (r *Reconciler) resolve(ctx context.Context, plane *controlplane.ControlPlane, at controlplane.Endpoint) (found []netip.Addr, err error) {
	texts := []string{at.Host}
	if plane.IsInside(at) {
		texts = plane.ClusterIPs()
	}
	for _, text := range texts {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return r.LookUp(ctx, text)
		}
		found = append(found, address)
	}
	return found, nil
}

// tenantConfig is that of an administrator of the tenant's API servers, which are reached inside of the meta cluster.
func (r *Reconciler) tenantConfig(ctx context.Context, plane *controlplane.ControlPlane) (*rest.Config, error) {
	own := r.keeper(plane.Namespace)
	config := &rest.Config{Host: plane.URL(), UserAgent: controlplane.ManagedBy}
	secret, err := own.Get(ctx, tenancyv1alpha1.SecretAdminKubeconfig)
	switch {
	case err != nil:
		return nil, err
	case secret == nil:
		return nil, objects.Broken("Secret %s/%s is gone", plane.Namespace, tenancyv1alpha1.SecretAdminKubeconfig)
	}
	config.CAData = []byte(plane.Trusted[controlplane.CA])
	config.CertData, config.KeyData = secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
		return nil, objects.Broken("Secret %s/%s holds no certificate: %v", plane.Namespace, tenancyv1alpha1.SecretAdminKubeconfig, err)
	}
	return config, nil
}

// apply applies the endpoints of a tenant's Service kubernetes. An API server writes nothing where they are the same.
func apply(ctx context.Context, api kubernetes.Interface, addresses []netip.Addr, port int32) error {
	options := metav1.ApplyOptions{FieldManager: objects.FieldManager, Force: true}
	if _, err := api.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Apply(ctx, controlplane.EndpointSlice(addresses, port), options); err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	_, err := api.CoreV1().Endpoints(metav1.NamespaceDefault).Apply(ctx, controlplane.Endpoints(addresses, port), options)
	return err //nolint:wrapcheck // it says what it did
}

// network returns Network with the API server of the meta cluster, at its own addresses and at those of its Service.
func (r *Reconciler) network(ctx context.Context) (controlplane.Network, error) {
	network := r.Network
	network.MetaServers = nil
	service, list := &corev1.Service{}, &discoveryv1.EndpointSliceList{}
	if err := r.Reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: controlplane.KubernetesService}, service); client.IgnoreNotFound(err) != nil {
		return network, fmt.Errorf("getting the Service of the meta cluster's API server: %w", err)
	}
	err := r.Reader.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{discoveryv1.LabelServiceName: controlplane.KubernetesService})
	if err != nil {
		return network, fmt.Errorf("listing the addresses of the meta cluster's API server: %w", err)
	}
	add := func(text string, port int32) {
		if address, err := netip.ParseAddr(text); err == nil {
			network.MetaServers = append(network.MetaServers, netip.AddrPortFrom(address, uint16(port))) //nolint:gosec // a port
		}
	}
	for _, port := range service.Spec.Ports {
		for _, ip := range service.Spec.ClusterIPs {
			add(ip, port.Port)
		}
	}
	for i := range list.Items {
		ports := list.Items[i].Ports
		if len(ports) == 0 {
			ports = []discoveryv1.EndpointPort{{}}
		}
		for _, port := range ports {
			for _, endpoint := range list.Items[i].Endpoints {
				for _, text := range endpoint.Addresses {
					add(text, ptr.Deref(port.Port, 0))
				}
			}
		}
	}
	slices.SortFunc(network.MetaServers, netip.AddrPort.Compare)
	network.MetaServers = slices.Compact(network.MetaServers)
	return network, nil
}
