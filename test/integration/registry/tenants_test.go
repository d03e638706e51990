package registry

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

func virtualClusterKind() schema.GroupKind {
	return schema.GroupKind{Group: tenancyv1alpha1.GroupVersion.Group, Kind: "VirtualCluster"}
}

// createTenant creates a VirtualCluster, which is gone at the end of the test, and with it the claim on its control
// plane: the finalizer would wait for super clusters that do not answer.
func createTenant(t *testing.T, name string) *tenancyv1alpha1.VirtualCluster {
	t.Helper()
	return create(t, builders.VirtualCluster(name))
}

func create(t *testing.T, vc *tenancyv1alpha1.VirtualCluster) *tenancyv1alpha1.VirtualCluster {
	t.Helper()
	require.NoError(t, shared.client.Create(t.Context(), vc))
	t.Cleanup(func() {
		ctx, left := context.WithoutCancel(t.Context()), vc.DeepCopy()
		require.NoError(t, client.IgnoreNotFound(shared.client.Delete(ctx, left)))
		gone := waitFor(ctx, func() bool {
			_ = shared.client.Patch(ctx, left, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			return apierrors.IsNotFound(shared.client.Get(ctx, client.ObjectKeyFromObject(left), &tenancyv1alpha1.VirtualCluster{}))
		})
		require.True(t, gone, "VirtualCluster %s is still there", left.Name)
	})
	return vc
}

func createSecret(t *testing.T, name, key string, data []byte) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: data}}
	require.NoError(t, shared.client.Create(t.Context(), secret))
	return secret
}

// awaitReady waits until a tenant's Ready condition has a reason.
func awaitReady(t *testing.T, name, reason string) *tenancyv1alpha1.VirtualCluster {
	t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	eventually(t, func() string {
		if err := shared.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, vc); err != nil {
			return err.Error()
		}
		condition := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionReady)
		if condition == nil || condition.Reason != reason {
			return fmt.Sprintf("tenant %s: want %s, got %+v", name, reason, condition)
		}
		return ""
	})
	return vc
}

func TestTenantsInTrouble(t *testing.T) {
	createSecret(t, "good", "value", shared.tenant.KubeConfig)
	createTenant(t, "good")
	awaitReady(t, "good", tenancyv1alpha1.ReasonConnected)

	for _, tc := range []struct {
		name       string
		key        string // "" for no Secret
		kubeconfig []byte
		wantReason string
	}{
		{name: "no-secret", wantReason: tenancyv1alpha1.ReasonSecretNotFound},
		{name: "other-key", key: "config", kubeconfig: shared.tenant.KubeConfig, wantReason: tenancyv1alpha1.ReasonSecretNotFound},
		{name: "not-yaml", key: "value", kubeconfig: []byte("{{{"), wantReason: tenancyv1alpha1.ReasonInvalidKubeconfig},
		{name: "dead-server", key: "value", kubeconfig: deadServer(t, shared.tenant.KubeConfig), wantReason: tenancyv1alpha1.ReasonUnreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.key != "" {
				createSecret(t, tc.name, tc.key, tc.kubeconfig)
			}
			createTenant(t, tc.name)
			awaitReady(t, tc.name, tc.wantReason)
			awaitEvent(t, virtualClusterKind(), tc.name, tc.wantReason)
			running, started := shared.engaged.of(tc.name)
			require.Zero(t, running+started, "it must not be engaged")

			// Mending the Secret is all that is needed.
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: tc.name}}
			require.NoError(t, client.IgnoreNotFound(shared.client.Delete(t.Context(), secret)))
			createSecret(t, tc.name, "value", shared.other.KubeConfig)
			awaitReady(t, tc.name, tenancyv1alpha1.ReasonConnected)
		})
	}

	running, started := shared.engaged.of("good")
	require.Equal(t, []int{1, 1}, []int{running, started}, "the good tenant must not notice")
	vc := awaitReady(t, "good", tenancyv1alpha1.ReasonConnected)
	var root corev1.Namespace
	require.NoError(t, shared.client.Get(t.Context(), client.ObjectKey{Name: vc.Status.ClusterNamespace}, &root))
	require.Equal(t, "true", root.Annotations[tenancyv1alpha1.AnnotationRootNamespace])
	require.Equal(t, string(vc.UID), root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID])
}

// TestTenantTwice: a second VirtualCluster of one control plane is not engaged, and takes its place once the first one
// is gone. By which address it is reached does not matter.
func TestTenantTwice(t *testing.T) {
	createSecret(t, "elder", "value", shared.tenant.KubeConfig)
	elder := createTenant(t, "elder")
	awaitReady(t, "elder", tenancyv1alpha1.ReasonConnected)
	elsewhere, err := controlplane.Through(shared.tenant.KubeConfig, "https://"+forwarded(t, strings.TrimPrefix(shared.tenant.Config.Host, "https://")))
	require.NoError(t, err)
	createSecret(t, "younger", "value", elsewhere)
	createTenant(t, "younger")
	vc := awaitReady(t, "younger", tenancyv1alpha1.ReasonDuplicateControlPlane)
	require.Empty(t, vc.Status.ControlPlaneUID)
	require.Contains(t, awaitEvent(t, virtualClusterKind(), "younger", tenancyv1alpha1.ReasonDuplicateControlPlane), "VirtualCluster default/elder")
	running, started := shared.engaged.of("younger")
	require.Zero(t, running+started)

	require.NoError(t, shared.client.Delete(t.Context(), elder))
	awaitReady(t, "younger", tenancyv1alpha1.ReasonConnected)
	running, started = shared.engaged.of("elder")
	require.Equal(t, []int{0, 1}, []int{running, started})
}

// forwarded returns an address that leads to another one.
func forwarded(t *testing.T, to string) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			onto, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			go func() { _, _ = io.Copy(onto, from); _ = onto.Close() }()
			go func() { _, _ = io.Copy(from, onto); _ = from.Close() }()
		}
	}()
	return listener.Addr().String()
}

func TestTenantDeleted(t *testing.T) {
	createSecret(t, "leaving", "value", shared.tenant.KubeConfig)
	createTenant(t, "leaving")
	vc := awaitReady(t, "leaving", tenancyv1alpha1.ReasonConnected)
	placement := builders.Placement(vc.Status.ClusterNamespace, "web").Obj()
	require.NoError(t, shared.client.Create(t.Context(), placement))

	require.NoError(t, shared.client.Delete(t.Context(), vc))
	eventually(t, func() string {
		if err := shared.client.Get(t.Context(), client.ObjectKeyFromObject(vc), vc); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the VirtualCluster is still there: %v", err)
		}
		return ""
	})
	require.True(t, apierrors.IsNotFound(shared.client.Get(t.Context(), client.ObjectKeyFromObject(placement), placement)))
	var root corev1.Namespace
	require.NoError(t, shared.client.Get(t.Context(), client.ObjectKey{Name: vc.Status.ClusterNamespace}, &root))
	require.False(t, root.DeletionTimestamp.IsZero(), "the root namespace must be deleted")
	running, _ := shared.engaged.of("leaving")
	require.Zero(t, running)
}

func TestTenantKeyTaken(t *testing.T) {
	createSecret(t, "owner", "value", shared.tenant.KubeConfig)
	createTenant(t, "owner")
	owner := awaitReady(t, "owner", tenancyv1alpha1.ReasonConnected)

	createSecret(t, "second", "value", shared.other.KubeConfig)
	second := createTenant(t, "second")
	awaitReady(t, "second", tenancyv1alpha1.ReasonConnected)
	await.Change(t, shared.client, second, func(vc *tenancyv1alpha1.VirtualCluster) {
		vc.Status.ClusterNamespace = owner.Status.ClusterNamespace
	}, "status")
	awaitReady(t, "second", tenancyv1alpha1.ReasonKeyConflict)
	awaitEvent(t, virtualClusterKind(), "second", tenancyv1alpha1.ReasonKeyConflict)
	running, started := shared.engaged.of("owner")
	require.Equal(t, []int{1, 1}, []int{running, started})
	eventually(t, func() string {
		if running, _ := shared.engaged.of("second"); running != 0 {
			return "the second tenant is still engaged"
		}
		return ""
	})
}
