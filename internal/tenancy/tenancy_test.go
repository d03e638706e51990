package tenancy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

func cluster(namespace, name, uid string) *tenancyv1alpha1.VirtualCluster {
	return &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
}

func TestClusterKey(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 63)
	for _, tc := range []struct {
		name string
		vc   *tenancyv1alpha1.VirtualCluster
	}{
		{name: "short", vc: cluster("default", "vc-1", "u")},
		{name: "dots", vc: cluster("default", "team.example.com", "u")},
		{name: "dot at the cut", vc: cluster(strings.Repeat("n", 30), strings.Repeat("a.", 31)+"b", "u")},
		{name: "long", vc: cluster(long, long, "u")},
		{name: "no UID", vc: cluster("a", "b", "")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			key := tenancy.ClusterKey(tc.vc)
			require.Empty(t, validation.IsDNS1123Label(key), key)
			require.Equal(t, key, tenancy.ClusterKey(tc.vc))
			again := tc.vc.DeepCopy()
			again.UID = "another"
			require.NotEqual(t, key, tenancy.ClusterKey(again), "a tenant made again is another one")
			tc.vc.Status.ClusterNamespace = "kept"
			require.Equal(t, "kept", tenancy.ClusterKey(tc.vc))
		})
	}
}

func TestNamesAreDistinct(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	seen := map[string]string{}
	for i := range 20_000 {
		// All names share a long beginning, so that only the hash tells them apart.
		namespace := strings.Repeat("x", 40+random.IntN(10)) + fmt.Sprintf("-%d", i)
		name := tenancy.SuperNamespace("default-abcdef-vc", namespace)
		require.Empty(t, validation.IsDNS1123Label(name), name)
		require.Empty(t, seen[name], "%s stands for %s too", name, namespace)
		seen[name] = namespace
	}
}

func FuzzSuperNamespace(f *testing.F) {
	f.Add("default-abcdef-vc", "web")
	f.Add(strings.Repeat("a", 63), strings.Repeat("b", 63))
	f.Add(strings.Repeat("a", 45)+"-"+"b", "-")
	f.Fuzz(func(t *testing.T, key, namespace string) {
		if len(validation.IsDNS1123Label(key)) > 0 || len(validation.IsDNS1123Label(namespace)) > 0 {
			return
		}
		name := tenancy.SuperNamespace(key, namespace)
		require.Empty(t, validation.IsDNS1123Label(name), name)
		require.Equal(t, name, tenancy.SuperNamespace(key, namespace))
		if len(key)+1+len(namespace) <= validation.DNS1123LabelMaxLength {
			require.Equal(t, key+"-"+namespace, name)
		}
	})
}

func FuzzNodeName(f *testing.F) {
	f.Add("r1", "node-1")
	f.Add("r1", strings.Repeat("n.", 126)+"n")
	f.Fuzz(func(t *testing.T, id, node string) {
		if tenancy.ValidateSuperClusterID(id) != nil || len(validation.IsDNS1123Subdomain(node)) > 0 {
			return
		}
		name := tenancy.NodeName(id, node)
		require.Empty(t, validation.IsDNS1123Subdomain(name), name)
		got, ok := tenancy.NodeSuperCluster(name)
		require.True(t, ok)
		require.Equal(t, id, got)
	})
}

func FuzzTokenSecret(f *testing.F) {
	f.Add("web-1", "u")
	f.Add(strings.Repeat("n.", 126)+"n", "u")
	f.Fuzz(func(t *testing.T, pod, uid string) {
		if len(validation.IsDNS1123Subdomain(pod)) > 0 {
			return
		}
		name := tenancy.TokenSecret(pod, types.UID(uid))
		require.Empty(t, validation.IsDNS1123Subdomain(name), name)
		require.NotEqual(t, name, tenancy.TokenSecret(pod, types.UID(uid+"x")), "a pod made again is another one")
	})
}

func TestNodeSuperCluster(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "r1", ".n", "r1."} {
		_, ok := tenancy.NodeSuperCluster(name)
		require.False(t, ok, name)
	}
}

func TestValidateSuperClusterID(t *testing.T) {
	t.Parallel()
	require.NoError(t, tenancy.ValidateSuperClusterID("r1"))
	for _, id := range []string{"", "R1", "a.b", "-a", "a b", strings.Repeat("a", 64), "a\n"} {
		require.Error(t, tenancy.ValidateSuperClusterID(id), id)
	}
}

func TestOwnership(t *testing.T) {
	t.Parallel()
	owner := tenancy.Owner{
		ClusterKey: "key", VirtualCluster: types.NamespacedName{Namespace: "default", Name: "vc"}, VirtualClusterUID: "v", Namespace: "web", UID: "u",
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "key-web", Labels: map[string]string{"mine": "1"}}}
	_, ok := tenancy.GetOwner(pod)
	require.False(t, ok)
	tenancy.SetOwner(pod, owner)
	got, ok := tenancy.GetOwner(pod)
	require.True(t, ok)
	require.Empty(t, cmp.Diff(owner, got))
	require.Equal(t, "1", pod.Labels["mine"])
	for key := range pod.Annotations {
		partial := pod.DeepCopy()
		delete(partial.Annotations, key)
		_, ok := tenancy.GetOwner(partial)
		require.False(t, ok, "without %s", key)
	}
}

// TestOwnershipHasAPlace: whoever copies marks owns nothing.
func TestOwnershipHasAPlace(t *testing.T) {
	t.Parallel()
	owner := tenancy.Owner{
		ClusterKey: "key", VirtualCluster: types.NamespacedName{Namespace: "default", Name: "vc"}, VirtualClusterUID: "v", Namespace: "web", UID: "u",
	}
	long := owner
	long.Namespace = strings.Repeat("n", 63)
	for _, tc := range []struct {
		name            string
		namespace, self string
		owner           tenancy.Owner
		want            bool
	}{
		{name: "its super namespace", namespace: "key-web", self: "p", owner: owner, want: true},
		{name: "a hashed one", namespace: tenancy.SuperNamespace("key", long.Namespace), self: "p", owner: long, want: true},
		{name: "that of another namespace", namespace: "key-db", self: "p", owner: owner},
		{name: "one of the super cluster", namespace: "default", self: "p", owner: owner},
		{name: "the super namespace itself", self: "key-web", owner: owner, want: true},
		{name: "another namespace", self: "kube-system", owner: owner},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			object := &metav1.ObjectMeta{Namespace: tc.namespace, Name: tc.self}
			tenancy.SetOwner(object, tc.owner)
			got, owned := tenancy.GetOwner(object)
			require.Equal(t, tc.want, owned)
			require.Equal(t, tc.owner, got)
		})
	}
}

func BenchmarkSuperNamespace(b *testing.B) {
	for _, length := range []int{10, 63} {
		namespace := strings.Repeat("n", length)
		b.Run(fmt.Sprintf("length=%d", length), func(b *testing.B) {
			for b.Loop() {
				tenancy.SuperNamespace("default-abcdef-vc", namespace)
			}
		})
	}
}

func TestRewriter(t *testing.T) {
	t.Parallel()
	owner := tenancy.Owner{Namespace: "web", UID: "1111-aa"}
	for _, tc := range []struct{ name, superNamespace, superUID, text, want string }{
		{name: "the namespace", superNamespace: "key-web", text: `pods "a" not found in key-web`, want: `pods "a" not found in web`},
		{name: "both forms of the UID", superUID: "2222-bb", text: "/pod2222_bb/2222-bb", want: "/pod1111_aa/1111-aa"},
		{name: "all of them", superNamespace: "key-web", superUID: "2222-bb", text: "a_key-web(2222-bb)", want: "a_web(1111-aa)"},
		{name: "what was replaced is not replaced again", superNamespace: "1111-aa", superUID: "2222-bb", text: "2222-bb", want: "1111-aa"},
		{name: "nothing to replace", text: "key-web", want: "key-web"},
		{name: "no text", superNamespace: "key-web"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rewriter := tenancy.NewRewriter(tc.superNamespace, types.UID(tc.superUID), owner)
			require.Equal(t, tc.want, rewriter.Rewrite(tc.text))
		})
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text string
		limit      int
		want       string
	}{
		{name: "short", text: "abc", limit: 3, want: "abc"},
		{name: "long", text: "abcdefghij", limit: 8, want: "abcde..."},
		{name: "within a letter", text: "ab€€€€", limit: 9, want: "ab€..."},
		{name: "none", limit: 1024},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tenancy.Cut(tc.text, tc.limit))
		})
	}
}
