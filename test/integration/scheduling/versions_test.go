package scheduling

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/test/builders"
)

// TestVersions: virtual Nodes say which Kubernetes their super clusters have, and a pod that needs a newer one is not
// sent there, and says why. CONTROL_PLANES decides what there is to see.
func TestVersions(t *testing.T) {
	w := shared
	w.run(t)
	const name = "versions"
	versions := map[string]skew.Version{}
	for id := range w.supers {
		secret := &corev1.Secret{}
		require.NoError(t, w.meta.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: id + "-kubeconfig"}, secret))
		config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
		require.NoError(t, err)
		says, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerVersionWithContext(t.Context())
		require.NoError(t, err)
		node := &corev1.Node{}
		require.NoError(t, w.meta.Get(t.Context(), types.NamespacedName{Name: id}, node))
		said, err := skew.Said(says)
		require.NoError(t, err)
		require.Equal(t, said.Text, node.Status.NodeInfo.KubeletVersion)
		versions[id] = skew.Of(node)
		require.Empty(t, versions[id].Outside())
		isOutside := func(taint corev1.Taint) bool { return taint.Key == schedulerv1alpha1.TaintVersionSkew }
		require.False(t, slices.ContainsFunc(node.Spec.Taints, isOutside))
	}
	w.namespace(t, name, demoSlice)
	w.quota(t, name, "200m", "200Mi")
	w.wantShown(t, name, `{"r1":1,"r2":1}`)
	for pod, change := range map[string]func(*corev1.Pod){
		"overrides": func(pod *corev1.Pod) { pod.Spec.HostnameOverride = new("web") },
		"restarts": func(pod *corev1.Pod) {
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			pod.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
			pod.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		},
	} {
		made := builders.Pod(name, pod, "cpu", "100m", "memory", "100Mi").Obj()
		change(made)
		err := w.tenant.Create(t.Context(), made)
		if apierrors.IsInvalid(err) {
			continue // the tenant is older than the field
		}
		require.NoError(t, err)
		need := skew.Needs(&made.Spec) // of what the tenant's API server has kept
		var able, lacks []string
		for id, version := range versions {
			if words := version.Lacks(need); words != "" {
				lacks = append(lacks, words)
			} else {
				able = append(able, id)
			}
		}
		w.wantPod(t, made, "a super cluster that knows its fields, or why there is none", func(pod *corev1.Pod) bool {
			if len(able) > 0 {
				return slices.ContainsFunc(able, func(id string) bool { return in(id)(pod) })
			}
			return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
				return condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && strings.Contains(condition.Message, lacks[0])
			})
		})
		t.Logf("%s needs %q: able are %v, conditions %v", pod, need, able, made.Status.Conditions)
		require.NoError(t, w.tenant.Delete(t.Context(), made, client.GracePeriodSeconds(0)))
	}
}

// TestCRDsOfALaterVersion: where the meta cluster serves a kind of ours in a later version alone, vc-scheduler ends and
// says which. One that runs goes on with what it knows, and what was asked for meanwhile is done once it can be.
func TestCRDsOfALaterVersion(t *testing.T) {
	w := shared
	stop := w.run(t)
	const name = "later"
	w.placeIn(t, "r1", name, "100m", "100Mi")
	w.superQuota(t, "r1", name, "100m", "100Mi")
	later := w.serveLaterVersion(t)
	w.quota(t, name, "200m", "200Mi") // which it cannot place
	require.Never(t, func() bool { return w.shown(t, name) != `{"r1":1}` }, 2*time.Second, tick)
	stop()
	require.NoError(t, w.program.start(t.Context(), w.options))
	require.Eventually(t, func() bool { return !w.program.runs() }, patience, tick, "it ends")
	require.ErrorContains(t, w.program.stop(), "the meta cluster serves NamespacePlacement.scheduler.tenancy.x-k8s.io as v1beta1, and this program reads v1alpha1")
	w.program.last = nil // its error is told
	later()
	require.Equal(t, "100m", w.reservedIn(t, name, "r1"))
	w.run(t)
	w.wantShown(t, name, `{"r1":2}`, `{"r1":1,"r2":1}`)
}

// serveLaterVersion has the meta cluster serve NamespacePlacements as v1beta1 alone, until the test ends or served is
// called.
func (w *world) serveLaterVersion(t *testing.T) (served func()) {
	t.Helper()
	const version = "v1beta1"
	crds := apiextensionsclient.NewForConfigOrDie(w.metaPlane.Config).ApiextensionsV1().CustomResourceDefinitions()
	ctx := context.WithoutCancel(t.Context())
	serve := func(later bool) {
		crd, err := crds.Get(ctx, "namespaceplacements.scheduler.tenancy.x-k8s.io", metav1.GetOptions{})
		require.NoError(t, err)
		versions := crd.Spec.Versions[:1]
		added := *versions[0].DeepCopy()
		added.Name = version
		added.Served, added.Storage = later, later
		versions[0].Served, versions[0].Storage = !later, !later
		crd.Spec.Versions = append(versions, added) // which stays: objects may be stored in it
		_, err = crds.Update(ctx, crd, metav1.UpdateOptions{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			err := w.meta.List(ctx, &schedulerv1alpha1.NamespacePlacementList{})
			return (err != nil) == later
		}, patience, tick, "the API server serves it")
	}
	serve(true)
	t.Cleanup(func() { serve(false) })
	return func() { serve(false) }
}
