package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/superpool/superpool/internal/page"
)

// Print writes the report.
func (r *Report) Print(p *page.Page) {
	p.Row("TENANT", "NAMESPACE", "SLICES", "PLACEMENTS", "CHANGE")
	for i := range r.Namespaces {
		n := &r.Namespaces[i]
		p.Row(n.Tenant, n.Name, fmt.Sprintf("%d/%d", n.PlacedSlices, n.Slices), n.moved(), string(n.Change))
	}
	p.Line("")
	p.Row("SUPER CLUSTER", "STATE", "RESOURCE", "RESERVED", "ALLOCATABLE", "%")
	for i := range r.SuperClusters {
		one := &r.SuperClusters[i]
		if len(one.Resources) == 0 {
			p.Row(one.Name, one.State, "", "", "", "")
		}
		for _, u := range one.Resources {
			p.Row(one.Name, one.State, string(u.Resource), u.Used, u.Allocatable, percent(u.Percent))
		}
	}
	for i := range r.Namespaces {
		r.Namespaces[i].printWhy(p)
	}
	if len(r.Ignored) > 0 {
		p.Line("")
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Ignored)) {
		p.Line("Ignored: %d of kind %s", r.Ignored[kind], kind)
	}
}

// moved returns the placements, and where they were if that is another place.
func (n *Namespace) moved() string {
	if len(n.Before) == 0 || maps.Equal(n.Before, n.Placements) {
		return Summary(n.Placements)
	}
	return Summary(n.Before) + " -> " + Summary(n.Placements)
}

// printWhy says why a namespace waits.
func (n *Namespace) printWhy(p *page.Page) {
	if n.Change != Waits {
		return
	}
	p.Line("")
	p.Line("%s/%s waits%s", n.Tenant, n.Name, prefixed(" for ", n.Missing))
	n.printReasons(p)
}

func (n *Namespace) printReasons(p *page.Page) {
	p.Line("  %s", cmp.Or(n.Why, "it was not tried"))
	if n.Tried != "" {
		p.Line("    %s; for the next one:", n.Tried)
	}
	for _, reason := range n.SuperClusters {
		p.Line("    %s: %s (%s)", cmp.Or(reason.SuperCluster, "all others"), reason.Reason, reason.Plugin)
	}
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func percent(value int64) string {
	if value < 0 {
		return "-"
	}
	return fmt.Sprintf("%d", value)
}

// Summary returns slices per super cluster in one line, as r1=1,r2=2.
func Summary(counts map[string]int32) string {
	if len(counts) == 0 {
		return "-"
	}
	parts := make([]string, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, counts[name]))
	}
	return strings.Join(parts, ",")
}
