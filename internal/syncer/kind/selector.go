package kind

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// Confine adds our ownership label of the tenant to a selector. The nil selector matches nothing and stays nil.
func Confine(selector *metav1.LabelSelector, clusterKey string) {
	if selector == nil {
		return
	}
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[tenancyv1alpha1.LabelCluster] = clusterKey
}

// TranslateSelector translates a selector of a tenant's Pods or Namespaces to one of the tenant's super objects. nil
// stays nil.
func TranslateSelector(selector *metav1.LabelSelector, clusterKey string) {
	tenancy.TranslateSelector(selector)
	Confine(selector, clusterKey)
}
