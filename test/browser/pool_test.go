//go:build browser

package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

type object = map[string]any

// resources returns amounts of cpu and memory.
func resources(cpu, gibibytes int) object {
	return object{"cpu": fmt.Sprint(cpu), "memory": fmt.Sprintf("%dGi", gibibytes)}
}

// node returns the virtual Node of a super cluster that is Ready.
func node(name string, cpu, gibibytes int) object {
	return object{
		"apiVersion": "v1", "kind": "Node", "metadata": object{"name": name, "labels": object{"scheduler.tenancy.x-k8s.io/super-cluster": name}},
		"status": object{
			"allocatable": resources(cpu, gibibytes), "nodeInfo": object{"kubeletVersion": "v1.37.2"}, "conditions": []object{{"type": "Ready", "status": "True"}},
		},
	}
}

// tenant returns a VirtualCluster that is Ready.
func tenant(name string) object {
	return object{
		"apiVersion": "tenancy.x-k8s.io/v1alpha1", "kind": "VirtualCluster", "metadata": object{"namespace": "tenants", "name": name},
		"status": object{"clusterNamespace": "root-" + name, "conditions": []object{{"type": "Ready", "status": "True", "reason": "Ready"}}},
	}
}

// held is how many slices a namespace has in a super cluster.
type held struct {
	cluster string
	slices  int
	leaves  bool
}

// namespace returns the NamespacePlacement of a namespace with slices of 2 CPUs and 4Gi. why is why it waits, "" where it does not.
func namespace(root, name string, slices int, why string, in ...held) object {
	var parts []object
	for _, h := range in {
		part := object{"cluster": h.cluster, "slices": h.slices, "reserved": resources(2*h.slices, 4*h.slices)}
		if h.leaves {
			part["slices"], part["leaving"] = 0, object{"reserved": part["reserved"], "reason": "Drained", "since": "2026-11-29T12:00:00Z"}
		}
		parts = append(parts, part)
	}
	status := object{"placements": parts}
	if why != "" {
		status["conditions"] = []object{{"type": "Placed", "status": "False", "reason": "Unschedulable", "message": why}}
	}
	return object{
		"apiVersion": "scheduler.tenancy.x-k8s.io/v1alpha1", "kind": "NamespacePlacement", "metadata": object{"namespace": root, "name": name},
		"spec": object{"quota": resources(2*slices, 4*slices), "slice": resources(2, 4)}, "status": status,
	}
}

// hostile is what a tenant may get into a message: markup, a cursor that moves, and writing that turns.
const hostile = "0/4 super clusters: <img src=x onerror=alert(1)>\x1b[2J\u202eevil"

// smallPool returns four super clusters, of which one is drained, and four tenants, of which one waits.
func smallPool() []object {
	r3 := node("r3", 32, 128)
	r3["spec"] = object{"taints": []object{{"key": "maintenance", "effect": "NoExecute"}}}
	return []object{
		node("r1", 64, 256), node("r2", 48, 192), r3, node("r4", 64, 256),
		tenant("acme"), tenant("beta"), tenant("gamma"), tenant("aurora"),
		namespace("root-acme", "web", 8, "", held{"r1", 6, false}, held{"r2", 2, false}),
		namespace("root-acme", "batch", 6, "", held{"r2", 6, false}),
		namespace("root-beta", "data", 10, "", held{"r1", 4, false}, held{"r4", 6, false}, held{"r3", 3, true}),
		namespace("root-gamma", "ci", 12, "", held{"r1", 8, false}, held{"r2", 4, false}),
		namespace("root-gamma", "huge", 60, hostile),
		namespace("root-aurora", "shop", 12, "", held{"r2", 3, false}, held{"r4", 9, false}),
	}
}

// largePool returns so many super clusters with so many namespaces, 20 of a tenant.
func largePool(clusters, namespaces int) (objects []object) {
	for i := range clusters {
		objects = append(objects, node(fmt.Sprintf("r%03d", i), 1024, 4096))
	}
	for i := range namespaces {
		const each = 20
		name := fmt.Sprintf("tenant-%03d", i/each)
		if i%each == 0 {
			objects = append(objects, tenant(name))
		}
		why := ""
		if i%10 == 0 {
			why = "0/100 super clusters are available: 100 have too little free for the namespace: cpu"
		}
		objects = append(objects, namespace("root-"+name, fmt.Sprintf("namespace-%d", i), 4+i%10/9, why,
			held{fmt.Sprintf("r%03d", i%clusters), 2, false}, held{fmt.Sprintf("r%03d", (i*7+3)%clusters), 2, false}))
	}
	return objects
}

// written writes a pool into a directory that kubectl vc ui --from reads.
func written(t *testing.T, objects []object) string {
	t.Helper()
	dir := t.TempDir()
	encoded, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": objects})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pool.json"), encoded, 0o600))
	return dir
}
