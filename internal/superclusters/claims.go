package superclusters

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// claims says which Cluster holds which super cluster id. When two have one id, that one holds it which the virtual Node names, as long as it
// exists and is not known to have another id. Without such a Node it is the older one (creation time, then namespace and name); a Cluster
// that was not tried yet may turn out to be it, so younger ones wait for it a little.
type claims struct {
	mu        sync.Mutex
	byCluster map[types.NamespacedName]claim
}

type claim struct {
	id    string // "" when it could not be read
	holds bool
}

// tried records what the last attempt found, "" for nothing.
func (c *claims) tried(cluster types.NamespacedName, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(cluster, claim{id: id})
}

func (c *claims) setLocked(cluster types.NamespacedName, known claim) {
	if c.byCluster == nil {
		c.byCluster = map[types.NamespacedName]claim{}
	}
	c.byCluster[cluster] = known
}

func (c *claims) release(cluster types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, exists := c.byCluster[cluster]; exists {
		known.holds = false
		c.byCluster[cluster] = known
	}
}

func (c *claims) forget(cluster types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byCluster, cluster)
}

// verdict of a claim.
type verdict struct {
	// rival holds the id, or is empty.
	rival types.NamespacedName
	// wait says that an older Cluster was not tried yet.
	wait bool
}

// take tries to hold id for a Cluster. recorded is the Cluster that the virtual Node names, empty if there is no Node. all are the
// existing Clusters. patient lets it wait for older ones.
func (c *claims) take(cluster types.NamespacedName, id string, recorded types.NamespacedName, all []metav1.PartialObjectMetadata, patient bool) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	exists := slices.ContainsFunc(all, func(other metav1.PartialObjectMetadata) bool { return client.ObjectKeyFromObject(&other) == recorded })
	if known := c.byCluster[recorded]; recorded != cluster && exists && (known.id == "" || known.id == id) {
		return verdict{rival: recorded}
	}
	if recorded != cluster {
		if found := c.rivalLocked(cluster, id, all, patient); found != (verdict{}) {
			return found
		}
	}
	for name, known := range c.byCluster {
		if known.holds && known.id == id && name != cluster {
			return verdict{rival: name}
		}
	}
	c.setLocked(cluster, claim{id: id, holds: true})
	return verdict{}
}

// rivalLocked looks for an older Cluster with the same id.
func (c *claims) rivalLocked(cluster types.NamespacedName, id string, all []metav1.PartialObjectMetadata, patient bool) verdict {
	ordered := slices.SortedFunc(slices.Values(all), older)
	for i := range ordered {
		name := client.ObjectKeyFromObject(&ordered[i])
		if name == cluster {
			break
		}
		switch known, tried := c.byCluster[name]; {
		case !tried && patient:
			return verdict{wait: true}
		case tried && known.id == id:
			return verdict{rival: name}
		}
	}
	return verdict{}
}

func older(a, b metav1.PartialObjectMetadata) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

// claim takes id for a Cluster, or returns a trouble. It says whether to try again soon.
func (r *Registry) claim(ctx context.Context, cluster types.NamespacedName, id string, patient bool) (wait bool, err error) {
	node, err := r.writer.get(ctx, id)
	if err != nil {
		return false, err
	}
	var recorded types.NamespacedName
	if node != nil {
		if !isVirtual(node) {
			return false, &trouble{ReasonNodeConflict, fmt.Errorf("super cluster %s: %w", id, errNodeConflict)}
		}
		recorded = parseName(node.Annotations[AnnotationClusterRef])
	}
	all, err := r.clusters(ctx)
	if err != nil {
		return false, err
	}
	found := r.claims.take(cluster, id, recorded, all, patient)
	if found.rival.Name != "" {
		return false, &trouble{ReasonDuplicateID, fmt.Errorf("super cluster id %q belongs to Cluster %s: give this super cluster another id", id, found.rival)}
	}
	return found.wait, nil
}
