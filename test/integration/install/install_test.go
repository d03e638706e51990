// Package install tests the verbs of kubectl vc that make a pool, on real API servers: a meta cluster and a super
// cluster with their controllers, and the control plane of a tenant. vc-scheduler and the syncer are processes: no
// kubelet runs Deployments.
package install

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	kubectlvc "github.com/superpool/superpool/cmd/kubectl-vc/app"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	syncer "github.com/superpool/superpool/cmd/syncer/app"
	scheduler "github.com/superpool/superpool/cmd/vc-scheduler/app"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

const (
	patience = 60 * time.Second
	tick     = 50 * time.Millisecond
)

// programVariable is the environment variable of a process that runs one of our programs, with the arguments of the
// process, in the place of tests.
const programVariable = "SUPERPOOL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(programVariable) {
	case "":
		os.Exit(m.Run())
	case "vc-scheduler":
		err = scheduler.NewCommand().ExecuteContext(ctrl.SetupSignalHandler())
	case "syncer":
		command, failed := syncer.NewCommand()
		if err = failed; err == nil {
			err = command.ExecuteContext(ctrl.SetupSignalHandler())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// world is the API servers of a pool, and the files in a folder that reach them.
type world struct {
	meta, super, tenant *controlplane.ControlPlane
	inMeta, inSuper     client.Client
	inTenant            client.Client
	folder              string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	crds, err := controlplane.MetaCRDs(t.Context())
	require.NoError(t, err)
	without := []string{"ServiceAccount", "ResourceQuota"}
	started, stop, err := controlplane.Start(controlplane.Options{Role: controlplane.Meta, CRDs: crds[1:], Manager: true},
		controlplane.Options{Role: controlplane.Super, Manager: true}, controlplane.Options{Role: controlplane.Tenant, DisableAdmission: without})
	t.Cleanup(stop)
	require.NoError(t, err)
	w := &world{meta: started[0], super: started[1], tenant: started[2], folder: t.TempDir()}
	for file, one := range map[string]struct {
		plane *controlplane.ControlPlane
		into  *client.Client
	}{"meta": {w.meta, &w.inMeta}, "super": {w.super, &w.inSuper}, "tenant": {w.tenant, &w.inTenant}} {
		*one.into, err = client.New(one.plane.Config, client.Options{Scheme: controlplane.Scheme()})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(w.file(file), one.plane.KubeConfig, 0o600))
	}
	eventually(t, func() bool {
		return w.inSuper.Get(t.Context(), types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "default"}, &corev1.ServiceAccount{}) == nil
	}, "the controllers of the super cluster work")
	return w
}

// file returns the file of a kubeconfig.
func (w *world) file(name string) string { return filepath.Join(w.folder, name+".kubeconfig") }

// vc runs kubectl vc, and returns what it prints and says, and its error.
func (w *world) vc(t *testing.T, line string) (printed, said string, err error) {
	t.Helper()
	var out, told bytes.Buffer
	command := kubectlvc.NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &told})
	arguments := strings.Fields(strings.ReplaceAll(line, "SUPER", "--super-kubeconfig "+w.file("super")))
	command.SetArgs(append(arguments, "--kubeconfig", w.file("meta")))
	err = command.ExecuteContext(t.Context())
	return out.String(), told.String(), err
}

// does runs kubectl vc, and returns what it prints.
func (w *world) does(t *testing.T, line string) string {
	t.Helper()
	printed, said, err := w.vc(t, line)
	require.NoError(t, err, "%s: %s", line, said)
	return printed
}

// refuses runs kubectl vc, and holds that its error says something.
func (w *world) refuses(t *testing.T, line, want string) {
	t.Helper()
	printed, _, err := w.vc(t, line)
	require.ErrorContains(t, err, want, line)
	require.Empty(t, printed, line)
}

// failed returns the commands that mend what kubectl vc check has found, by what it has looked at.
func (w *world) failed(t *testing.T, line string) map[string]string {
	t.Helper()
	printed, said, err := w.vc(t, line+" -o json")
	require.ErrorContains(t, err, "checks failed", said)
	require.Equal(t, 1, cli.ExitCode(err))
	var found []struct {
		Cluster, Check, Mend string
		OK                   bool
	}
	require.NoError(t, json.Unmarshal([]byte(printed), &found))
	failed := map[string]string{}
	for _, one := range found {
		if !one.OK {
			failed[one.Cluster+" "+one.Check] = one.Mend
		}
	}
	return failed
}

// program runs a program until the test ends, or the function is called that it returns.
func (w *world) program(t *testing.T, name string, arguments ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	process := exec.CommandContext(ctx, os.Args[0], append(arguments, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")...)
	process.Env = append(os.Environ(), programVariable+"="+name)
	var log bytes.Buffer
	process.Stdout, process.Stderr = &log, &log
	require.NoError(t, process.Start())
	stop = func() { cancel(); _ = process.Wait() }
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			text := log.String()
			t.Logf("%s:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
	return stop
}

// account writes the kubeconfig of a service account of the meta cluster.
func (w *world) account(t *testing.T, name string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenancyv1alpha1.ManagerNamespace, Name: name}}
	require.NoError(t, w.inMeta.SubResource("token").Create(t.Context(), account, request))
	config, err := clientcmd.Load(w.meta.KubeConfig)
	require.NoError(t, err)
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	}
	require.NoError(t, clientcmd.WriteToFile(*config, w.file(name)))
	return w.file(name)
}

// eventually waits until something is so.
func eventually(t *testing.T, is func() bool, what string) {
	t.Helper()
	require.Eventually(t, is, patience, tick, what)
}

// versions returns what there is with the mark of r1 in a cluster, with versions.
func versions(t *testing.T, in client.Client) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Namespace"), corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"),
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"), appsv1.SchemeGroupVersion.WithKind("Deployment"),
		rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
		rbacv1.SchemeGroupVersion.WithKind("Role"), rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
		{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		err := in.List(t.Context(), list, client.MatchingLabels{schedulerv1alpha1.LabelJoined: "r1"})
		if kind.Kind == "Cluster" && err != nil {
			continue // a super cluster serves none
		}
		require.NoError(t, err)
		for i := range list.Items {
			object := &list.Items[i]
			version := object.GetResourceVersion()
			switch kind.Kind {
			case "Deployment": // its controller writes its status
				version = fmt.Sprint(object.GetGeneration())
			case "Secret": // the API server notes when a token is used
				version = fmt.Sprint(object.Object["data"])
			}
			found[kind.Kind+" "+object.GetNamespace()+"/"+object.GetName()] = version
		}
	}
	return found
}

// TestInstall: a pool is made of clusters and taken apart by kubectl vc alone.
func TestInstall(t *testing.T) {
	w := newWorld(t)
	w.refuses(t, "join r1 SUPER", "kubectl vc init")
	require.Equal(t, map[string]string{
		"meta definitions of Superpool": "kubectl vc init", "meta namespace vc-manager": "kubectl vc init", "meta TenantPolicy default": "kubectl vc init",
		"meta vc-scheduler": "kubectl vc init", "super address": "give a kubeconfig with an address that the meta cluster's pods reach",
	}, w.failed(t, "check SUPER"))
	require.Empty(t, versions(t, w.inSuper), "it is refused before anything is written")

	w.does(t, "init --dry-run=server")
	require.True(t, apierrors.IsNotFound(w.inMeta.Get(t.Context(), types.NamespacedName{Name: "vc-manager"}, &corev1.Namespace{})), "a dry run writes nothing")
	require.Contains(t, w.does(t, "init --wait=false --policies=standard"), "deployment.apps/vc-manager created")
	require.Empty(t, w.does(t, "init --wait=false"), "nothing is to be changed, and what --policies said stays")
	w.initOfBefore(t)

	w.refuses(t, "join r1 --super-kubeconfig "+w.file("meta"), "is the meta cluster itself")
	w.refuses(t, "leave r1 --super-kubeconfig "+w.file("meta"), "is the meta cluster itself")
	require.True(t, apierrors.IsNotFound(w.inMeta.Get(t.Context(), types.NamespacedName{Name: "superpool-system"}, &corev1.Namespace{})))
	w.does(t, "join r1 SUPER --dry-run=client")
	w.does(t, "join r1 SUPER --dry-run=server")
	require.Empty(t, versions(t, w.inSuper), "dry runs write nothing")
	require.NoError(t, controlplane.CreateNode(t.Context(), w.inSuper, builders.Node("n1", "cpu", "100", "memory", "100Gi", "pods", "1000").Obj()))
	_, _, err := w.vc(t, "join r1 SUPER --timeout=1s")
	require.ErrorContains(t, err, "super cluster r1 is not Ready after 1s: waiting for vc-scheduler")
	w.foreign(t) // also before its syncer has ever run
	w.refuses(t, "join r1 SUPER -n vc-manager", "is Cluster default/r1 already")
	w.refuses(t, "leave r1 SUPER -n vc-manager", "is Cluster default/r1 already")
	run := func() (stop func()) {
		return w.program(t, "vc-scheduler", "--kubeconfig", w.account(t, "vc-scheduler"), "--quota-grace=1s")
	}
	stop := run()
	require.Equal(t, "node/r1 joined\n", w.does(t, "join r1 SUPER"), "it goes on where it was cut off")
	w.runSyncer(t)
	require.NoError(t, w.inMeta.Patch(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: tenancyv1alpha1.ManagerNamespace, Name: "vc-manager"}},
		client.RawPatch(types.MergePatchType, []byte(`{"spec": {"replicas": 0}}`))))
	require.Equal(t, map[string]string{
		"meta vc-scheduler": "kubectl -n vc-manager describe pods", "super syncer": "kubectl -n vc-manager describe pods",
		"super address": "give a kubeconfig with an address that the meta cluster's pods reach",
	}, w.failed(t, "check SUPER"), "no kubelet runs Deployments here")
	w.refuses(t, "init", `set .spec.replicas: kubectl vc init --force-conflicts takes that over`)
	w.refuses(t, "join r2 SUPER", `is super cluster "r1"`)
	w.refuses(t, "join r1 SUPER -n vc-manager", "is Cluster default/r1 already")

	require.Contains(t, w.does(t, "join r1 SUPER -o yaml"), "name: vc-syncer-r1")
	require.Contains(t, w.does(t, "join r1 SUPER --out "+w.folder), "wrote "+filepath.Join(w.folder, "cluster_r1")+": cluster-cr.yaml secret-for-scheduler.yaml")
	super, meta := versions(t, w.inSuper), versions(t, w.inMeta)
	require.Equal(t, "node/r1 joined\n", w.does(t, "join r1 SUPER"))
	require.Empty(t, cmp.Diff(super, versions(t, w.inSuper)), "a second time nothing is written")
	require.Empty(t, cmp.Diff(meta, versions(t, w.inMeta)), "a second time nothing is written")

	w.place(t)
	w.refuses(t, "leave r1 SUPER", "kubectl vc drain r1")
	w.refuses(t, "leave r1", "kubectl vc drain r1")
	w.foreign(t)

	w.does(t, "drain r1 --yes --wait=false")
	w.refuses(t, "leave r1 SUPER", "kubectl vc drain r1")
	require.NoError(t, w.inTenant.Delete(t.Context(), builders.Quota("default", "quota")))
	w.does(t, "drain r1 --yes")
	require.Contains(t, w.does(t, "leave r1 SUPER --dry-run=client"), "cluster.cluster.x-k8s.io/r1 deleted (dry run)")
	require.Empty(t, cmp.Diff(meta, versions(t, w.inMeta)), "a dry run deletes nothing")
	stop()
	printed, _, err := w.vc(t, "leave r1 SUPER --timeout=2s")
	require.ErrorContains(t, err, "virtual Node r1 is not gone after 2s")
	require.Equal(t, "cluster.cluster.x-k8s.io/r1 deleted\n", printed)
	run()
	require.Contains(t, w.does(t, "leave r1"), "super cluster r1 left the pool. In it")
	require.Empty(t, versions(t, w.inMeta))
	left := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left", Labels: map[string]string{tenancyv1alpha1.LabelCluster: "key"}}}
	theirs := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "superpool:theirs"}}
	require.NoError(t, controlplane.Create(t.Context(), w.inSuper, left, theirs))
	w.refuses(t, "leave r1 SUPER --timeout=1s", "super cluster r1 is not free of namespaces of tenants after 1s: waiting for the syncer to remove namespaces of tenants: left")
	require.NoError(t, w.inSuper.Delete(t.Context(), left))
	require.Contains(t, w.does(t, "leave r1 SUPER"), "configmap/supercluster-info deleted in r1")
	require.Empty(t, versions(t, w.inSuper))
	require.NoError(t, w.inSuper.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs), "what has no mark stays")
	require.True(t, apierrors.IsNotFound(w.inSuper.Get(t.Context(), types.NamespacedName{Name: "superpool-system"}, &corev1.Namespace{})))
	w.refuses(t, "leave r1 SUPER", "nothing of it is left")
}

// initOfBefore holds that a pool of before, without label app.kubernetes.io/version, gets it, and rolls nothing out for it.
func (w *world) initOfBefore(t *testing.T) {
	t.Helper()
	before, after := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: tenancyv1alpha1.ManagerNamespace, Name: "vc-scheduler"}}, &appsv1.Deployment{}
	require.NoError(t, w.inMeta.Patch(t.Context(), before, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"app.kubernetes.io/version": null}}}`))))
	require.NotContains(t, before.Labels, "app.kubernetes.io/version")
	require.Equal(t, "deployment.apps/vc-scheduler configured\n", w.does(t, "init --wait=false"))
	require.NoError(t, w.inMeta.Get(t.Context(), client.ObjectKeyFromObject(before), after))
	require.Equal(t, "v0.0.0-unreleased", after.Labels["app.kubernetes.io/version"])
	require.Empty(t, cmp.Diff(before.Spec, after.Spec), "the selector, which cannot be changed, and the template of pods")
	require.Equal(t, before.UID, after.UID)
}

// runSyncer runs the syncer of r1 with the credentials that join has given it.
func (w *world) runSyncer(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, w.inMeta.Get(t.Context(), types.NamespacedName{Namespace: tenancyv1alpha1.ManagerNamespace, Name: "vc-syncer-r1"}, secret))
	require.NoError(t, os.WriteFile(w.file("syncer"), secret.Data["config"], 0o600))
	w.program(t, "syncer", "--meta-kubeconfig", w.account(t, "vc-syncer-r1"), "--super-cluster-kubeconfig", w.file("syncer"), "--feature-gates=SuperClusterPooling=true")
}

// place imports a tenant, and waits until a namespace of it is placed, and its syncer has answered.
func (w *world) place(t *testing.T) {
	t.Helper()
	account, err := controlplane.Account(t.Context(), w.tenant, "tenant/rbac.yaml", "superpool-system", "superpool")
	require.NoError(t, err)
	require.NoError(t, w.inMeta.Create(t.Context(), builders.KubeconfigSecret("tenant", account.KubeConfig)))
	require.NoError(t, w.inMeta.Create(t.Context(), builders.VirtualCluster("tenant")))
	require.NoError(t, w.inTenant.Create(t.Context(), builders.Quota("default", "quota", "cpu", "1", "memory", "1Gi")))
	eventually(t, func() bool { return len(w.tenantNamespaces(t)) > 0 }, "a namespace of the tenant is in the super cluster")
}

func (w *world) tenantNamespaces(t *testing.T) []corev1.Namespace {
	t.Helper()
	list := &corev1.NamespaceList{}
	require.NoError(t, w.inSuper.List(t.Context(), list, client.HasLabels{tenancyv1alpha1.LabelCluster}))
	return list.Items
}

// foreign holds that a super cluster that another pool has is refused, and not written to.
func (w *world) foreign(t *testing.T) {
	t.Helper()
	key := types.NamespacedName{Namespace: "superpool-system", Name: "authority"}
	record := &corev1.ConfigMap{}
	eventually(t, func() bool { return w.inSuper.Get(t.Context(), key, record) == nil }, "it is recorded whose the super cluster is")
	ours := record.Data["meta"]
	record.Data["meta"] = "another"
	require.NoError(t, w.inSuper.Update(t.Context(), record))
	before := versions(t, w.inSuper)
	for _, line := range []string{"join r1 SUPER", "leave r1 SUPER"} {
		w.refuses(t, line, "is in the pool of another meta cluster")
	}
	require.Empty(t, cmp.Diff(before, versions(t, w.inSuper)))
	record.Data["meta"] = ours
	require.NoError(t, w.inSuper.Update(t.Context(), record))
}
