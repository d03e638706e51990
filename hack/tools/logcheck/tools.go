//go:build tools

// Package tools pins the linter of structured and contextual logging, which needs newer golang.org/x/tools than it asks for.
package tools

import _ "sigs.k8s.io/logtools/logcheck"
