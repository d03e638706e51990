//go:build tools

// Package tools pins the linter of structured and contextual logging, which needs a newer golang.org/x/tools than its
// go.mod requires.
package tools

import _ "sigs.k8s.io/logtools/logcheck"
