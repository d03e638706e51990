// Package monitoring tests manifests/monitoring with the libraries of Prometheus, as they are applied. It is a module of
// its own: docs/designs/34-monitoring.md says why.
package monitoring
