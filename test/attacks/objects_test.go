//go:build attacks

package attacks_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// sole places a namespace of one slice, and returns its name and the super cluster that holds it.
func (c *tenant) sole(t *testing.T, name string) (string, *cluster) {
	t.Helper()
	namespace := c.place(t, name, "", hard("requests.cpu", "200m", "requests.memory", "400Mi", "pods", "20"))
	placements := c.placed(t, namespace)
	require.Len(t, placements, 1)
	for id := range placements {
		return namespace, c.pool.super(t, id)
	}
	return "", nil
}

func configMap(namespace, name string, data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"data": data}}
}

// TestNames: objects whose names are to mean others.
func TestNames(t *testing.T) {
	p := connect(t)
	namespace, super := p.attacker.sole(t, "names")
	superNamespace := p.attacker.superNamespace(namespace)
	attack(t, "long-names", beside, func(t *testing.T) {
		seen := map[string]string{}
		for _, end := range []string{"0", "1"} {
			name, super := p.attacker.sole(t, strings.Repeat("n", 62)+end)
			superName := p.attacker.superNamespace(name)
			object := appears(t, super, "", superName, &corev1.Namespace{}, nil)
			require.Equal(t, name, object.Annotations[tenancyv1alpha1.AnnotationNamespace])
			require.Empty(t, seen[superName])
			seen[superName] = name
		}
	}, func(t *testing.T) {
		require.Equal(t, p.attacker.key+"-"+namespace, superNamespace, "a short name is there as it is")
		appears(t, super, "", superNamespace, &corev1.Namespace{}, nil)
	})
	attack(t, "taken-namespace", beside, func(t *testing.T) {
		name := "taken-" + utilrand.String(5)
		for _, super := range p.supers {
			super.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.attacker.superNamespace(name), Labels: map[string]string{"team": "operator"}}})
		}
		p.attacker.reserveAs(t, name, "", hard("requests.cpu", "100m", "requests.memory", "100Mi", "pods", "2"))
		pod := newPod(t, name, "p", "")
		p.attacker.create(t, pod)
		p.attacker.create(t, configMap(name, "config", ""))
		eventually(t, "an Event NamespaceConflict", func(ctx context.Context) (bool, any) {
			var events corev1.EventList
			err := p.attacker.List(ctx, &events)
			return slices.ContainsFunc(events.Items, func(event corev1.Event) bool {
				return event.Reason == "NamespaceConflict" && (event.InvolvedObject.Name == name || event.InvolvedObject.Namespace == name)
			}), err
		})
		for _, super := range p.supers {
			object := appears(t, super, "", p.attacker.superNamespace(name), &corev1.Namespace{}, nil)
			require.Equal(t, "operator", object.Labels["team"])
			require.NotContains(t, object.Labels, tenancyv1alpha1.LabelCluster)
			err := super.Get(t.Context(), client.ObjectKey{Namespace: object.Name, Name: "config"}, &corev1.ConfigMap{})
			require.True(t, apierrors.IsNotFound(err), "%v", err)
		}
		require.Nil(t, p.attacker.superPod(t.Context(), t, pod))
	}, func(t *testing.T) {
		free, _ := p.attacker.sole(t, "free")
		p.attacker.runs(t, newPod(t, free, "p", ""))
	})
	attack(t, "reserved-names", beside, func(t *testing.T) {
		const reserved, root = "tenant-kube-root-ca.crt", "kube-root-ca.crt"
		p.attacker.create(t, configMap(namespace, reserved, "forged"))
		p.attacker.create(t, configMap(namespace, "after", "")) // the one before it would be down before it
		appears(t, super, superNamespace, "after", &corev1.ConfigMap{}, nil)
		own := appears(t, p.attacker.cluster, namespace, root, &corev1.ConfigMap{}, nil)
		copied := appears(t, super, superNamespace, reserved, &corev1.ConfigMap{}, nil)
		require.Equal(t, own.Data, copied.Data)
		require.NotContains(t, copied.Data, "data")
		require.NotEqual(t, own.Data, appears(t, super, superNamespace, root, &corev1.ConfigMap{}, nil).Data, "the super cluster's own stays")
	}, func(t *testing.T) {
		p.attacker.create(t, configMap(namespace, "free-name", "mine"))
		require.Equal(t, "mine", appears(t, super, superNamespace, "free-name", &corev1.ConfigMap{}, nil).Data["data"])
	})
	attack(t, "quota-name", beside, func(t *testing.T) {
		p.attacker.create(t, &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "superpool"}, Spec: corev1.ResourceQuotaSpec{Hard: hard("requests.cpu", "1000", "requests.memory", "1Ti")},
		})
		p.attacker.runs(t, newPod(t, namespace, "beside-quota", ""))
		var quotas corev1.ResourceQuotaList
		require.NoError(t, super.List(t.Context(), &quotas, client.InNamespace(superNamespace)))
		require.Len(t, quotas.Items, 1)
		require.Equal(t, "200m", ptr.To(quotas.Items[0].Spec.Hard["requests.cpu"]).String())
	}, func(t *testing.T) {
		other, where := p.attacker.sole(t, "quota")
		change(t, p.attacker.cluster, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "quota"}}, func(quota *corev1.ResourceQuota) {
			quota.Spec.Hard = hard("requests.cpu", "300m", "requests.memory", "400Mi", "pods", "20")
		})
		appears(t, where, p.attacker.superNamespace(other), "superpool", &corev1.ResourceQuota{}, func(quota *corev1.ResourceQuota) bool {
			return ptr.To(quota.Spec.Hard["requests.cpu"]).String() == "300m"
		})
	})
	attack(t, "node-name", beside, func(t *testing.T) {
		pod := choose(newPod(t, namespace, "bound", `nodeName: node-1`), super.name)
		p.attacker.create(t, pod)
		p.attacker.told(t, pod, []string{tenancy.ReasonNodeNameNotSupported})
		require.Nil(t, p.attacker.superPod(t.Context(), t, pod))
		scheduled := []byte(`{"status":{"conditions":[{"type":"PodScheduled","status":"True"}]}}`)
		require.NoError(t, client.IgnoreNotFound(p.attacker.Status().Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, scheduled))))
		p.attacker.runs(t, newPod(t, namespace, "after-bound", "")) // the syncer has seen the pod before it
		require.Nil(t, p.attacker.superPod(t.Context(), t, pod))
	}, func(t *testing.T) {
		p.attacker.runs(t, newPod(t, namespace, "unbound", ""))
	})
}

// TestMarks: objects that claim to be another's, or to have been given something.
func TestMarks(t *testing.T) {
	p := connect(t)
	namespace, super := p.attacker.sole(t, "marks")
	superNamespace := p.attacker.superNamespace(namespace)
	const copiedLabels = "tenancy.x-k8s.io/copied-labels"
	forge := func(object metav1.Object) {
		object.SetLabels(map[string]string{tenancyv1alpha1.LabelCluster: p.neighbour.key, "app": "web"})
		object.SetAnnotations(map[string]string{
			tenancyv1alpha1.AnnotationNamespace: "default", tenancyv1alpha1.AnnotationUID: "1", copiedLabels: tenancyv1alpha1.LabelCluster,
		})
	}
	genuine := func(t *testing.T, object, of client.Object) {
		t.Helper()
		owner, owned := tenancy.GetOwner(object)
		require.True(t, owned)
		require.Equal(t, p.attacker.key, owner.ClusterKey)
		require.Equal(t, namespace, owner.Namespace)
		require.Equal(t, of.GetUID(), owner.UID)
	}
	attack(t, "pod-marks", beside, func(t *testing.T) {
		pod := newPod(t, namespace, "forged", "")
		forge(pod)
		superPod, _ := p.attacker.runs(t, pod)
		genuine(t, superPod, pod)
		// A change of the tenant's object goes the same way.
		change(t, p.attacker.cluster, pod, func(pod *corev1.Pod) { forge(pod); pod.Labels["app"] = "changed" })
		appears(t, super, superNamespace, pod.Name, superPod, func(superPod *corev1.Pod) bool { return superPod.Labels["app"] == "changed" })
		genuine(t, superPod, pod)
	}, func(t *testing.T) {
		pod := newPod(t, namespace, "labelled", "")
		pod.Labels = map[string]string{"app": "web"}
		superPod, _ := p.attacker.runs(t, pod)
		require.Equal(t, "web", superPod.Labels["app"])
		require.Equal(t, "web", superPod.Labels[tenancy.LabelKey("app")])
	})
	attack(t, "config-marks", beside, func(t *testing.T) {
		config := configMap(namespace, "forged", "")
		forge(config)
		p.attacker.create(t, config)
		genuine(t, appears(t, super, superNamespace, config.Name, &corev1.ConfigMap{}, nil), config)
		config.Data = map[string]string{"data": "changed"}
		require.NoError(t, p.attacker.Update(t.Context(), config))
		genuine(t, appears(t, super, superNamespace, config.Name, &corev1.ConfigMap{}, func(copied *corev1.ConfigMap) bool { return copied.Data["data"] == "changed" }), config)
	}, func(t *testing.T) {
		config := configMap(namespace, "labelled", "")
		config.Labels = map[string]string{"app.kubernetes.io/name": "web"}
		p.attacker.create(t, config)
		require.Equal(t, "web", appears(t, super, superNamespace, config.Name, &corev1.ConfigMap{}, nil).Labels["app.kubernetes.io/name"])
	})
	attack(t, "placements", beside, func(t *testing.T) {
		annotate := func(value string) {
			change(t, p.attacker.cluster, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, func(object *corev1.Namespace) {
				metav1.SetMetaDataAnnotation(&object.ObjectMeta, schedulerv1alpha1.AnnotationPlacements, value)
			})
		}
		before := p.attacker.placed(t, namespace)
		annotate(`{"r1":99,"r2":99,"r9":1}`)
		eventually(t, "the annotation is put back", func(context.Context) (bool, any) {
			now := p.attacker.placed(t, namespace)
			return len(now) == 1 && now[super.name] == before[super.name], now
		})
		require.Len(t, p.attacker.placement(t.Context(), namespace).Status.Placements, 1)
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}}
		p.attacker.told(t, quota, []string{"PlacementsRestored"})
	}, func(t *testing.T) {
		change(t, p.attacker.cluster, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, func(object *corev1.Namespace) {
			object.Annotations[schedulerv1alpha1.AnnotationPlacements] = " " + object.Annotations[schedulerv1alpha1.AnnotationPlacements]
		})
		require.Len(t, p.attacker.placed(t, namespace), 1)
	})
	attack(t, "foreign-cluster", beside, func(t *testing.T) {
		pod := choose(newPod(t, namespace, "elsewhere", ""), p.other(super).name)
		p.attacker.create(t, pod)
		p.attacker.told(t, pod, []string{tenancy.ReasonSuperClusterNotPlaced})
		_, where := p.attacker.running(t, pod)
		require.Equal(t, super.name, where.name, "the pod runs where its namespace holds something")
	}, func(t *testing.T) {
		_, where := p.attacker.runs(t, choose(newPod(t, namespace, "here", ""), super.name))
		require.Equal(t, super.name, where.name)
	})
	attack(t, "forged-node", beside, func(t *testing.T) {
		name := tenancy.NodeName("r1", "dedicated")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{tenancyv1alpha1.LabelTenantNode: "true", tenancyv1alpha1.LabelSuperClusterID: "r1"},
			Annotations: map[string]string{"tenancy.x-k8s.io/supernode": "dedicated"},
		}}
		p.attacker.create(t, node)
		// The Nodes of pods that are created after it are written after it was seen.
		pod := newPod(t, namespace, "on-a-node", "")
		p.attacker.runs(t, pod)
		appears(t, p.attacker.cluster, "", pod.Spec.NodeName, &corev1.Node{}, func(node *corev1.Node) bool { return len(node.Status.Allocatable) > 0 })
		err := p.attacker.Get(t.Context(), client.ObjectKeyFromObject(node), node)
		if !apierrors.IsNotFound(err) {
			require.NoError(t, err)
			require.Empty(t, node.Status.Allocatable, "the forged Node shows a super node")
			require.Empty(t, node.Status.Addresses)
			require.Empty(t, node.Status.NodeInfo.KubeletVersion)
		}
	}, func(t *testing.T) {
		pod := newPod(t, namespace, "on-its-node", "")
		p.attacker.runs(t, pod)
		node := appears(t, p.attacker.cluster, "", pod.Spec.NodeName, &corev1.Node{}, func(node *corev1.Node) bool { return len(node.Status.Allocatable) > 0 })
		require.Equal(t, "true", node.Labels[tenancyv1alpha1.LabelTenantNode])
	})
}

// TestTokens: what would get a tenant credentials of a super cluster.
func TestTokens(t *testing.T) {
	p := connect(t)
	namespace, super := p.attacker.sole(t, "tokens")
	superNamespace := p.attacker.superNamespace(namespace)
	attack(t, "account-secret", beside, func(t *testing.T) {
		appears(t, p.attacker.cluster, namespace, "default", &corev1.ServiceAccount{}, nil)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "account", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
		}, Type: corev1.SecretTypeServiceAccountToken}
		p.attacker.create(t, secret)
		appears(t, p.attacker.cluster, namespace, secret.Name, secret, func(secret *corev1.Secret) bool { return len(secret.Data["token"]) > 0 })
		copied := appears(t, super, superNamespace, secret.Name, &corev1.Secret{}, func(copied *corev1.Secret) bool { return len(copied.Data["token"]) > 0 })
		require.Equal(t, corev1.SecretTypeOpaque, copied.Type)
		require.Equal(t, secret.Data, copied.Data)
		refusedToken(t, super, string(copied.Data["token"]))
	}, func(t *testing.T) {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
		}
		p.attacker.create(t, secret)
		copied := appears(t, super, superNamespace, secret.Name, &corev1.Secret{}, nil)
		require.Equal(t, secret.Type, copied.Type)
		require.Equal(t, secret.Data, copied.Data)
	})
	const audience = "https://kubernetes.default.svc.cluster.local"
	withToken := func(t *testing.T, name, audience string) string {
		t.Helper()
		pod := newPod(t, namespace, name, `{automountServiceAccountToken: false, volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: token, audience: "`+audience+`"}}]}}]}`)
		superPod, _ := p.attacker.runs(t, pod)
		noTokens(t, superPod)
		secret := appears(t, super, superNamespace, tenancy.TokenSecret(pod.Name, pod.UID), &corev1.Secret{}, func(secret *corev1.Secret) bool { return len(secret.Data) > 0 })
		require.Len(t, secret.Data, 1)
		for _, token := range secret.Data {
			return string(token)
		}
		return ""
	}
	attack(t, "audience", beside, func(t *testing.T) {
		refusedToken(t, super, withToken(t, "audience", audience))
	}, func(t *testing.T) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
			Token: withToken(t, "own-audience", "vault.example"), Audiences: []string{"vault.example"},
		}}
		require.NoError(t, p.attacker.Create(t.Context(), review))
		require.True(t, review.Status.Authenticated, review.Status.Error)
		require.Equal(t, "system:serviceaccount:"+namespace+":default", review.Status.User.Username)
	})
	attack(t, "automount", beside, func(t *testing.T) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mounts"}, AutomountServiceAccountToken: ptr.To(true)}
		p.attacker.create(t, account)
		superPod, _ := p.attacker.runs(t, newPod(t, namespace, "mounts", `{serviceAccountName: mounts, automountServiceAccountToken: true}`))
		noTokens(t, superPod)
		require.False(t, ptr.Deref(appears(t, super, superNamespace, account.Name, &corev1.ServiceAccount{}, nil).AutomountServiceAccountToken, true))
	}, func(t *testing.T) {
		pod := newPod(t, namespace, "own-token", "")
		superPod, _ := p.attacker.runs(t, pod)
		appears(t, super, superNamespace, tenancy.TokenSecret(pod.Name, pod.UID), &corev1.Secret{}, nil)
		require.NotEmpty(t, superPod.Spec.Containers[0].VolumeMounts)
	})
}

// noTokens fails if a super pod mounts a token of its super cluster.
func noTokens(t *testing.T, superPod *corev1.Pod) {
	t.Helper()
	require.False(t, ptr.Deref(superPod.Spec.AutomountServiceAccountToken, true))
	for _, volume := range superPod.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			require.Nil(t, source.ServiceAccountToken, volume.Name)
			require.Nil(t, source.PodCertificate, volume.Name)
		}
	}
}

// refusedToken fails if a super cluster's API server knows a token.
func refusedToken(t *testing.T, super *cluster, token string) {
	t.Helper()
	require.NotEmpty(t, token)
	config := rest.AnonymousClientConfig(super.config)
	config.BearerToken = token
	api, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = api.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsUnauthorized(err), "%v", err)
}

// TestMetadata: labels, annotations and fields that others in a super cluster trust.
func TestMetadata(t *testing.T) {
	p := connect(t)
	namespace, super := p.attacker.sole(t, "metadata")
	superNamespace := p.attacker.superNamespace(namespace)
	attack(t, "namespace-labels", beside, func(t *testing.T) {
		trusted := map[string]string{
			"team": "infra", "istio-injection": "disabled", "openpolicyagent.org/webhook": "ignore", "admission.gatekeeper.sh/ignore": "true",
			"pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/enforce-version": "v1.0",
		}
		change(t, p.attacker.cluster, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, func(object *corev1.Namespace) {
			for key, value := range trusted {
				metav1.SetMetaDataLabel(&object.ObjectMeta, key, value)
			}
		})
		object := appears(t, super, "", superNamespace, &corev1.Namespace{}, func(object *corev1.Namespace) bool {
			return object.Labels[tenancy.LabelKey("team")] == "infra"
		})
		for key, value := range trusted {
			require.NotEqual(t, value, object.Labels[key], key)
		}
		require.Equal(t, "baseline", object.Labels["pod-security.kubernetes.io/enforce"])
	}, func(t *testing.T) {
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "from-team"}, Spec: networkingv1.NetworkPolicySpec{
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "infra"}}}},
				Ports: []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromInt32(80))}},
			}},
		}}
		p.attacker.create(t, policy)
		copied := appears(t, super, superNamespace, policy.Name, &networkingv1.NetworkPolicy{}, nil)
		require.Equal(t, map[string]string{tenancy.LabelKey("team"): "infra", tenancyv1alpha1.LabelCluster: p.attacker.key},
			copied.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels, "a selector means the tenant's own label")
	})
	attack(t, "cloud-annotations", beside, func(t *testing.T) {
		trusted := map[string]string{
			"k8s.v1.cni.cncf.io/networks": "host", "cni.projectcalico.org/ipAddrsNoIpam": `["10.0.0.1"]`, "eks.amazonaws.com/role-arn": "arn",
			"iam.gke.io/gcp-service-account": "a@b", "metallb.universe.tf/allow-shared-ip": "x", "io.kubernetes.cri-o.userns-mode": "x",
			"sidecar.istio.io/inject": "false",
		}
		meta := metav1.ObjectMeta{Namespace: namespace, Name: "trusted", Annotations: trusted}
		account := &corev1.ServiceAccount{ObjectMeta: meta}
		service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		p.attacker.create(t, account)
		p.attacker.create(t, service)
		pod := newPod(t, namespace, "trusted", "")
		pod.Annotations, pod.Labels = trusted, map[string]string{"aadpodidbinding": "prod"}
		superPod, _ := p.attacker.runs(t, pod)
		require.NotContains(t, superPod.Labels, "aadpodidbinding")
		for _, object := range []client.Object{
			superPod, appears(t, super, superNamespace, account.Name, &corev1.ServiceAccount{}, nil),
			appears(t, super, superNamespace, service.Name, &corev1.Service{}, nil),
		} {
			for key := range trusted {
				require.NotContains(t, object.GetAnnotations(), key, "%T", object)
			}
		}
	}, func(t *testing.T) {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "labelled", Labels: map[string]string{"app.kubernetes.io/name": "web", "tier": "front"}},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		p.attacker.create(t, service)
		copied := appears(t, super, superNamespace, service.Name, &corev1.Service{}, nil)
		require.Equal(t, "web", copied.Labels["app.kubernetes.io/name"])
		require.Equal(t, "front", copied.Labels["tier"])
	})
	attack(t, "image-pull", beside, func(t *testing.T) {
		superPod, _ := p.attacker.runs(t, newPod(t, namespace, "never", `
containers: [{name: c, imagePullPolicy: Never}]
initContainers: [{name: i, image: x, imagePullPolicy: IfNotPresent, resources: {requests: {cpu: 1m, memory: 1Mi}}}]`))
		require.Equal(t, corev1.PullAlways, superPod.Spec.Containers[0].ImagePullPolicy)
		require.Equal(t, corev1.PullAlways, superPod.Spec.InitContainers[0].ImagePullPolicy)
	}, func(t *testing.T) {
		pod := newPod(t, namespace, "if-not-present", `containers: [{name: c, imagePullPolicy: IfNotPresent}]`)
		p.attacker.runs(t, pod)
		require.Equal(t, corev1.PullIfNotPresent, pod.Spec.Containers[0].ImagePullPolicy, "the tenant's own pod stays as it is")
	})
}
