//go:build browser

package browser

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var (
	screenshot = flag.String("screenshot", "", "file that TestScreenshot writes, as PNG; default: one that goes with the test")
	kubeconfig = flag.String("meta", "", "kubeconfig of the meta cluster of the pool in it; default: a pool of objects alone")
	click      = flag.String("click", "", "CSS selector of what is clicked before")
)

// TestScreenshot writes a picture of the page: `make screenshot`.
func TestScreenshot(t *testing.T) {
	const width = 1280
	name := cmp.Or(*screenshot, filepath.Join(t.TempDir(), "pool.png"))
	arguments := []string{"--kubeconfig", *kubeconfig}
	if *kubeconfig == "" {
		arguments = []string{"--from", written(t, smallPool())}
	}
	p := opened(t, served(t, arguments...), width, 600, "prefers-color-scheme=light", "prefers-reduced-motion=reduce")
	if *click != "" {
		p.do(chromedp.Click(chromedp.CSS(*click)))
		p.until(`document.querySelector('#drawer-body table, #drawer-body .tree, #drained:not([hidden])') !== null`)
	}
	p.do(chromedp.EmulateViewport(width, int64(of[int](p, `document.documentElement.scrollHeight`)), chromedp.EmulateScale(1)))
	captured, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	picture, err := png.Decode(bytes.NewReader(captured))
	require.NoError(t, err)
	file, err := os.Create(name)
	require.NoError(t, err)
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(file, indexed(picture)))
	require.NoError(t, file.Close())
}

// indexed returns a picture in its 256 colours that are there most, which is a third of the bytes.
func indexed(picture image.Image) image.Image {
	const most = 256
	bounds, counts := picture.Bounds(), map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[picture.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	to := image.NewPaletted(bounds, colours[:min(len(colours), most)])
	draw.Draw(to, bounds, picture, bounds.Min, draw.Src)
	return to
}
