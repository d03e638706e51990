// Package e2e runs the demo as a test: on control planes of its own, on our binaries in bin/, as hack/demo.sh shows it to a person.
// Its tests have the build tag e2e; `make test-e2e` runs them.
package e2e
