package namespaceplacement

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slicepod"
)

// index answers which slice resources of a namespace a Node has. A Node of the pod view has some for each namespace of
// the tenant, and every pod asks, in PreFilter and at each change of a Node: so all of them are read once per version
// of a Node. It is safe for concurrent use.
type index struct {
	mu sync.Mutex
	// nodes holds, by name, the last two versions that were asked for: the change of a Node has two.
	nodes map[string][2]*indexed
}

// indexed is one version of a Node, and the slice resources that it has of each namespace.
type indexed struct {
	node *corev1.Node
	held map[string][]corev1.ResourceName
}

// held returns the slice resources of a namespace that node has. The slice must not be changed, and node not either.
func (i *index) held(node *corev1.Node, namespace string) []corev1.ResourceName {
	i.mu.Lock()
	defer i.mu.Unlock()
	versions := i.nodes[node.Name]
	for _, version := range versions {
		if version != nil && version.node == node {
			return version.held[namespace]
		}
	}
	read := &indexed{node: node, held: map[string][]corev1.ResourceName{}}
	for name, quantity := range node.Status.Allocatable {
		if namespace, ok := slicepod.NamespaceOf(name); ok && !quantity.IsZero() {
			read.held[namespace] = append(read.held[namespace], name)
		}
	}
	if i.nodes == nil {
		i.nodes = map[string][2]*indexed{}
	}
	i.nodes[node.Name] = [2]*indexed{read, versions[0]}
	return read.held[namespace]
}
