// Package realnodes tests the pool on real nodes, on a bed that runs (`make realnodes`): what tenants do with kubectl, what their containers
// see, and that one tenant gets nothing of another. Its tests have the build tag realnodes; `make test-realnodes` runs them.
package realnodes
