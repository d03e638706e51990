package controlplane

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// ExternalSecretType is the type of the Secrets, in vc-manager's namespace, with the authorities of external stores.
	ExternalSecretType corev1.SecretType = "tenancy.x-k8s.io/external-etcd"
	// ExternalClient has the certificate by which an external store knows the API servers. Its authority is the store's.
	ExternalClient = "external-etcd-client"
	// FinalizerExternal keeps ConfigMap etcd, and with it the root namespace, until nothing of the tenant is in the external
	// store that it names. Written by vc-manager; read by vc-manager.
	FinalizerExternal = "tenancy.x-k8s.io/external-etcd"

	externalEndpoints = "external-endpoints"
	externalSecret    = "external-secret"
	externalID        = "external-id"
)

// External is a store that vc-manager does not run, and that others use too.
type External struct {
	// Endpoints are the URLs of its members.
	Endpoints []string
	// Secret names the Secret of ExternalSecretType.
	Secret string
	// ID is by what it is another store than all others.
	ID string
}

// ExternalUser returns the name of a VirtualCluster in external stores: no other has it, at any time, in any meta cluster.
func ExternalUser(uid types.UID) string { return "superpool-" + string(uid) }

// ExternalPrefix returns below which prefix an external store has what is a VirtualCluster's. It ends with a slash, so that
// none is the beginning of another one.
func ExternalPrefix(uid types.UID) string { return "/superpool/" + string(uid) + "/" }

// ExternalOf returns the external store that the ConfigMap of a store names, nil for none.
func ExternalOf(told *corev1.ConfigMap) *External {
	if told.Data[externalSecret] == "" {
		return nil
	}
	return &External{Endpoints: strings.Split(told.Data[externalEndpoints], ","), Secret: told.Data[externalSecret], ID: told.Data[externalID]}
}

// HasExternal reports whether API servers have an external store.
func HasExternal(servers *appsv1.Deployment) bool {
	return slices.ContainsFunc(servers.Spec.Template.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.Projected != nil && slices.ContainsFunc(volume.Projected.Sources, func(source corev1.VolumeProjection) bool {
			return source.Secret != nil && source.Secret.Name == ExternalClient
		})
	})
}

// tell says in the ConfigMap of a store that it is an external one.
func (e *External) tell(told *corev1.ConfigMap) {
	told.Data = map[string]string{externalEndpoints: strings.Join(slices.Sorted(slices.Values(e.Endpoints)), ","), externalSecret: e.Secret, externalID: e.ID}
	told.Finalizers = []string{FinalizerExternal}
}
