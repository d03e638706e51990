//go:build attacks

package attacks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// TestQuota: room that was not given.
//
//nolint:gocyclo // one attack after the other, with its twin
func TestQuota(t *testing.T) {
	p := connect(t)
	before := p.served(t)
	attack(t, "unnamed-resources", alone, func(t *testing.T) {
		namespace := p.attacker.place(t, "unnamed", "", hard("requests.cpu", "100m", "pods", "20"))
		for id := range p.attacker.placed(t, namespace) {
			for name, tc := range map[string]struct{ spec, text string }{
				"memory":     {`containers: [{name: c, resources: {requests: {cpu: 1m, memory: 7Gi}}}]`, "memory"},
				"gpu":        {`containers: [{name: c, resources: {requests: {cpu: 1m}, limits: {nvidia.com/gpu: 1}}}]`, "nvidia.com/gpu"},
				"huge-pages": {`containers: [{name: c, resources: {requests: {cpu: 1m, memory: 1Mi}, limits: {hugepages-2Mi: 4Mi, memory: 1Mi}}}]`, "hugepages-2Mi"},
				"pod-level":  {`resources: {requests: {cpu: 10m, memory: 7Gi}}`, "memory"},
			} {
				p.attacker.waits(t, newPod(t, namespace, name, tc.spec), tc.text, tenancy.ReasonSuperClusterNotPlaced)
				// Past the scheduler, too.
				p.attacker.waits(t, choose(newPod(t, namespace, name+"-chosen", tc.spec), id), tc.text)
			}
		}
	}, func(t *testing.T) {
		namespace := p.attacker.place(t, "named", "", hard("requests.cpu", "100m", "requests.nvidia.com/gpu", "1"))
		p.attacker.runs(t, newPod(t, namespace, "within", `containers: [{name: c, resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {nvidia.com/gpu: 1}}}]`))
	})
	// API servers of 1.36 refuse what the Node does not have, which shows what the tenant holds there; older ones do not.
	resize := func(t *testing.T, namespace, name, memory string) (pod *corev1.Pod, refused bool) {
		t.Helper()
		pod = newPod(t, namespace, name, "")
		superPod, super := p.attacker.runs(t, pod)
		// As a kubelet does that can resize: the fake ones cannot.
		eventually(t, "the node can resize "+name, func(ctx context.Context) (bool, any) {
			if err := super.Get(ctx, client.ObjectKeyFromObject(superPod), superPod); err != nil {
				return false, err
			}
			for i := range superPod.Status.ContainerStatuses {
				superPod.Status.ContainerStatuses[i].Resources = superPod.Spec.Containers[i].Resources.DeepCopy()
			}
			err := super.Status().Update(ctx, superPod)
			return err == nil && len(superPod.Status.ContainerStatuses) > 0, err
		})
		eventually(t, "resizing "+name, func(ctx context.Context) (bool, any) {
			if err := p.attacker.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return false, err
			}
			pod.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse(memory)
			err := p.attacker.SubResource("resize").Update(ctx, pod)
			refused = err != nil && strings.Contains(err.Error(), "node didn't have enough allocatable resources: memory")
			return err == nil || refused, err
		})
		return pod, refused
	}
	attack(t, "resize", alone, func(t *testing.T) {
		namespace := p.attacker.place(t, "resize", "", hard("requests.cpu", "100m", "pods", "5"))
		pod, refused := resize(t, namespace, "large", "7Gi")
		if !refused {
			p.attacker.told(t, pod, []string{policyForbids, "FailedUpdate"}, "memory")
		}
		require.Equal(t, "8Mi", p.attacker.superPod(t.Context(), t, pod).Spec.Containers[0].Resources.Requests.Memory().String())
	}, func(t *testing.T) {
		namespace := p.attacker.place(t, "resized", "", hard("requests.cpu", "100m", "pods", "5"))
		pod, _ := resize(t, namespace, "larger", "9Mi")
		eventually(t, "the super pod is resized", func(ctx context.Context) (bool, any) {
			superPod := p.attacker.superPod(ctx, t, pod)
			return superPod != nil && superPod.Spec.Containers[0].Resources.Requests.Memory().String() == "9Mi", p.attacker.describe(ctx, namespace)
		})
	})
	attack(t, "no-requests", alone, func(t *testing.T) {
		namespace := p.attacker.place(t, "nothing", "", hard("requests.cpu", "100m", "requests.memory", "200Mi"))
		const spec = `containers: [{name: c, resources: {requests: {cpu: 0, memory: 0}}}]`
		p.attacker.runs(t, newPod(t, namespace, "first", spec))
		p.attacker.waits(t, newPod(t, namespace, "second", spec), "pods")
		for id := range p.attacker.placed(t, namespace) {
			p.attacker.waits(t, choose(newPod(t, namespace, "third", spec), id), "pods")
		}
	}, func(t *testing.T) {
		namespace := p.attacker.place(t, "some", "", hard("requests.cpu", "100m", "requests.memory", "200Mi", "pods", "3"))
		for i := range 3 {
			p.attacker.runs(t, newPod(t, namespace, fmt.Sprint("p", i), `containers: [{name: c, resources: {requests: {cpu: 0, memory: 0}}}]`))
		}
	})
	attack(t, "full-cluster", alone, func(t *testing.T) {
		namespace := p.attacker.place(t, "full", `{"cpu":"500m","memory":"500Mi"}`, hard("requests.cpu", "1", "requests.memory", "1000Mi", "pods", "10"))
		require.Equal(t, map[string]int{"r1": 1, "r2": 1}, p.attacker.placed(t, namespace))
		const most = `containers: [{name: c, resources: {requests: {cpu: 400m, memory: 10Mi}}}]`
		_, full := p.attacker.runs(t, newPod(t, namespace, "first", most))
		second := choose(newPod(t, namespace, "second", most), full.name)
		p.attacker.create(t, second)
		p.attacker.told(t, second, nil)
		err := full.Get(t.Context(), client.ObjectKey{Namespace: p.attacker.superNamespace(namespace), Name: second.Name}, &corev1.Pod{})
		require.True(t, apierrors.IsNotFound(err), "the second pod is where there is no room for it")
	}, func(t *testing.T) {
		namespace := p.attacker.place(t, "roomy", `{"cpu":"500m","memory":"500Mi"}`, hard("requests.cpu", "1", "requests.memory", "1000Mi", "pods", "10"))
		const most = `containers: [{name: c, resources: {requests: {cpu: 400m, memory: 10Mi}}}]`
		_, first := p.attacker.runs(t, newPod(t, namespace, "first", most))
		_, second := p.attacker.runs(t, newPod(t, namespace, "second", most))
		require.NotEqual(t, first.name, second.name)
	})
	attack(t, "resource-names", alone, func(t *testing.T) {
		limits := corev1.ResourceList{}
		for i := range 20000 {
			limits[corev1.ResourceName(fmt.Sprintf("requests.a.b/x%05d", i))] = resource.MustParse("1000")
		}
		namespace := p.attacker.reserve(t, "names", "", limits)
		p.attacker.unplaced(t, namespace, append(limitReasons, schedulerv1alpha1.ReasonInvalidQuota), "resource")
		p.asServed(t, before)
	}, func(t *testing.T) {
		p.attacker.place(t, "few-names", "", hard("requests.cpu", "100m", "requests.memory", "100Mi", "requests.ephemeral-storage", "1Gi", "pods", "2"))
	})
	attack(t, "many-slices", alone, func(t *testing.T) {
		namespace := p.attacker.reserve(t, "slices", `{"nvidia.com/gpu":"1"}`, hard("requests.nvidia.com/gpu", "1000"))
		p.attacker.unplaced(t, namespace, append(limitReasons, schedulerv1alpha1.ReasonUnschedulable, schedulerv1alpha1.ReasonInvalidQuota))
		p.asServed(t, before)
	}, func(t *testing.T) {
		namespace := p.attacker.place(t, "two-slices", `{"nvidia.com/gpu":"1"}`, hard("requests.nvidia.com/gpu", "2"))
		sum := 0
		for _, slices := range p.attacker.placed(t, namespace) {
			sum += slices
		}
		require.Equal(t, 2, sum)
	})
	attack(t, "reserved", alone, func(t *testing.T) {
		namespace := p.attacker.reserve(t, "reserved", "", hard("requests.cpu", "8001m"))
		p.attacker.unplaced(t, namespace, limitReasons, "limits.reserved", "cpu", "8")
	}, func(t *testing.T) {
		p.attacker.place(t, "within", "", hard("requests.cpu", "2"))
	})
	attack(t, "monstrous", alone, func(t *testing.T) {
		namespace := p.attacker.place(t, "monstrous", "", hard("requests.cpu", "100m", "pods", "5"))
		for id := range p.attacker.placed(t, namespace) {
			// A client that parses the quantity would write it out.
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(choose(newPod(t, namespace, "monstrous", ""), id))
			require.NoError(t, err)
			content["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{
				"requests": map[string]any{"cpu": "1m", "memory": "1e1000000"},
			}
			pod := &unstructured.Unstructured{Object: content}
			pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
			if err := p.attacker.Create(t.Context(), pod); err != nil {
				t.Logf("the tenant's own API server refuses it: %.200v", err)
				continue
			}
			named := newPod(t, namespace, "monstrous", "")
			p.attacker.told(t, named, nil, "memory")
			require.Nil(t, p.attacker.superPod(t.Context(), t, named))
		}
		p.asServed(t, before)
	}, func(t *testing.T) {
		namespace := p.attacker.place(t, "modest", "", hard("requests.cpu", "100m", "pods", "5"))
		p.attacker.runs(t, newPod(t, namespace, "modest", `containers: [{name: c, resources: {requests: {cpu: 1m, memory: 1e6}}}]`))
	})
	// The last one: its namespaces count until they are gone.
	attack(t, "namespaces", alone, func(t *testing.T) {
		const limit = 30
		// One that ends after the limit was reached would make room for what was refused. Some need their time: a pod
		// without a kubelet has its grace period, and the tenant's namespace controller looks again half a minute
		// later.
		within(t, 3*patience, "the namespaces of the attacks before are gone", func(ctx context.Context) (bool, any) {
			var placements schedulerv1alpha1.NamespacePlacementList
			err := p.meta.List(ctx, &placements, client.InNamespace(p.attacker.key))
			return err == nil && len(placements.Items) == 0, len(placements.Items)
		})
		refused := ""
		for i := 0; i <= limit && refused == ""; i++ {
			namespace := p.attacker.reserve(t, fmt.Sprint("many-", i), "", hard("requests.cpu", "10m"))
			eventuallyDecided(t, p.attacker, namespace)
			if np := p.attacker.placement(t.Context(), namespace); np == nil || len(np.Status.Placements) == 0 {
				refused = namespace
			}
		}
		require.NotEmpty(t, refused, "%d namespaces are placed", limit+1)
		p.attacker.unplaced(t, refused, limitReasons, "limits.namespaces", fmt.Sprint(limit))
		var placements schedulerv1alpha1.NamespacePlacementList
		require.NoError(t, p.meta.List(t.Context(), &placements, client.InNamespace(p.attacker.key)))
		require.LessOrEqual(t, len(placements.Items), limit)
	}, func(t *testing.T) {
		p.attacker.place(t, "one-of-few", "", hard("requests.cpu", "10m"))
	})
}

// eventuallyDecided waits until a namespace is placed, or refused by a limit.
func eventuallyDecided(t *testing.T, in *tenant, namespace string) {
	t.Helper()
	eventually(t, "namespace "+namespace+" is placed or refused", func(ctx context.Context) (bool, any) {
		np := in.placement(ctx, namespace)
		if np != nil && (len(np.Status.Placements) > 0 || meta.IsStatusConditionFalse(np.Status.Conditions, schedulerv1alpha1.ConditionAccepted)) {
			return true, nil
		}
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}}
		return in.hasWarning(ctx, quota, limitReasons, nil), in.describe(ctx, namespace)
	})
}
