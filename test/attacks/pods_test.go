//go:build attacks

package attacks_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// TestPaths: pods that want something of their node.
func TestPaths(t *testing.T) {
	p := connect(t)
	namespace := p.attacker.arena(t, "paths")
	attack(t, "host-path", beside, func(t *testing.T) {
		p.attacker.refused(t, newPod(t, namespace, "host-path", `volumes: [{name: v, hostPath: {path: /etc}}]`), "hostPath")
	}, func(t *testing.T) {
		p.attacker.runs(t, newPod(t, namespace, "empty-dir", `volumes: [{name: v, emptyDir: {}}]`))
	})
	attack(t, "host-rights", beside, func(t *testing.T) {
		for name, tc := range map[string]struct{ spec, text string }{
			"privileged":   {`containers: [{name: c, securityContext: {privileged: true}}]`, "privileged"},
			"host-network": {`hostNetwork: true`, "hostNetwork"},
			"host-pid":     {`hostPID: true`, "hostPID"},
			"host-ipc":     {`hostIPC: true`, "hostIPC"},
			"host-port":    {`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]`, "hostPort"},
			"capability":   {`containers: [{name: c, securityContext: {capabilities: {add: [SYS_ADMIN]}}}]`, "capabilities"},
			"init":         {`initContainers: [{name: i, image: x, resources: {requests: {cpu: 1m, memory: 1Mi}}, securityContext: {privileged: true}}]`, "privileged"},
			"app-armor":    {`securityContext: {appArmorProfile: {type: Unconfined}}`, "AppArmor"},
			"sysctl":       {`securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}`, "sysctl"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p.attacker.refused(t, newPod(t, namespace, name, tc.spec), tc.text)
			})
		}
	}, func(t *testing.T) {
		p.attacker.runs(t, newPod(t, namespace, "container-rights", `
containers: [{name: c, ports: [{containerPort: 80}], securityContext: {allowPrivilegeEscalation: true, capabilities: {add: [CHOWN]}}}]
securityContext: {sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "0"}]}`))
	})
	attack(t, "ephemeral-container", beside, func(t *testing.T) {
		pod := newPod(t, namespace, "debugged", "")
		p.attacker.runs(t, pod)
		addEphemeral(t, p.attacker, pod, &corev1.SecurityContext{Privileged: ptr.To(true)})
		p.attacker.told(t, pod, []string{policyForbids}, "privileged")
		require.Empty(t, p.attacker.superPod(t.Context(), t, pod).Spec.EphemeralContainers)
	}, func(t *testing.T) {
		pod := newPod(t, namespace, "debugged-within", "")
		p.attacker.runs(t, pod)
		addEphemeral(t, p.attacker, pod, nil)
		eventually(t, "the super pod has the container", func(ctx context.Context) (bool, any) {
			superPod := p.attacker.superPod(ctx, t, pod)
			return superPod != nil && len(superPod.Spec.EphemeralContainers) == 1, superPod
		})
	})
}

// addEphemeral adds an ephemeral container to a pod.
func addEphemeral(t *testing.T, in *tenant, pod *corev1.Pod, rights *corev1.SecurityContext) {
	t.Helper()
	eventually(t, "adding an ephemeral container", func(ctx context.Context) (bool, any) {
		if err := in.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return false, err
		}
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "registry.example/debug", SecurityContext: rights,
		}}}
		err := in.SubResource("ephemeralcontainers").Update(ctx, pod)
		return err == nil, err
	})
}

// TestVolumes: pods with volumes of the operator's.
func TestVolumes(t *testing.T) {
	p := connect(t)
	namespace := p.attacker.arena(t, "volumes")
	claim := func(spec string) string {
		return `volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, ` + spec + `}}}}]`
	}
	within := func(name string) func(t *testing.T) {
		return func(t *testing.T) {
			class := &storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{
					tenancyv1alpha1.AnnotationPrefixOfferedBy + "r1": "x", tenancyv1alpha1.AnnotationPrefixOfferedBy + "r2": "x",
				}},
				Provisioner: "example.com/disk", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
			}
			if err := p.attacker.Create(t.Context(), class); !apierrors.IsAlreadyExists(err) {
				require.NoError(t, err)
			}
			superPod := p.attacker.down(t, createdPod(t, p.attacker, newPod(t, namespace, name, claim(`storageClassName: standard`))))
			require.Equal(t, name+"-v", superPod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
		}
	}
	attack(t, "volume-name", beside, func(t *testing.T) {
		p.attacker.refused(t, newPod(t, namespace, "volume-name", claim(`storageClassName: "", volumeName: of-a-node`)), "volumeName")
		p.attacker.refused(t, newPod(t, namespace, "volume-selector", claim(`storageClassName: standard, selector: {matchLabels: {a: b}}`)), "selector")
	}, within("volume-of-class"))
	attack(t, "storage-class", beside, func(t *testing.T) {
		p.attacker.refused(t, newPod(t, namespace, "storage-class", claim(`storageClassName: premium`)), "premium")
		p.attacker.refused(t, newPod(t, namespace, "no-class", claim(`storageClassName: ""`)), "storageClass")
	}, within("allowed-class"))
	attack(t, "claim", beside, func(t *testing.T) {
		p.attacker.refused(t, newPod(t, namespace, "claim", `volumes: [{name: v, persistentVolumeClaim: {claimName: any}}]`), "persistentVolumeClaim")
	}, func(t *testing.T) {
		p.attacker.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "config"}})
		p.attacker.runs(t, newPod(t, namespace, "config", `volumes: [{name: v, configMap: {name: config}}]`))
	})
	attack(t, "network-volumes", beside, func(t *testing.T) {
		for kind, source := range map[string]string{
			"nfs": `nfs: {server: 10.0.0.1, path: /}`, "iscsi": `iscsi: {targetPortal: "10.0.0.1:3260", iqn: "iqn.2026-11.example.storage:disk", lun: 0}`,
			"csi": `csi: {driver: secrets.example}`,
		} {
			p.attacker.refused(t, newPod(t, namespace, "volume-"+kind, `volumes: [{name: v, `+source+`}]`), kind)
		}
	}, func(t *testing.T) {
		p.attacker.runs(t, newPod(t, namespace, "projected", `volumes: [{name: v, projected: {sources: [{downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}]`))
	})
}

func createdPod(t *testing.T, in *tenant, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	in.create(t, pod)
	return pod
}

// keysOf returns the keys of the taints that a pod tolerates.
func keysOf(pod *corev1.Pod) []string {
	var keys []string
	for _, toleration := range pod.Spec.Tolerations {
		keys = append(keys, toleration.Key)
	}
	return keys
}

// TestTolerations: pods that want to be where the operator has not let them.
func TestTolerations(t *testing.T) {
	p := connect(t)
	namespace := p.attacker.arena(t, "tolerations")
	ordinary := func(name, spec string) func(t *testing.T) {
		return func(t *testing.T) {
			superPod, _ := p.attacker.runs(t, newPod(t, namespace, name, spec))
			require.NotEqual(t, "dedicated", superPod.Spec.NodeName)
		}
	}
	attack(t, "cordoned", alone, func(t *testing.T) {
		cordon := func(cordoned bool) {
			change(t, p.meta, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1"}}, func(node *corev1.Node) { node.Spec.Unschedulable = cordoned })
		}
		cordon(true)
		// t.Context() ends before cleanups run.
		defer cordon(false)
		pod := choose(newPod(t, namespace, "cordoned", ""), "r1")
		p.attacker.create(t, pod)
		p.attacker.told(t, pod, nil)
		superPod := &corev1.Pod{}
		err := p.super(t, "r1").Get(t.Context(), client.ObjectKey{Namespace: p.attacker.superNamespace(namespace), Name: pod.Name}, superPod)
		require.True(t, apierrors.IsNotFound(err), "the cordoned super cluster has a new pod: %v", err)
	}, func(t *testing.T) {
		_, where := p.attacker.runs(t, choose(newPod(t, namespace, "open", ""), "r1"))
		require.Equal(t, "r1", where.name)
	})
	without := func(t *testing.T, name, tolerations, key string, texts ...string) {
		t.Helper()
		pod := newPod(t, namespace, name, tolerations)
		superPod, _ := p.attacker.runs(t, pod)
		require.NotContains(t, keysOf(superPod), key)
		require.NotEqual(t, "dedicated", superPod.Spec.NodeName)
		p.attacker.told(t, pod, []string{"TolerationsLeftOut"}, append(texts, "tolerations")...)
	}
	attack(t, "wildcard", beside, func(t *testing.T) {
		without(t, "wildcard", `tolerations: [{operator: Exists}]`, "")
		without(t, "wildcard-effect", `tolerations: [{operator: Exists, effect: NoExecute}]`, "")
	}, ordinary("spot", `tolerations: [{key: spot, operator: Exists, effect: NoSchedule}]`))
	attack(t, "operator-taint", beside, func(t *testing.T) {
		without(t, "dedicated", `tolerations: [{key: dedicated, operator: Exists, effect: NoSchedule}]`, "dedicated", "dedicated")
	}, ordinary("no-toleration", ""))
	tolerate := func(t *testing.T, name, key string) *corev1.Pod {
		t.Helper()
		pod := newPod(t, namespace, name, "")
		p.attacker.runs(t, pod)
		change(t, p.attacker.cluster, pod, func(pod *corev1.Pod) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
		})
		return pod
	}
	attack(t, "later-toleration", beside, func(t *testing.T) {
		pod := tolerate(t, "later", "dedicated")
		p.attacker.told(t, pod, []string{"TolerationsLeftOut"}, "tolerations", "dedicated")
		require.NotContains(t, keysOf(p.attacker.superPod(t.Context(), t, pod)), "dedicated")
	}, func(t *testing.T) {
		pod := tolerate(t, "later-spot", "spot")
		eventually(t, "the super pod tolerates it", func(ctx context.Context) (bool, any) {
			return slices.Contains(keysOf(p.attacker.superPod(ctx, t, pod)), "spot"), nil
		})
	})
	attack(t, "node-labels", beside, func(t *testing.T) {
		p.attacker.refused(t, newPod(t, namespace, "node-selector", `nodeSelector: {team: operator}`), "team")
		p.attacker.refused(t, newPod(t, namespace, "node-affinity", `
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: team, operator: Exists}]}]}}}`), "team")
		// It is told the same about a label that no node has.
		p.attacker.refused(t, newPod(t, namespace, "node-guess", `nodeSelector: {no-such: label}`), "no-such")
		p.attacker.refused(t, newPod(t, namespace, "node-topology", `
topologySpreadConstraints: [{maxSkew: 1, topologyKey: team, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]`), "team")
	}, ordinary("linux", `nodeSelector: {kubernetes.io/os: linux}`))
	attack(t, "runtime-class", beside, func(t *testing.T) {
		p.attacker.create(t, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "bare"}, Handler: "bare"})
		p.attacker.refused(t, newPod(t, namespace, "bare", `runtimeClassName: bare`), "runtimeClass", "bare")
	}, func(t *testing.T) {
		appears(t, p.attacker.cluster, "", "sandboxed", &nodev1.RuntimeClass{}, nil) // the super clusters offer it
		superPod, _ := p.attacker.runs(t, newPod(t, namespace, "sandboxed", `runtimeClassName: sandboxed`))
		require.Equal(t, "sandboxed", *superPod.Spec.RuntimeClassName)
	})
	attack(t, "priority-class", beside, func(t *testing.T) {
		p.attacker.create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 999999999})
		eventually(t, "admission knows the PriorityClass", func(ctx context.Context) (bool, any) {
			err := p.attacker.Create(ctx, newPod(t, namespace, "high-try", `priorityClassName: high`), client.DryRunAll)
			return err == nil, err
		})
		pod := newPod(t, namespace, "high", `priorityClassName: high`)
		superPod, _ := p.attacker.runs(t, pod)
		require.Equal(t, ptr.To[int32](999999999), pod.Spec.Priority, "its own control plane takes it for that")
		require.Empty(t, superPod.Spec.PriorityClassName)
		require.Equal(t, ptr.To[int32](0), superPod.Spec.Priority)
	}, func(t *testing.T) {
		// A class of the tenant's own that asks for no more than the usual.
		p.attacker.create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Value: 0})
		eventually(t, "admission knows the PriorityClass", func(ctx context.Context) (bool, any) {
			err := p.attacker.Create(ctx, newPod(t, namespace, "usual-try", `priorityClassName: usual`), client.DryRunAll)
			return err == nil, err
		})
		pod := newPod(t, namespace, "usual", `priorityClassName: usual`)
		superPod, _ := p.attacker.runs(t, pod)
		require.Equal(t, ptr.To[int32](0), pod.Spec.Priority)
		require.Equal(t, ptr.To[int32](0), superPod.Spec.Priority)
	})
}
