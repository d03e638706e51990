package kind_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/syncer/kind"
)

const annotationsUp = "tenancy.x-k8s.io/annotations-from-super"

func TestMetaUp(t *testing.T) {
	t.Parallel()
	many, all := map[string]string{}, []string{}
	for i := range 40 {
		key := fmt.Sprintf("net.io/%02d", i)
		many[key] = "1"
		if i < 32 {
			all = append(all, key)
		}
	}
	fits := maps.Clone(many)
	for i := 32; i < 40; i++ {
		delete(fits, fmt.Sprintf("net.io/%02d", i))
	}
	for _, tc := range []struct {
		name          string
		tenant, super map[string]string // annotations
		prefixes      []string
		want          map[string]string
	}{
		{name: "nothing comes up", super: map[string]string{"net.io/ip": "1"}},
		{name: "an empty prefix is none", prefixes: []string{""}, super: map[string]string{"net.io/ip": "1"}},
		{
			name: "it comes up, beside the tenant's own", prefixes: []string{"net.io/"}, super: map[string]string{"net.io/ip": "1", "other.io/a": "1"}, tenant: map[string]string{"mine": "1"},
			want: map[string]string{"net.io/ip": "1", "mine": "1", annotationsUp: "net.io/ip"},
		},
		{
			name: "it changed", prefixes: []string{"net.io/"}, super: map[string]string{"net.io/ip": "2"}, tenant: map[string]string{"net.io/ip": "1", annotationsUp: "net.io/ip"},
			want: map[string]string{"net.io/ip": "2", annotationsUp: "net.io/ip"},
		},
		{
			name: "it is gone", prefixes: []string{"net.io/"}, tenant: map[string]string{"net.io/ip": "1", "mine": "1", annotationsUp: "net.io/ip"}, want: map[string]string{"mine": "1"},
		},
		{
			name: "the prefix is gone", super: map[string]string{"net.io/ip": "1"}, tenant: map[string]string{"net.io/ip": "1", annotationsUp: "net.io/ip"}, want: map[string]string{},
		},
		{
			name: "what went down does not come up", prefixes: []string{"net.io/"}, super: map[string]string{"net.io/ip": "1", "tenancy.x-k8s.io/copied-annotations": "a,net.io/ip"},
			tenant: map[string]string{"net.io/ip": "0"}, want: map[string]string{"net.io/ip": "0"},
		},
		{
			name: "keys of ours stay, and are not removed", prefixes: []string{"tenancy", "scheduler.", "kube", "offered"},
			super: map[string]string{
				"tenancy.x-k8s.io/uid": "9", "scheduler.tenancy.x-k8s.io/superCluster": "r2", "kubernetes.io/config.mirror": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}",
				"scheduler.virtualcluster.io/x": "1",
			},
			tenant: map[string]string{"scheduler.tenancy.x-k8s.io/superCluster": "r1", annotationsUp: "scheduler.tenancy.x-k8s.io/superCluster"},
			want:   map[string]string{"scheduler.tenancy.x-k8s.io/superCluster": "r1"},
		},
		{name: "the first 32", prefixes: []string{"net.io/"}, super: many, want: with(fits, annotationsUp, strings.Join(all, ","))},
		{
			name: "16 KiB", prefixes: []string{"net.io/"}, super: map[string]string{"net.io/a": strings.Repeat("a", 16<<10), "net.io/b": "1"}, want: map[string]string{"net.io/b": "1", annotationsUp: "net.io/b"},
		},
		{
			name: "a list that is too long says nothing", prefixes: []string{"net.io/"}, tenant: map[string]string{"net.io/a": "1", annotationsUp: "net.io/a" + strings.Repeat(",", 16<<10)},
			want: map[string]string{"net.io/a": "1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			super, tenant := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.super}}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.tenant}}
			superBefore, before := super.DeepCopy(), tenant.DeepCopy()
			got := *tenant
			kind.MetaUp(super, &got, tc.prefixes)
			require.Empty(t, cmp.Diff(tc.want, got.Annotations))
			require.Empty(t, cmp.Diff(superBefore, super))
			require.Empty(t, cmp.Diff(before, tenant))
			again := got
			kind.MetaUp(super, &again, tc.prefixes)
			require.Empty(t, cmp.Diff(got, again))
		})
	}
}

// with returns a copy of values with one more.
func with(values map[string]string, key, value string) map[string]string {
	values = maps.Clone(values)
	values[key] = value
	return values
}
