package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/policy"
)

// TestServicePorts: small ports take little in an object, and rules on each node.
func TestServicePorts(t *testing.T) {
	t.Parallel()
	of := func(n int) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Ports: make([]corev1.ServicePort, n)}}
	}
	require.Empty(t, policy.ExcessOfEntries(of(1_000)))
	require.Equal(t, "it has 1001 ports: at most 1000 go down", policy.ExcessOfEntries(of(1_001)))
}
