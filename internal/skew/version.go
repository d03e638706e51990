// Package skew says what follows from versions of Kubernetes that differ: which of them work together, what a pod needs
// that an older one lacks, and what an API server has dropped. Everything here is pure.
package skew

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	componentversion "k8s.io/component-base/version"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// Minors is by how many minor versions an API server may be older or newer than Superpool.
	Minors = 3
	// maxText bounds what an API server says of its version, in bytes.
	maxText = 64
)

// Version is that of an API server of Kubernetes 1. The zero Version is one that is not known.
type Version struct {
	// Text is what it says, without what surrounds it: v1.34.10, v1.31.1-eks-a5ec690, v1.36.0+emulated.by.1.37.
	Text  string
	Minor uint
}

// Parse reads what an API server says of its version (gitVersion).
func Parse(text string) (Version, error) {
	if len(text) > maxText {
		return Version{}, fmt.Errorf("it says a version of %d bytes, and %d are read", len(text), maxText)
	}
	parsed, err := version.ParseSemantic(text)
	if err != nil || parsed.Major() != 1 {
		return Version{}, fmt.Errorf("it says version %q, which is none of Kubernetes 1", text)
	}
	return Version{Text: "v" + parsed.String(), Minor: parsed.Minor()}, nil
}

// Said reads what an API server says of its version. It has the version that it emulates (--emulated-version): it knows
// no fields of a newer one.
func Said(said *apiversion.Info) (Version, error) {
	found, err := Parse(said.GitVersion)
	if err != nil || said.EmulationMinor == "" {
		return found, err
	}
	if len(said.EmulationMajor)+len(said.EmulationMinor) > maxText {
		return Version{}, fmt.Errorf("it says that it emulates a version of more than %d bytes", maxText)
	}
	emulated, err := version.ParseMajorMinor(said.EmulationMajor + "." + said.EmulationMinor)
	if err != nil || emulated.Major() != 1 {
		return Version{}, fmt.Errorf("it says that it emulates %q.%q, which is no version of Kubernetes 1", said.EmulationMajor, said.EmulationMinor)
	}
	if emulated.Minor() >= found.Minor {
		return found, nil
	}
	return Parse(fmt.Sprintf("v1.%d.0+emulated.by.1.%d", emulated.Minor(), found.Minor))
}

// Of returns the version of the super cluster that a virtual Node stands for.
func Of(node *corev1.Node) Version {
	found, err := Parse(node.Status.NodeInfo.KubeletVersion)
	if err != nil {
		return Version{}
	}
	return found
}

// String returns the version as people write it: 1.34.10.
func (v Version) String() string { return strings.TrimPrefix(v.Text, "v") }

// Ours returns the minor version of the libraries that Superpool is built from.
func Ours() uint {
	return version.MustParseGeneric(componentversion.DefaultKubeBinaryVersion).Minor()
}

// Outside says that an API server is further away from Superpool than Minors, and what to do. It returns the zero
// Reason for one that is not, and for an unknown version.
func (v Version) Outside() tenancy.Reason {
	reason, advice := tenancyv1alpha1.ReasonVersionTooOld, "upgrade it"
	switch ours := Ours(); {
	case v == Version{}, v.Minor+Minors >= ours && v.Minor <= ours+Minors:
		return tenancy.Reason{}
	case v.Minor > ours:
		reason, advice = tenancyv1alpha1.ReasonVersionTooNew, "upgrade Superpool"
	}
	return tenancy.Reason{Reason: reason, Message: fmt.Sprintf("The API server has Kubernetes %s, and Superpool, built from 1.%d, works with 1.%d to 1.%d: %s",
		v, Ours(), Ours()-Minors, Ours()+Minors, advice)}
}
