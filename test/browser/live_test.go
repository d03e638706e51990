//go:build browser

package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// firstSnapshot returns the first event of a page, and how many bytes it has.
func firstSnapshot(t *testing.T, address string) (snapshot object, size int) {
	t.Helper()
	response, err := http.Get(address + "events") //nolint:noctx // it is a test
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadBytes('\n')
		require.NoError(t, err)
		if data, is := bytes.CutPrefix(line, []byte("data: ")); is {
			require.NoError(t, json.Unmarshal(data, &snapshot))
			return snapshot, len(line)
		}
	}
}

// TestLive: what changes is drawn, the focus stays where it is, and it is said when nothing comes any more.
func TestLive(t *testing.T) {
	address := served(t, "--from", written(t, smallPool()))
	behind, err := url.Parse(address)
	require.NoError(t, err)
	snapshots := make(chan object, 1)
	first, _ := firstSnapshot(t, address)
	snapshots <- first
	mux := http.NewServeMux()
	mux.Handle("/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			select {
			case s := <-snapshots:
				encoded, _ := json.Marshal(s)
				_, _ = fmt.Fprintf(w, "data: %s\n\n", encoded)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)
	p := opened(t, front.URL, 1280, 900)
	p.do(chromedp.Focus(chromedp.CSS(`[data-k="seg r1 root-beta"]`)))
	kept := of[bool](p, `(window.kept = document.querySelector('[data-k="super r4"]'), true)`)
	require.True(t, kept)

	second, _ := firstSnapshot(t, address)
	r1 := second["superClusters"].([]any)[0].(object)
	r1["status"], r1["kept"], r1["keptText"] = []string{"Ready", "cordoned"}, []int{2000, 0}, "cpu=20%"
	second["notes"] = []string{"the meta cluster does not answer"}
	snapshots <- second
	p.until(`document.querySelector('#bars li').textContent.includes('cordoned')`)
	require.True(t, strings.HasPrefix(p.focused(), "B tenants/beta: 4 slices"), p.focused())
	p.press(kb.ArrowRight)
	require.True(t, strings.HasPrefix(p.focused(), "G tenants/gamma: 8 slices"), p.focused())
	require.True(t, of[bool](p, `window.kept.isConnected`), "what has not changed is not drawn again")
	require.InDelta(t, 0.2, of[float64](p, `document.querySelector('.bar .kept').offsetWidth / document.querySelector('.bar').offsetWidth`), 0.01, "headroom")
	require.Equal(t, "the meta cluster does not answer", of[string](p, `document.querySelector('#notes').textContent`))

	front.CloseClientConnections()
	front.Listener.Close()
	p.until(`document.querySelector('#connection').textContent === 'not live'`)
	require.Contains(t, of[string](p, `document.querySelector('#said').textContent`), "what you see may be old")
}

// TestTooManyPages: a page that gets no place says so, and has one when another is closed and it is loaded again.
func TestTooManyPages(t *testing.T) {
	address := served(t, "--from", written(t, smallPool()))
	for range 4 {
		response, err := http.Get(address + "events") //nolint:noctx // it is a test
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
	p := opened(t, address, 1280, 900)
	require.Equal(t, "refused", of[string](p, `document.querySelector('#connection').textContent`))
	require.Contains(t, of[string](p, `document.querySelector('#summary').textContent`), "too many pages are open")
}

// layouts returns how many layouts a tab has had.
func layouts(p *tab) (all int) {
	p.Helper()
	p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		found, err := cdp.Call(ctx, t, performance.GetMetrics, cdp.Empty{})
		for _, metric := range found.Metrics {
			if metric.Name == "LayoutCount" {
				all = int(metric.Value)
			}
		}
		return err
	}))
	return all
}

// TestPaint: 100 super clusters and 10,000 namespaces are a bounded snapshot, of which a bounded page is made with few layouts. How
// soon it is painted is printed: the machine has others to run.
func TestPaint(t *testing.T) {
	const mostBytes, mostElements, mostLayouts = 400_000, 15_000, 50
	address := served(t, "--from", written(t, largePool(100, 10_000)))
	snapshot, size := firstSnapshot(t, address)
	require.EqualValues(t, 10_000, snapshot["namespaces"])
	require.Less(t, size, mostBytes)
	p := opened(t, address, 1280, 900)
	p.do(call(performance.Enable, performance.EnableParams{}), call(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		new MutationObserver((_, observer) => {
			if (document.querySelectorAll('#bars > li').length < 100) return;
			observer.disconnect();
			requestAnimationFrame(() => requestAnimationFrame(() => { window.painted = performance.now(); }));
		}).observe(document, { childList: true, subtree: true });`}))
	for range 3 {
		p.do(chromedp.Reload())
		p.until(`window.painted > 0`)
		t.Logf("painted after %.0f ms; JavaScript %.0f bytes", of[float64](p, `window.painted`), of[float64](p, `performance.memory.usedJSHeapSize`))
	}
	elements, made := of[int](p, `document.querySelectorAll('*').length`), layouts(p)
	t.Logf("snapshot %d bytes, %d elements, %d layouts", size, elements, made)
	require.Less(t, elements, mostElements)
	require.NotZero(t, made)
	require.Less(t, made, mostLayouts)
	require.Equal(t, 1, of[int](p, `[...document.querySelectorAll('.seg')].filter((s) => s.tabIndex === 0).length`))
}
