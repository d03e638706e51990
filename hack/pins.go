//go:build tools

// Package hack pins modules whose files scripts and tests read while no code imports them: Cluster API, for its
// CustomResourceDefinition of Cluster (core/config/crd/bases).
package hack

import _ "sigs.k8s.io/cluster-api/version"
