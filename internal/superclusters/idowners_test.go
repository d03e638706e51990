package superclusters

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestIDOwners(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	named := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "default", Name: name} }
	cluster := func(name string, age int) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(start.Add(-time.Duration(age) * time.Second)),
		}}
	}
	both := []metav1.PartialObjectMetadata{cluster("young", 1), cluster("old", 2)}
	for _, tc := range []struct {
		name      string
		cluster   string
		recorded  string
		all       []metav1.PartialObjectMetadata
		known     map[string]idRecord
		impatient bool
		want      acquisition
	}{
		{name: "alone", cluster: "young", all: both[:1]},
		{name: "the old one has no rival", cluster: "old", all: both},
		{name: "the young one waits for the old one", cluster: "young", all: both, want: acquisition{wait: true}},
		{name: "but not for ever", cluster: "young", all: both, impatient: true},
		{name: "the old one has the id", cluster: "young", all: both, known: map[string]idRecord{"old": {id: "r1"}}, want: acquisition{owner: named("old")}},
		{name: "the old one has another id", cluster: "young", all: both, known: map[string]idRecord{"old": {id: "r2"}}},
		{name: "the old one could not be read", cluster: "young", all: both, known: map[string]idRecord{"old": {}}},
		{name: "the node names me", cluster: "young", recorded: "young", all: both, known: map[string]idRecord{"old": {id: "r1"}}},
		{name: "the node names the young one", cluster: "old", recorded: "young", all: both, want: acquisition{owner: named("young")}},
		{name: "the node names one with another id", cluster: "old", recorded: "young", all: both, known: map[string]idRecord{"young": {id: "r2"}}},
		{name: "the node names one that is gone", cluster: "old", recorded: "gone", all: both},
		{name: "the young one owns it already", cluster: "old", all: both, known: map[string]idRecord{"young": {id: "r1", owns: true}}, want: acquisition{owner: named("young")}},
		{name: "same age, by name", cluster: "b", all: []metav1.PartialObjectMetadata{cluster("b", 1), cluster("a", 1)}, known: map[string]idRecord{"a": {id: "r1"}}, want: acquisition{owner: named("a")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var c idOwners
			c.tried(named("unrelated"), "r9")
			for name, known := range tc.known {
				c.byCluster[named(name)] = known
			}
			recorded := types.NamespacedName{}
			if tc.recorded != "" {
				recorded = named(tc.recorded)
			}
			require.Equal(t, tc.want, c.acquire(named(tc.cluster), "r1", recorded, tc.all, !tc.impatient))
			require.Equal(t, tc.want == acquisition{}, c.byCluster[named(tc.cluster)].owns)
		})
	}
}

func TestIDsAreReleased(t *testing.T) {
	t.Parallel()
	var c idOwners
	old, young := types.NamespacedName{Name: "old"}, types.NamespacedName{Name: "young"}
	require.Equal(t, acquisition{}, c.acquire(young, "r1", types.NamespacedName{}, nil, false))
	require.Equal(t, young, c.acquire(old, "r1", types.NamespacedName{}, nil, false).owner)
	c.release(young)
	require.Equal(t, acquisition{}, c.acquire(old, "r1", types.NamespacedName{}, nil, false))
	c.forget(old)
	require.Equal(t, acquisition{}, c.acquire(young, "r1", types.NamespacedName{}, nil, false))
}
