//go:build charts

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/hack/release/chart"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

const (
	// releaseNamespace is that of Helm's releases, as docs/install.md has it.
	releaseNamespace = "superpool"
	patience         = time.Minute
	tick             = 100 * time.Millisecond
)

// version is a release as an operator has it.
type version struct {
	files  []file
	charts map[string]*madeChart
}

// versions returns this checkout as a release, and as the version before it: with other images, without field paused of
// VirtualClusters, with another flag of each program, and without label app.kubernetes.io/version. A commit of before
// would not always differ in all of these.
func versions(t *testing.T) (before, after version) {
	t.Helper()
	files, images := pinnedTo(t, "abcd")
	for i, f := range files {
		files[i].content = []byte(strings.NewReplacer("- -v=2\n", "- -v=1\n", ", app.kubernetes.io/version: v0.1.0", "").Replace(string(f.content)))
		if !strings.HasSuffix(f.path, "crds/tenancy.x-k8s.io_virtualclusters.yaml") {
			continue
		}
		definition := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(f.content, &definition.Object))
		served, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		require.NoError(t, err)
		_, found, err := unstructured.NestedMap(served[0].(map[string]any), pausedPath...)
		require.NoError(t, err)
		require.True(t, found)
		unstructured.RemoveNestedField(served[0].(map[string]any), pausedPath...)
		require.NoError(t, unstructured.SetNestedSlice(definition.Object, served, "spec", "versions"))
		files[i].content, err = yaml.Marshal(definition.Object)
		require.NoError(t, err)
	}
	before = version{files, chartsOf(t, files, "v0.1.0", images)}
	files, images = pinnedSources(t)
	return before, version{files, chartsOf(t, files, "v0.2.0", images)}
}

var pausedPath = []string{"schema", "openAPIV3Schema", "properties", "spec", "properties", "paused"}

// world is a cluster, which is the meta cluster and a super cluster at once, since nothing of ours runs.
type world struct {
	client.Client
	all        dynamic.Interface
	ask        *discovery.DiscoveryClient
	kubeconfig string
	helm       *action.Configuration
	// clean is what a cluster has without us.
	clean []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	started, stop, err := controlplane.Start(controlplane.Options{Role: controlplane.Meta, Manager: true})
	t.Cleanup(stop)
	require.NoError(t, err)
	config := started[0].Config
	w := &world{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), helm: action.NewConfiguration()}
	require.NoError(t, os.WriteFile(w.kubeconfig, started[0].KubeConfig, 0o600))
	w.Client, err = client.New(config, client.Options{Scheme: controlplane.Scheme()})
	require.NoError(t, err)
	w.all, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	w.ask, err = discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = &w.kubeconfig
	*flags.Namespace = releaseNamespace
	require.NoError(t, w.helm.Init(flags, releaseNamespace, "secret"))
	w.eventually(t, func(ctx context.Context) error {
		return w.Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "default"}, object("v1", "ServiceAccount", "", ""))
	})
	w.clean = w.everything(t)
	return w
}

func object(version, kind, namespace, name string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{}
	made.SetAPIVersion(version)
	made.SetKind(kind)
	made.SetNamespace(namespace)
	made.SetName(name)
	return made
}

func (w *world) eventually(t *testing.T, done func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), tick, patience, true, func(ctx context.Context) (bool, error) {
		last = done(ctx)
		return last == nil, nil
	})
	require.NoError(t, err, "%v", last)
}

// everything returns the names of all objects, but for those that come and go by themselves, or with a namespace.
func (w *world) everything(t *testing.T) (names []string) {
	t.Helper()
	lists, err := w.ask.ServerPreferredResources()
	require.NoError(t, err)
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, kind := range list.APIResources {
			if !slices.Contains(kind.Verbs, "list") || slices.Contains([]string{"events", "leases", "componentstatuses"}, kind.Name) {
				continue
			}
			found, err := w.all.Resource(group.WithResource(kind.Name)).List(t.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // its definition has just gone
			}
			require.NoError(t, err, kind.Name)
			for i := range found.Items {
				if name := found.Items[i].GetName(); name != "kube-root-ca.crt" && name != "default" {
					names = append(names, kind.Name+" "+found.Items[i].GetNamespace()+"/"+name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// isClean waits until nothing of ours is left.
func (w *world) isClean(t *testing.T) {
	t.Helper()
	w.eventually(t, func(context.Context) error {
		if diff := cmp.Diff(w.clean, w.everything(t)); diff != "" {
			return fmt.Errorf("something is left: %s", diff)
		}
		return nil
	})
}

// has holds that the cluster has objects as they are: to apply them changes nothing. Controllers write status and revision.
func (w *world) has(t *testing.T, wanted map[string]chart.Object, what string) {
	t.Helper()
	require.NotEmpty(t, wanted)
	for name, one := range wanted {
		wish := &unstructured.Unstructured{Object: plain(t, map[string]chart.Object{"": one})[""]}
		live := object(wish.GetAPIVersion(), wish.GetKind(), "", "")
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(wish), live), "%s: %s", what, name)
		require.NoError(t, w.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(wish), client.FieldOwner("test"), client.ForceOwnership, client.DryRunAll), name)
		for _, side := range []*unstructured.Unstructured{live, wish} {
			side.SetManagedFields(nil)
			side.SetResourceVersion("")
			delete(side.Object, "status")
			unstructured.RemoveNestedField(side.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
		}
		require.Empty(t, cmp.Diff(live.Object, wish.Object), "%s: %s is not as kustomize builds it", what, name)
	}
}

// lacks holds that none of these objects is there, or is about to go.
func (w *world) lacks(t *testing.T, gone map[string]chart.Object) {
	t.Helper()
	for name, one := range gone {
		wish := &unstructured.Unstructured{Object: one}
		w.eventually(t, func(ctx context.Context) error {
			err := w.Get(ctx, client.ObjectKeyFromObject(wish), object(wish.GetAPIVersion(), wish.GetKind(), "", ""))
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("%s is there: %w", name, err)
			}
			return nil
		})
	}
}

// uids returns those of the objects that tenants and operators have.
func (w *world) uids(t *testing.T) map[string]types.UID {
	t.Helper()
	found := map[string]types.UID{}
	tenants, policies := &tenancyv1alpha1.VirtualClusterList{}, &tenancyv1alpha1.TenantPolicyList{}
	require.NoError(t, w.List(t.Context(), tenants))
	require.NoError(t, w.List(t.Context(), policies))
	for i := range tenants.Items {
		found["VirtualCluster "+tenants.Items[i].Name] = tenants.Items[i].UID
	}
	for i := range policies.Items {
		found["TenantPolicy "+policies.Items[i].Name] = policies.Items[i].UID
	}
	return found
}

// kubectl runs kubectl, and holds that it does what it is told.
func (w *world) kubectl(t *testing.T, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	output, err := exec.CommandContext(ctx, "../../bin/kubectl", append([]string{"--kubeconfig", w.kubeconfig}, arguments...)...).CombinedOutput()
	require.NoError(t, err, "kubectl %v: %s", arguments, output)
}

// established waits, as docs/install.md does, until TenantPolicies may be applied.
func (w *world) established(t *testing.T) {
	t.Helper()
	w.kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "crd/tenantpolicies.tenancy.x-k8s.io")
}

// install, upgrade, rollback and uninstall are Helm's, with the flags of docs/install.md.
func (w *world) install(t *testing.T, name string, c *madeChart, values map[string]any) {
	t.Helper()
	run := action.NewInstall(w.helm)
	run.ReleaseName, run.Namespace, run.CreateNamespace, run.WaitStrategy, run.Timeout = name, releaseNamespace, true, kube.HookOnlyStrategy, patience
	_, err := run.RunWithContext(t.Context(), c.read, values)
	require.NoError(t, err)
}

func (w *world) upgrade(t *testing.T, name string, c *madeChart, values map[string]any) {
	t.Helper()
	run := action.NewUpgrade(w.helm)
	run.Namespace, run.ResetThenReuseValues, run.WaitStrategy, run.Timeout = releaseNamespace, true, kube.HookOnlyStrategy, patience
	_, err := run.RunWithContext(t.Context(), name, c.read, values)
	require.NoError(t, err)
}

func (w *world) rollback(t *testing.T, name string, revision int) {
	t.Helper()
	run := action.NewRollback(w.helm)
	run.Version, run.WaitStrategy, run.Timeout = revision, kube.HookOnlyStrategy, patience
	require.NoError(t, run.Run(name))
}

// uninstall returns what Helm says.
func (w *world) uninstall(t *testing.T, name string) string {
	t.Helper()
	run := action.NewUninstall(w.helm)
	run.WaitStrategy, run.Timeout = kube.HookOnlyStrategy, patience
	answer, err := run.Run(name)
	require.NoError(t, err)
	return answer.Info
}

// apart returns the objects that Helm deletes with a release, and those that it keeps.
func apart(objects map[string]chart.Object) (others, kept map[string]chart.Object) {
	others, kept = map[string]chart.Object{}, map[string]chart.Object{}
	for name, one := range objects {
		if metadata, _ := one["metadata"].(map[string]any); metadata["annotations"] != nil && metadata["annotations"].(map[string]any)["helm.sh/resource-policy"] == "keep" {
			kept[name] = one
		} else {
			others[name] = one
		}
	}
	return others, kept
}

// TestInstalled: charts and install.yaml are installed, upgraded from the version before, gone back from and removed, on
// a real API server, by the steps of docs/install.md.
func TestInstalled(t *testing.T) {
	before, after := versions(t)
	w := newWorld(t)
	require.True(t, t.Run("the meta cluster by Helm", func(t *testing.T) { w.metaByHelm(t, before, after) }))
	for _, test := range []struct {
		chart  string
		values map[string]any
		want   []string
	}{
		{"superpool-syncer", map[string]any{"id": "supercluster-id"}, []string{"syncer"}},
		{"superpool-agent", map[string]any{}, []string{"vn-agent/apiserver"}},
	} {
		require.True(t, t.Run(test.chart+" by Helm", func(t *testing.T) {
			if test.chart == "superpool-syncer" { // the namespace is the meta cluster's
				require.NoError(t, w.Create(t.Context(), object("v1", "Namespace", "", tenancyv1alpha1.ManagerNamespace)))
			}
			w.install(t, "other", before.charts[test.chart], test.values)
			old := built(t, before.files, test.want...)
			w.has(t, old, "installed")
			w.upgrade(t, "other", after.charts[test.chart], nil)
			w.has(t, built(t, after.files, test.want...), "upgraded")
			w.rollback(t, "other", 1)
			w.has(t, old, "back")
			w.uninstall(t, "other")
			gone, kept := apart(old)
			w.lacks(t, gone)
			if len(kept) > 0 {
				w.has(t, kept, "uninstalled")
			}
			w.kubectl(t, "delete", "namespace", tenancyv1alpha1.ManagerNamespace, releaseNamespace)
			w.isClean(t)
		}))
	}
	t.Run("install.yaml by kubectl", func(t *testing.T) { w.byKubectl(t, before, after) })
}

// metaByHelm goes the way of a meta cluster with one tenant.
func (w *world) metaByHelm(t *testing.T, before, after version) {
	const name = "superpool"
	// wants is what kustomize builds of a version, and what values change of it.
	wants := func(of version, policies bool) map[string]chart.Object {
		kustomizations := []string{"base", "vc-manager"}
		if policies {
			kustomizations = append(kustomizations, "policies")
		}
		objects := built(t, of.files, kustomizations...)
		put(t, objects["Deployment/vc-scheduler vc-manager"], "spec/replicas", 3)
		if policies {
			put(t, objects["TenantPolicy/default "], "spec", objects["TenantPolicy/standard "]["spec"])
			put(t, objects["TenantPolicy/default "], "metadata/annotations/tenancy.x-k8s.io~1policies", "standard")
		}
		return objects
	}
	w.install(t, name, before.charts[name], nested("scheduler.replicas", 3))
	w.has(t, wants(before, false), "installed")
	w.established(t)
	w.upgrade(t, name, before.charts[name], map[string]any{"policies": map[string]any{"enabled": true, "preset": "standard"}})
	w.has(t, wants(before, true), "with policies")

	tenant := builders.VirtualCluster("acme")
	require.NoError(t, w.Create(t.Context(), tenant))
	require.NoError(t, w.Create(t.Context(), object("tenancy.x-k8s.io/v1alpha1", "TenantPolicy", "", "gold")))
	theirs := w.uids(t)
	require.Len(t, theirs, 5)

	w.upgrade(t, name, after.charts[name], nil)
	w.has(t, wants(after, true), "upgraded: values stay, and definitions are of the new version")
	require.Equal(t, theirs, w.uids(t))
	w.eventually(t, func(ctx context.Context) error { // the new schema is served
		return w.Patch(ctx, tenant, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"paused": true}}`)), &client.PatchOptions{Raw: &metav1.PatchOptions{FieldValidation: "Strict"}})
	})

	w.rollback(t, name, 2)
	w.has(t, wants(before, true), "back")
	require.Equal(t, theirs, w.uids(t))
	w.rollback(t, name, 1)
	require.Equal(t, theirs, w.uids(t), "the first revision has no TenantPolicies, and takes none away")
	w.upgrade(t, name, after.charts[name], map[string]any{"policies": map[string]any{"enabled": true, "preset": "standard"}})
	w.has(t, wants(after, true), "upgraded again")

	says := w.uninstall(t, name)
	gone, kept := apart(wants(after, true))
	w.lacks(t, gone)
	w.has(t, kept, "uninstalled")
	for key := range kept {
		kind, named, _ := strings.Cut(strings.TrimSuffix(key, " "), "/")
		require.Contains(t, says, "["+kind+"] "+named, "Helm says what it leaves")
	}
	require.Equal(t, theirs, w.uids(t))

	definitions, err := kustomize(after.files, "manifests/crds")
	require.NoError(t, err)
	w.everything(t) // see byKubectl
	w.kubectl(t, "delete", "-f", written(t, definitions))
	w.kubectl(t, "delete", "namespace", tenancyv1alpha1.ManagerNamespace, releaseNamespace)
	w.isClean(t)
}

// written returns a file with this text.
func written(t *testing.T, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// byKubectl applies install.yaml as docs/install.md does, and deletes it.
func (w *world) byKubectl(t *testing.T, before, after version) {
	var file string
	apply := func(of version) {
		crds, err := kustomize(of.files, "manifests/crds")
		require.NoError(t, err)
		all, err := installAll(of.files)
		require.NoError(t, err)
		definitions := written(t, crds)
		file = written(t, all)
		w.kubectl(t, "apply", "--server-side", "-f", definitions)
		w.kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "-f", definitions)
		w.kubectl(t, "apply", "--server-side", "-f", file)
		objects, err := parse(all)
		require.NoError(t, err)
		wanted := map[string]chart.Object{}
		for _, one := range objects {
			wanted[key(one)] = one
		}
		w.has(t, wanted, "install.yaml")
	}
	apply(before)
	require.NoError(t, w.Create(t.Context(), builders.VirtualCluster("acme")))
	theirs := w.uids(t)
	require.Len(t, theirs, 4)
	for _, of := range []version{after, before, after} {
		apply(of)
		require.Equal(t, theirs, w.uids(t))
	}
	// Without this the deletion of definitions has taken three minutes, though not always; with it, it has not.
	w.everything(t)
	w.kubectl(t, "delete", "--ignore-not-found", "-f", file)
	w.isClean(t)
}
