//go:build browser

package browser

import (
	"flag"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var (
	screenshot = flag.String("screenshot", "", "file that TestScreenshot writes, as PNG")
	kubeconfig = flag.String("meta", "", "kubeconfig of the meta cluster of the pool in it; default: a pool of objects alone")
	scheme     = flag.String("scheme", "light", "its colours")
	click      = flag.String("click", "", "CSS selector of what is clicked before")
	width      = flag.Int("width", 1280, "how wide it is")
)

// TestScreenshot writes a picture of the page: `make screenshot`.
func TestScreenshot(t *testing.T) {
	if *screenshot == "" {
		t.Skip("-screenshot names no file")
	}
	arguments := []string{"--kubeconfig", *kubeconfig}
	if *kubeconfig == "" {
		arguments = []string{"--from", written(t, smallPool())}
	}
	p := opened(t, served(t, arguments...), *width, 600, "prefers-color-scheme="+*scheme, "prefers-reduced-motion=reduce")
	if *click != "" {
		p.do(chromedp.Click(chromedp.CSS(*click)))
		p.until(`document.querySelector('#drawer-body table, #drawer-body .tree, #drained:not([hidden])') !== null`)
	}
	p.do(chromedp.EmulateViewport(int64(*width), int64(of[int](p, `document.documentElement.scrollHeight`)), chromedp.EmulateScale(1)))
	image, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(*screenshot, image, 0o644)) //nolint:gosec // it is for everybody
}
