package refusal

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeunschedulable"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/plugins/namespaceplacement"
	"github.com/superpool/superpool/plugins/nodegroups"
)

// reason is why a super cluster is refused, in words.
type reason struct {
	// one and many are the words for one super cluster and for several.
	one, many string
	// detail is what an operator may read in their place, "" for the same.
	detail string
	// short holds the resources that there is too little of, sorted by name.
	short []shortage
	// own is whether what is short is the namespace's own, so that its tenant may know the figures.
	own bool
	// forAll is whether the amounts wanted are those of the whole namespace, so that they are no figure of the pool.
	forAll bool
}

// shortage is a resource that there is too little of.
type shortage struct {
	name corev1.ResourceName
	// wanted is what the pod or slice requests, used and held what is taken and what there is.
	wanted, used, held int64
	// largest is the most that is free in any one super cluster.
	largest int64
	// isKnown is whether the figures are known.
	isKnown bool
}

func same(words string) reason { return reason{one: words, many: words} }

// insufficient begins the reasons of kube-scheduler's plugin NodeResourcesFit.
const insufficient = "Insufficient "

// notChosen is kube-scheduler's sentence about nodes that plugins left out before they were looked at one by one.
var notChosen = regexp.MustCompile(`^node\(s\) didn't satisfy plugin\(s\) \[(.*)\]$`)

// freest is what plugin NodeShape says of the freest node.
var freest = regexp.MustCompile(` \([^()]* at most\)`)

// reasons returns the reasons of a status of one super cluster. What is short is one reason, however many resources.
func (f *findings) reasons(cluster string, status *fwk.Status) []reason {
	var all []reason
	var short []string
	for _, text := range status.Reasons() {
		f.released = f.released || text == namespacegang.ErrReasonReleased
		if name, isShort := strings.CutPrefix(text, insufficient); isShort && status.Plugin() == names.NodeResourcesFit {
			short = append(short, name)
			continue
		}
		all = append(all, f.judged(cluster, status.Plugin(), text))
	}
	if len(short) > 0 {
		all = append(all, f.tooLittle(cluster, short))
	}
	if len(all) > 0 && f.isHidden(cluster) {
		return []reason{hidden(all)}
	}
	return all
}

// isHidden reports whether a super cluster is known to lack labels that the operator requires of those of the slice: in
// what state it is, or what it has free, is not for the tenant, whatever plugin was the first to refuse it.
func (f *findings) isHidden(cluster string) bool {
	if len(f.pod.Spec.NodeSelector) == 0 || slicepod.GangName(f.pod) == "" {
		return false
	}
	info := f.info(cluster)
	return info != nil && !f.isForTenant(info.Node())
}

// isForTenant reports whether a super cluster has the labels that the operator requires for the tenant, which is the
// slice's nodeSelector.
func (f *findings) isForTenant(node *corev1.Node) bool {
	return labels.SelectorFromSet(f.pod.Spec.NodeSelector).Matches(labels.Set(node.Labels))
}

// hidden returns the one reason of a super cluster that is not for the tenant, with those found there for the operator.
func hidden(found []reason) reason {
	why := same("not for this tenant")
	parts := make([]string, len(found))
	for i := range found {
		parts[i] = found[i].details()
	}
	why.detail = strings.Join(parts, ", ")
	return why
}

// judged returns a reason that is not about amounts. What no row knows is said as the plugin says it.
func (f *findings) judged(cluster, plugin, text string) reason {
	switch {
	case text == nodeunschedulable.ErrReasonUnschedulable:
		return same("cordoned")
	case plugin == names.TaintToleration:
		if info := f.info(cluster); info != nil {
			if away, isAway := tainted(info.Node(), f.pod.Spec.Tolerations); isAway {
				return away
			}
		}
		return same("tainted")
	case plugin == nodegroups.Name && strings.HasPrefix(text, nodegroups.ErrReasonHad):
		what := strings.TrimPrefix(text, nodegroups.ErrReasonHad)
		return reason{one: "has " + what, many: "have " + what}
	case plugin == names.InterPodAffinity:
		return besidePods(text)
	case plugin == names.NodeAffinity && slicepod.GangName(f.pod) != "":
		if info := f.info(cluster); info != nil {
			return f.notSelected(info.Node())
		}
		return notMatching
	case plugin == names.PodTopologySpread && slicepod.GangName(f.pod) != "":
		if text == podtopologyspread.ErrReasonNodeLabelNotMatch {
			return reason{one: "lacks a label of the namespace's topology spread", many: "lack a label of the namespace's topology spread"}
		}
		return reason{one: "does not fit the namespace's topology spread", many: "do not fit the namespace's topology spread"}
	}
	return plain(text)
}

// besidePods returns a reason of kube-scheduler's plugin InterPodAffinity.
func besidePods(text string) reason {
	switch text {
	case interpodaffinity.ErrReasonAffinityRulesNotMatch:
		return reason{one: "runs no pod that the pod's affinity asks for", many: "run no pod that the pod's affinity asks for"}
	case interpodaffinity.ErrReasonAntiAffinityRulesNotMatch:
		return reason{one: "runs a pod that the pod's anti-affinity avoids", many: "run a pod that the pod's anti-affinity avoids"}
	case interpodaffinity.ErrReasonExistingAntiAffinityRulesNotMatch:
		return reason{one: "runs a pod whose anti-affinity avoids the pod", many: "run a pod whose anti-affinity avoids the pod"}
	}
	return plain(text)
}

// notMatching is what the tenant's own choice of super clusters rules out.
var notMatching = reason{one: "does not match the namespace's node selector", many: "do not match the namespace's node selector"}

// unselected reports whether a slice may not be placed in a super cluster because of its labels.
func (f *findings) unselected(node *corev1.Node) bool {
	matches, err := nodeaffinity.GetRequiredNodeAffinity(f.pod).Match(node)
	return err == nil && !matches
}

// notSelected returns the reason of a super cluster whose labels are not those that the operator requires for the
// tenant, or not those that the tenant requires, which is its affinity.
func (f *findings) notSelected(node *corev1.Node) reason {
	if !f.isForTenant(node) {
		return same("not for this tenant")
	}
	return notMatching
}

// plain returns a sentence without kube-scheduler's words for nodes, and without resources of views.
func plain(text string) reason {
	for _, subject := range []string{"node(s) ", "super cluster(s) "} {
		text = strings.TrimPrefix(text, subject)
	}
	detail := slicepod.Readable(text)
	words := same(freest.ReplaceAllString(detail, ""))
	words.detail = detail
	return words
}

// absent returns a reason of super clusters that were not looked at one by one.
func (f *findings) absent(text string) reason {
	match := notChosen.FindStringSubmatch(text)
	switch {
	case match == nil:
		return plain(text)
	case match[1] != namespaceplacement.Name:
		return same("ruled out by " + match[1])
	case f.pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] != "":
		return same("not asked for")
	}
	holds := "nothing of namespace " + f.pod.Namespace
	return reason{one: "holds " + holds, many: "hold " + holds}
}

// State returns why a super cluster takes nothing new that has these tolerations, whatever is free there: "cordoned",
// "" for no reason.
func State(node *corev1.Node, tolerations []corev1.Toleration) string {
	if node.Spec.Unschedulable {
		return "cordoned"
	}
	why, _ := tainted(node, tolerations)
	return why.one
}

// tainted returns what the first taint says that is not tolerated. It returns false where there is none.
func tainted(node *corev1.Node, tolerations []corev1.Toleration) (reason, bool) {
	taint, isUntolerated := placement.Untolerated(node.Spec.Taints, tolerations)
	if !isUntolerated {
		return reason{}, false
	}
	switch taint.Key {
	case corev1.TaintNodeUnschedulable:
		return same("cordoned"), true
	case corev1.TaintNodeUnreachable:
		return reason{one: "does not answer", many: "do not answer"}, true
	case corev1.TaintNodeNotReady:
		return same("not ready"), true
	case corev1.TaintNodeOutOfService:
		return same("out of service"), true
	case schedulerv1alpha1.TaintVersionSkew:
		return reason{one: "has a version of Kubernetes that the pool does not work with", many: "have versions of Kubernetes that the pool does not work with"}, true
	}
	switch {
	case placement.Drains(taint):
		return same("drained"), true
	case placement.IsOperators(taint):
		return same(fmt.Sprintf("tainted by the operator (%s)", taint.Key)), true
	}
	return same(fmt.Sprintf("tainted (%s)", taint.Key)), true
}

// tooLittle returns the reason of a super cluster that lacks resources: room that the pod's namespace holds there, or
// what a slice could be given.
func (f *findings) tooLittle(cluster string, counted []string) reason {
	isSlice := slicepod.GangName(f.pod) != ""
	wanted := slice.Taken(f.pod, slice.Reading{})
	info := f.info(cluster)
	short := reason{one: "has too little free", many: "have too little free"}
	for _, text := range counted {
		name := corev1.ResourceName(text)
		row := shortage{name: name, wanted: wanted[name]}
		if real, isOfView := slicepod.ResourceOf(name); isOfView {
			row.name = real
			short.own = short.own || !isSlice
		}
		if name == slicepod.ResourceStorage {
			row.wanted = wanted[corev1.ResourceStorage]
		}
		if info != nil {
			row.fill(namespacegang.AmountOf(info.GetRequested(), name), namespacegang.AmountOf(info.GetAllocatable(), name))
		}
		short.short = append(short.short, row)
	}
	if short.own {
		room := "no room of namespace " + f.pod.Namespace
		short.one, short.many = "holds "+room, "hold "+room
	}
	slices.SortFunc(short.short, func(a, b shortage) int { return strings.Compare(string(a.name), string(b.name)) })
	return short
}

// shortages returns what a super cluster has of resources of which so much is wanted.
func shortages(info fwk.NodeInfo, wanted slice.Amounts) []shortage {
	rows := make([]shortage, 0, len(wanted))
	for _, name := range wanted.Names() {
		row := shortage{name: name, wanted: wanted[name]}
		row.fill(namespacegang.AmountOf(info.GetRequested(), name), namespacegang.AmountOf(info.GetAllocatable(), name))
		rows = append(rows, row)
	}
	return rows
}

func (s *shortage) fill(used, held int64) {
	s.used, s.held, s.largest, s.isKnown = used, held, max(0, held-used), true
}

// info returns what kube-scheduler knew of a super cluster, nil if it is not known any more.
func (f *findings) info(cluster string) fwk.NodeInfo {
	if f.nodes == nil {
		return nil
	}
	info, err := f.nodes.Get(cluster)
	if err != nil || info.Node() == nil {
		return nil
	}
	return info
}

// key is equal for reasons that are counted together.
func (r *reason) key() string {
	return r.many + " " + r.resources()
}

// resources lists the resources that are short.
func (r *reason) resources() string {
	parts := make([]string, len(r.short))
	for i := range r.short {
		parts[i] = string(r.short[i].name)
	}
	return strings.Join(parts, " and ")
}

// add adds the figures of a reason with the same key.
func (r *reason) add(short []shortage) {
	if r.short == nil {
		r.short = slices.Clone(short)
		return
	}
	for i := range r.short {
		sum, more := &r.short[i], &short[i]
		sum.used, sum.held = saturated(sum.used, more.used), saturated(sum.held, more.held)
		sum.largest, sum.isKnown = max(sum.largest, more.largest), sum.isKnown && more.isKnown
	}
}

// saturated adds amounts that a super cluster or a tenant may have made as large as they like.
func saturated(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return slice.MaxAmount
}

// text returns what a tenant may read about count super clusters.
func (r *reason) text(count int) string {
	words := r.many
	if count == 1 {
		words = r.one
	}
	switch {
	case len(r.short) == 0:
		return words
	case r.own:
		return words + ": " + r.figures(count)
	case r.forAll:
		return words + " for the namespace: " + r.wanted()
	}
	return words + " " + r.resources()
}

// figures lists what is used of what the namespace holds in count super clusters.
func (r *reason) figures(count int) string {
	parts := make([]string, len(r.short))
	for i := range r.short {
		s := &r.short[i]
		d := slice.DimensionOf(s.name)
		switch {
		case !s.isKnown:
			parts[i] = string(s.name)
		case count > 1 && s.held-s.used >= s.wanted: // it would fit if it were in one place
			parts[i] = fmt.Sprintf("%s of %s %s used, at most %s free in one", d.Quantity(s.used), d.Quantity(s.held), s.name, d.Quantity(s.largest))
		default:
			parts[i] = fmt.Sprintf("%s of %s %s used", d.Quantity(s.used), d.Quantity(s.held), s.name)
		}
	}
	return strings.Join(parts, " and ")
}

// wanted lists what is wanted of the resources that are short.
func (r *reason) wanted() string {
	parts := make([]string, len(r.short))
	for i := range r.short {
		d := slice.DimensionOf(r.short[i].name)
		parts[i] = fmt.Sprintf("%s %s", d.Quantity(r.short[i].wanted), r.short[i].name)
	}
	return strings.Join(parts, " and ")
}

// details returns what an operator may read about one super cluster.
func (r *reason) details() string {
	if len(r.short) == 0 || r.own {
		return cmp.Or(r.detail, r.text(1))
	}
	parts := make([]string, len(r.short))
	for i := range r.short {
		s := &r.short[i]
		d := slice.DimensionOf(s.name)
		parts[i] = fmt.Sprintf("%s %s wanted", d.Quantity(s.wanted), s.name)
		if s.isKnown {
			parts[i] += fmt.Sprintf(", %s of %s free", d.Quantity(s.largest), d.Quantity(s.held))
		}
	}
	return r.one + ": " + strings.Join(parts, ", ")
}
