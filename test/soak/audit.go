package soak

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/pool"
)

// syncerPrefix begins the names of syncers' processes: syncer-r1 is that of super cluster r1.
const syncerPrefix = "syncer-"

// auditor holds each write of our programs against who may write what. It is safe for concurrent use.
type auditor struct {
	decoder runtime.Decoder
	// supers are the ids of super clusters, whose control planes have these names.
	supers []string

	mu sync.Mutex
	// all counts the writes, and ours those of syncers.
	all, ours int
	faults    map[string]bool
}

func newAuditor(supers []string) *auditor {
	return &auditor{decoder: serializer.NewCodecFactory(controlplane.Scheme()).UniversalDeserializer(), supers: supers, faults: map[string]bool{}}
}

// wrote is proxy.wrote.
func (a *auditor) wrote(w write) {
	fault := a.check(w)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all++
	if strings.HasPrefix(w.program, syncerPrefix) {
		a.ours++
	}
	if fault != "" {
		a.faults[fmt.Sprintf("%s at %s: %s %s: %s", w.program, w.at, w.method, w.path, fault)] = true
	}
}

// count returns how many writes were audited.
func (a *auditor) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all
}

// findings returns what was written by those who may not, sorted. That no syncer wrote is one: nobody was audited.
func (a *auditor) findings() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	if a.ours == 0 {
		all = append(all, "no write of a syncer was audited")
	}
	for fault := range a.faults {
		all = append(all, fault)
	}
	slices.Sort(all)
	return all
}

// check returns what is wrong with a write, "" if nothing is.
func (a *auditor) check(w write) string {
	id, isSyncer := strings.CutPrefix(w.program, syncerPrefix)
	switch {
	case !isSyncer:
		return ""
	case w.at == pool.MetaName:
		return a.checkMeta(w, id)
	case slices.Contains(a.supers, w.at):
		return a.checkSuper(w, id)
	}
	return a.checkTenant(w, id)
}

// checkMeta: syncers write Leases, Events, what they say of SyncPolicies, questions who may read their metrics, and the
// addresses of their own super clusters.
func (a *auditor) checkMeta(w write, id string) string {
	switch resourceOf(w.path) {
	case "leases", "events", "tokenreviews", "subjectaccessreviews":
		return ""
	case "syncpolicies":
		if strings.HasSuffix(w.path, "/status") {
			return ""
		}
	case "clusteraddresses":
		if object, found := a.object(w.answer); found && object.GetName() != id {
			return "they are those of " + object.GetName()
		}
		return ""
	}
	return "a syncer writes in the meta cluster"
}

// checkSuper: what a syncer writes in its super cluster carries marks of a tenant, and in another it writes nothing.
func (a *auditor) checkSuper(w write, id string) string {
	switch {
	case w.at != id:
		return "a syncer writes in another super cluster"
	case strings.HasPrefix(w.path, "/api/v1/namespaces/superpool-system/"):
		return ""
	}
	object, found := a.object(w.answer)
	if !found {
		return ""
	}
	if _, owned := tenancy.GetOwner(object); !owned {
		return "it carries no marks of a tenant"
	}
	return ""
}

// checkTenant: Nodes, their Leases and volumes have names of the super cluster, and pods are there.
func (a *auditor) checkTenant(w write, id string) string {
	resource := resourceOf(w.path)
	if resource == "pods" && strings.HasSuffix(w.path, "/binding") {
		binding := &corev1.Binding{}
		if _, _, err := a.decoder.Decode(w.request, nil, binding); err != nil {
			return "reading the Binding: " + err.Error()
		}
		return ofSuperCluster("the Node of the Binding", binding.Target.Name, id)
	}
	object, found := a.object(w.answer)
	if !found {
		return ""
	}
	switch resource {
	case "nodes", "leases", "persistentvolumes":
		return ofSuperCluster(resource, object.GetName(), id)
	case "pods":
		pod, ok := object.(*corev1.Pod)
		if !ok {
			return ""
		}
		if pod.Spec.NodeName != "" {
			return ofSuperCluster("the Node of the pod", pod.Spec.NodeName, id)
		}
		// A syncer gives a choice back: then none is left.
		if chosen := pod.Labels[schedulerv1alpha1.LabelSuperCluster]; chosen != "" && chosen != id {
			return "the pod is meant for " + chosen
		}
	}
	return ""
}

// ofSuperCluster returns an error if a name is not one that the super cluster gives.
func ofSuperCluster(what, name, id string) string {
	if strings.HasPrefix(name, id+".") {
		return ""
	}
	return fmt.Sprintf("%s is %s", what, name)
}

// object returns the object of an answer. It returns false for a Status, and for what has no metadata.
func (a *auditor) object(answer []byte) (metav1.Object, bool) {
	decoded, _, err := a.decoder.Decode(answer, nil, nil)
	if err != nil {
		return nil, false
	}
	if _, isStatus := decoded.(*metav1.Status); isStatus {
		return nil, false
	}
	object, err := meta.Accessor(decoded)
	return object, err == nil && object.GetUID() != ""
}

// resourceOf returns the resource of a request's path: nodes of /api/v1/nodes/n/status.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > 0 && parts[0] == "apis" {
		parts = parts[1:]
	}
	parts = parts[min(2, len(parts)):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	if len(parts) == 0 {
		return ""
	}
	return parts[0]
}

// writes returns whether a request changes something.
func writes(request *http.Request) bool {
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}
