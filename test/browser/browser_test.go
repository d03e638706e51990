//go:build browser

// Package browser tests the page of kubectl vc ui in a real Chromium: `make test-ui`.
package browser

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// patience is how long the page may take for anything: machines of tests are slow.
const patience = 30 * time.Second

// served runs kubectl vc ui, and returns the address of the page. In the end it must end by itself when it is asked to.
func served(t *testing.T, arguments ...string) string {
	t.Helper()
	command := exec.Command("../../bin/kubectl-vc", append([]string{"ui"}, arguments...)...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		require.NoError(t, command.Process.Signal(os.Interrupt))
		require.NoError(t, command.Wait())
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// tab is a page of a browser, and what it complained about.
type tab struct {
	*testing.T
	ctx context.Context

	mu   sync.Mutex
	said []string
}

// opened opens an address in a window of that size, when media features are as said: "prefers-color-scheme=dark".
func opened(t *testing.T, url string, width, height int, features ...string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WindowSize(width, height), chromedp.Flag("disable-background-networking", true))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	p := &tab{T: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		switch event := event.(type) {
		case *runtime.EventExceptionThrown:
			p.complain(event.ExceptionDetails.Text)
		case *log.EventEntryAdded: // what a policy of the page refuses, too
			p.complain(event.Entry.Text)
		}
	}))
	media := emulation.SetEmulatedMediaParams{}
	for _, feature := range features {
		name, value, _ := strings.Cut(feature, "=")
		media.Features = append(media.Features, &emulation.MediaFeature{Name: name, Value: value})
	}
	p.do(
		call(runtime.Enable, cdp.Empty{}), call(log.Enable, cdp.Empty{}), call(emulation.SetEmulatedMedia, media),
		chromedp.EmulateViewport(int64(width), int64(height)), chromedp.Navigate(url),
	)
	p.until(`document.querySelector('#connection').textContent !== 'connecting'`)
	return p
}

// call returns an action that is a command of the protocol.
func call[P, R any](command cdp.Command[P, R], parameters P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, parameters)
		return err
	})
}

func (p *tab) complain(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, text)
}

// complaints returns what the browser complained about.
func (p *tab) complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p, chromedp.Do(ctx, actions...))
}

// until waits until an expression is true.
func (p *tab) until(expression string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(20*time.Millisecond), chromedp.WithPollingTimeout(patience)))
	require.NoError(p, err, expression)
}

// of returns the value of an expression.
func of[T any](p *tab, expression string) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(p, err, expression)
	return value
}

// focused returns the name of what has the focus.
func (p *tab) focused() string {
	p.Helper()
	return of[string](p, `(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()`)
}

func (p *tab) press(keys ...string) {
	p.Helper()
	for _, key := range keys {
		p.do(chromedp.KeyEvent(key))
	}
}

// TestLayout: at no width, and in no scheme, anything is cut off or lies over something else.
func TestLayout(t *testing.T) {
	url := served(t, "--from", written(t, smallPool()))
	for _, width := range []int{800, 1280, 1920} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprint(width, scheme), func(t *testing.T) {
				p := opened(t, url, width, 1000, "prefers-color-scheme="+scheme)
				require.LessOrEqual(t, of[int](p, `document.documentElement.scrollWidth`), width, "the page is wider than its window")
				require.Equal(t, 4, of[int](p, `document.querySelectorAll('#bars > li').length`))
				require.Empty(t, of[[]string](p, `[...document.querySelectorAll('.bar > *')].filter((s) => {
					const a = s.getBoundingClientRect(), b = s.parentElement.getBoundingClientRect();
					return a.left < b.left - 1 || a.right > b.right + 1 || a.height < b.height - 1 || a.height > b.height + 1;
				}).map((s) => s.outerHTML)`), "outside of their bars")
				require.Empty(t, of[[]string](p, `(() => {
					const all = [...document.querySelectorAll('body > header > *, main > section')].filter((s) => s.offsetHeight).map((s) => [s.id || s.className || s.tagName, s.getBoundingClientRect()]);
					const over = [];
					all.forEach(([a, x], i) => all.slice(i + 1).forEach(([b, y]) => {
						if (x.left < y.right - 1 && y.left < x.right - 1 && x.top < y.bottom - 1 && y.top < x.bottom - 1) over.push(a + ' and ' + b);
					}));
					return over;
				})()`), "over each other")
				require.Empty(t, of[[]string](p, `[...document.querySelectorAll('.seg b, h1, h2, .link, .chip')].filter((s) => s.offsetWidth && s.scrollWidth > s.offsetWidth + 1 && s.tagName !== 'B').map((s) => s.textContent)`), "cut off")
				isDark := of[bool](p, `getComputedStyle(document.body).backgroundColor.match(/\d+/g).every((c) => c < 60)`)
				require.Equal(t, scheme == "dark", isDark)
				r1 := of[float64](p, `document.querySelector('.seg').offsetWidth / document.querySelector('.bar').offsetWidth`)
				require.InDelta(t, 12.0/64, r1, 0.01, "acme has 12 of 64 CPUs of r1")
				require.Empty(t, p.complaints())
			})
		}
	}
}

// TestWithoutColours: where a person's own colours are used there are borders and letters, and what leaves is marked.
func TestWithoutColours(t *testing.T) {
	p := opened(t, served(t, "--from", written(t, smallPool())), 1280, 900, "forced-colors=active", "prefers-reduced-motion=reduce")
	require.Equal(t, "A B G A AU G B AU B", of[string](p, `[...document.querySelectorAll('.seg b')].map((b) => b.textContent).join(' ')`))
	require.True(t, of[bool](p, `[...document.querySelectorAll('.seg')].every((s) => getComputedStyle(s).borderLeftStyle === 'solid')`))
	require.Equal(t, "double", of[string](p, `getComputedStyle(document.querySelector('.going')).borderLeftStyle`))
	p.do(chromedp.Click(chromedp.CSS(`#bars .link`)))
	require.Equal(t, "none", of[string](p, `getComputedStyle(document.querySelector('dialog')).animationName`), "nothing moves")
}

// TestKeyboard: all can be done without a mouse, and the focus comes back to where it was.
func TestKeyboard(t *testing.T) {
	p := opened(t, served(t, "--from", written(t, smallPool())), 1280, 900)
	require.Equal(t, 1, of[int](p, `[...document.querySelectorAll('.seg')].filter((s) => s.tabIndex === 0).length`))
	for range 10 {
		if p.press(kb.Tab); strings.HasPrefix(p.focused(), "A tenants/acme: 6 slices") {
			break
		}
	}
	for _, step := range []struct{ key, want string }{
		{kb.ArrowRight, "B tenants/beta: 4 slices, cpu=8 memory=16Gi"},
		{kb.ArrowRight, "G tenants/gamma: 8 slices"},
		{kb.ArrowRight, "G tenants/gamma: 8 slices"},
		{kb.Home, "A tenants/acme: 6 slices"},
		{kb.ArrowUp, "A tenants/acme: 6 slices"},
		{kb.End, "G tenants/gamma: 8 slices"},
		{kb.ArrowDown, "AU tenants/aurora: 3 slices"},
		{kb.ArrowDown, "B tenants/beta: 0 slices, cpu=6 memory=12Gi, of which cpu=6 memory=12Gi is to leave"},
		{kb.ArrowLeft, "B tenants/beta: 0 slices"},
		{kb.ArrowUp, "A tenants/acme: 8 slices"},
	} {
		p.press(step.key)
		require.True(t, strings.HasPrefix(p.focused(), step.want), "%s: %s", step.want, p.focused())
	}
	outline := of[string](p, `getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth`)
	require.Equal(t, "solid3px", outline, "the focus is seen")

	p.press(kb.Enter)
	p.until(`document.querySelector('#drawer').open && document.querySelector('#drawer-body table')`)
	require.Equal(t, "A Tenant tenants/acme", p.focused())
	for range 12 {
		p.press(kb.Tab)
		require.True(t, of[bool](p, `document.activeElement === document.body || document.querySelector('#drawer').contains(document.activeElement)`), "the focus leaves the drawer")
	}
	p.do(chromedp.Focus(chromedp.CSS(`[data-k="ns of root-acme web"]`)))
	p.press(kb.Enter)
	p.until(`document.querySelector('#drawer-body .tree')`)
	require.Equal(t, "A Namespace web", p.focused())
	p.do(chromedp.Focus(chromedp.CSS(`[data-k=explain]`)))
	p.press(kb.Enter)
	p.until(`document.querySelector('#drawer-more pre')`)
	require.Contains(t, of[string](p, `document.querySelector('#drawer-more pre').textContent`), "Nothing is missing")
	p.do(chromedp.Focus(chromedp.CSS(`#drawer-back`)))
	p.press(kb.Enter)
	p.until(`document.querySelector('#drawer-title').textContent.includes('Tenant')`)
	p.press(kb.Escape)
	p.until(`!document.querySelector('#drawer').open`)
	require.True(t, strings.HasPrefix(p.focused(), "A tenants/acme: 8 slices"), p.focused())

	p.press(kb.Shift) // as any other key it does nothing
	require.True(t, strings.HasPrefix(p.focused(), "A tenants/acme: 8 slices"), p.focused())
	require.Empty(t, p.complaints())
}

// TestDrain: what a drain comes to is drawn over the bars, said in words, and gone with Escape.
func TestDrain(t *testing.T) {
	p := opened(t, served(t, "--from", written(t, smallPool())), 1280, 900)
	p.do(chromedp.Focus(chromedp.CSS(`[data-k="drain r1"]`)))
	p.press(kb.Enter)
	p.until(`!document.querySelector('#drained').hidden`)
	require.Equal(t, "If r1 were drained", p.focused())
	words := of[string](p, `document.querySelector('#drained-words').textContent`)
	require.Equal(t, "3 namespaces have something there: all of it fits elsewhere. Nothing was changed.", words)
	require.Equal(t, 18, of[int](p, `[...document.querySelectorAll('.bar .comes')].reduce((sum, c) => sum + Number(c.textContent), 0)`), "slices go elsewhere")
	require.Equal(t, "r1", of[string](p, `document.querySelector('#bars .draining .link').textContent`))
	require.Equal(t, 3, of[int](p, `document.querySelectorAll('#drained-rows tbody tr').length`))
	p.press(kb.Escape)
	p.until(`document.querySelector('#drained').hidden`)
	require.Equal(t, "Try a drain of r1", p.focused())
	require.Equal(t, 0, of[int](p, `document.querySelectorAll('.bar .comes, .draining').length`))
	require.Empty(t, p.complaints())
}

// TestNamesOfObjects: a super cluster may be called as something that each object of JavaScript has.
func TestNamesOfObjects(t *testing.T) {
	p := opened(t, served(t, "--from", written(t, []object{node("constructor", 8, 8), node("r1", 8, 8)})), 1280, 900)
	p.do(chromedp.Click(chromedp.CSS(`[data-k="drain r1"]`)))
	p.until(`!document.querySelector('#drained').hidden`)
	require.Equal(t, "Nothing is placed there.", of[string](p, `document.querySelector('#drained-words').textContent`))
	require.Equal(t, 0, of[int](p, `document.querySelectorAll('.would').length`))
	require.Empty(t, p.complaints())
}

// TestHostile: what a tenant wrote is text, in which nothing turns and nothing is hidden.
func TestHostile(t *testing.T) {
	p := opened(t, served(t, "--from", written(t, smallPool())), 1280, 900)
	p.do(chromedp.Click(chromedp.CSS(`[data-k="ns waits root-gamma huge"]`)))
	p.until(`document.querySelector('#drawer-body .tree')`)
	for _, where := range []string{"#waiting", "#drawer-body"} {
		require.Contains(t, of[string](p, `document.querySelector('`+where+`').textContent`), "<img src=x onerror=alert(1)>\ufffd[2J\ufffdevil")
	}
	require.Equal(t, 1, of[int](p, `document.querySelectorAll('img').length`), "the icon alone")
	require.False(t, of[bool](p, `/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(document.documentElement.outerHTML)`))
	require.Empty(t, p.complaints())
}
