package tenancy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/superpool/superpool/internal/tenancy"
)

func TestLabelKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", validation.LabelValueMaxLength)
	for key, want := range map[string]string{
		"app":                                   "label.tenancy.x-k8s.io/app",
		"io.kubernetes.cri-o.userns-mode":       "label.tenancy.x-k8s.io/io.kubernetes.cri-o.userns-mode",
		long:                                    "label.tenancy.x-k8s.io/" + long,
		"app.kubernetes.io/name":                "hashed-label.tenancy.x-k8s.io/71dafa318ec2911c798e83bed9911c4a",
		"label.tenancy.x-k8s.io/app":            "hashed-label.tenancy.x-k8s.io/",
		strings.Repeat("a.", 126) + "a/" + long: "hashed-label.tenancy.x-k8s.io/",
	} {
		got := tenancy.LabelKey(key)
		require.True(t, strings.HasPrefix(got, want), "%s: %s", key, got)
		require.Empty(t, validation.IsQualifiedName(got), key)
		require.True(t, tenancy.IsLabelKey(got), key)
	}
	require.False(t, tenancy.IsLabelKey("app"))
	require.False(t, tenancy.IsLabelKey("tenancy.x-k8s.io/cluster"))
}

// FuzzLabelKey holds that valid keys stay valid, and that two keys stay two.
func FuzzLabelKey(f *testing.F) {
	f.Add("app", "app.kubernetes.io/name")
	f.Add("label.tenancy.x-k8s.io/app", "app")
	f.Add("a/b", "a.b")
	f.Fuzz(func(t *testing.T, first, second string) {
		if len(validation.IsQualifiedName(first)) > 0 || len(validation.IsQualifiedName(second)) > 0 {
			return
		}
		for _, key := range []string{first, second} {
			require.Empty(t, validation.IsQualifiedName(tenancy.LabelKey(key)), key)
			require.True(t, tenancy.IsLabelKey(tenancy.LabelKey(key)), key)
		}
		require.Equal(t, first == second, tenancy.LabelKey(first) == tenancy.LabelKey(second))
	})
}

// TestTranslateSelector holds that a translated selector matches translated labels where the tenant's matches its own.
func TestTranslateSelector(t *testing.T) {
	t.Parallel()
	tenancy.TranslateSelector(nil)
	translated := func(object map[string]string) labels.Set {
		all := labels.Set{}
		for key, value := range object {
			all[tenancy.LabelKey(key)] = value
		}
		return all
	}
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	objects := []map[string]string{nil, {"app": "web"}, {"app": "db", "example.org/team": "infra"}, {"kubernetes.io/metadata.name": "web"}}
	for _, selector := range []metav1.LabelSelector{
		{},
		{MatchLabels: map[string]string{"app": "web"}},
		{MatchLabels: map[string]string{"app": "db", "example.org/team": "infra"}},
		expression("app", metav1.LabelSelectorOpIn, "web", "db"),
		expression("example.org/team", metav1.LabelSelectorOpNotIn, "infra"),
		expression("kubernetes.io/metadata.name", metav1.LabelSelectorOpExists),
		expression("app", metav1.LabelSelectorOpDoesNotExist),
	} {
		own, err := metav1.LabelSelectorAsSelector(&selector)
		require.NoError(t, err)
		super := selector.DeepCopy()
		tenancy.TranslateSelector(super)
		inSuper, err := metav1.LabelSelectorAsSelector(super)
		require.NoError(t, err)
		for _, object := range objects {
			require.Empty(t, cmp.Diff(own.Matches(labels.Set(object)), inSuper.Matches(translated(object))), "%v of %v", selector, object)
		}
	}
}
