// Package refusal says in words of super clusters why a slice or a pod fits none: what kube-scheduler calls nodes are
// super clusters, what its plugins call cpu.slice.tenancy.kubernetes.io/web is room of namespace web, and what the pool
// has free is for the operator alone. Conditions, Events, logs, kubectl vc simulate and explain all print what it
// returns.
//
// Everything here is pure: no clients, no clock, no logging.
package refusal

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/plugins/namespaceplacement"
)

// ErrReasonNoSuperCluster is why a slice waits in a pool that has no super cluster.
const ErrReasonNoSuperCluster = "the pool has no super cluster"

// Refusal is why a slice or a pod fits no super cluster. The zero Refusal is none.
type Refusal struct {
	// Message is one sentence about all super clusters, for tenants: it counts reasons, the most frequent first, names
	// no super cluster, and has no figure of what the pool has. Of a slice that the tenant wants in one super
	// cluster it says why that refuses it.
	Message string
	// Clusters holds the reasons one by one, with figures, for the operator: sorted by super cluster. It is empty where
	// no single super cluster was looked at.
	Clusters []ClusterReason
	// Placed is how many slices of the namespace had found a super cluster, of Slices that were to be placed, before
	// one did not: what they take is not free. It is for the operator. Both are 0 for a pod.
	Placed, Slices int64
}

// ClusterReason is one reason of one plugin.
type ClusterReason struct {
	// Cluster is the name of the super cluster. "": all super clusters that no other row names.
	Cluster string
	// Plugin is the name of the plugin that refused.
	Plugin string
	// Reason is what it found there.
	Reason string
}

// ofCluster begins Refusal.Message of a slice that may go to one super cluster only. Its name and a colon follow.
const ofCluster = "super cluster "

// ClusterOf returns the super cluster that a Refusal.Message is about, "" if it is about all.
func ClusterOf(message string) string {
	rest, isOfOne := strings.CutPrefix(message, ofCluster)
	cluster, _, hasReason := strings.Cut(rest, ": ")
	if !isOfOne || !hasReason {
		return ""
	}
	return cluster
}

// Tried says how far a namespace of several slices came, as "3 of 10 slices fit", "" for any other.
func (r Refusal) Tried() string {
	if r.Slices < 2 {
		return ""
	}
	return fmt.Sprintf("%d of %d slices fit", r.Placed, r.Slices)
}

// IsZero reports whether nothing was refused.
func (r Refusal) IsZero() bool { return r.Message == "" && len(r.Clusters) == 0 }

// Details lists the reasons of all super clusters in one line, for the operator.
func (r Refusal) Details() string {
	parts := make([]string, len(r.Clusters))
	for i, row := range r.Clusters {
		parts[i] = cmp.Or(row.Cluster, "others") + ": " + row.Reason
	}
	return strings.TrimPrefix(r.Tried()+"; "+strings.Join(parts, "; "), "; ")
}

// Nodes is what kube-scheduler knew of the super clusters when it refused: its snapshot.
type Nodes interface {
	// List returns all of them.
	List() ([]fwk.NodeInfo, error)
	// Get returns the one of that name.
	Get(name string) (fwk.NodeInfo, error)
}

// Of returns why kube-scheduler refused pod, a slice or a tenant's pod, with status. It returns the zero Refusal when
// nothing was refused: the pod ran into an error and is tried again, or it is a slice that does fit and was released
// for the sake of another one, whose own refusal tells more. Figures are those of nodes, which is read only for
// refusals of the scheduling cycle itself; nil: there are none.
func Of(pod *corev1.Pod, status *fwk.Status, nodes Nodes) Refusal {
	if !status.IsRejected() {
		return Refusal{}
	}
	var fit *framework.FitError
	if !errors.As(status.AsError(), &fit) {
		return ofStatus(pod, status)
	}
	found := &findings{pod: pod, nodes: nodes, total: fit.NumAllNodes}
	found.read(fit)
	if found.released {
		return Refusal{}
	}
	slices.SortStableFunc(found.rows, func(a, b finding) int { return cmp.Compare(a.cluster, b.cluster) })
	why := Refusal{Message: found.message(fit), Clusters: found.clusters()}
	if cluster := slicepod.PinOf(pod); cluster != "" && !strings.Contains(why.Message, namespacegang.ErrReasonRoomKept) {
		why.Message = found.pinned(cluster)
	}
	if size, err := slicepod.Size(pod); err == nil && slicepod.GangName(pod) != "" {
		why.Placed, why.Slices = int64(slicepod.Index(pod)), size
	}
	return why
}

// ofStatus is Of for a status that tells no nodes apart.
func ofStatus(pod *corev1.Pod, status *fwk.Status) Refusal {
	switch message := status.Message(); {
	case strings.Contains(message, namespacegang.ErrReasonReleased):
		return Refusal{}
	case errors.Is(status.AsError(), scheduler.ErrNoNodesAvailable) && slicepod.GangName(pod) != "":
		return Refusal{Message: ErrReasonNoSuperCluster}
	case errors.Is(status.AsError(), scheduler.ErrNoNodesAvailable):
		return Refusal{Message: namespaceplacement.ErrReasonNoPlacement}
	default:
		return Refusal{Message: slicepod.Readable(message)}
	}
}

// findings are the reasons of one refusal.
type findings struct {
	pod   *corev1.Pod
	nodes Nodes
	// total is the number of super clusters.
	total int
	rows  []finding
	// released is whether the pod is a slice that was released.
	released bool
}

// finding is why count super clusters were refused: one of them, or all that no other row names.
type finding struct {
	cluster, plugin string
	count           int
	reason
}

// read reads all reasons of fit.
func (f *findings) read(fit *framework.FitError) {
	statuses := fit.Diagnosis.NodeToStatus
	if statuses == nil {
		return
	}
	if statuses.Len() < f.total {
		f.readAbsent(statuses)
	}
	statuses.ForEachExplicitNode(func(cluster string, status *fwk.Status) {
		for _, reason := range f.reasons(cluster, status) {
			f.rows = append(f.rows, finding{cluster: cluster, plugin: status.Plugin(), count: 1, reason: reason})
		}
	})
}

// readAbsent reads what was said about all super clusters that were not looked at one by one.
func (f *findings) readAbsent(statuses *framework.NodeToStatus) {
	status := statuses.AbsentNodesStatus()
	isRoomKept := strings.Contains(status.Message(), namespacegang.ErrReasonRoomKept)
	if status.Plugin() == namespacegang.Name && !isRoomKept && f.readShort() {
		return
	}
	for _, text := range status.Reasons() {
		f.released = f.released || text == namespacegang.ErrReasonReleased
		row := finding{plugin: status.Plugin(), count: f.total - statuses.Len(), reason: f.absent(text)}
		f.rows = append(f.rows, row)
	}
}

// readShort tells the super clusters apart that NamespaceGang refused together: they have less free than the gang
// requests. It returns false if that is not known any more.
func (f *findings) readShort() bool {
	total, err := slicepod.Total(f.pod)
	if err != nil || f.nodes == nil {
		return false
	}
	nodes, err := f.nodes.List()
	if err != nil || len(nodes) != f.total {
		return false
	}
	short := namespacegang.Short(f.pod, total, nodes)
	if len(short) == 0 {
		return false
	}
	for _, node := range nodes {
		row := finding{cluster: node.Node().Name, plugin: namespacegang.Name, count: 1}
		row.reason = reason{one: "has too little free", many: "together have too little free", forAll: true, short: shortages(node, short)}
		if node.Node().Spec.Unschedulable {
			row.reason = same("cordoned")
		} else if away, isAway := tainted(node.Node(), f.pod.Spec.Tolerations); isAway {
			row.reason = away
		} else if f.unselected(node.Node()) {
			row.reason = f.notSelected(node.Node())
		}
		if f.isHidden(row.cluster) {
			row.reason = hidden([]reason{row.reason})
		}
		f.rows = append(f.rows, row)
	}
	return true
}

// message returns Refusal.Message.
func (f *findings) message(fit *framework.FitError) string {
	text := freest.ReplaceAllString(slicepod.Readable(fit.Diagnosis.PreFilterMsg), "")
	if text == "" || f.isTold() {
		text = f.counted()
	}
	if after := fit.Diagnosis.PostFilterMsg; after != "" && !strings.Contains(after, "nodes are available") && !f.isOfAsking(after) {
		text = strings.TrimPrefix(text+"; "+strings.TrimSuffix(slicepod.Readable(after), "."), "; ")
	}
	switch {
	case f.total == 0:
		return text
	case text == "":
		return fmt.Sprintf("0/%d super clusters are available", f.total)
	}
	return fmt.Sprintf("0/%d super clusters are available: %s", f.total, text)
}

// isOfAsking reports whether a sentence about preemption is of the policy that the view gives a pod which asks for a
// super cluster: its tenant has not written it.
func (f *findings) isOfAsking(after string) bool {
	return f.pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] != "" && strings.Contains(after, "preemptionPolicy=Never")
}

// pinned returns Refusal.Message of a slice that may go to one super cluster only. The tenant names it, and learns
// nothing of one that is not for it, not even that there is one.
func (f *findings) pinned(cluster string) string {
	var parts []string
	for i := range f.rows {
		if f.rows[i].cluster == cluster && !f.isHidden(cluster) && (f.info(cluster) != nil || len(f.pod.Spec.NodeSelector) == 0) {
			parts = append(parts, f.rows[i].text(1))
		}
	}
	if len(parts) == 0 {
		parts = []string{"it is not in the pool"}
	}
	return ofCluster + cluster + ": " + strings.Join(parts, ", ")
}

// isTold reports whether all super clusters are told apart although a PreFilter refused.
func (f *findings) isTold() bool { return len(f.rows) > 0 && f.rows[0].cluster != "" }

// counted returns how many super clusters have which reason, the most frequent first.
func (f *findings) counted() string {
	groups := map[string]*finding{}
	for _, row := range f.rows {
		key := row.key()
		if groups[key] == nil {
			groups[key] = &finding{reason: reason{one: row.one, many: row.many, own: row.own, forAll: row.forAll}}
		}
		groups[key].count += row.count
		groups[key].add(row.short)
	}
	type counted struct {
		count int
		text  string
	}
	all := make([]counted, 0, len(groups))
	for _, group := range groups {
		all = append(all, counted{group.count, group.text(group.count)})
	}
	slices.SortFunc(all, func(a, b counted) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.text, b.text))
	})
	parts := make([]string, len(all))
	for i, one := range all {
		parts[i] = fmt.Sprintf("%d %s", one.count, one.text)
	}
	return strings.Join(parts, ", ")
}

// clusters returns Refusal.Clusters.
func (f *findings) clusters() []ClusterReason {
	var rows []ClusterReason
	for _, row := range f.rows {
		rows = append(rows, ClusterReason{Cluster: row.cluster, Plugin: row.plugin, Reason: row.details()})
	}
	return rows
}
