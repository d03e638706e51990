//go:build attacks

package attacks_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/modcache"
)

// refusedByOthers are the test pods within their level that another rule of the policy refuses, with what the Event
// says of it.
var refusedByOthers = map[string]string{
	// Storage is the operator's: pods.volumes has no claims, and limits.persistentVolumeClaims is 0.
	"restrictedvolumes0": "volumes of kind persistentVolumeClaim are not allowed",
}

// TestStandards: the test pods that Pod Security publishes with its newest checks, as pods of tenants whose policies
// have its two levels.
func TestStandards(t *testing.T) {
	p := connect(t)
	p.follow(t, p.neighbour, "restricted")
	baseline := p.attacker.standards(t, "baseline")
	attack(t, "baseline", beside, baseline.beyond, baseline.within)
	restricted := p.neighbour.standards(t, "restricted")
	attack(t, "restricted", beside, restricted.beyond, restricted.within)
}

// standards are the test pods of one level, in a namespace of a tenant whose policy has that level.
type standards struct {
	*tenant
	level, namespace string
}

func (c *tenant) standards(t *testing.T, level string) *standards {
	t.Helper()
	namespace := c.place(t, level, "", hard("requests.cpu", "500m", "requests.memory", "1Gi", "pods", "150"))
	c.enforces(t, namespace, level)
	// The pods name no requests, and where a quota bounds these, API servers want some.
	c.create(t, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "requests"}, Spec: corev1.LimitRangeSpec{
		Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: hard("cpu", "1m", "memory", "1Mi")}},
	}})
	return &standards{tenant: c, level: level, namespace: namespace}
}

// beyond creates the pods that the level forbids: no super cluster has one, and an Event says why of each.
func (s *standards) beyond(t *testing.T) {
	pods := slices.DeleteFunc(published(t, s.level, "fail", s.namespace), unmasks)
	require.Greater(t, len(pods), 30)
	for _, pod := range pods {
		s.create(t, pod)
	}
	s.settle(t, pods, func(pod, superPod *corev1.Pod, refusal string) bool {
		require.Nil(t, superPod, "a super cluster has pod %s", pod.Name)
		return strings.Contains(refusal, "Pod Security forbids")
	})
}

// unmasks reports whether a pod of the nodes' users has an unmasked /proc, which API servers refuse from 1.35 on.
func unmasks(pod *corev1.Pod) bool {
	isUnmasked := func(container corev1.Container) bool {
		return container.SecurityContext != nil && ptr.Deref(container.SecurityContext.ProcMount, "") == corev1.UnmaskedProcMount
	}
	return ptr.Deref(pod.Spec.HostUsers, true) && slices.ContainsFunc(append(slices.Clip(pod.Spec.InitContainers), pod.Spec.Containers...), isUnmasked)
}

// within creates the pods that the level allows: each goes down, but for refusedByOthers.
func (s *standards) within(t *testing.T) {
	pods := published(t, s.level, "pass", s.namespace)
	require.Greater(t, len(pods), 10)
	for _, pod := range pods {
		s.create(t, pod)
	}
	s.settle(t, pods, func(pod, superPod *corev1.Pod, refusal string) bool {
		if text, refused := refusedByOthers[pod.Name]; refused {
			require.NotContains(t, refusal, "Pod Security forbids", pod.Name)
			require.Nil(t, superPod, "a super cluster has pod %s", pod.Name)
			return strings.Contains(refusal, text)
		}
		require.Empty(t, refusal, "pod %s", pod.Name)
		return superPod != nil
	})
}

// published returns the test pods of one level that pass or fail, in the newest version that there is.
func published(t *testing.T, level, outcome, namespace string) []*corev1.Pod {
	t.Helper()
	module, err := modcache.Dir(t.Context(), "k8s.io/pod-security-admission")
	require.NoError(t, err)
	versions, err := os.ReadDir(filepath.Join(module, "test", "testdata", level))
	require.NoError(t, err)
	newest := slices.MaxFunc(versions, func(a, b os.DirEntry) int { return cmp.Compare(minor(t, a.Name()), minor(t, b.Name())) })
	files, err := filepath.Glob(filepath.Join(module, "test", "testdata", level, newest.Name(), outcome, "*.yaml"))
	require.NoError(t, err)
	var pods []*corev1.Pod
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		pod := &corev1.Pod{}
		require.NoError(t, yaml.UnmarshalStrict(content, pod), file)
		pod.Namespace, pod.Name = namespace, strings.ReplaceAll(pod.Name, "_", "-")
		pods = append(pods, pod)
	}
	return pods
}

// minor returns the number of a folder's version, as 34 of v1.34.
func minor(t *testing.T, version string) int {
	t.Helper()
	number, err := strconv.Atoi(strings.TrimPrefix(version, "v1."))
	require.NoError(t, err, version)
	return number
}

// settle waits until done returns true of each of the pods, all of one namespace: what super clusters have of it, and
// the Event PolicyForbids about it.
func (c *tenant) settle(t *testing.T, pods []*corev1.Pod, done func(pod, superPod *corev1.Pod, refusal string) bool) {
	t.Helper()
	namespace := pods[0].Namespace
	eventually(t, fmt.Sprintf("all of %d pods have settled", len(pods)), func(ctx context.Context) (bool, any) {
		superPods, refusals := map[string]*corev1.Pod{}, map[string]string{}
		for _, super := range c.pool.supers {
			var list corev1.PodList
			if err := super.List(ctx, &list, client.InNamespace(c.superNamespace(namespace))); err != nil {
				return false, err
			}
			for i := range list.Items {
				superPods[list.Items[i].Name] = &list.Items[i]
			}
		}
		var events corev1.EventList
		if err := c.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		for i := range events.Items {
			if event := &events.Items[i]; event.Reason == policyForbids {
				refusals[string(event.InvolvedObject.UID)] = event.Message
			}
		}
		waiting := map[string]string{}
		for _, pod := range pods {
			refusal := refusals[string(pod.UID)]
			if !done(pod, superPods[pod.Name], refusal) {
				waiting[pod.Name] = refusal
			}
		}
		return len(waiting) == 0, fmt.Sprintf("%v wait, as %v\n%s", slices.Sorted(maps.Keys(waiting)), waiting, c.describe(ctx, namespace))
	})
}

// follow lets a tenant follow another TenantPolicy until the test ends.
func (p *pool) follow(t *testing.T, of *tenant, policy string) {
	t.Helper()
	put := func(ctx context.Context, name string) {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"policyName":%q}}`, name))
		vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: of.name}}
		require.NoError(t, p.meta.Patch(ctx, vc, patch))
	}
	former := p.virtualCluster(t, of.name).Spec.PolicyName
	put(t.Context(), policy)
	t.Cleanup(func() { put(context.WithoutCancel(t.Context()), former) })
}

// enforces waits until each super cluster that holds a namespace enforces a level of Pod Security there: by then its
// syncer has the policy that says so.
func (c *tenant) enforces(t *testing.T, namespace, level string) {
	t.Helper()
	for id := range c.placed(t, namespace) {
		appears(t, c.pool.super(t, id), "", c.superNamespace(namespace), &corev1.Namespace{}, func(namespace *corev1.Namespace) bool {
			return namespace.Labels["pod-security.kubernetes.io/enforce"] == level
		})
	}
}
