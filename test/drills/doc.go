// Package drills drains, loses and brings back super clusters of a pool of real API servers with fake nodes, and checks
// what a tenant sees. It also tries what users have reported of others, where controllers are needed. Its tests have
// the build tag drills; `make drills` runs them.
package drills
