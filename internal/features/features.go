// Package features names the feature gates of Superpool.
package features

import (
	"fmt"

	"k8s.io/component-base/featuregate"
)

// SuperClusterPooling lets a syncer serve one super cluster of a pool: it syncs what is placed there, instead of everything.
//
// owner: @superpool, design: docs/designs/02-end-to-end.md
const SuperClusterPooling featuregate.Feature = "SuperClusterPooling"

// NewGate returns a gate that knows the features of the syncer, all at their defaults.
func NewGate() (featuregate.MutableFeatureGate, error) {
	gate := featuregate.NewFeatureGate()
	err := gate.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		SuperClusterPooling: {Default: false, PreRelease: featuregate.Alpha},
	})
	if err != nil {
		return nil, fmt.Errorf("adding feature gates: %w", err)
	}
	return gate, nil
}
