//go:build attacks

package attacks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/attacks"
	testpool "github.com/superpool/superpool/test/pool"
)

const (
	// patience bounds the wait for a condition: five control planes and the tests share few cores.
	patience = time.Minute
	interval = 100 * time.Millisecond
	// policyForbids and tenantLimit are reasons of Events on the tenant's objects.
	policyForbids = "PolicyForbids"
	tenantLimit   = "TenantLimit"
)

// turn is whether an attack runs beside the others of its area.
type turn bool

const (
	alone  turn = false
	beside turn = true
)

// attack runs an attack and its twin as a subtest. The test of an area calls it once for each of its attacks.
func attack(t *testing.T, id string, when turn, tried, twin func(t *testing.T)) {
	t.Helper()
	listed := slices.ContainsFunc(attacks.All(), func(attack attacks.Attack) bool { return attack.Test() == t.Name()+"/"+id })
	require.True(t, listed, "%s/%s is not in the list of attacks", t.Name(), id)
	t.Run(id, func(t *testing.T) {
		if when == beside {
			t.Parallel()
		}
		t.Run("attack", tried)
		t.Run("twin", twin)
	})
}

// cluster is one control plane.
type cluster struct {
	client.WithWatch
	name   string
	config *rest.Config
	// kubeconfig is that of its administrator.
	kubeconfig []byte
	// kwok plays the nodes of a super cluster.
	kwok *testpool.Program
}

// tenant is a tenant's control plane.
type tenant struct {
	*cluster
	pool *pool
	// key is its cluster key.
	key string
}

// pool is what the tests reach of the bed.
type pool struct {
	meta                *cluster
	supers              []*cluster
	attacker, neighbour *tenant
}

// connect returns the pool.
func connect(t *testing.T) *pool {
	t.Helper()
	p := &pool{meta: newCluster(t, bed.Meta)}
	for _, super := range bed.Supers {
		p.supers = append(p.supers, newCluster(t, super))
	}
	p.attacker, p.neighbour = p.tenant(t, "attacker"), p.tenant(t, neighbourName)
	return p
}

func newCluster(t *testing.T, of *testpool.Cluster) *cluster {
	t.Helper()
	config := rest.CopyConfig(of.Config)
	config.QPS, config.Burst = 500, 1000
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, tenancyv1alpha1.AddToScheme(scheme))
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return &cluster{WithWatch: api, name: of.Name, config: config, kubeconfig: of.KubeConfig, kwok: of.Kwok}
}

func (p *pool) tenant(t *testing.T, name string) *tenant {
	t.Helper()
	vc := p.virtualCluster(t, name)
	require.NotEmpty(t, vc.Status.ClusterNamespace)
	i := slices.IndexFunc(bed.Tenants, func(tenant *testpool.Cluster) bool { return tenant.Name == name })
	return &tenant{cluster: newCluster(t, bed.Tenants[i]), pool: p, key: vc.Status.ClusterNamespace}
}

func (p *pool) virtualCluster(t *testing.T, name string) *tenancyv1alpha1.VirtualCluster {
	t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(t, p.meta.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, vc))
	return vc
}

// super returns the super cluster with an id.
func (p *pool) super(t *testing.T, id string) *cluster {
	t.Helper()
	for _, super := range p.supers {
		if super.name == id {
			return super
		}
	}
	require.Fail(t, "there is no super cluster", id)
	return nil
}

// other returns the super cluster that is not this one.
func (p *pool) other(super *cluster) *cluster {
	if p.supers[0].name == super.name {
		return p.supers[1]
	}
	return p.supers[0]
}

// eventually waits until done returns true, up to patience; state is what the failure prints.
func eventually(t *testing.T, what string, done func(ctx context.Context) (ok bool, state any)) {
	t.Helper()
	within(t, patience, what, done)
}

// within is eventually for a condition that may take longer.
func within(t *testing.T, limit time.Duration, what string, done func(ctx context.Context) (ok bool, state any)) {
	t.Helper()
	var last any
	err := wait.PollUntilContextTimeout(t.Context(), interval, limit, true, func(ctx context.Context) (bool, error) {
		ok, state := done(ctx)
		if !ok {
			last = state
		}
		return ok, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// appears waits until a cluster has an object that is as wanted, and returns it. wanted may be nil.
func appears[T client.Object](t *testing.T, c *cluster, namespace, name string, into T, wanted func(T) bool) T {
	t.Helper()
	eventually(t, fmt.Sprintf("%s has %T %s/%s", c.name, into, namespace, name), func(ctx context.Context) (bool, any) {
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into); err != nil {
			return false, err
		}
		return wanted == nil || wanted(into), into
	})
	return into
}

// change updates an object that the cluster has.
func change[T client.Object](t *testing.T, c *cluster, object T, how func(T)) {
	t.Helper()
	eventually(t, "changing "+object.GetName(), func(ctx context.Context) (bool, any) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return false, err
		}
		how(object)
		err := c.Update(ctx, object)
		return err == nil, err
	})
}

// create creates an object, and deletes it at the end of the test. The API server rejects pods until the controller
// manager has created the service account, and where several at a time are counted in one quota.
func (c *cluster) create(t *testing.T, object client.Object) {
	t.Helper()
	eventually(t, "creating "+object.GetName(), func(ctx context.Context) (bool, any) {
		err := c.Create(ctx, object)
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "serviceaccount") || apierrors.IsConflict(err) {
			return false, err
		}
		require.NoError(t, err)
		return true, nil
	})
	t.Cleanup(func() {
		err := c.Delete(context.WithoutCancel(t.Context()), object)
		require.NoError(t, client.IgnoreNotFound(err))
	})
}

// hard returns limits of a quota of pairs: "cpu", "1".
func hard(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// reserve is reserveAs for a name that is not used yet, which it returns.
func (c *tenant) reserve(t *testing.T, name, slice string, limits corev1.ResourceList) string {
	t.Helper()
	if len(name) < 50 {
		name += "-" + utilrand.String(5)
	}
	c.reserveAs(t, name, slice, limits)
	return name
}

// reserveAs creates a namespace with a quota. slice is the size of its slices, "" for the default.
func (c *tenant) reserveAs(t *testing.T, name, slice string, limits corev1.ResourceList) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if slice != "" {
		namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationSlice: slice}
	}
	require.NoError(t, c.Create(t.Context(), namespace))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s, namespace %s:\n%s", c.name, name, c.describe(context.WithoutCancel(t.Context()), name))
		}
		if err := client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), namespace)); err != nil {
			t.Errorf("deleting namespace %s: %v", name, err)
		}
	})
	require.NoError(t, c.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: limits},
	}))
}

// place is reserve, and waits until the namespace is placed.
func (c *tenant) place(t *testing.T, name, slice string, limits corev1.ResourceList) string {
	t.Helper()
	name = c.reserve(t, name, slice, limits)
	c.placed(t, name)
	return name
}

// placed waits until a namespace is placed, and returns its placements.
func (c *tenant) placed(t *testing.T, namespace string) map[string]int {
	t.Helper()
	placements := map[string]int{}
	eventually(t, "namespace "+namespace+" is placed", func(ctx context.Context) (bool, any) {
		object := &corev1.Namespace{}
		if err := c.Get(ctx, client.ObjectKey{Name: namespace}, object); err != nil {
			return false, err
		}
		text := object.Annotations[schedulerv1alpha1.AnnotationPlacements]
		clear(placements)
		if json.Unmarshal([]byte(text), &placements) != nil {
			return false, text
		}
		return len(placements) > 0, c.describe(ctx, namespace)
	})
	return placements
}

// arena is a namespace with room for the pods of many attacks, one slice in each super cluster.
func (c *tenant) arena(t *testing.T, name string) string {
	t.Helper()
	return c.place(t, name, `{"cpu":"500m","memory":"1Gi"}`, hard("requests.cpu", "1", "requests.memory", "2Gi", "pods", "80"))
}

// placement returns the NamespacePlacement of a namespace, nil if there is none.
func (c *tenant) placement(ctx context.Context, namespace string) *schedulerv1alpha1.NamespacePlacement {
	np := &schedulerv1alpha1.NamespacePlacement{}
	if err := c.pool.meta.Get(ctx, client.ObjectKey{Namespace: c.key, Name: namespace}, np); err != nil {
		return nil
	}
	return np
}

// superNamespace returns the name of a namespace in super clusters.
func (c *tenant) superNamespace(namespace string) string {
	return tenancy.SuperNamespace(c.key, namespace)
}

// unplaced waits for a condition of the NamespacePlacement of a namespace that is False with one of these reasons, and
// a message with these texts, or for such an Event in the namespace, where nothing of it is in the meta cluster.
func (c *tenant) unplaced(t *testing.T, namespace string, reasons []string, texts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("namespace %s is refused: %v %q", namespace, reasons, texts), func(ctx context.Context) (bool, any) {
		if np := c.placement(ctx, namespace); np != nil {
			return slices.ContainsFunc(np.Status.Conditions, func(condition metav1.Condition) bool {
				return condition.Status == metav1.ConditionFalse && slices.Contains(reasons, condition.Reason) && containsAll(condition.Message, texts)
			}), fmt.Sprintf("%.2000v", np.Status.Conditions)
		}
		var events corev1.EventList
		if err := c.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		return slices.ContainsFunc(events.Items, func(event corev1.Event) bool {
			return slices.Contains(reasons, event.Reason) && containsAll(event.Message, texts)
		}), c.describe(ctx, namespace)
	})
	if np := c.placement(t.Context(), namespace); np != nil {
		require.Empty(t, np.Status.Placements)
	}
}

// limitReasons are the reasons of what vc-scheduler refuses because of a limit of the TenantPolicy.
var limitReasons = []string{schedulerv1alpha1.ReasonTenantLimit, "AboveTenantLimit"}

func containsAll(message string, texts []string) bool {
	message = strings.ToLower(message)
	return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(message, strings.ToLower(text)) })
}

// newPod returns a pod. spec is YAML that is merged into its spec; the only container is named c.
func newPod(t *testing.T, namespace, name, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{
				Name: "c", Image: "registry.example/app",
				Resources: corev1.ResourceRequirements{Requests: hard("cpu", "5m", "memory", "8Mi")},
			}},
		},
	}
	if spec == "" {
		return pod
	}
	patch, err := yaml.YAMLToJSONStrict([]byte(spec))
	require.NoError(t, err, spec)
	original, err := json.Marshal(pod.Spec)
	require.NoError(t, err)
	merged, err := strategicpatch.StrategicMergePatch(original, patch, corev1.PodSpec{})
	require.NoError(t, err, spec)
	pod.Spec = corev1.PodSpec{}
	require.NoError(t, yaml.UnmarshalStrict(merged, &pod.Spec), spec)
	return pod
}

// choose names a super cluster for a pod, as only a scheduler should.
func choose(pod *corev1.Pod, superCluster string) *corev1.Pod {
	metav1.SetMetaDataLabel(&pod.ObjectMeta, schedulerv1alpha1.LabelSuperCluster, superCluster)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, schedulerv1alpha1.AnnotationSuperCluster, superCluster)
	return pod
}

// runs creates a pod, waits until it runs, and returns its super pod and where that is.
func (c *tenant) runs(t *testing.T, pod *corev1.Pod) (*corev1.Pod, *cluster) {
	t.Helper()
	c.create(t, pod)
	return c.running(t, pod)
}

// running is runs for a pod that exists.
func (c *tenant) running(t *testing.T, pod *corev1.Pod) (*corev1.Pod, *cluster) {
	t.Helper()
	eventually(t, fmt.Sprintf("pod %s/%s runs", pod.Namespace, pod.Name), func(ctx context.Context) (bool, any) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err
		}
		return pod.Status.Phase == corev1.PodRunning, c.describe(ctx, pod.Namespace)
	})
	id, _ := tenancy.NodeSuperCluster(pod.Spec.NodeName)
	super := c.pool.super(t, id)
	superPod := &corev1.Pod{}
	require.NoError(t, super.Get(t.Context(), client.ObjectKey{Namespace: c.superNamespace(pod.Namespace), Name: pod.Name}, superPod))
	return superPod, super
}

// down waits until a pod has a super pod, and returns it.
func (c *tenant) down(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, fmt.Sprintf("pod %s/%s has a super pod", pod.Namespace, pod.Name), func(ctx context.Context) (bool, any) {
		found = c.superPod(ctx, t, pod)
		return found != nil, c.describe(ctx, pod.Namespace)
	})
	return found
}

// superPod returns the super pod of a pod, nil if no super cluster has one.
func (c *tenant) superPod(ctx context.Context, t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	for _, super := range c.pool.supers {
		found := &corev1.Pod{}
		err := super.Get(ctx, client.ObjectKey{Namespace: c.superNamespace(pod.Namespace), Name: pod.Name}, found)
		if err == nil {
			return found
		}
		require.True(t, apierrors.IsNotFound(err), "super cluster %s says nothing of pod %s: %v", super.name, pod.Name, err)
	}
	return nil
}

// refused creates a pod, waits for an Event PolicyForbids with these texts, and fails if a super cluster has the pod.
func (c *tenant) refused(t *testing.T, pod *corev1.Pod, texts ...string) {
	t.Helper()
	c.create(t, pod)
	c.told(t, pod, []string{policyForbids}, texts...)
	require.Nil(t, c.superPod(t.Context(), t, pod), "a super cluster has pod %s", pod.Name)
}

// told waits for a Warning about an object with one of these reasons, any if there are none, and a message with these
// texts.
func (c *tenant) told(t *testing.T, object client.Object, reasons []string, texts ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("an Event %v %q about %s", reasons, texts, object.GetName()), func(ctx context.Context) (bool, any) {
		return c.hasWarning(ctx, object, reasons, texts), c.describe(ctx, object.GetNamespace())
	})
}

func (c *tenant) hasWarning(ctx context.Context, object client.Object, reasons, texts []string) bool {
	var events corev1.EventList
	if err := c.List(ctx, &events, client.InNamespace(object.GetNamespace())); err != nil {
		return false
	}
	return slices.ContainsFunc(events.Items, func(event corev1.Event) bool {
		return event.InvolvedObject.Name == object.GetName() && event.Type == corev1.EventTypeWarning &&
			(len(reasons) == 0 || slices.Contains(reasons, event.Reason)) && containsAll(event.Message, texts)
	})
}

// waits creates a pod, waits until an Event or condition PodScheduled says with one of these texts why it does not run,
// and fails if a super cluster has the pod.
func (c *tenant) waits(t *testing.T, pod *corev1.Pod, texts ...string) {
	t.Helper()
	c.create(t, pod)
	eventually(t, fmt.Sprintf("pod %s waits because of %q", pod.Name, texts), func(ctx context.Context) (bool, any) {
		for _, text := range texts {
			if c.hasWarning(ctx, pod, nil, []string{text}) {
				return true, nil
			}
		}
		live := &corev1.Pod{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(pod), live); err != nil {
			return false, err
		}
		return slices.ContainsFunc(live.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse &&
				slices.ContainsFunc(texts, func(text string) bool { return containsAll(condition.Message, []string{text}) })
		}), c.describe(ctx, pod.Namespace)
	})
	require.Nil(t, c.superPod(t.Context(), t, pod), "a super cluster has pod %s", pod.Name)
}

// describe returns what a tenant sees in a namespace, for failures.
func (c *tenant) describe(ctx context.Context, namespace string) string {
	var text strings.Builder
	var pods corev1.PodList
	var events corev1.EventList
	_ = c.List(ctx, &pods, client.InNamespace(namespace))
	_ = c.List(ctx, &events, client.InNamespace(namespace))
	for i := range pods.Items {
		pod := &pods.Items[i]
		fmt.Fprintf(&text, "  pod %s: %s on %q, chosen %q, %.300v\n", pod.Name, pod.Status.Phase, pod.Spec.NodeName,
			pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster], pod.Status.Conditions)
	}
	for i := range events.Items {
		event := &events.Items[i]
		fmt.Fprintf(&text, "  event about %s: %s %.300s\n", event.InvolvedObject.Name, event.Reason, event.Message)
	}
	if np := c.placement(ctx, namespace); np != nil {
		status, _ := json.Marshal(np.Status)
		fmt.Fprintf(&text, "  placement: %.2000s\n", status)
	}
	return text.String()
}

// served places a namespace of the neighbour and runs a pod there, and returns how long both took.
func (p *pool) served(t *testing.T) time.Duration {
	t.Helper()
	started := time.Now()
	namespace := p.neighbour.place(t, "served", "", hard("requests.cpu", "100m", "requests.memory", "200Mi"))
	p.neighbour.runs(t, newPod(t, namespace, "p", ""))
	return time.Since(started)
}

// asServed fails if the neighbour is served much slower than before. The slack is for machines that are busy.
func (p *pool) asServed(t *testing.T, before time.Duration) {
	t.Helper()
	now := p.served(t)
	t.Logf("the neighbour's namespace and pod took %s, and %s before", now.Round(time.Millisecond), before.Round(time.Millisecond))
	require.Less(t, now, 3*before+5*time.Second, "the neighbour notices the attack")
}
