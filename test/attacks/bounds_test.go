//go:build attacks

package attacks_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenancy"
)

// list returns n things.
func list[T any](n int, of func(i int) T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = of(i)
	}
	return all
}

// keyed returns n pairs.
func keyed(n int, value string) map[string]string {
	all := make(map[string]string, n)
	for i := range n {
		all[fmt.Sprint("a/l", i)] = value
	}
	return all
}

// light is a container that requests nothing.
func light(i int) corev1.Container {
	return corev1.Container{
		Name: fmt.Sprint("c", i), Image: "registry.example/app", Resources: corev1.ResourceRequirements{Requests: hard("cpu", "0", "memory", "0")},
	}
}

// showing makes a pod have n files, each of which shows all of its annotations.
func showing(pod *corev1.Pod, n int) *corev1.Pod {
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: list(n, func(i int) corev1.DownwardAPIVolumeFile {
			return corev1.DownwardAPIVolumeFile{Path: fmt.Sprint("f", i), FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}}
		}),
	}}}}
	return pod
}

// having makes a pod have n variables, each of which has the annotation a.
func having(pod *corev1.Pod, n int) *corev1.Pod {
	pod.Spec.Containers[0].Env = list(n, func(i int) corev1.EnvVar {
		return corev1.EnvVar{Name: fmt.Sprint("V", i), ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['a']"}}}
	})
	return pod
}

// annotated sets annotation a of a pod.
func annotated(pod *corev1.Pod, value string) *corev1.Pod {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "a", value)
	return pod
}

// TestBounds: objects that are small in the tenant's control plane, and large or laborious when a program has made
// something of them.
func TestBounds(t *testing.T) {
	p := connect(t)
	namespace, super := p.attacker.sole(t, "bounds")
	superNamespace := p.attacker.superNamespace(namespace)
	refused := func(t *testing.T, pod *corev1.Pod, texts ...string) {
		t.Helper()
		p.attacker.create(t, choose(pod, super.name))
		p.attacker.told(t, pod, []string{tenantLimit}, texts...)
		require.Nil(t, p.attacker.superPod(t.Context(), t, pod), "a super cluster has pod %s", pod.Name)
	}
	attack(t, "files", alone, func(t *testing.T) {
		p.withinMemory(t, func() {
			refused(t, annotated(showing(newPod(t, namespace, "files", ""), 1000), strings.Repeat("\x01", 262_000)), "downward API", "262144")
		})
	}, func(t *testing.T) {
		superPod, _ := p.attacker.runs(t, annotated(showing(newPod(t, namespace, "some-files", ""), 50), "short"))
		require.Len(t, superPod.Spec.Volumes[0].DownwardAPI.Items, 50)
	})
	attack(t, "later-files", alone, func(t *testing.T) {
		pod := annotated(showing(newPod(t, namespace, "later-files", ""), 1000), "short")
		superPod, _ := p.attacker.runs(t, pod)
		before := superPod.Size()
		p.withinMemory(t, func() {
			change(t, p.attacker.cluster, pod, func(pod *corev1.Pod) { annotated(pod, strings.Repeat("\x01", 262_000)) })
			p.attacker.told(t, pod, []string{tenantLimit}, "downward API", "262144")
		})
		now := p.attacker.superPod(t.Context(), t, pod)
		require.Equal(t, superPod.UID, now.UID)
		require.Less(t, now.Size(), before+64<<10)
		require.NoError(t, p.attacker.Delete(t.Context(), pod, client.GracePeriodSeconds(1)))
	}, func(t *testing.T) {
		pod := annotated(showing(newPod(t, namespace, "files-that-change", ""), 50), "short")
		p.attacker.runs(t, pod)
		change(t, p.attacker.cluster, pod, func(pod *corev1.Pod) { annotated(pod, "another") })
		eventually(t, "the super pod shows the change", func(ctx context.Context) (bool, any) {
			superPod := p.attacker.superPod(ctx, t, pod)
			for _, value := range superPod.Annotations {
				if strings.Contains(value, "another") {
					return true, nil
				}
			}
			return false, superPod.Annotations
		})
	})
	attack(t, "variables", alone, func(t *testing.T) {
		p.withinMemory(t, func() {
			refused(t, annotated(having(newPod(t, namespace, "variables", ""), 1000), strings.Repeat("$", 262_000)), "variables", "262144")
		})
	}, func(t *testing.T) {
		superPod, _ := p.attacker.runs(t, annotated(having(newPod(t, namespace, "some-variables", ""), 50), "short"))
		require.GreaterOrEqual(t, len(superPod.Spec.Containers[0].Env), 50)
	})
	attack(t, "services", alone, func(t *testing.T) {
		for i := range 60 {
			p.attacker.create(t, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("a-service-with-a-long-name-", i)},
				Spec: corev1.ServiceSpec{Ports: list(10, func(port int) corev1.ServicePort {
					return corev1.ServicePort{Name: fmt.Sprint("p", port), Port: int32(port + 1)}
				})},
			})
		}
		p.withinMemory(t, func() {
			pod := newPod(t, namespace, "services", "")
			pod.Spec.Containers = list(450, light)
			refused(t, pod, "variables of services", "1048576")
		})
	}, func(t *testing.T) {
		beside, super := p.attacker.sole(t, "few-services")
		p.attacker.create(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: beside, Name: "db"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
		appears(t, super, p.attacker.superNamespace(beside), "db", &corev1.Service{}, nil) // a kubelet, too, defines what it knows of
		pod := newPod(t, beside, "few-services", "")
		pod.Spec.Containers = list(20, light)
		superPod, _ := p.attacker.runs(t, pod)
		require.Contains(t, fmt.Sprint(superPod.Spec.Containers[19].Env), "DB_SERVICE_HOST")
	})
	tolerate := func(t *testing.T, name string, n int) *corev1.Pod {
		t.Helper()
		pod := newPod(t, namespace, name, "")
		p.attacker.runs(t, pod)
		change(t, p.attacker.cluster, pod, func(pod *corev1.Pod) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, list(n, func(i int) corev1.Toleration {
				return corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(1000 + i))}
			})...)
		})
		return pod
	}
	tolerateAll := func(t *testing.T, name string) {
		t.Helper()
		pod := tolerate(t, name, 40)
		eventually(t, "the super pod tolerates all", func(ctx context.Context) (bool, any) {
			superPod := p.attacker.superPod(ctx, t, pod)
			return len(superPod.Spec.Tolerations) >= 40, len(superPod.Spec.Tolerations)
		})
	}
	attack(t, "tolerations", alone, func(t *testing.T) {
		other, _ := p.attacker.sole(t, "beside-tolerations")
		before := p.work(t)
		tolerateAll(t, "tolerates-some")
		ordinary := p.work(t) - before
		before = p.work(t)
		for i := range 4 {
			p.attacker.told(t, tolerate(t, fmt.Sprint("tolerates-", i), 1500), []string{"TolerationsLeftOut"}, "at most 64")
		}
		p.attacker.runs(t, newPod(t, other, "p", ""))
		for i := range 4 {
			superPod := p.attacker.superPod(t.Context(), t, newPod(t, namespace, fmt.Sprint("tolerates-", i), ""))
			// A pod that runs keeps what it has, and gets up to twice what goes down. Admission below adds two.
			require.LessOrEqual(t, len(superPod.Spec.Tolerations), 2*policy.MaxTolerations+2)
		}
		now := p.work(t) - before
		t.Logf("the programs took %s of CPU time for four pods of 1,500 tolerations and one beside them, %s for one of 40", now, ordinary)
		// Five pods cost five times as much. Twice that is for 1,500 tolerations in one pass, which takes milliseconds,
		// and the slack for what the programs do meanwhile: without the bound one pod took four minutes.
		require.Less(t, now, 10*ordinary+5*time.Second, "CPU time of all programs")
	}, func(t *testing.T) {
		tolerateAll(t, "tolerates-some-more")
	})
	attack(t, "labels", beside, func(t *testing.T) {
		other, where := p.attacker.sole(t, "labels")
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}
		change(t, p.attacker.cluster, object, func(object *corev1.Namespace) { object.Labels = keyed(6000, "") })
		p.attacker.told(t, object, []string{tenantLimit}, "labels", "at most 128")
		require.Less(t, appears(t, where, "", p.attacker.superNamespace(other), &corev1.Namespace{}, nil).Size(), 32<<10)
	}, func(t *testing.T) {
		other, where := p.attacker.sole(t, "some-labels")
		change(t, p.attacker.cluster, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, func(object *corev1.Namespace) { object.Labels = keyed(50, "x") })
		appears(t, where, "", p.attacker.superNamespace(other), &corev1.Namespace{}, func(object *corev1.Namespace) bool { return object.Labels[tenancy.LabelKey("a/l49")] == "x" })
	})
	attack(t, "writes", alone, func(t *testing.T) {
		p.follow(t, p.attacker, "few-writes")
		const size, perSecond = 100 << 10, 64 << 10 // the latter is that of the policy
		config := configMap(namespace, "flipped", "")
		p.attacker.create(t, config)
		flip := func(i int) {
			patch := fmt.Sprintf(`{"data":{"data":%q}}`, strconv.Itoa(i)+strings.Repeat("x", size))
			require.NoError(t, p.attacker.Patch(t.Context(), config, client.RawPatch(types.MergePatchType, []byte(patch))))
		}
		// Until the policy is in force, and the rate used up: with the attacker's usual one it never is.
		rounds, started := 0, time.Now()
		eventually(t, "an Event WriteRateExceeded", func(ctx context.Context) (bool, any) {
			rounds++
			flip(rounds)
			return p.attacker.hasWarning(ctx, config, []string{"WriteRateExceeded"}, nil), rounds
		})
		copied := appears(t, super, superNamespace, config.Name, &corev1.ConfigMap{}, nil)
		seen, writes := copied.ResourceVersion, 0
		for begun := time.Now(); time.Since(begun) < 3*time.Second; rounds++ {
			flip(rounds)
			require.NoError(t, super.Get(t.Context(), client.ObjectKeyFromObject(copied), copied))
			if copied.ResourceVersion != seen {
				seen, writes = copied.ResourceVersion, writes+1
			}
		}
		// Nothing was left at some time since the start, when the Event was made. One write may take more than is left.
		require.LessOrEqual(t, writes, 1+int(time.Since(started).Seconds()*perSecond/size))
		p.served(t)
	}, func(t *testing.T) {
		config := configMap(namespace, "changed", "")
		p.attacker.create(t, config)
		for _, value := range []string{"a", "b", "c"} {
			change(t, p.attacker.cluster, config, func(config *corev1.ConfigMap) { config.Data = map[string]string{"data": value} })
			appears(t, super, superNamespace, config.Name, &corev1.ConfigMap{}, func(copied *corev1.ConfigMap) bool { return copied.Data["data"] == value })
		}
	})
	networkPolicy := func(name string, blocks int) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"none": "selected"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{{To: list(blocks, func(int) networkingv1.NetworkPolicyPeer {
				return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0"}}
			})}},
		}}
	}
	attack(t, "ip-blocks", alone, func(t *testing.T) {
		ranges := list(100, func(i int) any { return fmt.Sprintf("100.64.%d.0/24", 2*i) })
		p.meta.create(t, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": tenancyv1alpha1.GroupVersion.String(), "kind": "TenantPolicy", "metadata": map[string]any{"name": "many-ranges"},
			"spec": map[string]any{"network": map[string]any{"poolCIDRs": ranges}},
		}})
		p.follow(t, p.attacker, "many-ranges")
		object := networkPolicy("many-blocks", 500)
		p.attacker.create(t, object)
		p.attacker.told(t, object, []string{tenantLimit}, "nothing is allowed")
		copied := appears(t, super, superNamespace, object.Name, &networkingv1.NetworkPolicy{}, nil)
		require.Empty(t, copied.Spec.Egress)
		require.Equal(t, object.Spec.PolicyTypes, copied.Spec.PolicyTypes, "it is closed, not open")
	}, func(t *testing.T) {
		object := networkPolicy("some-blocks", 50)
		p.attacker.create(t, object)
		require.NotEmpty(t, appears(t, super, superNamespace, object.Name, &networkingv1.NetworkPolicy{}, nil).Spec.Egress)
	})
	attack(t, "kept-choices", alone, func(t *testing.T) {
		const pods = 20
		// Without a quota it is placed nowhere.
		nowhere := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "nowhere-"}}
		p.attacker.create(t, nowhere)
		p.attacker.keepLabels(t, nowhere.Name, schedulerv1alpha1.LabelSuperCluster)
		all := list(pods, func(i int) *corev1.Pod { return choose(newPod(t, nowhere.Name, fmt.Sprint("p", i), ""), super.name) })
		for _, pod := range all {
			p.attacker.create(t, pod)
		}
		for _, pod := range all {
			p.attacker.told(t, pod, []string{tenancy.ReasonSuperClusterNotPlaced})
		}
		before := p.readsOfPlacements(t)
		for _, pod := range all {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"look":"again"}}}`))
			require.NoError(t, p.attacker.Patch(t.Context(), pod, patch))
		}
		last := choose(newPod(t, nowhere.Name, "last", ""), super.name)
		p.attacker.create(t, last)
		// Not told, which reads the NamespacePlacement to describe the namespace.
		eventually(t, "an Event about the last pod", func(ctx context.Context) (bool, any) {
			return p.attacker.hasWarning(ctx, last, []string{tenancy.ReasonSuperClusterNotPlaced}, nil), nil
		})
		require.Less(t, p.readsOfPlacements(t)-before, pods/2, "a pod that was told costs a live read at each look")
	}, func(t *testing.T) {
		_, where := p.attacker.runs(t, choose(newPod(t, namespace, "chosen", ""), super.name))
		require.Equal(t, super.name, where.name)
	})
}

// memory returns a figure of a process in KiB, as VmRSS.
func memory(t *testing.T, pid, figure string) int {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	require.NoError(t, err, "the program has ended")
	_, rest, _ := strings.Cut(string(status), figure+":")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kib
}

// withinMemory fails if any program's memory has grown by more than most meanwhile, for however short a time.
func (p *pool) withinMemory(t *testing.T, try func()) {
	t.Helper()
	const most = 150 << 10 // KiB
	before := map[string]int{}
	for _, pid := range p.programs(t) {
		// proc(5): 5 sets the peak to what there is.
		require.NoError(t, os.WriteFile(filepath.Join("/proc", pid, "clear_refs"), []byte("5"), 0))
		before[pid] = memory(t, pid, "VmRSS")
	}
	try()
	for name, pid := range p.programs(t) {
		grown := memory(t, pid, "VmHWM") - before[pid]
		t.Logf("%s grew by %d MiB at most", name, grown>>10)
		require.Less(t, grown, most, "KiB, %s", name)
	}
}

// work returns the CPU time that all programs have taken.
func (p *pool) work(t *testing.T) time.Duration {
	t.Helper()
	sum := time.Duration(0)
	for _, pid := range p.programs(t) {
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		require.NoError(t, err)
		// proc(5): field 3 comes after the name in parentheses; utime and stime are 14 and 15, in 1/100 s.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, ticks := range fields[11:13] {
			n, err := strconv.Atoi(ticks)
			require.NoError(t, err)
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

// keepLabels lets a tenant's control plane refuse that a label is taken off pods of a namespace.
func (c *tenant) keepLabels(t *testing.T, namespace, key string) {
	t.Helper()
	name := "keep-labels-of-" + namespace
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		Validations: []admissionregistrationv1.Validation{{Expression: fmt.Sprintf("has(object.metadata.labels) && %q in object.metadata.labels", key)}},
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}}
	c.create(t, policy)
	c.create(t, binding)
	probe := choose(newPod(t, namespace, "probe", ""), "none")
	c.create(t, probe)
	eventually(t, "the label is kept", func(ctx context.Context) (bool, any) {
		err := c.Patch(ctx, probe, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, key)), client.DryRunAll)
		return err != nil, nil
	})
}

// readsOfPlacements returns how many live reads of NamespacePlacements the meta cluster has answered.
func (p *pool) readsOfPlacements(t *testing.T) int {
	t.Helper()
	api, err := kubernetes.NewForConfig(p.meta.config)
	require.NoError(t, err)
	metrics, err := api.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	sum := 0
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="namespaceplacements"`) && strings.Contains(line, `verb="GET"`) {
			fields := strings.Fields(line)
			count, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			require.NoError(t, err)
			sum += int(count)
		}
	}
	return sum
}
