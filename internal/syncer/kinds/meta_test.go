package kinds

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
