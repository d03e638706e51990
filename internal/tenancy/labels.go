package tenancy

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Domains of the labels that hold the labels of tenants' Pods and Namespaces in super clusters. Nothing in a super
// cluster gives them a meaning of its own.
const (
	// labelDomainPlain, with a tenant's key that has no domain, is the key of that label on super pods and super
	// namespaces. Written by the syncer; read by the super cluster, where selectors are translated.
	labelDomainPlain = "label.tenancy.x-k8s.io/"
	// labelDomainHashed, with a hash of any other key of a tenant, is the key of that label there.
	// Written by the syncer; read by the super cluster, where selectors are translated.
	labelDomainHashed = "hashed-label.tenancy.x-k8s.io/"
)

// hashedLabelLength is the number of hexadecimal digits of a label key's hash: 128 bits, so that a tenant does not find
// two keys with one hash.
const hashedLabelLength = 32

// LabelKey returns the label key under which objects in super clusters hold a label of a tenant's object. It is valid
// for each valid key, and differs for different keys:
//
//	app                      label.tenancy.x-k8s.io/app
//	app.kubernetes.io/name   hashed-label.tenancy.x-k8s.io/<first 32 hex digits of the key's hash>
func LabelKey(key string) string {
	if !strings.Contains(key, "/") {
		return labelDomainPlain + key
	}
	digest := sha256.Sum256([]byte(key))
	return labelDomainHashed + hex.EncodeToString(digest[:])[:hashedLabelLength]
}

// IsLabelKey returns whether key is one that LabelKey returns.
func IsLabelKey(key string) bool {
	return strings.HasPrefix(key, labelDomainPlain) || strings.HasPrefix(key, labelDomainHashed)
}

// TranslateSelector replaces the label keys in a selector of a tenant's Pods or Namespaces by those that LabelKey
// returns. It writes to selector, which must be a copy of the tenant's; nil stays nil.
func TranslateSelector(selector *metav1.LabelSelector) {
	if selector == nil {
		return
	}
	if selector.MatchLabels != nil {
		translated := make(map[string]string, len(selector.MatchLabels))
		for key, value := range selector.MatchLabels {
			translated[LabelKey(key)] = value
		}
		selector.MatchLabels = translated
	}
	for i := range selector.MatchExpressions {
		selector.MatchExpressions[i].Key = LabelKey(selector.MatchExpressions[i].Key)
	}
}
