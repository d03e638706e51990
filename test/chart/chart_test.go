package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/test/chart"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	c := chart.Chart{Title: "a < b", Colours: 1, X: []string{"1", "2", "4"}, Lines: []chart.Line{
		{Name: "up", Y: []float64{0, 30, 60}}, {Name: "a gap", Y: []float64{100, math.NaN(), 100}},
	}}
	b := &strings.Builder{}
	require.NoError(t, c.Write(b))

	var lines []string
	decoder := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "it is XML")
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "polyline" {
			for _, attribute := range start.Attr {
				if attribute.Name.Local == "points" {
					lines = append(lines, attribute.Value)
				}
			}
		}
	}
	// The axis goes from 0, at 360, to 100, at 40.
	require.Equal(t, []string{"153.3,360.0 320.0,264.0 486.7,168.0", "153.3,40.0 486.7,40.0"}, lines)
	require.Contains(t, b.String(), "a &lt; b")
	require.Equal(t, 2, strings.Count(b.String(), "dasharray"), "the second line and its legend are dashed")
}
