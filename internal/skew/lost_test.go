package skew_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// fullSpec has a value of each kind that is compared.
func fullSpec() *corev1.PodSpec {
	return &corev1.PodSpec{
		HostUsers: new(false), HostnameOverride: new("web"), NodeSelector: map[string]string{"zone": "a"},
		SecurityContext: &corev1.PodSecurityContext{}, Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
		Volumes: []corev1.Volume{
			{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1, resource.BinarySI)}}},
			{Name: "image", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "i"}}},
		},
		Tolerations: []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "c", Ports: []corev1.ContainerPort{{ContainerPort: 1}, {ContainerPort: 2, HostIP: "::1"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "empty", MountPath: "/a", SubPath: "a"}, {Name: "empty", MountPath: "/b"}},
			Env:          []corev1.EnvVar{{Name: "file", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{Key: "k"}}}, {Name: "a", Value: "b"}},
			Lifecycle:    &corev1.Lifecycle{StopSignal: new(corev1.SIGKILL)},
		}},
	}
}

func TestLost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(got *corev1.PodSpec)
		want   []string
	}{
		"nothing": {change: func(*corev1.PodSpec) {}},
		"defaults, and what admission adds and changes": {change: func(got *corev1.PodSpec) {
			got.NodeName, got.DNSPolicy, got.HostUsers, got.NodeSelector["pool"] = "n1", corev1.DNSClusterFirst, new(true), "b"
			got.Containers[0].Image, got.Containers[0].Env[1].Value = "other", "c"
			got.Containers = append([]corev1.Container{{Name: "mesh"}}, got.Containers...)
			got.Volumes = append([]corev1.Volume{{Name: "token"}}, got.Volumes...)
			got.Tolerations = append(got.Tolerations, corev1.Toleration{Key: "b"})
			got.Containers[1].VolumeMounts = append(got.Containers[1].VolumeMounts, corev1.VolumeMount{Name: "token"})
		}},
		"what admission takes back": {change: func(got *corev1.PodSpec) { got.HostUsers = new(false) }},
		"structs that say nothing":  {change: func(got *corev1.PodSpec) { got.SecurityContext = nil }},
		"pointers to scalars":       {change: func(got *corev1.PodSpec) { got.HostUsers, got.HostnameOverride = nil, nil }, want: []string{"spec.hostUsers", "spec.hostnameOverride"}},
		"a map":                     {change: func(got *corev1.PodSpec) { got.NodeSelector = nil }, want: []string{"spec.nodeSelector"}},
		"a source of a volume":      {change: func(got *corev1.PodSpec) { got.Volumes[1].Image = nil }, want: []string{"spec.volumes[1].image"}},
		"a quantity":                {change: func(got *corev1.PodSpec) { got.Volumes[0].EmptyDir.SizeLimit = nil }, want: []string{"spec.volumes[0].emptyDir.sizeLimit"}},
		"a container":               {change: func(got *corev1.PodSpec) { got.Containers[0].Name = "d" }, want: []string{"spec.containers[0]"}},
		"below a container that has moved": {change: func(got *corev1.PodSpec) {
			got.Containers[0].Env[0].ValueFrom.FileKeyRef, got.Containers[0].Lifecycle.StopSignal = nil, nil
			got.Containers = append([]corev1.Container{{Name: "mesh"}}, got.Containers...)
		}, want: []string{"spec.containers[0].env[0].valueFrom.fileKeyRef", "spec.containers[0].lifecycle.stopSignal"}},
		"elements by index": {change: func(got *corev1.PodSpec) {
			got.Containers[0].Ports[1].HostIP, got.Containers[0].VolumeMounts[0].SubPath, got.Tolerations[0].Operator = "", "", ""
		}, want: []string{"spec.tolerations[0].operator", "spec.containers[0].ports[1].hostIP", "spec.containers[0].volumeMounts[0].subPath"}},
		"everything": {change: func(got *corev1.PodSpec) { *got = corev1.PodSpec{} }, want: []string{
			"spec.volumes", "spec.containers", "spec.nodeSelector", "spec.hostUsers", "spec.affinity", "spec.tolerations", "spec.hostnameOverride",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent, got := fullSpec(), fullSpec()
			tc.change(got)
			require.ElementsMatch(t, tc.want, skew.Lost(sent, got))
			require.Equal(t, fullSpec(), sent)
		})
	}
}

// TestLostIsBounded: a pod may be as large as it likes.
func TestLostIsBounded(t *testing.T) {
	t.Parallel()
	sent, got := &corev1.PodSpec{HostNetwork: true}, &corev1.PodSpec{HostNetwork: true}
	for i := range 1 << 17 {
		sent.Volumes = append(sent.Volumes, corev1.Volume{Name: fmt.Sprint(i)})
	}
	got.Volumes = append(got.Volumes, sent.Volumes...)
	sent.Containers = []corev1.Container{{Name: "lost"}}
	require.Empty(t, skew.Lost(sent, got), "that is behind the bound")
	got.Volumes = sent.Volumes[:1]
	require.Len(t, skew.Lost(sent, got), skew.MaxLost)
}

// FuzzLost: nothing is lost of a pod that comes back as it was sent, and what is said of any two is bounded.
func FuzzLost(f *testing.F) {
	f.Add(int64(1), int64(2))
	f.Fuzz(func(t *testing.T, a, b int64) {
		sent, got := &corev1.PodSpec{}, &corev1.PodSpec{}
		kindtest.Fill(a, sent)
		kindtest.Fill(b, got)
		before := sent.DeepCopy()
		require.Empty(t, skew.Lost(sent, sent.DeepCopy()))
		require.LessOrEqual(t, len(skew.Lost(sent, got)), skew.MaxLost)
		for _, path := range skew.Lost(sent, got) {
			require.Regexp(t, `^spec(\.[a-zA-Z0-9]+(\[\d+\])?)*$`, path)
		}
		require.Equal(t, before, sent)
	})
}
