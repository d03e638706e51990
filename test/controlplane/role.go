package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Role is what a control plane is for: it decides which version of Kubernetes it runs. That of "" is bin/'s.
type Role string

// Meta is the meta cluster, Super a super cluster, Tenant the control plane of a tenant.
const (
	Meta   Role = "meta"
	Super  Role = "super"
	Tenant Role = "tenant"
)

// VersionsVariable names the environment variable that says which minor version control planes of a role have, for
// those that do not have bin/'s: "tenant=1.35 super=1.36". Their programs are in bin/1.35 and bin/1.36, where `make
// versions` builds them.
const VersionsVariable = "CONTROL_PLANES"

// programs returns the folder of a role's programs, for the repository at root and the value of VersionsVariable.
func (r Role) programs(root, versions string) (string, error) {
	bin := filepath.Join(root, "bin")
	for _, version := range strings.Fields(versions) {
		role, minor, _ := strings.Cut(version, "=")
		if !slices.Contains([]Role{Meta, Super, Tenant}, Role(role)) || minor == "" {
			return "", fmt.Errorf("%s: %q is not meta, super or tenant, = and a minor version, as tenant=1.35 is", VersionsVariable, version)
		}
		if Role(role) == r {
			bin = filepath.Join(root, "bin", minor)
		}
	}
	if _, err := os.Stat(filepath.Join(bin, "kube-apiserver")); err != nil {
		return "", fmt.Errorf("the programs of control planes are missing, make test and make versions build them: %w", err)
	}
	return bin, nil
}
