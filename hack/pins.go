//go:build tools

// Package hack pins modules that scripts and tests read files of, and no code imports. From Cluster API comes the definition of Cluster
// (config/crd/bases).
package hack

import _ "sigs.k8s.io/cluster-api/api/core/v1beta2"
