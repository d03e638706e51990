package install

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/manifests"
	"github.com/superpool/superpool/test/builders/vctest"
)

// run runs a verb without any cluster, and returns what it prints.
func run(t *testing.T, line string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := cli.New(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &bytes.Buffer{}})
	c.Flags.KubeConfig = ptr.To("/nowhere/kubeconfig")
	root := &cobra.Command{Use: "kubectl-vc", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands(c)...)
	root.SetArgs(strings.Fields(line))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestArguments: what is wrong with what is given is said before any cluster is asked.
func TestArguments(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, server string) string {
		path := filepath.Join(folder, name)
		config := clientcmdapi.Config{
			Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: server}}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: "x"}},
			Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
		}
		require.NoError(t, clientcmd.WriteToFile(config, path))
		return path
	}
	good := write("good", "https://192.0.2.1:6443")
	for line, want := range map[string]string{
		"join R1 --super-kubeconfig x":                           `ID "R1" is not a DNS label`,
		"join " + strings.Repeat("a", 53):                        "is not a DNS label of at most 52 characters",
		"join r1":                                                "--super-kubeconfig is missing",
		"join r1 --super-kubeconfig /nowhere/r1":                 "/nowhere/r1",
		"join r1 --dry-run=perhaps":                              "give none, client or server",
		"join r1 -o json":                                        "-o: give yaml",
		"join r1 -o yaml --out .":                                "-o: give yaml, without --out",
		"join r1 --image a,b":                                    "is not the reference of an image",
		"join r1 --super-context y --super-kubeconfig " + good:   `cannot locate context y`,
		"join r1 --super-kubeconfig " + write("none", "ftp://x"): "",
		"join r1 --super-kubeconfig " + write("password", "https://me:secret@192.0.2.1:6443"): "has a user name in it",
		"leave R1":                    `ID "R1" is not a DNS label`,
		"leave r1 --dry-run=perhaps":  "give none, client or server",
		"leave r1":                    "/nowhere/kubeconfig",
		"init --policies=open":        "give one of closed, standard, trusted",
		"init -o json":                "-o: give yaml",
		"init --image etcd=x":         `no program "etcd" has an image here`,
		"init --image-registry=https": "/nowhere/kubeconfig",
		"check -o wide":               "give one of json, yaml",
		"check":                       "/nowhere/kubeconfig",
	} {
		printed, err := run(t, line)
		require.Error(t, err, line)
		require.ErrorContains(t, err, want, line)
		require.Empty(t, printed, line)
	}
}

// TestInitPrints: -o yaml prints all that is applied, with images and policies as asked for, and asks no cluster.
func TestInitPrints(t *testing.T) {
	t.Parallel()
	printed, err := run(t, "init -o yaml --image-registry mirror.example.com/a --policies=standard")
	require.NoError(t, err)
	objects, err := (&file{name: "all.yaml", content: []byte(printed)}).objects()
	require.NoError(t, err)
	names, established := map[string]*unstructured.Unstructured{}, true
	for _, object := range objects {
		names[nameOf(object)] = object
		if object.GetKind() != crdKind {
			established = false
		}
		require.Equal(t, established, object.GetKind() == crdKind, "definitions are first")
	}
	for _, name := range []string{"deployment.apps/vc-scheduler", "deployment.apps/vc-manager", "clusterrole.rbac.authorization.k8s.io/superpool:vc-syncer", "namespace/vc-manager"} {
		require.Contains(t, names, name)
	}
	require.Contains(t, printed, "image: mirror.example.com/a/vc-scheduler:latest")
	require.Empty(t, cmp.Diff(names["tenantpolicy.tenancy.x-k8s.io/standard"].Object["spec"], names["tenantpolicy.tenancy.x-k8s.io/default"].Object["spec"]))

	printed, err = run(t, "init -o yaml --without-vc-manager")
	require.NoError(t, err)
	require.NotContains(t, printed, "ghcr.io/superpool/vc-manager")
	require.Contains(t, printed, "tenancy.x-k8s.io/policies: closed")
}

// TestRegistration: what a super cluster is registered with has its address and the tokens of our accounts, and nothing
// of the administrator's.
func TestRegistration(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]map[string]any{
		"https://192.0.2.1:6443":         {"host": "192.0.2.1", "port": int64(6443)},
		"https://r1.example.com":         {"host": "r1.example.com", "port": int64(443)},
		"https://[2001:db8::1]:6443/sub": {"host": "2001:db8::1", "port": int64(6443)},
	} {
		r := &registration{
			id: "1", namespace: "pools", clusterVersion: "v1beta1", place: &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: []byte("ca")},
			tokens: map[string]string{"vc-scheduler": "for-scheduler", "syncer": "for-syncer"}, values: manifests.Values{Images: map[string]string{"syncer": "mine:v1"}},
		}
		files, err := r.files()
		require.NoError(t, err)
		objects := map[string]*unstructured.Unstructured{}
		for i := range files {
			of, err := files[i].objects()
			require.NoError(t, err)
			for _, object := range of {
				require.Equal(t, "1", object.GetLabels()["scheduler.tenancy.x-k8s.io/joined"], nameOf(object))
				objects[object.GetNamespace()+" "+nameOf(object)] = object
			}
		}
		require.Len(t, objects, 7)
		cluster := objects["pools cluster.cluster.x-k8s.io/1"]
		require.Equal(t, "cluster.x-k8s.io/v1beta1", cluster.GetAPIVersion())
		require.Equal(t, map[string]any{"controlPlaneEndpoint": want}, cluster.Object["spec"])
		require.Equal(t, "cluster.x-k8s.io/secret", objects["pools secret/1-kubeconfig"].Object["type"])
		require.Contains(t, objects, "vc-manager secret/vc-syncer-1")
		require.Contains(t, string(files[4].content), "image: mine:v1")
		for _, f := range files[5:] {
			config, err := clientcmd.Load(f.content)
			require.NoError(t, err)
			account := map[string]string{"scheduler.kubeconfig": "vc-scheduler", "syncer.kubeconfig": "syncer"}[f.name]
			require.Equal(t, map[string]string{"vc-scheduler": "for-scheduler", "syncer": "for-syncer"}[account], config.AuthInfos[account].Token)
			require.Len(t, config.AuthInfos, 1)
			require.Equal(t, server, config.Clusters["1"].Server)
		}
	}
	_, err := (&registration{id: "r1", place: &clientcmdapi.Cluster{Server: "r1:6443"}}).files()
	require.ErrorContains(t, err, `no server URL, but "r1:6443"`)
}

// TestWriteFiles: nobody but its owner can read what holds credentials, whatever the files of an earlier run were like.
func TestWriteFiles(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "cluster_r1")
	require.NoError(t, os.Mkdir(folder, 0o755))
	for _, name := range []string{"syncer.kubeconfig", "kustomization.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("mine"), 0o644)) //nolint:gosec // that is the point
	}
	require.NoError(t, writeFiles(folder, []file{{"syncer.kubeconfig", []byte("new")}, {"vc-syncer.yaml", []byte("new")}}))
	for _, name := range []string{"syncer.kubeconfig", "vc-syncer.yaml"} {
		info, err := os.Stat(filepath.Join(folder, name))
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), name)
	}
	mine, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	require.NoError(t, err)
	require.Equal(t, "mine", string(mine), "a file that is not written stays")
}

// TestConflicts: who owns what is to be changed is said, but for those who were ours before.
func TestConflicts(t *testing.T) {
	t.Parallel()
	cause := func(manager, field string) metav1.StatusCause {
		return metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "` + manager + `" using apps/v1`, Field: field}
	}
	others, fields := conflicts(apierrors.NewApplyConflict([]metav1.StatusCause{cause("setup-supercluster", ".data.id")}, "conflict"))
	require.Empty(t, others)
	require.Equal(t, []string{".data.id"}, fields)
	others, fields = conflicts(apierrors.NewApplyConflict([]metav1.StatusCause{cause("setup-supercluster", ".a"), cause("kubectl", ".b"), cause("kubectl", ".c")}, "conflict"))
	require.Equal(t, []string{`"kubectl" using apps/v1`}, others)
	require.Equal(t, []string{".a", ".b", ".c"}, fields)
	others, fields = conflicts(apierrors.NewBadRequest("no"))
	require.Empty(t, others)
	require.Empty(t, fields)
}

// TestAvailability: a Deployment is what it is to be once all its replicas are of its last change, and available.
func TestAvailability(t *testing.T) {
	t.Parallel()
	of := func(generation, observed int64, replicas, updated, available int32) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "d", Generation: generation}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)},
			Status: appsv1.DeploymentStatus{ObservedGeneration: observed, Replicas: replicas, UpdatedReplicas: updated, AvailableReplicas: available},
		}
	}
	for name, test := range map[string]struct {
		deployment *appsv1.Deployment
		want       bool
	}{
		"all":                  {of(2, 2, 2, 2, 2), true},
		"nobody has seen it":   {of(2, 1, 2, 2, 2), false},
		"one of before":        {of(2, 2, 3, 2, 2), false},
		"one is not available": {of(2, 2, 2, 2, 1), false},
		"none is of now":       {of(2, 2, 2, 0, 2), false},
	} {
		all, says := availability(test.deployment)
		require.Equal(t, test.want, all, name)
		require.Contains(t, says, "of 2 replicas of d are available")
	}
}

// TestLeaveRefuses: why a super cluster is not to leave.
func TestLeaveRefuses(t *testing.T) {
	t.Parallel()
	node := func(drained bool, conditions ...corev1.NodeCondition) *corev1.Node {
		made := &corev1.Node{Status: corev1.NodeStatus{Conditions: conditions}}
		if drained {
			made.Spec.Taints = []corev1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoExecute}}
		}
		return made
	}
	is := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: "2 namespaces are placed"}
	}
	cluster := func(spec, label string) *unstructured.Unstructured {
		made := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{spec: "x"}}}
		marked(made, label)
		return made
	}
	ours := cluster("controlPlaneEndpoint", "r1")
	info := func(label string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{schedulerv1alpha1.LabelJoined: label}}}
	}
	isDrained := is(schedulerv1alpha1.NodeDrained, corev1.ConditionTrue, "Empty")
	for name, test := range map[string]struct {
		standing standing
		file     string
		want     string
	}{
		"nothing there":            {standing{}, "f", "is not in the pool, and nothing of it is left"},
		"nothing in the meta":      {standing{}, "", "nothing of it is left in the meta cluster"},
		"its id is left":           {standing{info: info("r1")}, "f", ""},
		"an id by other means":     {standing{info: info("")}, "f", "has no mark of join"},
		"a Cluster by other means": {standing{cluster: cluster("controlPlaneEndpoint", "")}, "", "has no mark of join"},
		"a Cluster with machines":  {standing{cluster: cluster("infrastructureRef", "r1")}, "", "who deletes it deletes the super cluster itself"},
		"never Ready":              {standing{cluster: ours}, "", ""},
		"not drained":              {standing{cluster: ours, node: node(false)}, "", "it is not drained: kubectl vc drain r1"},
		"drained before":           {standing{cluster: ours, node: node(false, isDrained)}, "", "kubectl vc drain r1"},
		"being drained":            {standing{cluster: ours, node: node(true, is(schedulerv1alpha1.NodeDrained, corev1.ConditionFalse, "Draining"))}, "", "2 namespaces are placed: kubectl vc drain r1"},
		"drained":                  {standing{cluster: ours, node: node(true, isDrained)}, "", ""},
		"its Cluster is gone":      {standing{node: node(false, is(corev1.NodeReady, corev1.ConditionUnknown, schedulerv1alpha1.ReasonClusterRemoved))}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &leaving{id: "r1", kubeconfig: kubeconfig{file: test.file}}
			if err := l.refusal(&test.standing); test.want != "" {
				require.ErrorContains(t, err, test.want)
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// TestOwnedNamesNoCommand: what an administrator of a super cluster writes as its id is no part of a command that is said.
func TestOwnedNamesNoCommand(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	of := func(namespace, name, key string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{key: "r2; reboot"}}
	}
	for _, record := range []*corev1.ConfigMap{of("kube-system", "supercluster-info", "id"), of(schedulerv1alpha1.AuthorityNamespace, schedulerv1alpha1.AuthorityName, schedulerv1alpha1.AuthorityIDKey)} {
		super := &cluster{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(record).Build(), uid: "super"}
		err := (&kubeconfig{file: "f"}).owned(t.Context(), super, &cluster{uid: "meta"}, "r1")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "leave r2; reboot")
	}
}

// TestPlacedIn: a namespace that holds anything in a super cluster keeps it in the pool, whatever its conditions say.
func TestPlacedIn(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	of := func(name string, parts ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
		return &schedulerv1alpha1.NamespacePlacement{
			ObjectMeta: metav1.ObjectMeta{Namespace: "key", Name: name}, Status: schedulerv1alpha1.NamespacePlacementStatus{Placements: parts},
		}
	}
	meta := &cluster{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		of("placed", schedulerv1alpha1.ClusterPlacement{Cluster: "r1", Slices: 1}), of("elsewhere", schedulerv1alpha1.ClusterPlacement{Cluster: "r2", Slices: 1}),
		of("reserved", schedulerv1alpha1.ClusterPlacement{Cluster: "r1", Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}),
		of("gone", schedulerv1alpha1.ClusterPlacement{Cluster: "r1"}),
	).Build()}
	names, err := placedIn(t.Context(), meta, "r1")
	require.NoError(t, err)
	require.Equal(t, []string{"key/placed", "key/reserved"}, names)
}

// TestLeaveCountsAgain: what was placed after the drain that let a super cluster leave keeps its syncer.
func TestLeaveCountsAgain(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, schedulerv1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	syncer := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "vc-manager", Name: "vc-syncer-r1", Labels: map[string]string{schedulerv1alpha1.LabelJoined: "r1"},
	}}
	placed := &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: "key", Name: "placed"},
		Status:     schedulerv1alpha1.NamespacePlacementStatus{Placements: []schedulerv1alpha1.ClusterPlacement{{Cluster: "r1", Slices: 1}}},
	}
	meta := &cluster{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(syncer, placed).Build()}
	c := &verbs{cli.New(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{}})}
	l := &leaving{id: "r1", common: common{dry: cli.DryRunNone}}
	require.EqualError(t, c.leaveMeta(t.Context(), meta, l, nil), "its syncer stays, which removes that: super cluster r1 has key/placed")
	_, err := l.mayLeave(t.Context(), nil, meta)
	require.EqualError(t, err, "super cluster r1 has key/placed", "without a virtual Node there is nothing to drain")
	require.NoError(t, meta.Create(t.Context(), vctest.SuperNode("r1", vctest.Says(corev1.NodeReady, corev1.ConditionUnknown, schedulerv1alpha1.ReasonClusterRemoved, ""))))
	_, err = l.mayLeave(t.Context(), nil, meta)
	require.EqualError(t, err, "super cluster r1 has key/placed: kubectl vc drain r1")
	require.NoError(t, meta.Get(t.Context(), client.ObjectKeyFromObject(syncer), syncer))
}

// deployed returns a meta cluster with vc-scheduler of some labels and annotations; none is there for nil labels.
func deployed(t *testing.T, labels, annotations map[string]string) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, appsv1.AddToScheme(scheme))
	builder := fake.NewClientBuilder().WithScheme(scheme)
	if labels != nil {
		builder = builder.WithObjects(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "vc-scheduler", Labels: labels, Annotations: annotations}})
	}
	return &cluster{Client: builder.Build()}
}

// TestMayUpgrade: a meta cluster of a newer version is not set back but by --force, and what is of no release is not
// compared.
func TestMayUpgrade(t *testing.T) {
	t.Parallel()
	const refused = "the meta cluster is of version v0.2.0, and this kubectl vc of %s: use that of v0.2.0"
	for name, test := range map[string]struct {
		labels map[string]string
		ours   string
		back   bool
		want   string
	}{
		"nothing there":          {ours: "v0.1.0"},
		"older":                  {labels: map[string]string{labelVersion: "v0.2.0"}, ours: "v0.10.0"},
		"the same":               {labels: map[string]string{labelVersion: "v0.2.0"}, ours: "v0.2.0"},
		"newer":                  {labels: map[string]string{labelVersion: "v0.2.0"}, ours: "v0.1.0", want: fmt.Sprintf(refused, "v0.1.0")},
		"newer than a candidate": {labels: map[string]string{labelVersion: "v0.2.0"}, ours: "v0.2.0-rc.1", want: fmt.Sprintf(refused, "v0.2.0-rc.1")},
		"newer, and to go back":  {labels: map[string]string{labelVersion: "v0.2.0"}, ours: "v0.1.0", back: true},
		"of a clone":             {labels: map[string]string{labelVersion: "v0.0.0-unreleased"}, ours: "v0.1.0"},
		"of before":              {labels: map[string]string{}, ours: "v0.1.0"},
		"of somebody":            {labels: map[string]string{labelVersion: "yes"}, ours: "v0.1.0"},
		"by a clone":             {labels: map[string]string{labelVersion: "v0.2.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := &initializing{values: manifests.Values{Version: test.ours}, back: test.back}
			if err := i.mayUpgrade(t.Context(), deployed(t, test.labels, nil)); test.want != "" {
				require.ErrorContains(t, err, test.want)
			} else {
				require.NoError(t, err)
			}
		})
	}
	for text, is := range map[string]bool{"v0.1.0": true, "v0.1.0-rc.1": true, "v0.0.1": true, "v0.0.0": false, "v0.0.0+abc": false, "v0.1.0-3-gabc": false, "v0.1.0-dirty": false, "v0.0.0-unreleased": false, "": false} {
		require.Equal(t, is, isRelease(text), text)
	}
	objects, err := manifests.Values{Version: "v0.1.0"}.Build("base")
	require.NoError(t, err)
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			require.Equal(t, "v0.1.0", object.GetLabels()[labelVersion])
		}
	}
}

// TestSetUpOf: what a release of Helm has made is mended by Helm.
func TestSetUpOf(t *testing.T) {
	t.Parallel()
	helm := map[string]string{"app.kubernetes.io/managed-by": "Helm"}
	named := func(release, namespace string) map[string]string {
		return map[string]string{helmRelease: release, helmNamespace: namespace}
	}
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		want                string
	}{
		"nothing there": {want: "kubectl vc init"},
		"by init":       {labels: map[string]string{}, want: "kubectl vc init"},
		"by Helm":       {labels: helm, annotations: named("superpool", "pools"), want: "helm upgrade superpool superpool-VERSION.tgz --namespace pools --reset-then-reuse-values"},
		"no release":    {labels: helm, annotations: named("a; reboot", "pools"), want: "helm upgrade RELEASE superpool-VERSION.tgz --namespace NAMESPACE --reset-then-reuse-values"},
		"no namespace":  {labels: helm, annotations: named("superpool", "a; reboot"), want: "helm upgrade RELEASE superpool-VERSION.tgz --namespace NAMESPACE --reset-then-reuse-values"},
	} {
		by, err := setUpOf(t.Context(), deployed(t, test.labels, test.annotations))
		require.NoError(t, err)
		require.Equal(t, test.want, by, name)
	}
	meta := deployed(t, helm, named("superpool", "pools"))
	f := &findings{cluster: meta, setUp: "helm upgrade superpool"}
	require.NoError(t, f.policies(t.Context(), nil))
	require.Equal(t, "helm upgrade superpool --set policies.enabled=true", f.list[0].Mend)
}
