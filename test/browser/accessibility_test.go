//go:build browser

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// spoken returns the lines of what a screen reader gets: role and name of each node that has both.
func spoken(p *tab) (lines []string) {
	p.Helper()
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		tree, err := cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		for _, node := range tree.Nodes {
			if node.Ignored || node.Role == nil || node.Name == nil {
				continue
			}
			var role, name string
			_ = json.Unmarshal(node.Role.Value, &role)
			_ = json.Unmarshal(node.Name.Value, &name)
			lines = append(lines, role+": "+name)
		}
		return err
	}))
	return lines
}

// TestWhatAScreenReaderGets: bars are groups with a sentence, slices are buttons with who has how much, tables have captions and
// headers, and nothing that can be used has no name.
func TestWhatAScreenReaderGets(t *testing.T) {
	p := opened(t, served(t, "--from", written(t, smallPool())), 1280, 900)
	lines := spoken(p)
	for _, want := range []string{
		"RootWebArea: Pool", "heading: Super clusters", "heading: Tenants", "heading: What waits (1)", "heading: What leaves (1)",
		"group: Bars show", "radio: cpu", "radio: memory", "button: r1", "button: Try a drain of r1",
		"group: r1: cpu 36/64 56% is reserved, free cpu=28 memory=184Gi", "button: A tenants/acme: 6 slices, cpu=12 memory=24Gi",
		"button: B tenants/beta: 0 slices, cpu=6 memory=12Gi, of which cpu=6 memory=12Gi is to leave",
		"table: Namespaces that wait", "columnheader: Why", "button: huge",
	} {
		require.Contains(t, lines, want)
	}
	for _, line := range lines {
		role, name, _ := strings.Cut(line, ": ")
		if role == "button" || role == "radio" || role == "link" || role == "searchbox" || role == "dialog" {
			require.NotEmpty(t, name, role)
		}
		require.NotEqual(t, "button: A", line, "letters are for the eye")
	}
	p.do(chromedp.Click(chromedp.CSS(`#bars .link`)))
	p.until(`document.querySelector('#drawer-body table')`)
	lines = spoken(p)
	require.Contains(t, lines, "dialog: Super cluster r1")
	require.Contains(t, lines, "table: Who has what")
	require.NotContains(t, lines, "heading: Super clusters", "what is behind the drawer is not there")
}

// TestAxe: the rules of axe-core find nothing, in either scheme, on the page, in a drawer, and beside a trial.
func TestAxe(t *testing.T) {
	axe, err := os.ReadFile("../../bin/axe.min.js")
	require.NoError(t, err, "make test-ui fetches it")
	url := served(t, "--from", written(t, smallPool()))
	for _, scheme := range []string{"light", "dark"} {
		for name, actions := range map[string][]chromedp.Action[chromedp.Void]{
			"page":         nil,
			"supercluster": {chromedp.Click(chromedp.CSS(`#bars .link`)), chromedp.WaitVisible(chromedp.CSS(`#drawer-body table`))},
			"tenant":       {chromedp.Click(chromedp.CSS(`#tenants button`)), chromedp.WaitVisible(chromedp.CSS(`#drawer-body table`))},
			"namespace":    {chromedp.Click(chromedp.CSS(`[data-k="ns waits root-gamma huge"]`)), chromedp.WaitVisible(chromedp.CSS(`#drawer-body .tree`))},
			"trial":        {chromedp.Click(chromedp.CSS(`[data-k="drain r1"]`)), chromedp.WaitVisible(chromedp.CSS(`#drained-rows table`))},
		} {
			t.Run(name+" "+scheme, func(t *testing.T) {
				p := opened(t, url, 1280, 900, "prefers-color-scheme="+scheme, "prefers-reduced-motion=reduce")
				p.do(actions...)
				of[bool](p, string(axe)+"; true")
				found := of[[]string](p, `axe.run().then((result) => result.violations.flatMap((v) => v.nodes.map((n) => v.id + ': ' + n.html + ': ' + n.failureSummary)))`)
				require.Empty(t, found)
				passed := of[int](p, `axe.run().then((result) => result.passes.length)`)
				require.Greater(t, passed, 10, fmt.Sprintf("%d rules were looked at", passed))
			})
		}
	}
}
