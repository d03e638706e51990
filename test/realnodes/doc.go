// Package realnodes tests the pool on a running bed of real nodes (`make realnodes`): what tenants do with kubectl,
// what their containers see, and that no tenant reaches another's pods. Its tests have the build tag realnodes; `make
// test-realnodes` runs them.
package realnodes
