// Package config syncs ConfigMaps, Secrets and service accounts.
package config

import (
	"bytes"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
)

// Maps declares how ConfigMaps are copied.
func Maps() copier.Copy[*corev1.ConfigMap] {
	return copier.Copy[*corev1.ConfigMap]{
		Name:       kind.ConfigMap,
		New:        func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		SuperName:  kind.SuperConfigMap,
		TenantName: kind.TenantConfigMap,
		Skip:       func(tenantConfigMap *corev1.ConfigMap) bool { return tenantConfigMap.Name == kind.TenantRootCA },
		Frozen: func(superConfigMap, desired *corev1.ConfigMap) bool {
			return ptr.Deref(superConfigMap.Immutable, false) && !sameData(superConfigMap, desired)
		},
		Translate: copier.Plain(SuperConfigMap),
	}
}

// SuperConfigMap sets the data of superConfigMap to those of tenantConfigMap. One that others made immutable stays so
// while its data are the same: that cannot be taken back.
func SuperConfigMap(tenantConfigMap, superConfigMap *corev1.ConfigMap) {
	if isFrozen(tenantConfigMap.Immutable, superConfigMap.Immutable) && sameData(tenantConfigMap, superConfigMap) {
		return
	}
	content := tenantConfigMap.DeepCopy()
	superConfigMap.Data, superConfigMap.BinaryData, superConfigMap.Immutable = content.Data, content.BinaryData, content.Immutable
}

func sameData(a, b *corev1.ConfigMap) bool {
	return maps.Equal(a.Data, b.Data) && maps.EqualFunc(a.BinaryData, b.BinaryData, bytes.Equal)
}

// isFrozen returns whether a copy in a super cluster is immutable and the tenant's object is not.
func isFrozen(inTenant, inSuper *bool) bool {
	return ptr.Deref(inSuper, false) && !ptr.Deref(inTenant, false)
}
