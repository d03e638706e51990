package kind

import "testing"

func TestIsOpaque(t *testing.T) {
	for key, want := range map[string]bool{
		"app":                                false,
		"example.org/team":                   false,
		"app.kubernetes.io/name":             false,
		"apps.kubernetes.io/pod-index":       false,
		"batch.kubernetes.io/job-name":       false,
		"statefulset.kubernetes.io/pod-name": false,
		"kubernetes.io/hostname":             true,
		"pod-security.kubernetes.io/enforce": true,
		"evil.app.kubernetes.io/name":        true,
		"tenancy.x-k8s.io/cluster":           true,
		"secret.example.org/x":               true,
	} {
		if got := isOpaque(key, []string{"secret.example.org/"}); got != want {
			t.Errorf("%s: want %t, got %t", key, want, got)
		}
	}
}

func TestProxyLabels(t *testing.T) {
	const key = "service.kubernetes.io/service-proxy-name"
	for _, tc := range []struct {
		name     string
		rules    *Rules
		resource string
		want     bool
	}{
		{name: "of a Service", rules: &Rules{}, resource: "services", want: true},
		{name: "of a Service, without rules", resource: "services", want: true},
		{name: "of a Service, and opaque to the tenant", rules: &Rules{Opaque: []string{"service.kubernetes.io/"}}, resource: "services"},
		{name: "of another object", rules: &Rules{}, resource: "endpointslices"},
	} {
		if got := tc.rules.label(tc.resource, key); got != tc.want {
			t.Errorf("%s: want %t, got %t", tc.name, tc.want, got)
		}
	}
}
