//go:build tools

// Package tools pins the Kubernetes end-to-end tests that `make conformance` runs, and what they need.
package tools

import _ "k8s.io/kubernetes/test/e2e"
