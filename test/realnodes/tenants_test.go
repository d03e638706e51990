//go:build realnodes

package realnodes_test

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// The bed's tenants of either kind: the control plane of one runs as processes of the host, vc-manager makes that of
// the other. vc-sample-2, which is imported too, is the other tenant of both.
const (
	imported    = "vc-sample-1"
	provisioned = "vc-sample-3"
)

// tested is the tenant whose containers the tests run.
var tested = flag.String("tenant", imported, "the tenant that is tested: "+imported+" is imported, vc-manager has made "+provisioned)

// nodePorts are the first ports of the tenants' ranges of 500 node ports (hack/realnodes/lib/clusters.sh).
var nodePorts = map[string]int{imported: 30000, provisioned: 32000}

// withImported are the tests that run with the imported tenant alone, and why.
var withImported = map[string]string{
	"TestATenantComesAndGoes":   "it makes a tenant of its own",
	"TestAControlPlaneIsClosed": "it is about the provisioned tenant, whichever is tested",
	"TestDrills":                "they make a tenant of their own",
	"TestDiskFull":              "it makes a tenant of its own",
	"TestPairs":                 "its pods are of all three tenants",
	"TestWhoReachesOurPrograms": "its pods are of no tenant",
}

// TestMain leaves out of a run with the provisioned tenant what that with the imported one has shown.
func TestMain(m *testing.M) {
	flag.Parse()
	if skip := flag.Lookup("test.skip").Value; *tested != imported {
		patterns := []string{"^(" + strings.Join(slices.Sorted(maps.Keys(withImported)), "|") + ")$"}
		if given := skip.String(); given != "" {
			patterns = append(patterns, given)
		}
		if err := skip.Set(strings.Join(patterns, "|")); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
