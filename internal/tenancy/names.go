// Package tenancy defines the identity of tenants: their keys, the mapping of their names to names in super clusters
// and back, and the ownership labels and annotations of objects in super clusters.
//
// Everything here is pure: no clients, no clock, no logging, and arguments are never changed.
package tenancy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// hashLength is the number of hexadecimal digits in a shortened name: 64 bits, so that finding two names with one hash
// takes about 2^32 tries. Callers of such a pair still compare owners (GetOwner).
const hashLength = 16

// ClusterKey returns the key of a tenant, which names its root namespace and begins the names of its namespaces in
// super clusters: the status' clusterNamespace once set, else <namespace>-<first 6 hex digits of the UID's
// hash>-<name>, with hyphens for the dots that a name may have and a namespace may not.
func ClusterKey(vc *tenancyv1alpha1.VirtualCluster) string {
	if vc.Status.ClusterNamespace != "" {
		return vc.Status.ClusterNamespace
	}
	digest := sha256.Sum256([]byte(vc.UID))
	return shorten(fmt.Sprintf("%s-%s-%s", vc.Namespace, hex.EncodeToString(digest[:])[:6], strings.ReplaceAll(vc.Name, ".", "-")), validation.DNS1123LabelMaxLength)
}

// SuperNamespace returns the name, in super clusters, of a tenant's namespace: <cluster key>-<namespace>, at most 63
// characters. Two pairs can have one name ("a-b"+"c", "a"+"b-c"): a caller must check the owner before it uses one.
func SuperNamespace(clusterKey, namespace string) string {
	return shorten(clusterKey+"-"+namespace, validation.DNS1123LabelMaxLength)
}

// NodeName returns the name, in tenant control planes, of a node of a super cluster: <super cluster>.<node>.
func NodeName(superCluster, node string) string {
	return shorten(superCluster+"."+node, validation.DNS1123SubdomainMaxLength)
}

// HostName returns the label kubernetes.io/hostname of a Node of a tenant, by its name: cut at 63 characters.
func HostName(nodeName string) string {
	if len(nodeName) <= validation.LabelValueMaxLength {
		return nodeName
	}
	end := validation.LabelValueMaxLength
	for end > 0 && (nodeName[end-1] == '.' || nodeName[end-1] == '-') {
		end--
	}
	return nodeName[:end]
}

// VolumeName returns the name, in tenant control planes, of a volume of a super cluster: <super cluster>.<volume>.
func VolumeName(superCluster, volume string) string {
	return shorten(superCluster+"."+volume, validation.DNS1123SubdomainMaxLength)
}

// TokenSecret returns the name, in super clusters, of the Secret with the tokens of a tenant's pod:
// <pod>-tokens-<hash>. A pod that is deleted and created again under the same name has another.
func TokenSecret(pod string, uid types.UID) string {
	digest := sha256.Sum256([]byte(pod + "/" + string(uid)))
	suffix := "-tokens-" + hex.EncodeToString(digest[:])[:hashLength]
	if limit := validation.DNS1123SubdomainMaxLength - len(suffix); len(pod) > limit {
		pod = strings.TrimRight(pod[:limit], "-.")
	}
	return pod + suffix
}

// NodeSuperCluster returns the super cluster of a node name that NodeName made. It returns false for any other form.
func NodeSuperCluster(nodeName string) (string, bool) {
	superCluster, node, found := strings.Cut(nodeName, ".")
	return superCluster, found && superCluster != "" && node != ""
}

// ValidateSuperClusterID returns an error if id cannot name a super cluster. It must be a DNS label: it names a Node, a
// label value, and the part of NodeName before the first dot.
func ValidateSuperClusterID(id string) error {
	if reasons := validation.IsDNS1123Label(id); len(reasons) > 0 {
		return fmt.Errorf("super cluster id %q: %s", id, strings.Join(reasons, "; "))
	}
	return nil
}

// shorten returns name if it has at most limit characters, else its beginning and a hash of the whole.
func shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	digest := sha256.Sum256([]byte(name))
	head := strings.TrimRight(name[:limit-hashLength-1], "-.")
	return head + "-" + hex.EncodeToString(digest[:])[:hashLength]
}

// Owner is the tenant's object that an object in a super cluster was created for.
type Owner struct {
	// ClusterKey of the tenant.
	ClusterKey string
	// VirtualCluster is the tenant's object in the meta cluster, and VirtualClusterUID its UID.
	VirtualCluster    types.NamespacedName
	VirtualClusterUID types.UID
	// Namespace is the name, in the tenant, of the namespace that the object is in, or that it is.
	Namespace string
	// UID is the UID of the tenant's object.
	UID types.UID
}
