package kinds_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/syncer/kinds/namespaces"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// trusted are keys that programs of super clusters trust.
var trusted = map[string]string{
	"openpolicyagent.org/webhook": "ignore", "admission.gatekeeper.sh/ignore": "x", "eks.amazonaws.com/role-arn": "arn:x",
	"k8s.v1.cni.cncf.io/networks": "host", "cni.projectcalico.org/ipAddrsNoIpam": "[]", "io.kubernetes.cri-o.userns-mode": "auto",
	"metallb.universe.tf/allow-shared-ip": "x", "openshift.io/node-selector": "", "istio-injection": "disabled", "team": "infra",
}

// TestTrustedMetadata lets a tenant write the keys that a super cluster's policies and controllers trust.
func TestTrustedMetadata(t *testing.T) {
	t.Parallel()
	with := func(key, value string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "web", Name: "web", Labels: map[string]string{key: value, "app.kubernetes.io/name": "web"}, Annotations: map[string]string{key: value},
		}
	}
	for key, value := range trusted {
		pod := kindtest.TenantPod(nil)
		pod.Labels, pod.Annotations = with(key, value).Labels, with(key, value).Annotations
		superPod, superNamespace := &corev1.Pod{}, &corev1.Namespace{}
		podspec.SuperPod(pod, superPod, kindtest.OwnerOf("pod-uid"), nil, &podspec.PodEnvironment{})
		namespaces.SuperNamespace(&corev1.Namespace{ObjectMeta: with(key, value)}, superNamespace, kindtest.OwnerOf("ns-uid"), nil, "baseline")
		for _, metadata := range []map[string]string{superPod.Annotations, superNamespace.Labels, superNamespace.Annotations} {
			require.NotContains(t, metadata, key)
		}
		if strings.Contains(key, "/") {
			require.NotContains(t, superPod.Labels, key)
		} else {
			require.Contains(t, superPod.Labels, key, "keys without a domain describe pods")
		}
		require.Equal(t, "web", superPod.Labels["app.kubernetes.io/name"])
		require.NotContains(t, superNamespace.Labels, "app.kubernetes.io/name")
	}
}
