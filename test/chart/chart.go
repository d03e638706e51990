// Package chart writes line charts as SVG, for figures of measurements in docs. There are no styles and no scripts: a
// browser shows the file as an image does.
package chart

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"strings"
)

// Line is a named row of points, in the order of X.
type Line struct {
	Name string
	// Y has a value for each of the chart's X; NaN leaves a gap.
	Y []float64
}

// Chart is lines over common values of X, at equal distances: sizes that double, or grow tenfold.
type Chart struct {
	Title, XLabel, YLabel string
	X                     []string
	Lines                 []Line
	// Colours is how many lines differ in colour, six at most and 0 for that. The next ones have the same colours again,
	// and are dashed.
	Colours int
}

const (
	width, height            = 900, 420
	left, right, top, bottom = 70, 330, 40, 60
	ticks                    = 5
)

// colours are told apart with every kind of colour vision.
var colours = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#000000"}

// Write writes the chart.
func (c *Chart) Write(w io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	text(b, width/2, 20, "middle", c.Title)
	text(b, (left+width-right)/2, height-15, "middle", c.XLabel)
	text(b, left-50, top-12, "start", c.YLabel)
	most := c.most()
	for i := range ticks + 1 {
		value := most * float64(i) / ticks
		y := c.y(value, most)
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`+"\n", left, y, width-right, y)
		text(b, left-6, y+4, "end", fmt.Sprintf("%.3g", value))
	}
	for i, label := range c.X {
		text(b, c.x(i), height-bottom+18, "middle", label)
	}
	for i, line := range c.Lines {
		count := cmp.Or(c.Colours, len(colours))
		colour, dash := colours[i%count], ""
		if i >= count {
			dash = ` stroke-dasharray="5 3"`
		}
		var points []string
		for x, value := range line.Y {
			if !math.IsNaN(value) {
				points = append(points, fmt.Sprintf("%.1f,%.1f", c.x(x), c.y(value, most)))
			}
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="%s"/>`+"\n", colour, dash, strings.Join(points, " "))
		y := float64(top + 18*i)
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="%s" stroke-width="2"%s/>`+"\n", width-right+12, y, width-right+34, y, colour, dash)
		text(b, width-right+40, y+4, "start", line.Name)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err //nolint:wrapcheck // the caller knows what it writes to
}

// WriteFile writes the chart into a file.
func (c *Chart) WriteFile(name string) error {
	b := &bytes.Buffer{}
	if err := c.Write(b); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644) //nolint:gosec,wrapcheck // docs are for everybody; it names the file
}

func (c *Chart) x(i int) float64 {
	return left + float64(width-left-right)*(float64(i)+0.5)/float64(max(1, len(c.X)))
}

func (c *Chart) y(value, most float64) float64 {
	return top + float64(height-top-bottom)*(1-value/most)
}

// most returns the upper end of the Y axis, which begins at 0: the least of 1, 2 and 5 times a power of ten that no
// value exceeds.
func (c *Chart) most() float64 {
	largest := 0.0
	for _, line := range c.Lines {
		for _, value := range line.Y {
			if value > largest {
				largest = value
			}
		}
	}
	if largest == 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(largest)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= largest {
			return factor * power
		}
	}
	return 10 * power
}

func text(b *strings.Builder, x, y float64, anchor, words string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(words))
}
