package skew_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/version"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/test/builders"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]skew.Version{
		"v1.34.10":                           {Text: "v1.34.10", Minor: 34},
		"v1.31.1-eks-a5ec690":                {Text: "v1.31.1-eks-a5ec690", Minor: 31},
		"v1.30.5-gke.1014001":                {Text: "v1.30.5-gke.1014001", Minor: 30},
		"v1.29.3+k3s1":                       {Text: "v1.29.3+k3s1", Minor: 29},
		"1.38.0-alpha.1":                     {Text: "v1.38.0-alpha.1", Minor: 38},
		"":                                   {},
		"v1.34":                              {},
		"v2.0.0":                             {},
		"v0.0.0-master+$Format:%H":           {},
		"v1.34.0\x1b[31m":                    {},
		"v1.99999999999999999999.0":          {},
		"v1.34.0-" + strings.Repeat("a", 64): {},
	} {
		got, err := skew.Parse(text)
		require.Equal(t, want, got, text)
		require.Equal(t, want == skew.Version{}, err != nil, text)
		node := builders.Node("r1").Obj()
		node.Status.NodeInfo.KubeletVersion = text
		require.Equal(t, want, skew.Of(node), text)
	}
}

func TestSaid(t *testing.T) {
	t.Parallel()
	ours := skew.Version{Text: "v1.37.2", Minor: 37}
	for name, tc := range map[string]struct {
		major, minor string
		want         skew.Version
	}{
		"before 1.33":            {want: ours},
		"itself":                 {major: "1", minor: "37", want: ours},
		"an older one":           {major: "1", minor: "34", want: skew.Version{Text: "v1.34.0+emulated.by.1.37", Minor: 34}},
		"a newer one, as if":     {major: "1", minor: "38", want: ours},
		"of another Kubernetes":  {major: "2", minor: "0"},
		"no major":               {minor: "34"},
		"no number":              {major: "1", minor: "x"},
		"more than a version is": {major: "1", minor: strings.Repeat("3", 64)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := skew.Said(&version.Info{GitVersion: "v1.37.2", EmulationMajor: tc.major, EmulationMinor: tc.minor})
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.want == skew.Version{}, err != nil)
		})
	}
}

func FuzzSaid(f *testing.F) {
	f.Add("v1.34.10", "", "")
	f.Add("v1.34.0-rc.1+k3s1", "1", "33")
	f.Fuzz(func(t *testing.T, text, major, minor string) {
		got, err := skew.Said(&version.Info{GitVersion: text, EmulationMajor: major, EmulationMinor: minor})
		if err != nil {
			require.Less(t, len(err.Error()), 512)
			return
		}
		again, err := skew.Parse(got.Text)
		require.NoError(t, err)
		require.Equal(t, got, again)
		require.False(t, strings.ContainsFunc(got.Text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), got.Text)
	})
}

func TestOutside(t *testing.T) {
	t.Parallel()
	ours := skew.Ours()
	require.Empty(t, skew.Version{}.Outside(), "unknown")
	for minor := ours - 5; minor <= ours+5; minor++ {
		of := skew.Version{Text: fmt.Sprintf("v1.%d.2", minor), Minor: minor}
		switch why := of.Outside(); {
		case minor+skew.Minors < ours:
			require.Equal(t, tenancyv1alpha1.ReasonVersionTooOld, why.Reason)
			require.Equal(t, fmt.Sprintf("The API server has Kubernetes 1.%d.2, and Superpool, built from 1.%d, works with 1.%d to 1.%d: upgrade it", minor, ours, ours-3, ours+3), why.Message)
		case minor > ours+skew.Minors:
			require.Equal(t, tenancyv1alpha1.ReasonVersionTooNew, why.Reason)
			require.Contains(t, why.Message, ": upgrade Superpool")
		default:
			require.Empty(t, why)
		}
	}
}
