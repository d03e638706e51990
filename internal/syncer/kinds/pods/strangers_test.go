package pods_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestStrangersStayOut lets a pod refer to what the super namespace has and its tenant has not.
func TestStrangersStayOut(t *testing.T) {
	t.Parallel()
	registry := corev1.LocalObjectReference{Name: "registry"}
	volume := func(source corev1.VolumeSource) func(spec *corev1.PodSpec) {
		return func(spec *corev1.PodSpec) { spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} }
	}
	env := func(variable *corev1.EnvVarSource) func(spec *corev1.PodSpec) {
		return func(spec *corev1.PodSpec) {
			spec.Containers = []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "V", ValueFrom: variable}}}}
		}
	}
	from := func(source corev1.EnvFromSource) func(spec *corev1.PodSpec) {
		return func(spec *corev1.PodSpec) {
			spec.InitContainers = []corev1.Container{{Name: "i", EnvFrom: []corev1.EnvFromSource{source}}}
		}
	}
	projected := func(sources ...corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}
	}
	for _, tc := range []struct {
		name   string
		change func(spec *corev1.PodSpec)
		// refused names what the pod may not refer to.
		refused string
		// want makes what is left of the references, nil: the same.
		want func(spec *corev1.PodSpec)
	}{
		{name: "a volume", change: volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "registry"}}), refused: "secret registry"},
		{
			name: "an optional volume", change: volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "registry", Optional: ptr.To(true)}}),
			want: volume(projected()),
		},
		{name: "a ConfigMap", change: volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "ops"}}}), refused: "configmap ops"},
		{
			name: "sources of a volume, both optional and not", refused: "secret registry",
			change: volume(projected(
				corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: registry}},
				corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "ops"}, Optional: ptr.To(true)}},
			)),
		},
		{
			name: "optional sources of a volume",
			change: volume(projected(
				corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: registry, Optional: ptr.To(true)}},
				corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "mine"}}},
			)),
			want: volume(projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "mine"}}})),
		},
		{name: "a CSI driver's", change: volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", NodePublishSecretRef: &registry}}), refused: "secret registry"},
		{name: "a variable", change: env(&corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: registry, Key: "k"}}), refused: "secret registry"},
		{
			name: "an optional variable", change: env(&corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: registry, Key: "k", Optional: ptr.To(true)}}),
			want: func(spec *corev1.PodSpec) { spec.Containers = []corev1.Container{{Name: "c"}} },
		},
		{name: "all variables", change: from(corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: registry}}), refused: "secret registry"},
		{
			name: "optionally all variables", change: from(corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: registry, Optional: ptr.To(true)}}),
			want: func(spec *corev1.PodSpec) { spec.InitContainers = []corev1.Container{{Name: "i"}} },
		},
		{
			name: "credentials of a registry", change: func(spec *corev1.PodSpec) {
				spec.ImagePullSecrets = []corev1.LocalObjectReference{registry, {Name: "mine"}}
			},
			want: func(spec *corev1.PodSpec) { spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "mine"}} },
		},
		{name: "one that is the tenant's", change: volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "mine"}})},
		{name: "one that nobody has", change: volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "none"}})},
		{name: "one with marks of another tenant", change: volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "forged"}}), refused: "secret forged"},
		{name: "one that is there, with one of the tenant's of that name", change: volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "both"}}), refused: "secret both"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.Placed(t)
			inside, outside := func(name string) metav1.ObjectMeta {
				return metav1.ObjectMeta{Namespace: "web", Name: name, UID: "uid"}
			},
				func(name string) metav1.ObjectMeta {
					return metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: name}
				}
			p.TenantCache[kind.Secret] = []client.Object{&corev1.Secret{ObjectMeta: inside("mine")}, &corev1.Secret{ObjectMeta: inside("both")}}
			mine := builders.Owned(&corev1.Secret{ObjectMeta: outside("mine")}, kindtest.OwnerOf("uid"))
			forged := builders.Owned(&corev1.Secret{ObjectMeta: outside("forged")}, kindtest.ForeignOwners("uid")["another VirtualCluster"])
			p.SuperCache[kind.Secret] = []client.Object{mine, forged}
			accounts := []client.Object{
				&corev1.ServiceAccount{ObjectMeta: outside("default")},
			}
			p.SuperCache[kind.ServiceAccount] = accounts
			for _, object := range []client.Object{
				&corev1.Secret{ObjectMeta: outside("registry")}, &corev1.Secret{ObjectMeta: outside("both")}, &corev1.ConfigMap{ObjectMeta: outside("ops")}, mine.DeepCopy(), forged.DeepCopy(),
			} {
				require.NoError(t, p.SuperClient.Create(t.Context(), object))
			}
			pod := kindtest.ProofPod("uid", assignedTo("r1"))
			pod.Spec.ServiceAccountName = "default"
			tc.change(&pod.Spec)
			p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(pod.DeepCopy()).Build(), kindtest.TenantUID)
			p.TenantCache[kind.Pod] = []client.Object{pod}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, time.Minute)
			live := &corev1.Pod{}
			getErr := p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "p"}, live)
			if tc.refused != "" {
				wait := &engine.WaitError{}
				require.ErrorAs(t, err, &wait)
				require.True(t, apierrors.IsNotFound(getErr))
				require.Equal(t, "Warning FailedCreate Super cluster r1: the namespace has a "+tc.refused+" there that is not the tenant's: use another name", <-p.Events.Events)
				return
			}
			require.NoError(t, err)
			require.NoError(t, getErr)
			want := &corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}
			if tc.want == nil {
				tc.want = tc.change
			}
			tc.want(want)
			got := &corev1.PodSpec{Volumes: live.Spec.Volumes, ImagePullSecrets: live.Spec.ImagePullSecrets}
			for _, container := range live.Spec.Containers {
				got.Containers = append(got.Containers, corev1.Container{Name: container.Name, Env: withoutServices(container.Env), EnvFrom: container.EnvFrom})
			}
			for _, container := range live.Spec.InitContainers {
				got.InitContainers = append(got.InitContainers, corev1.Container{Name: container.Name, Env: withoutServices(container.Env), EnvFrom: container.EnvFrom})
			}
			require.Empty(t, cmp.Diff(want, got, cmpopts.EquateEmpty()))
		})
	}
}

// withoutServices returns the variables that take their value from somewhere.
func withoutServices(env []corev1.EnvVar) (left []corev1.EnvVar) {
	for _, variable := range env {
		if variable.ValueFrom != nil {
			left = append(left, variable)
		}
	}
	return left
}

// TestKnownConfigCostsNothing: no list is asked for where a pod refers to what the cache shows, and to its tokens.
func TestKnownConfigCostsNothing(t *testing.T) {
	t.Parallel()
	lists := 0
	p := kindtest.NewPool(t, interceptor.Funcs{List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		lists++
		return to.List(ctx, list, options...)
	}})
	p.Placed(t)
	outside := metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "mine"}
	p.SuperCache[kind.Secret] = []client.Object{builders.Owned(&corev1.Secret{ObjectMeta: outside}, kindtest.OwnerOf("uid"))}
	p.SuperCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web"}}}
	pod := kindtest.ProofPod("uid", assignedTo("r1"), kindtest.WithToken)
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "mine"}}
	p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(pod.DeepCopy()).Build(), kindtest.TenantUID)
	p.TenantCache[kind.Pod] = []client.Object{pod}
	_, err := p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, time.Minute)
	require.NoError(t, err)
	require.NoError(t, p.SuperClient.Get(t.Context(), client.ObjectKey{Namespace: kindtest.ClusterKey + "-web", Name: "p"}, &corev1.Pod{}))
	require.Zero(t, lists)
}
