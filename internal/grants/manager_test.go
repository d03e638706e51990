package grants

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/builders"
)

// managers returns what vc-manager is granted, as "namespace: role", with the names of Secrets that it may get.
func (b *bed) managers(t *testing.T) (granted []string) {
	t.Helper()
	var bindings rbacv1.RoleBindingList
	require.NoError(t, b.List(t.Context(), &bindings))
	for i := range bindings.Items {
		binding := &bindings.Items[i]
		if strings.HasPrefix(binding.Name, namePrefix) || len(binding.Subjects) == 0 {
			continue
		}
		require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "vc-manager", Name: "vc-manager"}}, binding.Subjects)
		require.Equal(t, binding.Namespace == "default", metav1.IsControlledBy(binding, builders.VirtualCluster("a")), "it goes with the VirtualCluster, or with the root namespace")
		of := binding.Namespace + ": " + binding.RoleRef.Name
		if binding.RoleRef.Kind == "Role" {
			role := &rbacv1.Role{}
			require.NoError(t, b.Get(t.Context(), client.ObjectKey{Namespace: binding.Namespace, Name: binding.RoleRef.Name}, role))
			require.Len(t, role.Rules, 1)
			require.Empty(t, cmp.Diff(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: role.Rules[0].ResourceNames, Verbs: []string{"get"}}, role.Rules[0]))
			of += " " + strings.Join(role.Rules[0].ResourceNames, " ")
		}
		granted = append(granted, of)
	}
	return granted
}

// becomes changes what a VirtualCluster is: one that names a ClusterVersion is vc-manager's.
func (b *bed) becomes(t *testing.T, version string) {
	t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(t, b.Get(t.Context(), request.NamespacedName, vc))
	vc.Spec.ClusterVersionName = version
	require.NoError(t, b.Update(t.Context(), vc))
}

// TestManager: vc-manager may make the control planes that are its own, and keep what is beside VirtualClusters.
func TestManager(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.controller()
	imported := []string{"default: superpool:credentials:a a-vn-agent", "default: superpool:tenant-credentials"}
	b.reconcile(t, c)
	require.Equal(t, imported, b.managers(t))
	b.becomes(t, "v1.37")
	b.reconcile(t, c)
	require.Equal(t, []string{"default: superpool:credentials:a a-kubeconfig a-vn-agent", "default: superpool:tenant-credentials", "key: superpool:control-planes"}, b.managers(t))
	b.becomes(t, "")
	b.reconcile(t, b.controller())
	require.Equal(t, imported, b.managers(t), "also behind a restart")
}

// TestAnothersRoot: a namespace that is not the VirtualCluster's is left alone, whatever its status says, and what is
// granted elsewhere is granted.
func TestAnothersRoot(t *testing.T) {
	t.Parallel()
	b := newBed(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
	b.becomes(t, "v1.37")
	vc := &tenancyv1alpha1.VirtualCluster{}
	for _, another := range []string{"kube-system", "gone"} {
		require.NoError(t, b.Get(t.Context(), request.NamespacedName, vc))
		vc.Status.ClusterNamespace = another
		require.NoError(t, b.Update(t.Context(), vc))
		c := b.controller()
		require.Equal(t, rootPeriod, b.reconcile(t, c).RequeueAfter)
		require.Equal(t, []string{"default: superpool:credentials:a a-kubeconfig a-vn-agent", "default: superpool:tenant-credentials"}, b.managers(t))
	}
	require.NoError(t, b.Get(t.Context(), request.NamespacedName, vc))
	vc.Status.ClusterNamespace = "key"
	require.NoError(t, b.Update(t.Context(), vc))
	b.reconcile(t, b.controller())
	require.Contains(t, b.managers(t), "key: superpool:control-planes")
}

// TestAnothersRootIsNotWrittenFor: as long as a root namespace is not the VirtualCluster's it is looked at again less and
// less often, and what is granted elsewhere is written once; when it is, what belongs there is written alone.
func TestAnothersRootIsNotWrittenFor(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.becomes(t, "v1.37")
	root := &corev1.Namespace{}
	require.NoError(t, b.Get(t.Context(), client.ObjectKey{Name: "key"}, root))
	owner := root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID]
	root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID] = "another"
	require.NoError(t, b.Update(t.Context(), root))
	c := b.controller()
	require.Equal(t, rootPeriod, b.reconcile(t, c).RequeueAfter)
	writes := b.writes
	var again []time.Duration
	for range 8 {
		again = append(again, b.reconcile(t, c).RequeueAfter)
	}
	require.Equal(t, []time.Duration{20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, checkPeriod, checkPeriod, checkPeriod}, again)
	require.Equal(t, writes, b.writes)
	b.clock.SetTime(b.clock.Now().Add(checkPeriod))
	b.reconcile(t, c)
	require.Equal(t, 2*writes, b.writes, "as any grant is written again")

	require.NoError(t, b.Get(t.Context(), client.ObjectKey{Name: "key"}, root))
	root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID] = owner
	require.NoError(t, b.Update(t.Context(), root))
	require.Equal(t, checkPeriod, b.reconcile(t, c).RequeueAfter)
	require.Equal(t, 2*writes+1, b.writes)
	require.Contains(t, b.managers(t), "key: superpool:control-planes")
	b.reconcile(t, c)
	require.Equal(t, 2*writes+1, b.writes)
}

// TestBindIsRefused: syncers are granted what is theirs where vc-scheduler has not the rights of this version yet.
func TestBindIsRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t, builders.Placement("key", "one").Held("r1", 1).Obj())
	c := b.controller()
	forbidden := apierrors.NewForbidden(rbacv1.Resource("rolebindings"), planesRole, errors.New("not bound"))
	b.refuses = func(object client.Object) error {
		if binding, is := object.(*rbacv1.RoleBinding); is && binding.RoleRef.Kind == "ClusterRole" {
			return forbidden
		}
		return nil
	}
	_, err := c.Reconcile(t.Context(), request)
	require.ErrorIs(t, err, forbidden)
	require.Equal(t, []string{"vc-syncer-r1"}, b.readers(t))
	b.refuses = nil
	b.reconcile(t, c)
	require.Len(t, b.managers(t), 2)
}

// TestNamesOfManifests: what is bound is shipped.
func TestNamesOfManifests(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "manifests", "base", "vc-manager-grants.yaml"))
	require.NoError(t, err)
	rights, err := os.ReadFile(filepath.Join("..", "..", "manifests", "base", "vc-scheduler-rbac.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(rights), "resourceNames: ["+planesRole+", "+writerRole+"]\n  verbs: [bind]")
	require.Contains(t, string(text), "['"+planesRole+"', '"+writerRole+"']")
	require.Contains(t, string(text), "'"+tenancyv1alpha1.AnnotationRootNamespace+"' in namespaceObject.metadata.annotations")
	for _, role := range []string{planesRole, writerRole} {
		require.Contains(t, string(text), "\n  name: "+role+"\n")
	}
}
