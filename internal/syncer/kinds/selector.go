package kinds

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// confine adds our ownership label of the tenant to a selector. The nil selector matches nothing and stays nil.
func confine(selector *metav1.LabelSelector, clusterKey string) {
	if selector == nil {
		return
	}
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[tenancyv1alpha1.LabelCluster] = clusterKey
}

// translateNamespaceNames replaces the values of label kubernetes.io/metadata.name by the names of super namespaces.
func translateNamespaceNames(selector *metav1.LabelSelector, clusterKey string) {
	if name, exists := selector.MatchLabels[corev1.LabelMetadataName]; exists {
		selector.MatchLabels[corev1.LabelMetadataName] = tenancy.SuperNamespace(clusterKey, name)
	}
	for _, requirement := range selector.MatchExpressions {
		if requirement.Key == corev1.LabelMetadataName {
			for i, name := range requirement.Values {
				requirement.Values[i] = tenancy.SuperNamespace(clusterKey, name)
			}
		}
	}
}
