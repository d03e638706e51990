package controlplane

import (
	"path/filepath"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// APIServer returns the objects of the API servers, which find etcd at so many members.
//
// They write no endpoints of Service kubernetes: these would be addresses of pods of the meta cluster, and each server
// that ends would take the one away that all have. vc-manager writes them (Endpoint). A server that ends serves on while
// others learn of it, and asks for another connection now and then, so that each gets its part.
func (c *ControlPlane) APIServer(members int32) []client.Object {
	servers := make([]string, 0, members)
	for ordinal := range members {
		servers = append(servers, c.address(MemberName(ordinal)).Client)
	}
	server := Server{
		Files: certificates, Address: listen, Port: apiServerPort, EtcdServers: servers, Issuer: "https://kubernetes.default.svc." + c.clusterDomain(),
		ServiceCIDRs: c.serviceCIDRs(), ServiceNodePortRange: c.Tenant.Spec.ServiceNodePortRange, KubeletCA: certificates.Certificate(CA),
	}
	etcdClient, others := "etcd-client", Flags{}
	if c.External != nil {
		server.EtcdServers, server.EtcdPrefix, etcdClient = c.External.Endpoints, strings.TrimSuffix(ExternalPrefix(c.Tenant.UID), "/"), ExternalClient
		others["etcd-compaction-interval"] = "0" // whoever runs it compacts it, and its key is nobody's prefix
	}
	pairs := []string{"apiserver", etcdClient, "front-proxy-client"}
	if c.Agents {
		server.KubeletClient, server.KubeletCA = KubeletClient, certificates.Certificate("kubelet-ca")
		pairs = append(pairs, KubeletClient)
	}
	of := program{
		component: APIServer, template: &c.Version.Spec.APIServer, ports: []int32{apiServerPort}, grace: 60, capabilities: []corev1.Capability{"NET_BIND_SERVICE"}, probe: https("/livez", apiServerPort),
		pairs: pairs, keys: []string{ServiceAccounts}, authorities: Authorities(),
		flags: server.Flags().With(Flags{
			"etcd-cafile": certificates.Certificate(EtcdCA), "etcd-certfile": certificates.Certificate(etcdClient), "etcd-keyfile": certificates.Key(etcdClient),
			"endpoint-reconciler-type": "none", "shutdown-delay-duration": "10s", "shutdown-send-retry-after": "true", "goaway-chance": "0.001", "profiling": "false",
			// Whoever verifies tokens gets the keys where the issuer is, and not at the address of a pod of the meta cluster.
			"service-account-jwks-uri": server.Issuer + "/openid/v1/jwks",
			// The syncer has a token of its own for each pod, and renews it.
			"service-account-extend-token-expiration": "false",
		}).With(others),
	}
	pod := of.pod(c)
	pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = https("/readyz", apiServerPort)
	if c.Agents {
		project(pod.Spec.Volumes[0].Projected, KubeletClient, corev1.KeyToPath{Key: ServingCAKey, Path: "kubelet-ca.crt"})
	}
	folder(&pod.Spec, "run", "/var/run/kubernetes")
	deployment := c.deployment(APIServer, replicas(of.template), pod)
	deployment.Annotations = map[string]string{annotationVersion: c.Version.Spec.KubernetesVersion}
	if c.Generation > 0 {
		deployment.Annotations[annotationGeneration] = strconv.FormatInt(c.Generation, 10)
	}
	return []client.Object{c.apiServerPolicy(), deployment, c.budget(APIServer), c.ExposedService()}
}

// annotationVersion is the version of Kubernetes of API servers. Written by vc-manager; read by vc-manager.
const annotationVersion = "tenancy.x-k8s.io/kubernetes-version"

// VersionOf returns the version of Kubernetes of API servers, "" where they do not say it.
func VersionOf(deployment *appsv1.Deployment) string {
	return deployment.Annotations[annotationVersion]
}

// signer is the pair of the authority that signs what users ask for: it alone, whatever else is trusted.
const signer = "signer"

// ControllerManager returns the objects of the controller managers, one of which works at a time.
func (c *ControlPlane) ControllerManager() []client.Object {
	kubeconfig := filepath.Join(string(certificates), ManagerUser+".kubeconfig")
	manager := Manager{Files: certificates, Signer: signer, Kubeconfig: kubeconfig, Address: listen, Port: managerPort, ServiceCIDRs: c.serviceCIDRs()}
	of := program{
		component: ControllerManager, template: &c.Version.Spec.ControllerManager, ports: []int32{managerPort}, probe: https("/healthz", managerPort),
		pairs: []string{ManagerUser}, keys: []string{ServiceAccounts}, authorities: []string{CA, FrontProxyCA},
		flags: manager.Flags().With(Flags{
			"leader-elect": "true", "authentication-kubeconfig": kubeconfig, "authorization-kubeconfig": kubeconfig, "client-ca-file": certificates.Certificate(CA),
			"requestheader-client-ca-file": certificates.Certificate(FrontProxyCA), "cluster-name": c.Namespace, "profiling": "false",
			"controllers": "*,bootstrapsigner,tokencleaner",
		}),
	}
	pod := of.pod(c)
	project(pod.Spec.Volumes[0].Projected, CA, pair(signer)...)
	project(pod.Spec.Volumes[0].Projected, ManagerUser, corev1.KeyToPath{Key: KubeconfigKey, Path: ManagerUser + ".kubeconfig"})
	folder(&pod.Spec, "tmp", "/tmp")
	return []client.Object{c.managerPolicy(), c.deployment(ControllerManager, replicas(of.template), pod)}
}

// deployment replaces each pod when another one is ready.
func (c *ControlPlane) deployment(component string, replicas *int32, pod corev1.PodTemplateSpec) *appsv1.Deployment {
	deployment := &appsv1.Deployment{ObjectMeta: c.meta(component, component), Spec: appsv1.DeploymentSpec{
		Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: Labels(component)}, Template: pod,
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		}},
		RevisionHistoryLimit: ptr.To[int32](2),
	}}
	deployment.APIVersion, deployment.Kind = "apps/v1", "Deployment"
	return deployment
}
