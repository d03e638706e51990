// Package version says which version of Superpool a program is.
package version

// version is set by the linker: -X github.com/superpool/superpool/internal/version.version=v0.1.0. It is not that of
// k8s.io/component-base/version, by which libraries of Kubernetes tell the version of Kubernetes that they are part of:
// told v0.1.0, they turn off what came after Kubernetes 0.1.
var version = "v0.0.0"

// String returns the version of the program, v0.0.0 where nobody has set it.
func String() string { return version }
