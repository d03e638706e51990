//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
)

// daemonsWait bounds the wait for the pods of a DaemonSet, and of a Deployment that spreads.
const daemonsWait = 2 * time.Minute

// agents is a namespace with room in both super clusters, a DaemonSet, and a Deployment whose pods spread over super
// clusters.
const agents = `
apiVersion: v1
kind: Namespace
metadata: {name: agents, annotations: {scheduler.tenancy.x-k8s.io/slice: '{"cpu":"200m","memory":"200Mi"}'}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {namespace: agents, name: quota}
spec: {hard: {cpu: 400m, memory: 400Mi, pods: "20"}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {namespace: agents, name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: agent, resources: {requests: {cpu: 50m, memory: 50Mi}, limits: {cpu: 50m, memory: 50Mi}}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: agents, name: spread}
spec:
  replicas: 2
  selector: {matchLabels: {app: spread}}
  template:
    metadata: {labels: {app: spread}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, minDomains: 2, topologyKey: tenancy.x-k8s.io/superclusterid, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: spread}}}
      containers: [{name: web, image: web, resources: {requests: {cpu: 50m, memory: 50Mi}, limits: {cpu: 50m, memory: 50Mi}}}]
`

// daemons lets the tenant have Nodes for all nodes: the tenant's own controllers then run one pod of a DaemonSet on
// each node of both super clusters, and a Deployment spreads over the super clusters.
func daemons(t *testing.T, dir string) {
	nodesOf := func(app string) []string {
		output, err := kubectl(t, dir, "vc-sample-1", "", "get", "pods", "-n", "agents", "-l", "app="+app, "-o",
			`jsonpath={range .items[?(@.status.phase=="Running")]}{.spec.nodeName}{"\n"}{end}`)
		require.NoError(t, err, output)
		return slices.Sorted(slices.Values(strings.Fields(output)))
	}
	mode := func(nodes string) {
		output, err := kubectl(t, dir, "meta", "", "patch", "virtualcluster", "vc-sample-1", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"nodes":%q}}`, nodes))
		require.NoError(t, err, output)
	}
	mode("Placed")
	output, err := kubectl(t, dir, "vc-sample-1", agents, "apply", "-f", "-")
	require.NoError(t, err, output)
	var nodes, spread []string
	err = wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, daemonsWait, true, func(context.Context) (bool, error) {
		nodes, spread = nodesOf("agent"), nodesOf("spread")
		return slices.Equal(nodes, []string{"r1.node-1", "r1.node-2", "r2.node-1", "r2.node-2"}) &&
			len(spread) == 2 && strings.HasPrefix(spread[0], "r1.") && strings.HasPrefix(spread[1], "r2."), nil
	})
	if err != nil {
		describe, _ := kubectl(t, dir, "vc-sample-1", "", "describe", "nodes,pods,quota", "-n", "agents")
		t.Fatalf("the DaemonSet runs on %v, the Deployment on %v\n%s", nodes, spread, describe)
	}
	output, err = kubectl(t, dir, "vc-sample-1", "", "rollout", "status", "-n", "agents", "--timeout", daemonsWait.String(), "daemonset/agent")
	require.NoError(t, err, output)
	output, err = kubectl(t, dir, "vc-sample-1", "", "delete", "--timeout", daemonsWait.String(), "namespace", "agents")
	require.NoError(t, err, output)
	mode("OnDemand")
}
