package ui

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/holding"
	"github.com/superpool/superpool/cmd/kubectl-vc/pool"
	"github.com/superpool/superpool/cmd/kubectl-vc/tenant"
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/internal/superclusters/usage"
)

// What a snapshot has at most, whatever tenants make: the page says how many there are besides, and the drawers have them.
const (
	mostResources = 6
	mostSegments  = 24
	mostLines     = 100
	// whole is a bar of which the shares are parts.
	whole = 10_000
	// mostShare is where more is reserved than that many times what there is.
	mostShare = 100 * whole
)

// facts is what there is to show, read at one moment. Nobody changes it.
type facts struct {
	pool    *simulation.Pool
	tenants []tenancyv1alpha1.VirtualCluster
	// kept is what is kept from tenants, by Cluster (pool.Headrooms): nil where that is not known.
	kept map[string]map[corev1.ResourceName]string
	// notes say what could not be read.
	notes []string
}

// snapshot is what the page shows without a drawer. It has no time in it: two of one state are equal.
type snapshot struct {
	// Resources are those that a bar can show: cpu and memory, then others by name.
	Resources     []corev1.ResourceName `json:"resources"`
	SuperClusters []bar                 `json:"superClusters"`
	// Tenants are sorted by name. A segment names one by its index.
	Tenants []tenantLine `json:"tenants"`
	// Waiting and Leaving are the first of each tenant, of WaitingAll and LeavingAll.
	Waiting    []waiting `json:"waiting"`
	WaitingAll int       `json:"waitingAll"`
	Leaving    []leaving `json:"leaving"`
	LeavingAll int       `json:"leavingAll"`
	// Namespaces is how many there are, and Total what is reserved of the whole pool, of each resource.
	Namespaces int      `json:"namespaces"`
	Total      []string `json:"total"`
	Notes      []string `json:"notes,omitempty"`
}

// bar is a super cluster. Lists have an element for each of the snapshot's resources; shares are ten-thousandths of what
// is allocatable.
type bar struct {
	Name     string   `json:"name"`
	Status   []string `json:"status"`
	State    string   `json:"state,omitempty"`
	Messages []string `json:"messages,omitempty"`
	Version  string   `json:"version,omitempty"`
	// Figures are as kubectl vc pool prints them.
	Figures []string `json:"figures"`
	Free    string   `json:"free"`
	// Kept is headroom: a share of all that there is, with what is allocatable. KeptText is as its Cluster says it.
	Kept       []int  `json:"kept,omitempty"`
	KeptText   string `json:"keptText,omitempty"`
	Namespaces int    `json:"namespaces"`
	LeavingAll int    `json:"leaving"`
	// Segments are those of the tenants that have most, sorted as tenants are, and Others is all that others have.
	Segments []segment `json:"segments"`
	Others   *segment  `json:"others,omitempty"`
}

// segment is what a tenant has in a super cluster.
type segment struct {
	// Tenant is its index; of Others, how many they are.
	Tenant int   `json:"tenant"`
	Slices int32 `json:"slices"`
	// Share is of all that is reserved, with Leaves, which is to leave.
	Share  []int  `json:"share"`
	Leaves []int  `json:"leaves,omitempty"`
	Text   string `json:"text"`
	Going  string `json:"going,omitempty"`

	amounts, leaves slice.Amounts
}

// tenantLine is a tenant.
type tenantLine struct {
	Key  string `json:"key"`
	Name string `json:"name"`
	// Letters are short, and of no other tenant; Colour is one of several.
	Letters    string   `json:"letters"`
	Colour     int      `json:"colour"`
	Status     []string `json:"status"`
	Namespaces int      `json:"namespaces"`
	Waiting    int      `json:"waiting"`
	Reserved   string   `json:"reserved,omitempty"`
}

// waiting is a namespace that waits.
type waiting struct {
	Tenant    int    `json:"tenant"`
	Namespace string `json:"namespace"`
	Missing   string `json:"missing"`
	Why       string `json:"why"`
}

// leaving is what a namespace is to leave.
type leaving struct {
	Tenant       int    `json:"tenant"`
	Namespace    string `json:"namespace"`
	SuperCluster string `json:"superCluster"`
	Leaves       string `json:"leaves"`
	Reason       string `json:"reason"`
	Waits        string `json:"waits"`
}

// snapshotOf projects facts. marks are those of tenants before, to which it adds those of new ones.
func snapshotOf(of *facts, marks *marks) *snapshot {
	rows := pool.Survey(of.pool, cli.RootsOf(of.tenants))
	s := &snapshot{Resources: resourcesOf(rows), Namespaces: len(of.pool.Placements), Notes: of.notes, SuperClusters: []bar{}, Tenants: []tenantLine{}, Waiting: []waiting{}, Leaving: []leaving{}}
	at := s.addTenants(of, rows, marks)
	s.addWaiting(of, at)
	s.addLeaving(rows, at)
	clusters, reserved, allocatable := map[string]string{}, slice.Amounts{}, slice.Amounts{}
	for _, node := range of.pool.Nodes {
		clusters[node.Name] = node.Annotations[superclusters.AnnotationClusterRef]
	}
	for i := range rows {
		row := &rows[i]
		one := s.barOf(row, at)
		if kept := of.kept[clusters[row.Name]]; kept != nil {
			one.Kept, one.KeptText = s.keptOf(row, kept)
		}
		s.SuperClusters = append(s.SuperClusters, one)
		reserved, allocatable = reserved.Plus(row.Reserved), allocatable.Plus(row.Allocatable)
	}
	for _, name := range s.Resources {
		s.Total = append(s.Total, pool.Share(name, reserved, allocatable))
	}
	return s
}

// resourcesOf returns the resources that bars can show.
func resourcesOf(rows []pool.Row) []corev1.ResourceName {
	all := slice.Amounts{}
	for i := range rows {
		all = all.Plus(rows[i].Reserved).Plus(rows[i].Allocatable)
	}
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	for _, name := range all.Names() {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names[:min(len(names), mostResources)]
}

// addTenants adds those with a VirtualCluster, and others that have or ask for anything. It returns where each is, by its
// root namespace.
func (s *snapshot) addTenants(of *facts, rows []pool.Row, marks *marks) map[string]int {
	known := map[string]bool{}
	for _, row := range tenant.Rows(of.tenants, of.pool.Placements) {
		known[row.Key] = true
		s.Tenants = append(s.Tenants, tenantLine{
			Key: row.Key, Name: row.Namespace + "/" + row.Name, Status: row.Status, Namespaces: row.Namespaces, Waiting: row.Waiting, Reserved: row.Brief(),
		})
	}
	without := func(key string) {
		if !known[key] {
			known[key] = true
			s.Tenants = append(s.Tenants, tenantLine{Key: key, Name: key, Status: []string{"no VirtualCluster"}})
		}
	}
	for _, np := range of.pool.Placements {
		without(np.Namespace)
	}
	for i := range rows {
		for j := range rows[i].Holdings {
			without(rows[i].Holdings[j].Key)
		}
	}
	slices.SortFunc(s.Tenants, func(a, b tenantLine) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key)) })
	at := map[string]int{}
	for i := range s.Tenants {
		line := &s.Tenants[i]
		line.Letters, line.Colour = marks.of(line.Key, line.Name)
		at[line.Key] = i
	}
	marks.keep(at)
	return at
}

func (s *snapshot) addWaiting(of *facts, at map[string]int) {
	var all []*schedulerv1alpha1.NamespacePlacement
	for _, np := range of.pool.Placements {
		if tenant.Waits(np) {
			all = append(all, np)
		}
	}
	s.WaitingAll = len(all)
	for _, np := range shown(all, mostLines, func(np *schedulerv1alpha1.NamespacePlacement) string { return np.Namespace }) {
		s.Waiting = append(s.Waiting, waitingOf(np, at[np.Namespace]))
	}
}

// shown returns so many of all at most, in their order: the first ones of each tenant, so that none hides what others have.
func shown[T any](all []T, most int, tenantOf func(T) string) []T {
	if len(all) <= most {
		return all
	}
	rank, ranks := map[string]int{}, make([]int, len(all))
	order := make([]int, len(all))
	for i := range all {
		key := tenantOf(all[i])
		order[i], ranks[i] = i, rank[key]
		rank[key]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ranks[a], ranks[b]) })
	order = order[:most]
	slices.Sort(order)
	few := make([]T, most)
	for i, at := range order {
		few[i] = all[at]
	}
	return few
}

func waitingOf(np *schedulerv1alpha1.NamespacePlacement, tenantAt int) waiting {
	return waiting{
		Tenant: tenantAt, Namespace: np.Name, Missing: text.Shortened(text.Amounts(placement.Lacking(np)), text.LongestText),
		Why: text.Shortened(strings.Join(tenant.WhyItWaits(np), "; "), text.LongestText),
	}
}

func (s *snapshot) addLeaving(rows []pool.Row, at map[string]int) {
	type part struct {
		*holding.Holding
		cluster string
	}
	var all []part
	for i := range rows {
		for j := range rows[i].Holdings {
			if h := &rows[i].Holdings[j]; h.Reason != "" {
				all = append(all, part{h, rows[i].Name})
			}
		}
	}
	s.LeavingAll = len(all)
	for _, h := range shown(all, mostLines, func(h part) string { return h.Key }) {
		s.Leaving = append(s.Leaving, leaving{
			Tenant: at[h.Key], Namespace: h.Namespace, SuperCluster: h.cluster, Leaves: text.Amounts(h.Leaves), Reason: string(h.Reason),
			Waits: text.Shortened(h.Waits, text.LongestText),
		})
	}
}

// barOf returns a super cluster. at has the tenants.
func (s *snapshot) barOf(row *pool.Row, at map[string]int) bar {
	one := bar{
		Name: row.Name, Status: row.Status, State: row.State, Version: row.Version, Namespaces: row.Namespaces, LeavingAll: row.Leaving,
		Free: text.Amounts(row.Allocatable.Minus(row.Reserved)), Segments: []segment{},
	}
	for _, message := range row.Messages {
		one.Messages = append(one.Messages, text.Shortened(message, text.LongestText))
	}
	for _, name := range s.Resources {
		one.Figures = append(one.Figures, pool.Share(name, row.Reserved, row.Allocatable))
	}
	byTenant := map[int]*segment{}
	for i := range row.Holdings {
		h := &row.Holdings[i]
		of := byTenant[at[h.Key]]
		if of == nil {
			of = &segment{Tenant: at[h.Key]}
			byTenant[of.Tenant] = of
		}
		of.add(h.Slices, h.Amounts, h.Leaves)
	}
	segments := slices.SortedFunc(maps.Values(byTenant), func(a, b *segment) int {
		return cmp.Or(cmp.Compare(s.size(b, row), s.size(a, row)), cmp.Compare(a.Tenant, b.Tenant))
	})
	if len(segments) > mostSegments {
		others := &segment{Tenant: len(segments) - mostSegments}
		for _, of := range segments[mostSegments:] {
			others.add(of.Slices, of.amounts, of.leaves)
		}
		s.finish(others, row)
		one.Others, segments = others, segments[:mostSegments]
	}
	slices.SortFunc(segments, func(a, b *segment) int { return cmp.Compare(a.Tenant, b.Tenant) })
	for _, of := range segments {
		s.finish(of, row)
		one.Segments = append(one.Segments, *of)
	}
	return one
}

func (of *segment) add(count int32, amounts, leaves slice.Amounts) {
	of.Slices += count
	of.amounts, of.leaves = of.amounts.Plus(amounts), of.leaves.Plus(leaves)
}

// size returns the largest share that a segment has of any resource.
func (s *snapshot) size(of *segment, row *pool.Row) int {
	return slices.Max(s.shares(of.amounts, row.Allocatable))
}

// finish writes what a page reads of a segment.
func (s *snapshot) finish(of *segment, row *pool.Row) {
	of.Share, of.Text = s.shares(of.amounts, row.Allocatable), text.Amounts(of.amounts)
	if !of.leaves.IsZero() {
		of.Leaves, of.Going = s.shares(of.leaves, row.Allocatable), text.Amounts(of.leaves)
	}
}

// shares returns amounts as shares of what there is: of what there is nothing of, any amount is all.
func (s *snapshot) shares(amounts, all slice.Amounts) []int {
	shares := make([]int, len(s.Resources))
	for i, name := range s.Resources {
		switch {
		case amounts[name] == 0:
		case all[name] == 0:
			shares[i] = whole
		default:
			shares[i] = int(min(float64(amounts[name])*whole/float64(all[name]), mostShare))
		}
	}
	return shares
}

// keptOf returns headroom as shares of all that there is, and in words. said is valid (pool.Headrooms).
func (s *snapshot) keptOf(row *pool.Row, said map[corev1.ResourceName]string) (shares []int, words string) {
	annotation, _ := json.Marshal(said)                      // it was JSON
	headroom, err := usage.ParseHeadroom(string(annotation)) // it is valid
	if err != nil || len(said) == 0 {
		return nil, ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(said)) {
		parts = append(parts, string(name)+"="+said[name])
	}
	for _, name := range s.Resources {
		shares = append(shares, int(headroom.Share(name, row.Allocatable[name])*whole))
	}
	return shares, strings.Join(parts, " ")
}
