//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A hundred namespaces like the demo's, in rounds: those of a round are created at once, and deleted before the next.
const (
	placementRounds = 5
	placementsEach  = 20
	placementsWait  = 2 * time.Minute
)

// placements checks that the placement of the demo comes out a hundred times of a hundred.
func placements(t *testing.T, dir string) {
	// The demo ends with a super cluster that has just come back.
	for _, condition := range []string{"condition=Ready", "jsonpath={.spec.taints[*].key}=virtual-kubelet.io/provider"} {
		output, err := kubectl(t, dir, "meta", "", "wait", "--timeout", placementsWait.String(), "--for="+condition, "node/r1", "node/r2")
		require.NoError(t, err, output)
	}
	for round := range placementRounds {
		var names, objects []string
		for i := range placementsEach {
			name := fmt.Sprintf("same-%d-%d", round, i)
			names = append(names, name)
			objects = append(objects,
				fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": %q, "annotations": {"scheduler.tenancy.x-k8s.io/slice": "{\"cpu\":\"100m\",\"memory\":\"100Mi\"}"}}}`, name),
				fmt.Sprintf(`{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"namespace": %q, "name": "mem-cpu-demo"}, "spec": {"hard": {"cpu": "200m", "memory": "200Mi"}}}`, name))
		}
		output, err := kubectl(t, dir, "vc-sample-1", `{"apiVersion": "v1", "kind": "List", "items": [`+strings.Join(objects, ",")+`]}`, "apply", "-f", "-")
		require.NoError(t, err, output)
		args := append([]string{"wait", "--timeout", placementsWait.String(), `--for=jsonpath={.metadata.annotations.scheduler\.tenancy\.x-k8s\.io/placements}={"r1":1,"r2":1}`, "ns"}, names...)
		output, err = kubectl(t, dir, "vc-sample-1", "", args...)
		if err != nil {
			namespaces, _ := kubectl(t, dir, "vc-sample-1", "", "get", "ns", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.annotations}{"\n"}{end}`)
			require.NoError(t, err, "%s\n%s", output, namespaces)
		}
		output, err = kubectl(t, dir, "vc-sample-1", "", append([]string{"delete", "--timeout", placementsWait.String(), "ns"}, names...)...)
		require.NoError(t, err, output)
	}
}
