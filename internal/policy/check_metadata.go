package policy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ourDomain is the domain of the labels and annotations that syncers set; theirs has subdomains, too.
const ourDomain = "tenancy.x-k8s.io"

func isOurs(key string) bool {
	domain := domainOf(key)
	return domain == ourDomain || strings.HasSuffix(domain, "."+ourDomain)
}

// ofEndpoints are the labels of EndpointSlices that syncers set besides ours: without them no proxy finds a slice.
var ofEndpoints = [...]string{discoveryv1.LabelServiceName, discoveryv1.LabelManagedBy, corev1.IsHeadlessService}

// checkMetadata checks the labels and annotations of a new object. Those of an existing one may be the super cluster's.
func (p *Policy) checkMetadata(object client.Object, found *refusals) {
	resource := ""
	switch object.(type) {
	case *corev1.Pod:
		resource = "pods"
	case *corev1.ConfigMap:
		resource = "configmaps"
	case *corev1.Secret:
		resource = "secrets"
	case *corev1.Service:
		resource = resourceServices
	case *corev1.ServiceAccount:
		resource = "serviceaccounts"
	case *networkingv1.NetworkPolicy:
		resource = "networkpolicies"
	case *discoveryv1.EndpointSlice:
		resource = "endpointslices"
	case *networkingv1.Ingress:
		resource = resourceIngresses
	case *policyv1.PodDisruptionBudget:
		resource = "poddisruptionbudgets"
	default:
		return // claims and snapshots have checks of their own
	}
	p.checkKeys(resource, "metadata", object.GetLabels(), object.GetAnnotations(), found)
}

// checkKeys checks the keys of the labels and annotations at a path.
func (p *Policy) checkKeys(resource, path string, labels, annotations map[string]string, found *refusals) {
	for _, key := range keysThat(labels, func(key string) bool {
		ofSyncers := isOurs(key) || resource == "endpointslices" && slices.Contains(ofEndpoints[:], key)
		return !ofSyncers && !p.AllowsLabel(resource, key)
	}) {
		found.add(path+".labels["+key+"]", "label %s is not allowed: metadata.labels allows %s", key, names(p.spec.Metadata.Labels))
	}
	for _, key := range keysThat(annotations, func(key string) bool {
		ofSyncers := isOurs(key) || resource == resourceClaims && key == corev1.BetaStorageClassAnnotation // a StorageClass is checked as such
		return !ofSyncers && !p.AllowsAnnotation(resource, key)
	}) {
		found.add(path+".annotations["+key+"]", "annotation %s is not allowed: metadata.annotations allows %s", key, names(p.spec.Metadata.Annotations))
	}
}

// keysThat returns the keys for which is returns true, sorted.
func keysThat(values map[string]string, is func(key string) bool) []string {
	var keys []string
	for key := range values {
		if is(key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
