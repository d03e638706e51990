//go:build e2e

package e2e_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
)

// federationWait bounds the wait for what one step of federation comes to.
const federationWait = 2 * time.Minute

// federation does what "One tenant as a federation" of docs/beside-others.md does, up to the rollout, with its manifest.
func federation(t *testing.T, dir string) {
	const patch, zone = "--type=merge", "topology.kubernetes.io/zone="
	for _, step := range []struct {
		cluster string
		args    []string
		want    string // where the namespace is placed and its Running pods are; "": that does not count yet
	}{
		{cluster: "r1", args: []string{"label", "nodes", "--all", zone + "eu-1"}},
		{cluster: "r2", args: []string{"label", "nodes", "--all", zone + "eu-2"}},
		{cluster: "meta", args: []string{"wait", "node/r1", "--timeout=1m", `--for=jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}=eu-1`}},
		{cluster: "meta", args: []string{"wait", "node/r2", "--timeout=1m", `--for=jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}=eu-2`}},
		{cluster: "meta", args: []string{"patch", "vc", "vc-sample-1", patch, "-p", `{"spec":{"serviceCIDRs":["10.96.0.0/12"]}}`}},
		{
			cluster: "vc-sample-1", args: []string{"apply", "-f", filepath.Join(root(t), "manifests/samples/tenant/federation.yaml")},
			want: `{"r1":3,"r2":3} cache/r1 cache/r2 web/r1 web/r1 web/r2 web/r2`,
		},
		{
			cluster: "vc-sample-1", args: []string{"-n", "shop", "patch", "quota", "quota", patch, "-p", `{"spec":{"hard":{"cpu":"4","memory":"4Gi"}}}`},
			want: `{"r1":4,"r2":4} cache/r1 cache/r2 web/r1 web/r1 web/r2 web/r2`,
		},
		{
			cluster: "meta", args: []string{"taint", "node", "r1", "maintenance=:NoExecute"},
			want: `{"r2":8} cache/r2 web/r2 web/r2 web/r2 web/r2`,
		},
		{cluster: "meta", args: []string{"wait", "node/r1", "--timeout=1m", "--for=condition=Drained"}},
		{cluster: "meta", args: []string{"taint", "node", "r1", "maintenance-"}},
		{cluster: "meta", args: []string{"wait", "node/r1", "--timeout=1m", `--for=jsonpath={.spec.taints[*].key}=virtual-kubelet.io/provider`}},
		{
			cluster: "vc-sample-1", args: []string{"annotate", "namespace", "shop", "--overwrite", `scheduler.tenancy.x-k8s.io/placements={"r1":4,"r2":4}`},
			want: `{"r1":4,"r2":4} cache/r1 cache/r2 web/r2 web/r2 web/r2 web/r2`,
		},
		{cluster: "vc-sample-1", args: []string{"-n", "shop", "rollout", "restart", "deployment/web"}},
		{
			cluster: "vc-sample-1", args: []string{"-n", "shop", "rollout", "status", "deployment/web", "--timeout=2m"},
			want: `{"r1":4,"r2":4} cache/r1 cache/r2 web/r1 web/r1 web/r2 web/r2`,
		},
	} {
		output, err := kubectl(t, dir, step.cluster, "", step.args...)
		require.NoError(t, err, output)
		if step.want == "" {
			continue
		}
		var got string
		err = wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, federationWait, true, func(context.Context) (bool, error) {
			got = shop(t, dir)
			return got == step.want, nil
		})
		if err != nil {
			events, _ := kubectl(t, dir, "vc-sample-1", "", "-n", "shop", "get", "events")
			t.Fatalf("after %s:\ngot  %s\nwant %s\n%s", step.args, got, step.want, events)
		}
	}
	addresses := map[string]bool{}
	for _, cluster := range []string{"vc-sample-1", "r1", "r2"} {
		output, err := kubectl(t, dir, cluster, "", "get", "services", "-A", "-o", `jsonpath={.items[?(@.metadata.name=="web")].spec.clusterIP}`)
		require.NoError(t, err, output)
		addresses[output] = true
	}
	require.Len(t, addresses, 1, "the Service has one cluster IP everywhere")
	for _, cluster := range []string{"r1", "r2"} {
		var endpoints []string
		err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, federationWait, true, func(context.Context) (bool, error) {
			output, err := kubectl(t, dir, cluster, "", "get", "endpointslices", "-A", "-l", "kubernetes.io/service-name=web",
				"-o", "jsonpath={.items[*].endpoints[*].addresses[0]}")
			endpoints = slices.Compact(slices.Sorted(slices.Values(strings.Fields(output))))
			return len(endpoints) == 4, err
		})
		require.NoErrorf(t, err, "the Service has the endpoints of both super clusters in %s: %s", cluster, endpoints)
	}
	output, err := kubectl(t, dir, "vc-sample-1", "", "delete", "--timeout", federationWait.String(), "namespace", "shop")
	require.NoError(t, err, output)
}

// shop returns the placements of namespace shop, and of its pods that run and are to stay the app and super cluster.
func shop(t *testing.T, dir string) string {
	placements, err := kubectl(t, dir, "vc-sample-1", "", "get", "namespace", "shop", "-o", `jsonpath={.metadata.annotations.scheduler\.tenancy\.x-k8s\.io/placements}`)
	require.NoError(t, err, placements)
	output, err := kubectl(t, dir, "vc-sample-1", "", "get", "pods", "-n", "shop", "--field-selector=status.phase=Running", "-o",
		`go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.labels.app}}/{{index .metadata.annotations "scheduler.tenancy.x-k8s.io/superCluster"}}{{"\n"}}{{end}}{{end}}`)
	require.NoError(t, err, output)
	return placements + " " + strings.Join(slices.Sorted(slices.Values(strings.Fields(output))), " ")
}
