package syncer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

func (w *world) testServiceCIDRs(t *testing.T) {
	for _, tc := range []struct {
		name string
		text []string
		good bool
	}{
		{name: "none", good: true},
		{name: "one", text: []string{"10.97.0.0/16"}, good: true},
		{name: "both families", text: []string{"10.97.0.0/16", "fd00:97::/112"}, good: true},
		{name: "one family twice", text: []string{"10.97.0.0/16", "10.98.0.0/16"}},
		{name: "three", text: []string{"10.97.0.0/16", "fd00:97::/112", "fd00:98::/112"}},
		{name: "no range", text: []string{"10.97.0.1"}},
		{name: "no address", text: []string{"10.97.0.0/16", "everything"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := w.meta.Create(t.Context(), &tenancyv1alpha1.VirtualCluster{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "vc-"},
				Spec:       tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v", ServiceCIDRs: tc.text},
			}, client.DryRunAll)
			require.Equal(t, !tc.good, apierrors.IsInvalid(err), "%v", err)
		})
	}
}

func (w *world) testNodePortRange(t *testing.T) {
	for text, good := range map[string]bool{
		"": true, "30000-30099": true, "1-65535": true, "30000-30000": true,
		"30000": false, "30099-30000": false, "0-100": false, "30000-65536": false, "30000+100": false, "a-b": false, "30000-": false,
	} {
		t.Run(text, func(t *testing.T) {
			err := w.meta.Create(t.Context(), &tenancyv1alpha1.VirtualCluster{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "vc-"},
				Spec:       tenancyv1alpha1.VirtualClusterSpec{ClusterVersionName: "v", ServiceNodePortRange: text},
			}, client.DryRunAll)
			require.Equal(t, !good, apierrors.IsInvalid(err), "%v", err)
		})
	}
}

func newService(namespace, name, address string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: address, Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func newSlice(namespace, service string, nodes ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	for i, node := range nodes {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{[]string{"10.214.1.5", "10.214.2.5"}[i]}, NodeName: ptr.To(node), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "pod"},
		})
	}
	return slice
}

func hasAddress(address string) func(*corev1.Service) bool {
	return func(service *corev1.Service) bool {
		return service.Spec.ClusterIP == address && service.Spec.Selector == nil
	}
}

// testServices runs a second syncer, of r2.
func (w *world) testServices(t *testing.T) {
	w.runSyncer(t, w.super2Config)
	create(t, w.tenant, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	create(t, w.tenant, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "stays-up"}})
	create(t, w.tenant, newService("shop", "db", "10.0.128.5"))
	create(t, w.tenant, newService("shop", "headless", "None"))
	balanced := newService("shop", "balanced", "")
	balanced.Spec.Type, balanced.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, ptr.To("example.com/lb")
	balanced.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	create(t, w.tenant, balanced)
	slice := newSlice("shop", "db", "r1.n1", "r2.m1")
	create(t, w.tenant, slice)

	for super, wantNodes := range map[client.Client][]*string{w.super: {ptr.To("n1"), nil}, w.super2: {nil, ptr.To("m1")}} {
		appears(t, super, w.superName("default"), "kubernetes", &corev1.Service{}, hasAddress("10.0.128.1"))
		service := appears(t, super, w.superName("shop"), "db", &corev1.Service{}, hasAddress("10.0.128.5"))
		appears(t, super, w.superName("shop"), "headless", &corev1.Service{}, hasAddress("None"))
		appears(t, super, w.superName("shop"), "balanced", &corev1.Service{}, func(service *corev1.Service) bool {
			return service.Spec.Type == corev1.ServiceTypeClusterIP && service.Spec.Ports[0].NodePort == 0
		})
		synced := appears(t, super, w.superName("shop"), "db-1", &discoveryv1.EndpointSlice{}, nil)
		require.Equal(t, "db", synced.Labels[discoveryv1.LabelServiceName])
		require.Equal(t, "syncer.tenancy.x-k8s.io", synced.Labels[discoveryv1.LabelManagedBy])
		require.Equal(t, wantNodes, []*string{synced.Endpoints[0].NodeName, synced.Endpoints[1].NodeName})
		require.Equal(t, []string{"10.214.2.5"}, synced.Endpoints[1].Addresses)
		quota := appears(t, super, w.superName("shop"), "superpool", &corev1.ResourceQuota{}, nil)
		require.Empty(t, cmp.Diff(hard(), quota.Spec.Hard))

		// What can only be made again is made again.
		before := service.UID
		await.Change(t, super, service, func(service *corev1.Service) { service.Spec.Selector = map[string]string{"app": "of-others"} })
		appears(t, super, w.superName("shop"), "db", service, func(service *corev1.Service) bool {
			return service.UID != before && hasAddress("10.0.128.5")(service)
		})
	}

	await.Change(t, w.tenant, slice, func(slice *discoveryv1.EndpointSlice) { slice.Endpoints = slice.Endpoints[:1] })
	appears(t, w.super2, w.superName("shop"), "db-1", slice, func(slice *discoveryv1.EndpointSlice) bool { return len(slice.Endpoints) == 1 })
	require.NoError(t, w.tenant.Delete(t.Context(), newSlice("shop", "db")))
	vanishes(t, w.super2, w.superName("shop"), "db-1", slice)

	create(t, w.super2, newService("default", "greedy", "10.0.128.6"))
	create(t, w.tenant, newService("shop", "unlucky", "10.0.128.6"))
	appears(t, w.super, w.superName("shop"), "unlucky", &corev1.Service{}, hasAddress("10.0.128.6"))
	w.warned(t, "shop", "unlucky", "FailedCreate")
	require.NoError(t, w.super2.Delete(t.Context(), newService("default", "greedy", "")))
	appears(t, w.super2, w.superName("shop"), "unlucky", &corev1.Service{}, hasAddress("10.0.128.6"))

	w.notWarned(t, "FailedCreate", "db", "headless", "kubernetes", "front")

	// Its Services were all that the namespace was for.
	for _, super := range []client.Client{w.super, w.super2} {
		err := super.Get(t.Context(), types.NamespacedName{Namespace: w.superName("shop"), Name: "stays-up"}, &corev1.Secret{})
		require.True(t, apierrors.IsNotFound(err), "%v", err)
	}
	for _, name := range []string{"db", "headless", "balanced", "unlucky"} {
		require.NoError(t, w.tenant.Delete(t.Context(), newService("shop", name, "")))
	}
	release(t, w.super, w.superName("shop"), "")
	release(t, w.super2, w.superName("shop"), "")
}

func (w *world) testServicesOnly(t *testing.T) {
	w.place(t, "leaving", "r1")
	front := newService("leaving", "front", "")
	front.Spec.Type = corev1.ServiceTypeLoadBalancer
	create(t, w.tenant, front)
	create(t, w.tenant, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "leaving", Name: "password"}})
	pod := newPod("leaving", "pod")
	create(t, w.tenant, pod)
	appears(t, w.super, w.superName("leaving"), "password", &corev1.Secret{}, nil)
	appears(t, w.super, w.superName("leaving"), "pod", &corev1.Pod{}, nil)
	service := appears(t, w.super, w.superName("leaving"), "front", &corev1.Service{}, nil)
	require.Equal(t, corev1.ServiceTypeLoadBalancer, service.Spec.Type)

	w.place(t, "leaving", "r2")
	noPods := func(quota *corev1.ResourceQuota) bool {
		return cmp.Equal(hard(), quota.Spec.Hard)
	}
	quota := &corev1.ResourceQuota{}
	require.NoError(t, w.super.Get(t.Context(), types.NamespacedName{Namespace: w.superName("leaving"), Name: "superpool"}, quota))
	require.False(t, noPods(quota), "a pod is assigned here")
	require.NoError(t, w.tenant.Delete(t.Context(), pod))
	vanishes(t, w.super, w.superName("leaving"), "password", &corev1.Secret{})
	appears(t, w.super, w.superName("leaving"), "superpool", quota, noPods)
	now := appears(t, w.super, w.superName("leaving"), "front", &corev1.Service{}, func(service *corev1.Service) bool {
		return service.Spec.Type == corev1.ServiceTypeClusterIP
	})
	require.Equal(t, service.UID, now.UID)

	w.place(t, "leaving", "r1")
	appears(t, w.super, w.superName("leaving"), "password", &corev1.Secret{}, nil)
	appears(t, w.super, w.superName("leaving"), "superpool", quota, func(quota *corev1.ResourceQuota) bool { return !noPods(quota) })
	require.NoError(t, w.tenant.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "leaving", Name: "front"}}))
	w.place(t, "leaving", "r2")
	release(t, w.super, w.superName("leaving"), "")
}

func envOf(env []corev1.EnvVar) map[string]string {
	values := map[string]string{}
	for i := range env {
		values[env[i].Name] = env[i].Value
	}
	return values
}

func (w *world) testPodEnvironment(t *testing.T) {
	pod := newPod("web", "no-dns")
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "FRONT_SERVICE_PORT", Value: "mine"}}
	create(t, w.tenant, pod)
	superPod := appears(t, w.super, w.superName("web"), "no-dns", &corev1.Pod{}, nil)
	front := appears(t, w.tenant, "web", "front", &corev1.Service{}, nil)
	env := envOf(superPod.Spec.Containers[0].Env)
	require.Equal(t, "10.0.128.1", env["KUBERNETES_SERVICE_HOST"])
	require.Equal(t, "443", env["KUBERNETES_SERVICE_PORT"])
	require.Equal(t, front.Spec.ClusterIP, env["FRONT_SERVICE_HOST"])
	require.Equal(t, "mine", env["FRONT_SERVICE_PORT"])
	require.Equal(t, corev1.DNSDefault, superPod.Spec.DNSPolicy)
	w.warned(t, "web", "no-dns", "MissingClusterDNS")

	create(t, w.tenant, newService("kube-system", "kube-dns", "10.0.128.10"))
	appears(t, w.super, w.superName("kube-system"), "kube-dns", &corev1.Service{}, hasAddress("10.0.128.10"))
	after := newPod("web", "dns")
	after.Spec.EnableServiceLinks = ptr.To(false)
	after.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: []string{"example.com"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}}}
	create(t, w.tenant, after)
	superPod = appears(t, w.super, w.superName("web"), "dns", &corev1.Pod{}, nil)
	require.Equal(t, corev1.DNSNone, superPod.Spec.DNSPolicy)
	require.Empty(t, cmp.Diff(&corev1.PodDNSConfig{
		Nameservers: []string{"10.0.128.10"},
		Searches:    []string{"web.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"},
		Options:     []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}},
	}, superPod.Spec.DNSConfig))
	env = envOf(superPod.Spec.Containers[0].Env)
	require.Equal(t, "10.0.128.1", env["KUBERNETES_SERVICE_HOST"])
	require.NotContains(t, env, "FRONT_SERVICE_HOST")
	for _, name := range []string{"no-dns", "dns"} {
		require.NoError(t, w.tenant.Delete(t.Context(), newPod("web", name)))
		vanishes(t, w.tenant, "web", name, &corev1.Pod{})
	}
}

// review asks the tenant's API server whose a token is.
func (w *world) review(t *testing.T, token []byte, audiences ...string) authenticationv1.TokenReviewStatus {
	t.Helper()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: string(token), Audiences: audiences}}
	create(t, w.tenant, review)
	return review.Status
}

func newPodWithTokens(name string) *corev1.Pod {
	pod := newPod("web", name)
	pod.Spec.Volumes = []corev1.Volume{{Name: "tokens", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](3607)}},
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "vault", Audience: "vault", ExpirationSeconds: ptr.To[int64](600)}},
	}}}}}
	return pod
}

func (w *world) testTokens(t *testing.T) {
	const issued = "tenancy.x-k8s.io/issued-tokens"
	pod := newPodWithTokens("tokens")
	create(t, w.tenant, pod)
	superPod := appears(t, w.super, w.superName("web"), "tokens", &corev1.Pod{}, nil)
	name := tenancy.TokenSecret(pod.Name, pod.UID)
	w.run(t, "tokens", "n0")
	secret := appears(t, w.super, w.superName("web"), name, &corev1.Secret{}, nil)
	sources := superPod.Spec.Volumes[0].Projected.Sources
	require.Equal(t, name, sources[0].Secret.Name)
	require.Equal(t, []corev1.KeyToPath{{Key: "token-0-1", Path: "vault"}}, sources[1].Secret.Items)

	status := w.review(t, secret.Data["token-0-0"])
	require.True(t, status.Authenticated, status.Error)
	require.Equal(t, "system:serviceaccount:web:default", status.User.Username)
	require.Equal(t, authenticationv1.ExtraValue{string(pod.UID)}, status.User.Extra["authentication.kubernetes.io/pod-uid"])
	require.Equal(t, authenticationv1.ExtraValue{"r1.n0"}, status.User.Extra["authentication.kubernetes.io/node-name"])
	require.True(t, w.review(t, secret.Data["token-0-1"], "vault").Authenticated)
	require.False(t, w.review(t, secret.Data["token-0-1"]).Authenticated)

	// A lost token, and one that is due, are asked for anew; the others stay.
	for _, damage := range []func(*corev1.Secret){
		func(secret *corev1.Secret) { delete(secret.Data, "token-0-1") },
		func(secret *corev1.Secret) {
			secret.Annotations[issued] = `{"token-0-0":{"asked":3607,"lifetime":3607,"expires":"2999-01-01T00:00:00Z"},` +
				`"token-0-1":{"audience":"vault","asked":600,"lifetime":600,"expires":"2001-01-01T00:00:00Z"}}`
		},
	} {
		kept, renewed := secret.Data["token-0-0"], secret.Data["token-0-1"]
		await.Change(t, w.super, secret, damage)
		appears(t, w.super, w.superName("web"), name, secret, func(secret *corev1.Secret) bool {
			return len(secret.Data["token-0-1"]) > 0 && string(secret.Data["token-0-1"]) != string(renewed)
		})
		require.Equal(t, string(kept), string(secret.Data["token-0-0"]))
	}

	// A service account that does not exist, and one that goes before the token is asked for.
	ghost := newPodWithTokens("ghost")
	ghost.Spec.ServiceAccountName = "ghost"
	create(t, w.tenant, ghost)
	w.warned(t, "web", "ghost", "FailedCreate")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "ghost"}}
	create(t, w.tenant, account)
	appears(t, w.super, w.superName("web"), "ghost", &corev1.Pod{}, nil)
	require.NoError(t, w.tenant.Delete(t.Context(), account))
	superGhost := w.run(t, "ghost", "n0")
	w.warned(t, "web", "ghost", "FailedToken")
	require.NoError(t, w.tenant.Delete(t.Context(), ghost))
	appears(t, w.super, w.superName("web"), "ghost", superGhost, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	require.NoError(t, w.super.Delete(t.Context(), superGhost, client.GracePeriodSeconds(0)))
	vanishes(t, w.tenant, "web", "ghost", ghost)

	// A restarted syncer knows what it has given: see testRestart. The tokens go with their pod.
	appears(t, w.tenant, "web", "tokens", pod, nil)
	require.NoError(t, w.tenant.Delete(t.Context(), pod))
	appears(t, w.super, w.superName("web"), "tokens", superPod, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	require.NoError(t, w.super.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))
	require.NoError(t, w.super.Delete(t.Context(), superPod, client.GracePeriodSeconds(0)))
	vanishes(t, w.super, w.superName("web"), name, secret)
	vanishes(t, w.tenant, "web", "tokens", pod)
}

func (w *world) testEphemeralContainers(t *testing.T) {
	pod := newPod("web", "debugged")
	create(t, w.tenant, pod)
	superPod := w.run(t, "debugged", "n0")
	appears(t, w.tenant, "web", "debugged", pod, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	await.Change(t, w.tenant, pod, func(pod *corev1.Pod) {
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox:1", TerminationMessagePolicy: corev1.TerminationMessageReadFile},
			TargetContainerName:      "main",
		}}
	}, "ephemeralcontainers")
	appears(t, w.super, w.superName("web"), "debugged", superPod, func(pod *corev1.Pod) bool { return len(pod.Spec.EphemeralContainers) == 1 })
	container := superPod.Spec.EphemeralContainers[0]
	require.Equal(t, "debug of main", container.Name+" of "+container.TargetContainerName)
	require.Equal(t, "10.0.128.1", envOf(container.Env)["KUBERNETES_SERVICE_HOST"])
	await.Change(t, w.super, superPod, func(pod *corev1.Pod) {
		pod.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "debug", Image: "busybox:1", ContainerID: "x://1"}}
	}, "status")
	appears(t, w.tenant, "web", "debugged", pod, func(pod *corev1.Pod) bool { return len(pod.Status.EphemeralContainerStatuses) == 1 })
	require.NoError(t, w.tenant.Delete(t.Context(), pod))
	appears(t, w.super, w.superName("web"), "debugged", superPod, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	require.NoError(t, w.super.Delete(t.Context(), superPod, client.GracePeriodSeconds(0)))
	vanishes(t, w.tenant, "web", "debugged", pod)
}

func (w *world) testEvents(t *testing.T) {
	pod := newPod("web", "eventful")
	create(t, w.tenant, pod)
	superPod := w.run(t, "eventful", "n0")
	appears(t, w.tenant, "web", "eventful", pod, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: superPod.Namespace, Name: "eventful.1"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: superPod.Namespace, Name: superPod.Name, UID: superPod.UID},
		Type:           "Warning", Reason: "BackOff", Message: "Back-off in " + superPod.Namespace + "/eventful", Count: 1,
		Source: corev1.EventSource{Component: "kubelet", Host: "n0"}, LastTimestamp: metav1.Now(),
	}
	// These are not the tenant's business.
	foreign, old, earlier := event.DeepCopy(), event.DeepCopy(), event.DeepCopy()
	foreign.Namespace, foreign.InvolvedObject.Namespace, foreign.Name = "default", "default", "eventful.0"
	old.Name, old.InvolvedObject.UID = "eventful.2", "another"
	earlier.Name, earlier.InvolvedObject.Name = "eventful.3", "nobody"
	for _, object := range []client.Object{foreign, old, earlier, event} {
		create(t, w.super, object)
	}
	told := appears(t, w.tenant, "web", "eventful.1.r1", &corev1.Event{}, nil)
	require.Equal(t, "Back-off in web/eventful", told.Message)
	require.Equal(t, pod.UID, told.InvolvedObject.UID)
	require.Equal(t, corev1.EventSource{Component: "kubelet", Host: "r1.n0"}, told.Source)
	await.Change(t, w.super, event, func(event *corev1.Event) { event.Count = 2 })
	appears(t, w.tenant, "web", "eventful.1.r1", told, func(event *corev1.Event) bool { return event.Count == 2 })
	for _, name := range []string{"eventful.0.r1", "eventful.2.r1", "eventful.3.r1"} {
		require.True(t, apierrors.IsNotFound(w.tenant.Get(t.Context(), types.NamespacedName{Namespace: "web", Name: name}, told)), name)
	}
	require.NoError(t, w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	require.NoError(t, client.IgnoreNotFound(w.super.Delete(t.Context(), superPod, client.GracePeriodSeconds(0))))
	vanishes(t, w.tenant, "web", "eventful", pod)
}

// testLikeAKubelet does with pods what a kubelet of the tenant's own would take for granted.
func (w *world) testLikeAKubelet(t *testing.T) {
	pod := newPod("web", "like-a-kubelet")
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	pod.Labels["pod-template-hash"] = "a1"
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: app, MatchLabelKeys: []string{"pod-template-hash"},
	}}
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: app, MatchLabelKeys: []string{"pod-template-hash"},
	}}}}
	pod.Finalizers = []string{"example.com/waits-for-the-end"}
	create(t, w.tenant, pod)
	superPod := w.run(t, pod.Name, "n0")
	appears(t, w.tenant, "web", pod.Name, pod, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })

	// The policy forbids a privileged container, and the super cluster takes other resources.
	await.Change(t, w.tenant, pod, func(pod *corev1.Pod) {
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "busybox:1", TerminationMessagePolicy: corev1.TerminationMessageReadFile, SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
		}}}
	}, "ephemeralcontainers")
	w.warned(t, "web", pod.Name, "PolicyForbids")
	await.Change(t, w.tenant, pod, func(pod *corev1.Pod) {
		larger := builders.Resources("cpu", "200m", "memory", "100Mi")
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: larger, Requests: larger}
	}, "resize")
	appears(t, w.super, superPod.Namespace, pod.Name, superPod, func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Resources.Requests.Cpu().String() == "200m" })
	await.Change(t, w.super, superPod, func(pod *corev1.Pod) {
		pod.Status.PodIP, pod.Status.PodIPs = "10.1.2.4", []corev1.PodIP{{IP: "10.1.2.4"}}
	}, "status")
	appears(t, w.tenant, "web", pod.Name, pod, func(pod *corev1.Pod) bool { return pod.Status.PodIP == "10.1.2.4" })

	// Its node is drained, and its last status is missed.
	require.NoError(t, w.super.Delete(t.Context(), superPod))
	appears(t, w.tenant, "web", pod.Name, pod, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	require.Equal(t, corev1.PodRunning, pod.Status.Phase)
	require.Equal(t, int64(5), *pod.DeletionGracePeriodSeconds)
	require.NoError(t, w.super.Delete(t.Context(), superPod, client.GracePeriodSeconds(0)))
	appears(t, w.tenant, "web", pod.Name, pod, func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed && *pod.DeletionGracePeriodSeconds == 0
	})
	await.Change(t, w.tenant, pod, func(pod *corev1.Pod) { pod.Finalizers = nil })
	vanishes(t, w.tenant, "web", pod.Name, pod)
}
