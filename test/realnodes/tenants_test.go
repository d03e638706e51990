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

// again is whether the tests have run on the bed with vn-agent in another mode.
var again = flag.Bool("again", false, "leave out what has run with vn-agent in another mode, which makes no difference to it")

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

// inAnyMode are the longest of the tests to which the mode of vn-agent makes no difference.
var inAnyMode = []string{"TestDrills", "TestDiskFull"}

// TestMain leaves out what another run on the same bed has shown: with the provisioned tenant what was shown with the
// imported one, and again what no mode of vn-agent makes a difference to.
func TestMain(m *testing.M) {
	flag.Parse()
	skip, shown := flag.Lookup("test.skip").Value, []string{}
	if *tested != imported {
		shown = slices.Sorted(maps.Keys(withImported))
	}
	if *again {
		shown = append(shown, inAnyMode...)
	}
	if len(shown) > 0 {
		patterns := []string{"^(" + strings.Join(shown, "|") + ")$"}
		if given := skip.String(); given != "" {
			patterns = append(patterns, given)
		}
		if err := skip.Set(strings.Join(patterns, "|")); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
