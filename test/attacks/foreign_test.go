//go:build attacks

package attacks_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/test/await"
)

// TestForeign: what others keep in a super cluster, in places and under names that a tenant may name.
func TestForeign(t *testing.T) {
	p := connect(t)
	namespace, super := p.attacker.sole(t, "foreign")
	superNamespace := p.attacker.superNamespace(namespace)
	const name, value = "registry", "of the operator"
	refer := map[string]string{
		"secret":      `volumes: [{name: v, secret: {secretName: registry}}]`,
		"config-map":  `volumes: [{name: v, configMap: {name: registry}}]`,
		"projected":   `volumes: [{name: v, projected: {sources: [{secret: {name: registry}}]}}]`,
		"variable":    `containers: [{name: c, env: [{name: V, valueFrom: {secretKeyRef: {name: registry, key: data}}}]}]`,
		"environment": `containers: [{name: c, envFrom: [{configMapRef: {name: registry}}]}]`,
	}
	attack(t, "secrets", beside, func(t *testing.T) {
		meta := metav1.ObjectMeta{Namespace: superNamespace, Name: name}
		super.create(t, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"data": []byte(value)}})
		super.create(t, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"data": value}})
		for kind, spec := range refer {
			pod := choose(newPod(t, namespace, kind, spec), super.name)
			p.attacker.create(t, pod)
			p.attacker.told(t, pod, []string{"FailedCreate"}, name)
			require.Nil(t, p.attacker.superPod(t.Context(), t, pod))
		}
		superPod, _ := p.attacker.runs(t, newPod(t, namespace, "optional", `
volumes: [{name: v, secret: {secretName: registry, optional: true}}]
containers: [{name: c, envFrom: [{configMapRef: {name: registry, optional: true}}]}]
imagePullSecrets: [{name: registry}]`))
		text, err := superPod.Spec.Marshal()
		require.NoError(t, err)
		require.NotContains(t, strings.ReplaceAll(string(text), "registry.example", ""), name)
	}, func(t *testing.T) {
		// Those of the operator are gone.
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
		p.attacker.create(t, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"data": []byte("mine")}})
		p.attacker.create(t, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"data": "mine"}})
		for kind, spec := range refer {
			p.attacker.runs(t, newPod(t, namespace, "own-"+kind, spec))
		}
	})
	attack(t, "copied-marks", beside, func(t *testing.T) {
		other, where := p.attacker.sole(t, "copied")
		config := configMap(other, "genuine", "")
		p.attacker.create(t, config)
		genuine := appears(t, where, p.attacker.superNamespace(other), config.Name, &corev1.ConfigMap{}, nil)
		// As a controller of the super cluster does that copies labels and annotations to pods elsewhere.
		forged := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "forged", Labels: genuine.Labels, Annotations: genuine.Annotations}, Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{{Name: "c", Image: "registry.example/app"}},
		}}
		where.create(t, forged)
		appears(t, where, "default", forged.Name, forged, func(pod *corev1.Pod) bool { return pod.Status.PodIP != "" })
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: other, Name: "forged"},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{forged.Status.PodIP}}},
		}
		p.attacker.create(t, slice)
		p.attacker.told(t, slice, []string{"EndpointsForbidden"}, forged.Status.PodIP)
		require.NoError(t, p.attacker.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}))
		eventually(t, "what the namespace held is free, though the other pod runs", func(ctx context.Context) (bool, any) {
			return p.attacker.placement(ctx, other) == nil, p.attacker.describe(ctx, other)
		})
		appears(t, where, "default", forged.Name, forged, nil)
	}, func(t *testing.T) {
		superPod, _ := p.attacker.runs(t, newPod(t, namespace, "addressed", ""))
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "addressed"},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{superPod.Status.PodIP}}},
		}
		p.attacker.create(t, slice)
		appears(t, super, superNamespace, slice.Name, &discoveryv1.EndpointSlice{}, func(copied *discoveryv1.EndpointSlice) bool { return len(copied.Endpoints) == 1 })
	})
}

// TestWords: what a tenant reads of a super cluster.
func TestWords(t *testing.T) {
	p := connect(t)
	namespace := p.attacker.place(t, "words", `{"cpu":"200m","memory":"400Mi"}`, hard("requests.cpu", "400m", "requests.memory", "800Mi", "pods", "20"))
	attack(t, "refusals", beside, func(t *testing.T) {
		pod := choose(newPod(t, namespace, "taints", `nodeSelector: {kubernetes.io/hostname: r1.dedicated}`), "r1")
		p.attacker.create(t, pod)
		words := ""
		eventually(t, "the super cluster's scheduler has refused the pod", func(ctx context.Context) (bool, any) {
			words = p.attacker.wordsAbout(ctx, pod)
			return containsAll(words, []string{"super cluster r1: "}), words
		})
		t.Log(words)
		for _, hidden := range []string{`operator`, `dedicated[=:]`, `\d+/\d+ nodes`, `\d+ node\(s\)`, `preemption`} {
			require.NotRegexp(t, hidden, words)
		}
	}, func(t *testing.T) {
		p.attacker.runs(t, choose(newPod(t, namespace, "no-taints", `nodeSelector: {kubernetes.io/hostname: r1.node-1}`), "r1"))
	})
	attack(t, "nodes", beside, func(t *testing.T) {
		const version, killed = "v1.34.77", "Killed process 77 (acme-db) in pod acme/db-0"
		superPod, super := p.attacker.runs(t, newPod(t, namespace, "on-a-node", ""))
		patch := fmt.Sprintf(`{"status":{"nodeInfo":{"kubeletVersion":%q,"machineID":"id-1","systemUUID":"id-2","bootID":"id-3"},"conditions":[
			{"type":"OOMKilling","status":"True","reason":"OOMKilling","message":%q},{"type":"Ready","status":"True","reason":"KubeletReady","message":%[2]q}]}}`, version, killed)
		node := appears(t, super, "", superPod.Spec.NodeName, &corev1.Node{}, nil)
		former := node.Status.DeepCopy()
		t.Cleanup(func() {
			await.Change(t, super, node, func(node *corev1.Node) {
				node.Status.NodeInfo, node.Status.Conditions = former.NodeInfo, former.Conditions
			}, "status")
		})
		require.NoError(t, super.Status().Patch(t.Context(), node, client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
		shown := appears(t, p.attacker.cluster, "", super.name+"."+superPod.Spec.NodeName, &corev1.Node{}, func(node *corev1.Node) bool {
			return node.Status.NodeInfo.KubeletVersion == version
		})
		status := shown.Status.String()
		for _, hidden := range []string{"id-1", "id-2", "id-3", "OOMKilling", "acme"} {
			require.NotContains(t, status, hidden)
		}
	}, func(t *testing.T) {
		pod := newPod(t, namespace, "on-another-node", "")
		p.attacker.runs(t, pod)
		appears(t, p.attacker.cluster, "", pod.Spec.NodeName, &corev1.Node{}, func(node *corev1.Node) bool {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady {
					return condition.Status == corev1.ConditionTrue
				}
			}
			return false
		})
	})
}

// wordsAbout returns what a tenant reads about a pod: messages of its conditions and Events.
func (c *tenant) wordsAbout(ctx context.Context, pod *corev1.Pod) string {
	var words strings.Builder
	var events corev1.EventList
	_ = c.List(ctx, &events, client.InNamespace(pod.Namespace))
	for i := range events.Items {
		if event := &events.Items[i]; event.InvolvedObject.Name == pod.Name {
			fmt.Fprintln(&words, event.Reason, event.Message)
		}
	}
	live := &corev1.Pod{}
	_ = c.Get(ctx, client.ObjectKeyFromObject(pod), live)
	for _, condition := range live.Status.Conditions {
		fmt.Fprintln(&words, condition.Type, condition.Message)
	}
	return words.String()
}
