// Package features names the feature gates of Superpool.
package features

import (
	"errors"
	"fmt"

	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// SuperClusterPooling lets a syncer serve one super cluster of a pool: it syncs what is placed there, instead of
// everything.
//
// owner: @superpool, design: docs/designs/02-end-to-end.md
const SuperClusterPooling featuregate.Feature = "SuperClusterPooling"

// NewGate returns a gate that knows the features of the syncer and of logging, all at their defaults.
func NewGate() (featuregate.MutableFeatureGate, error) {
	gate := featuregate.NewFeatureGate()
	err := errors.Join(logsapi.AddFeatureGates(gate), gate.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		SuperClusterPooling: {Default: false, PreRelease: featuregate.Alpha},
	}))
	if err != nil {
		return nil, fmt.Errorf("adding feature gates: %w", err)
	}
	return gate, nil
}
