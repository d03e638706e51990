package controlplane_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
)

const oldest, newest = 34, 40

// bundled returns the ClusterVersion of testdata, and its YAML with changes.
func bundled(t *testing.T, replace ...string) *tenancyv1alpha1.ClusterVersion {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "bundles.yaml"))
	require.NoError(t, err)
	content, _, _ = bytes.Cut(content, []byte("\n---\n"))
	for i := 0; i < len(replace); i += 2 {
		require.Contains(t, string(content), replace[i])
		content = bytes.ReplaceAll(content, []byte(replace[i]), []byte(replace[i+1]))
	}
	version := &tenancyv1alpha1.ClusterVersion{}
	require.NoError(t, yaml.UnmarshalStrict(content, version), "no field is unknown")
	return version
}

// TestUnbundle: what still means something is taken over, and the rest is named.
func TestUnbundle(t *testing.T) {
	t.Parallel()
	base := sample().Version
	require.False(t, controlplane.IsBundled(base))
	version := bundled(t)
	require.True(t, controlplane.IsBundled(version))
	before := version.DeepCopy()
	short, left, err := controlplane.Unbundle(version, base, oldest, newest)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(before, version), "what was given stays")
	require.False(t, controlplane.IsBundled(short))
	require.Empty(t, cmp.Diff(tenancyv1alpha1.ClusterVersionSpec{
		KubernetesVersion: "v1.37.2",
		Etcd:              tenancyv1alpha1.ComponentTemplate{Image: base.Spec.Etcd.Image, Replicas: 1, ExtraArgs: map[string]string{"snapshot-count": "5000"}},
		APIServer: tenancyv1alpha1.ComponentTemplate{
			Image: base.Spec.APIServer.Image, Replicas: 1, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
			ExtraArgs: map[string]string{
				"enable-bootstrap-token-auth": "true", "v": "2",
			},
		},
		ControllerManager: tenancyv1alpha1.ComponentTemplate{Image: base.Spec.ControllerManager.Image, Replicas: 1, ExtraArgs: map[string]string{
			"cluster-signing-duration": "87600h", "node-monitor-grace-period": "200s", "v": "2",
		}},
	}, short.Spec))
	require.Equal(t, []string{
		"apiServer: a Service of type NodePort (spec.exposure of the VirtualCluster)",
		"apiServer: argument --anonymous-auth=true (true: probes ask without a name)",
		"apiServer: argument --enable-admission-plugins=NamespaceLifecycle,NodeRestriction,LimitRanger,ServiceAccount,DefaultStorageClass,ResourceQuota (the default ones and NodeRestriction)",
		"apiServer: argument --insecure-port",
		"apiServer: argument --runtime-config",
		"apiServer: argument --service-cluster-ip-range=10.32.0.0/16 (spec.serviceCIDRs of the VirtualCluster)",
		"apiServer: argument --service-node-port-range=30000-32767 (spec.serviceNodePortRange of the VirtualCluster)",
		"apiServer: image virtualcluster/apiserver-v1.16.2 (registry.k8s.io/kube-apiserver:v1.37.2 runs)",
		"apiServer: nodeSelector",
		"controllerManager: argument --cluster-cidr",
		"controllerManager: argument --controllers",
		"controllerManager: image virtualcluster/controller-manager-v1.16.2 (registry.k8s.io/kube-controller-manager:v1.37.2 runs)",
		"etcd: argument --enable-v2",
		"etcd: image virtualcluster/etcd-v3.4.0 (registry.k8s.io/etcd:v1.37.2 runs)",
	}, left)
}

// TestImagesOfBundles: images that work are taken over, all or none.
func TestImagesOfBundles(t *testing.T) {
	t.Parallel()
	images := func(etcd, server, manager string) *tenancyv1alpha1.ClusterVersion {
		return bundled(t, "virtualcluster/etcd-v3.4.0", etcd, "virtualcluster/apiserver-v1.16.2", server, "virtualcluster/controller-manager-v1.16.2", manager)
	}
	for name, tc := range map[string]struct {
		version *tenancyv1alpha1.ClusterVersion
		want    string
	}{
		"newer":         {images("registry.example.com:5000/etcd:3.6.5-0", "registry.example.com/kube-apiserver:v1.36.3", "registry.example.com/kcm:v1.36.3"), "v1.36.3"},
		"with a digest": {images("etcd:v3.7.0", "kube-apiserver:v1.36.3@sha256:abc", "kcm:v1.36.3"), "v1.36.3"},
		"two versions":  {images("etcd:3.7.0", "kube-apiserver:v1.36.3", "kcm:v1.36.2"), "v1.37.2"},
		"too old":       {images("etcd:3.7.0", "kube-apiserver:v1.33.9", "kcm:v1.33.9"), "v1.37.2"},
		"an old store":  {images("etcd:3.5.9", "kube-apiserver:v1.36.3", "kcm:v1.36.3"), "v1.37.2"},
		"no tag":        {images("registry.example.com:5000/etcd", "registry.example.com:5000/kube-apiserver", "kcm"), "v1.37.2"},
		"too new":       {images("etcd:3.7.0", "kube-apiserver:v1.41.0", "kcm:v1.41.0"), "v1.37.2"},
		"no release":    {images("etcd:3.7.0", "kube-apiserver:v1.37.0-rc.1", "kcm:v1.37.0-rc.1"), "v1.37.2"},
		"latest":        {images("etcd:latest", "kube-apiserver:latest", "kcm:latest"), "v1.37.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			short, _, err := controlplane.Unbundle(tc.version, sample().Version, oldest, newest)
			require.NoError(t, err)
			require.Equal(t, tc.want, short.Spec.KubernetesVersion)
			for _, image := range []string{short.Spec.Etcd.Image, short.Spec.APIServer.Image, short.Spec.ControllerManager.Image} {
				require.Equal(t, tc.want == "v1.37.2", strings.HasPrefix(image, "registry.k8s.io/"), image)
			}
		})
	}
}

// TestStrangeBundles: what cannot be read is an error that says where, and numbers that cannot be are bounded.
func TestStrangeBundles(t *testing.T) {
	t.Parallel()
	raw := func(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
	for want, change := range map[string]func(*tenancyv1alpha1.ClusterVersionSpec){
		"etcd.statefulset: ":                     func(spec *tenancyv1alpha1.ClusterVersionSpec) { spec.Etcd.StatefulSet = raw(`{"spec": "none"}`) },
		"controllerManager.statefulset has no c": func(spec *tenancyv1alpha1.ClusterVersionSpec) { spec.ControllerManager.StatefulSet = raw(`{}`) },
		"apiServer.service: ":                    func(spec *tenancyv1alpha1.ClusterVersionSpec) { spec.APIServer.Service = raw(`[]`) },
	} {
		version := bundled(t)
		change(&version.Spec)
		_, _, err := controlplane.Unbundle(version, sample().Version, oldest, newest)
		require.ErrorContains(t, err, want)
	}
	short, left, err := controlplane.Unbundle(bundled(t, "replicas: 1\n", "replicas: 12\n", "command: [kube-apiserver]", "command: [sh, -c]"), sample().Version, oldest, newest)
	require.NoError(t, err)
	require.EqualValues(t, 3, short.Spec.Etcd.Replicas)
	require.EqualValues(t, 9, short.Spec.APIServer.Replicas)
	require.Subset(t, left, []string{"etcd: 12 replicas (3 run)", "apiServer: 12 replicas (9 run)", "apiServer: command sh"})

	short, left, err = controlplane.Unbundle(bundled(t, "- --snapshot-count=5000", "- -snapshot-count=5000", "- --v=2", "- --v=$(LEVEL)", "- --kubelet-https=true", "- --event-ttl=2h\n              - --event-ttl=3h",
		"- --leader-elect=false", "- --cluster-signing-duration=1h"), sample().Version, oldest, newest)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"snapshot-count": "5000"}, short.Spec.Etcd.ExtraArgs, "one dash is as good as two")
	require.Subset(t, left, []string{"apiServer: argument --v", "apiServer: argument --event-ttl"})
	require.NotContains(t, short.Spec.APIServer.ExtraArgs, "event-ttl", "which of two is meant is not known")
	require.NotContains(t, short.Spec.ControllerManager.ExtraArgs, "cluster-signing-duration", "by whichever name")

	mixed := bundled(t)
	mixed.Spec.ControllerManager = tenancyv1alpha1.ComponentTemplate{Image: "mine:v1.37.2", Replicas: 2}
	short, left, err = controlplane.Unbundle(mixed, sample().Version, oldest, newest)
	require.NoError(t, err)
	require.EqualValues(t, 2, short.Spec.ControllerManager.Replicas)
	require.Contains(t, left, "controllerManager: image mine:v1.37.2 (registry.k8s.io/kube-controller-manager:v1.37.2 runs)")
}
