package grants

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// Names of manifests/base/vc-manager-grants.yaml.
const (
	// managerAccount is the service account of vc-manager, in ManagerNamespace.
	managerAccount = "vc-manager"
	// planesRole is the ClusterRole of what vc-manager does in root namespaces, and the RoleBinding there.
	planesRole = "superpool:control-planes"
	// writerRole is the ClusterRole of what vc-manager does beside VirtualClusters. It gets nothing by it.
	writerRole = "superpool:tenant-credentials"
	// writerPrefix is that of the RoleBinding to writerRole, before the name of the VirtualCluster, and credentialsPrefix
	// that of the Role to get what vc-manager keeps there, and of its RoleBinding.
	writerPrefix, credentialsPrefix = "superpool:write-credentials:", "superpool:credentials:"
)

// ofManager returns what lets vc-manager make the control plane of a VirtualCluster, and keep what is beside it: a
// Secret for who administers the tenant, and one for its API server where that is imported. What it may read comes
// behind what it may write: once vc-manager can read there it can write. In the root namespace of one that is imported
// nobody has any rights: it may have named a ClusterVersion before.
//
// A Role has no more than vc-scheduler itself, which writes no Secrets, so what vc-manager writes is in ClusterRoles:
// these vc-scheduler binds without having what is in them.
func ofManager(vc *tenancyv1alpha1.VirtualCluster) []client.Object {
	manager := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenancyv1alpha1.ManagerNamespace, Name: managerAccount}}
	inRoot, secrets := manager, []string{vc.Name + tenancyv1alpha1.SuffixKubeconfig, vc.Name + tenancyv1alpha1.SuffixAgent}
	if vc.Spec.ClusterVersionName == "" {
		inRoot, secrets = nil, secrets[1:]
	}
	return []client.Object{
		binding(vc, vc.Namespace, writerPrefix+vc.Name, "ClusterRole", writerRole, manager),
		reader(vc, vc.Namespace, credentialsPrefix+vc.Name, secrets...),
		binding(vc, vc.Namespace, credentialsPrefix+vc.Name, "Role", credentialsPrefix+vc.Name, manager),
		binding(vc, vc.Status.ClusterNamespace, planesRole, "ClusterRole", planesRole, inRoot),
	}
}
