package controlplane_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podsecurity "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
)

const files = "/etc/kubernetes/pki/"

func sample() *controlplane.ControlPlane {
	component := func(program string) tenancyv1alpha1.ComponentTemplate {
		return tenancyv1alpha1.ComponentTemplate{Image: "registry.k8s.io/" + program + ":v1.37.2", Replicas: 1}
	}
	return &controlplane.ControlPlane{
		Namespace: "default-abc123-acme",
		Tenant: &tenancyv1alpha1.VirtualCluster{Spec: tenancyv1alpha1.VirtualClusterSpec{
			ServiceCIDRs: []string{"10.97.0.0/16", "fd97::/112"}, ServiceNodePortRange: "30100-30199", ClusterDomain: "acme.local",
		}},
		Version: &tenancyv1alpha1.ClusterVersion{Spec: tenancyv1alpha1.ClusterVersionSpec{
			KubernetesVersion: "v1.37.2", Etcd: component(controlplane.Etcd), APIServer: component(controlplane.APIServer), ControllerManager: component(controlplane.ControllerManager),
		}},
	}
}

// store returns one that was never restored.
func store(pods int32) controlplane.Store {
	of := controlplane.NewStore()
	of.Pods = pods
	return of
}

func objects(c *controlplane.ControlPlane) []client.Object {
	return slices.Concat(c.Etcd(store(3)), c.APIServer(3), c.ControllerManager())
}

// pods returns the templates of pods, by program.
func pods(c *controlplane.ControlPlane) map[string]*corev1.PodTemplateSpec {
	found := map[string]*corev1.PodTemplateSpec{}
	for _, object := range objects(c) {
		switch workload := object.(type) {
		case *appsv1.StatefulSet:
			found[workload.Name] = &workload.Spec.Template
		case *appsv1.Deployment:
			found[workload.Name] = &workload.Spec.Template
		}
	}
	return found
}

// flags returns the values of a pod's flags, "" for those without.
func flags(t *testing.T, pod *corev1.PodTemplateSpec) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, argument := range pod.Spec.Containers[0].Command[1:] {
		name, value, _ := strings.Cut(argument, "=")
		require.True(t, strings.HasPrefix(name, "--"), argument)
		require.NotContains(t, values, name, "said twice")
		values[name] = value
	}
	return values
}

func TestObjects(t *testing.T) {
	t.Parallel()
	var names []string
	for _, object := range objects(sample()) {
		names = append(names, object.GetObjectKind().GroupVersionKind().GroupKind().String()+" "+object.GetName())
		require.Equal(t, "default-abc123-acme", object.GetNamespace())
		require.Equal(t, controlplane.ManagedBy, object.GetLabels()["app.kubernetes.io/managed-by"])
	}
	require.Empty(t, cmp.Diff([]string{
		"NetworkPolicy.networking.k8s.io etcd", "Service etcd", "StatefulSet.apps etcd", "PodDisruptionBudget.policy etcd",
		"NetworkPolicy.networking.k8s.io kube-apiserver", "Deployment.apps kube-apiserver", "PodDisruptionBudget.policy kube-apiserver", "Service kube-apiserver", "NetworkPolicy.networking.k8s.io kube-controller-manager", "Deployment.apps kube-controller-manager",
	}, names))
	require.Empty(t, cmp.Diff(objects(sample()), objects(sample())), "equal input gives equal objects")
}

// TestPodsAreRestricted: pods are what the strictest of the Pod Security Standards admits, and have no token.
func TestPodsAreRestricted(t *testing.T) {
	t.Parallel()
	evaluator, err := podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
	require.NoError(t, err)
	c := sample()
	c.Version.Spec.APIServer.Files = []tenancyv1alpha1.ComponentFile{{Name: "audit.yaml", Content: "x"}, {Name: "keys.yaml", SecretName: "keys"}}
	found := pods(c)
	require.Len(t, found, 3)
	backup := sample().Backup(controlplane.BackupName(time.Now()), 3, "etcd-2", "v1.37.2", "")
	restore, _ := sample().Restore(backup, 1)
	found[backup.Name], found[restore.Name] = &backup.Spec.Template, &restore.Spec.Template
	for name, pod := range found {
		for _, result := range evaluator.EvaluatePod(podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
			require.True(t, result.Allowed, "%s: %s: %s", name, result.ForbiddenReason, result.ForbiddenDetail)
		}
		require.False(t, *pod.Spec.AutomountServiceAccountToken, name)
		require.True(t, *pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem, name)
	}
}

// TestFilesAreThere: each file that a flag names is in a Secret that the pod has, or an annotation of what it trusts, each
// such Secret is one that vc-manager makes, and no pod reads a key that it does not need.
func TestFilesAreThere(t *testing.T) {
	t.Parallel()
	for name, agents := range map[string]bool{"with vn-agents": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sample()
			c.Agents, c.Trusted = agents, map[string]string{}
			for _, name := range controlplane.Authorities() {
				c.Trusted[name] = "that of " + name
			}
			requireFiles(t, c)
		})
	}
}

func requireFiles(t *testing.T, c *controlplane.ControlPlane) {
	t.Helper()
	made := map[string]bool{
		controlplane.CA: true, controlplane.EtcdCA: true, controlplane.FrontProxyCA: true, controlplane.ServiceAccounts: true,
		controlplane.KubeletClient: c.Agents,
	}
	all, err := c.Certificates(time.Hour)
	require.NoError(t, err)
	for _, certificate := range all {
		require.True(t, made[certificate.Authority], certificate.Name)
		made[certificate.Name] = true
	}
	for name, pod := range pods(c) {
		there := map[string]bool{}
		for _, source := range pod.Spec.Volumes[0].Projected.Sources {
			if source.DownwardAPI != nil {
				for _, item := range source.DownwardAPI.Items {
					authority := strings.TrimSuffix(item.Path, ".crt")
					annotation := "tenancy.x-k8s.io/trusted-" + authority
					require.Equal(t, "metadata.annotations['"+annotation+"']", item.FieldRef.FieldPath)
					require.Equal(t, "that of "+authority, pod.Annotations[annotation])
					require.False(t, there[files+item.Path], "two files of one name")
					there[files+item.Path] = true
				}
				continue
			}
			require.True(t, made[source.Secret.Name], source.Secret.Name)
			for _, item := range source.Secret.Items {
				require.False(t, there[files+item.Path], "two files of one name")
				there[files+item.Path] = true
			}
		}
		for flag, value := range flags(t, pod) {
			if strings.HasPrefix(value, files) {
				require.True(t, there[value], "%s: %s=%s", name, flag, value)
			}
		}
		for file := range there {
			isNamed := slices.Contains(slices.Collect(maps.Values(flags(t, pod))), file) || strings.HasPrefix(file, files+"controller-manager.")
			require.True(t, isNamed, "%s does not name %s", name, file)
		}
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		program string
		change  func(*controlplane.ControlPlane)
		want    map[string]string
	}{
		"etcd": {program: controlplane.Etcd, want: map[string]string{
			"--name": "$(POD_NAME)", "--initial-advertise-peer-urls": "https://$(POD_NAME).etcd.default-abc123-acme.svc:2380",
			"--client-cert-auth": "true", "--peer-client-cert-auth": "true", "--quota-backend-bytes": "2147483648",
		}},
		"an API server": {program: controlplane.APIServer, want: map[string]string{
			"--service-cluster-ip-range": "10.97.0.0/16,fd97::/112", "--service-node-port-range": "30100-30199", "--endpoint-reconciler-type": "none",
			"--service-account-issuer": "https://kubernetes.default.svc.acme.local", "--service-account-jwks-uri": "https://kubernetes.default.svc.acme.local/openid/v1/jwks",
			"--kubelet-certificate-authority": files + "ca.crt",
			"--etcd-servers":                  "https://etcd-0.etcd.default-abc123-acme.svc:2379,https://etcd-1.etcd.default-abc123-acme.svc:2379,https://etcd-2.etcd.default-abc123-acme.svc:2379",
		}},
		"a controller manager": {program: controlplane.ControllerManager, want: map[string]string{
			"--leader-elect": "true", "--kubeconfig": files + "controller-manager.kubeconfig", "--cluster-signing-key-file": files + "signer.key",
		}},
		"a tenant that says nothing": {
			program: controlplane.APIServer, change: func(c *controlplane.ControlPlane) { c.Tenant = &tenancyv1alpha1.VirtualCluster{} },
			want: map[string]string{"--service-cluster-ip-range": "10.96.0.0/12", "--service-account-issuer": "https://kubernetes.default.svc.cluster.local"},
		},
		"no vn-agents": {
			program: controlplane.APIServer, want: map[string]string{"--kubelet-client-certificate": "", "--kubelet-client-key": ""},
		},
		"vn-agents": {
			program: controlplane.APIServer, change: func(c *controlplane.ControlPlane) { c.Agents = true },
			want: map[string]string{
				"--kubelet-client-certificate": files + "kubelet-client.crt", "--kubelet-client-key": files + "kubelet-client.key",
				"--kubelet-certificate-authority": files + "kubelet-ca.crt",
			},
		},
		"arguments of the version": {
			program: controlplane.APIServer, change: func(c *controlplane.ControlPlane) {
				c.Version.Spec.APIServer.ExtraArgs = map[string]string{"goaway-chance": "0", "audit-log-path": "-"}
			},
			want: map[string]string{"--goaway-chance": "0", "--audit-log-path": "-"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sample()
			if tc.change != nil {
				tc.change(c)
			}
			got := flags(t, pods(c)[tc.program])
			for flag, want := range tc.want {
				require.Equal(t, want, got[flag], flag)
			}
		})
	}
}

// TestStore: who joins a store is told who its members are, and pods do not change when it gets a member more.
func TestStore(t *testing.T) {
	t.Parallel()
	c := sample()
	for _, tc := range []struct {
		store controlplane.Store
		want  map[string]string
	}{
		{store: controlplane.NewStore(), want: map[string]string{
			"initial-cluster": "etcd-0=https://etcd-0.etcd.default-abc123-acme.svc:2380", "initial-cluster-state": "new",
		}},
		{store: controlplane.Store{Pods: 3, Members: []string{"etcd-0", "etcd-2"}, Joining: "etcd-2", Claims: map[string]string{"data-etcd-1": "b", "data-etcd-0": "a"}}, want: map[string]string{
			"initial-cluster":       "joined-etcd-0=https://etcd-0.etcd.default-abc123-acme.svc:2380,etcd-2=https://etcd-2.etcd.default-abc123-acme.svc:2380",
			"initial-cluster-state": "existing", "claims": "data-etcd-0=a,data-etcd-1=b",
		}},
	} {
		told := c.Told(tc.store)
		require.Empty(t, cmp.Diff(tc.want, told.Data))
		require.Equal(t, tc.store.New, controlplane.IsNew(told))
		require.EqualValues(t, len(tc.store.Members), controlplane.MembersOf(told))
		require.Empty(t, cmp.Diff(tc.store.Claims, controlplane.StoreOf(told, nil, nil).Claims, cmpopts.EquateEmpty()))
	}
	set := func(pods int32) *appsv1.StatefulSet { return c.Etcd(store(pods))[2].(*appsv1.StatefulSet) }
	require.EqualValues(t, 3, *set(3).Spec.Replicas)
	require.Empty(t, cmp.Diff(set(1).Spec.Template, set(3).Spec.Template))
}

// TestARestoredStore: a Job restores one file into the volume that the store has then, and its revisions are later than all
// that there were; pods are named as before, and claims are not.
func TestARestoredStore(t *testing.T) {
	t.Parallel()
	c := sample()
	c.Generation, c.Version.Spec.Etcd.ExtraArgs = 2, map[string]string{"snapshot-count": "20000"}
	backup := c.Backup(controlplane.BackupName(time.Date(2026, 11, 28, 15, 4, 5, 0, time.UTC)), 3, "etcd-2", "v1.37.2", "v1.38.0")
	require.Equal(t, "etcd-backup-20261128-150405", backup.Name)
	require.Equal(t, "/backups/3.db", backup.Spec.Template.Spec.Containers[0].Command[3])
	require.Contains(t, backup.Spec.Template.Spec.Containers[0].Command, "--endpoints=https://etcd-2.etcd.default-abc123-acme.svc:2379")
	require.EqualValues(t, 2, controlplane.GenerationOf(backup))
	require.True(t, controlplane.IsBefore(backup, "v1.38.0"))
	require.False(t, controlplane.IsBefore(backup, "v1.38.1"))
	require.Equal(t, "v1.37.2", controlplane.WrittenBy(backup))

	restore, claim := c.Restore(backup, 5)
	command := restore.Spec.Template.Spec.Containers[0].Command
	require.Equal(t, []string{"etcdutl", "snapshot", "restore", "/backups/3.db", "--data-dir=/var/lib/etcd/data", "--name=etcd-0"}, command[:6])
	require.Contains(t, command, fmt.Sprintf("--bump-revision=%d", 3<<40), "a store of generation 5 is three behind one of generation 2")
	require.Equal(t, backup.Name, controlplane.SourceOf(restore))
	require.Equal(t, "etcd-restore-5", restore.Name)
	require.Equal(t, "data-5-etcd-0", claim.Name)

	restored := controlplane.Store{Pods: 1, Members: []string{"etcd-0"}, Generation: 5, Restored: backup.Name, Version: "v1.37.2"}
	set := c.Etcd(restored)[2].(*appsv1.StatefulSet)
	before := c.Etcd(store(1))[2].(*appsv1.StatefulSet)
	require.Equal(t, before.Name, set.Name)
	require.Equal(t, "data-5", set.Spec.VolumeClaimTemplates[0].Name)
	require.Equal(t, "data-5", set.Spec.Template.Spec.Containers[0].VolumeMounts[1].Name)
	require.Empty(t, cmp.Diff(before.Spec.VolumeClaimTemplates[0].Spec, claim.Spec), "a claim as a member makes it")
	set.ResourceVersion, before.ResourceVersion = "1", "1"
	c.Generation = 5
	servers := c.APIServer(1)[1].(*appsv1.Deployment)
	servers.ResourceVersion = "1"
	none, noSet := &appsv1.Deployment{}, &appsv1.StatefulSet{}
	for name, tc := range map[string]struct {
		told    *corev1.ConfigMap
		set     *appsv1.StatefulSet
		servers *appsv1.Deployment
		want    controlplane.Store
	}{
		"nothing":        {set: noSet, servers: none, want: controlplane.Store{New: true}},
		"what is told":   {told: c.Told(restored), set: before, servers: none, want: controlplane.Store{Generation: 5, Restored: backup.Name, Version: "v1.37.2"}},
		"a StatefulSet":  {set: set, servers: servers, want: controlplane.Store{Generation: 5}},
		"the first one":  {set: before, servers: none, want: controlplane.Store{}},
		"servers alone":  {set: noSet, servers: servers, want: controlplane.Store{Generation: 5}},
		"what is new":    {told: c.Told(controlplane.NewStore()), set: noSet, servers: none, want: controlplane.Store{New: true}},
		"what is broken": {told: &corev1.ConfigMap{Data: map[string]string{"generation": "many"}}, set: noSet, servers: none, want: controlplane.Store{}},
	} {
		require.Empty(t, cmp.Diff(tc.want, controlplane.StoreOf(tc.told, tc.set, tc.servers), cmpopts.EquateEmpty()), name)
	}
}

// TestMemoryLimit: Go's runtime knows of the limit, and has a tenth of it for what it does not count.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	c := sample()
	c.Version.Spec.APIServer.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1000Mi")}
	require.Contains(t, pods(c)[controlplane.APIServer].Spec.Containers[0].Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "943718400"})
	for _, env := range pods(sample())[controlplane.APIServer].Spec.Containers[0].Env {
		require.NotEqual(t, "GOMEMLIMIT", env.Name)
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	exposed := sample()
	exposed.Tenant.Spec.Exposure = &tenancyv1alpha1.Exposure{Hosts: []string{"acme.example.com", "192.0.2.7"}}
	exposed.Service = &corev1.Service{Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.3.4"}}, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{
		Ingress: []corev1.LoadBalancerIngress{{IP: "2001:db8::7"}, {Hostname: "lb.example.com"}},
	}}}
	all, err := exposed.Certificates(time.Hour)
	require.NoError(t, err)
	byName := map[string]pki.Certificate{}
	for _, certificate := range all {
		require.Equal(t, time.Hour, certificate.Wanted.Validity)
		require.NotContains(t, byName, certificate.Name)
		byName[certificate.Name] = certificate.Wanted
	}
	server := byName["apiserver"]
	require.Subset(t, server.DNSNames, []string{"acme.example.com", "lb.example.com", "kubernetes.default.svc.acme.local", "kube-apiserver.default-abc123-acme.svc", "localhost"})
	var addresses []string
	for _, ip := range server.IPs {
		addresses = append(addresses, ip.String())
	}
	require.ElementsMatch(t, []string{"10.97.0.1", "fd97::1", "127.0.0.1", "192.0.2.7", "2001:db8::7", "10.96.3.4"}, addresses)
	require.Equal(t, []string{"system:masters"}, byName["admin-kubeconfig"].Groups)
	require.Empty(t, byName["etcd-client"].Groups)

	for _, cidr := range []string{"10.97.0.0", "10.97.0.1/32"} {
		c := sample()
		c.Tenant.Spec.ServiceCIDRs = []string{cidr}
		_, err := c.Certificates(time.Hour)
		require.ErrorContains(t, err, "spec.serviceCIDRs: ", cidr)
	}
}

// TestWhoIsReplaced: programs are replaced when they are to trust others, or to sign with another key, and no others are.
func TestWhoIsReplaced(t *testing.T) {
	t.Parallel()
	for authority, want := range map[string][]string{
		controlplane.CA:              {controlplane.APIServer, controlplane.ControllerManager},
		controlplane.EtcdCA:          {controlplane.Etcd, controlplane.APIServer},
		controlplane.FrontProxyCA:    {controlplane.APIServer, controlplane.ControllerManager},
		controlplane.ServiceAccounts: {controlplane.APIServer, controlplane.ControllerManager},
	} {
		c := sample()
		c.Trusted = map[string]string{authority: "another"}
		before, after := pods(sample()), pods(c)
		var replaced []string
		for name := range before {
			if !cmp.Equal(before[name], after[name]) {
				replaced = append(replaced, name)
			}
		}
		require.ElementsMatch(t, want, replaced, authority)
	}
}
