package superclusters

import (
	"cmp"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// idOwners records which Cluster owns which super cluster id, in memory and without any I/O. When two Clusters have one
// id:
//
//  1. The one that the virtual Node names (annotation cluster-ref) owns it, as long as that Cluster exists and is not
//     known to have another id.
//  2. Without such a Node the oldest owns it: by creation time, then by namespace and name.
//  3. A younger one waits, while it is patient, for an older one that was not tried yet and may turn out to have the
//     id.
//  4. One that owns the id keeps it until it is released, also from an older one that comes later.
//
// The zero value is ready for use, by many goroutines.
type idOwners struct {
	mu        sync.Mutex
	byCluster map[types.NamespacedName]idRecord
}

type idRecord struct {
	id   string // as read at the last try, "" when it could not be read
	owns bool
}

// acquisition is what came of acquire. The zero acquisition is success.
type acquisition struct {
	// owner is the other Cluster that owns the id, or empty.
	owner types.NamespacedName
	// wait is true when an older Cluster was not tried yet: try again soon.
	wait bool
}

// tried records the id that was read for a Cluster, "" for none. A Cluster that owned an id does not own it any more.
func (o *idOwners) tried(cluster types.NamespacedName, id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setLocked(cluster, idRecord{id: id})
}

func (o *idOwners) setLocked(cluster types.NamespacedName, record idRecord) {
	if o.byCluster == nil {
		o.byCluster = map[types.NamespacedName]idRecord{}
	}
	o.byCluster[cluster] = record
}

// release ends a Cluster's ownership; its id stays known.
func (o *idOwners) release(cluster types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if record, exists := o.byCluster[cluster]; exists {
		record.owns = false
		o.byCluster[cluster] = record
	}
}

// idOf returns the id that was read for a Cluster at the last try, "" for none.
func (o *idOwners) idOf(cluster types.NamespacedName) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byCluster[cluster].id
}

// forget removes a Cluster that does not exist any more.
func (o *idOwners) forget(cluster types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byCluster, cluster)
}

// acquire makes a Cluster the owner of id, or returns why not. recorded is the Cluster that the virtual Node names,
// empty if there is no Node. all are the existing Clusters. patient makes it wait for older ones.
func (o *idOwners) acquire(cluster types.NamespacedName, id string, recorded types.NamespacedName, all []metav1.PartialObjectMetadata, patient bool) acquisition {
	o.mu.Lock()
	defer o.mu.Unlock()
	exists := slices.ContainsFunc(all, func(other metav1.PartialObjectMetadata) bool { return client.ObjectKeyFromObject(&other) == recorded })
	if record := o.byCluster[recorded]; recorded != cluster && exists && (record.id == "" || record.id == id) {
		return acquisition{owner: recorded}
	}
	if recorded != cluster {
		if found := o.olderLocked(cluster, id, all, patient); found != (acquisition{}) {
			return found
		}
	}
	for name, record := range o.byCluster {
		if record.owns && record.id == id && name != cluster {
			return acquisition{owner: name}
		}
	}
	o.setLocked(cluster, idRecord{id: id, owns: true})
	return acquisition{}
}

// olderLocked looks for an older Cluster with the same id.
func (o *idOwners) olderLocked(cluster types.NamespacedName, id string, all []metav1.PartialObjectMetadata, patient bool) acquisition {
	ordered := slices.SortedFunc(slices.Values(all), older)
	for i := range ordered {
		name := client.ObjectKeyFromObject(&ordered[i])
		if name == cluster {
			break
		}
		switch record, tried := o.byCluster[name]; {
		case !tried && patient:
			return acquisition{wait: true}
		case tried && record.id == id:
			return acquisition{owner: name}
		}
	}
	return acquisition{}
}

func older(a, b metav1.PartialObjectMetadata) int {
	return cmp.Or(
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}
