package skew_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

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

func FuzzParse(f *testing.F) {
	f.Add("v1.34.10")
	f.Add("v1.34.0-rc.1+k3s1")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := skew.Parse(text)
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
