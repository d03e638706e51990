// Package e2e runs hack/demo.sh as a test, on its own control planes and the binaries in bin/.
// Its tests have the build tag e2e; `make test-e2e` runs them.
package e2e
