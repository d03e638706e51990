package etcd_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/etcd"
)

// state is a pod and its member, as a test tells of them.
type state struct {
	ordinal int
	// noPod and noMember are whether one of the two is missing.
	noPod, noMember bool
	notReady        bool
	stopped         bool
	outdated        bool
	ending, doomed  bool
	failed, lost    bool
	diskFull        bool
	// size and inUse are those of its file, of 100 bytes that it may have.
	size, inUse     int64
	full            bool
	learner, leader bool
	sick            string
}

// TestNext: one step at a time, and no whole member is touched while another one is not.
func TestNext(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		wanted int
		is     []state
		want   etcd.Action
	}{
		{name: "nothing is there", wanted: 1, want: etcd.Action{Wait: "it does not answer"}},
		{name: "the disk of the only one is full", wanted: 1, is: []state{{ordinal: 0, noMember: true, notReady: true, stopped: true, failed: true, diskFull: true}}, want: etcd.Action{DiskFull: "etcd-0"}},
		{
			name: "the disk of one is full, and it is not told to lose its data", wanted: 3,
			is:   []state{{ordinal: 0}, {ordinal: 1, notReady: true, stopped: true, failed: true, diskFull: true, sick: "it does not answer"}, {ordinal: 2}},
			want: etcd.Action{DiskFull: "etcd-1"},
		},
		{name: "a disk was full once", wanted: 1, is: []state{{ordinal: 0, diskFull: true}}},
		{
			name: "a volume is lost, and the disk of the next one full", wanted: 3,
			is:   []state{{ordinal: 0}, {ordinal: 1, notReady: true, stopped: true, failed: true, lost: true, diskFull: true, sick: "it does not answer"}, {ordinal: 2}},
			want: etcd.Action{Remove: "etcd-1", RemoveID: 101},
		},
		{name: "all is as it is to be", wanted: 3, is: []state{{ordinal: 0}, {ordinal: 1, leader: true}, {ordinal: 2}}},
		{name: "the first one", wanted: 1, is: []state{{ordinal: 0, leader: true}}},

		{name: "one more is wanted", wanted: 3, is: []state{{ordinal: 0, leader: true}}, want: etcd.Action{Add: "etcd-1"}},
		{name: "its pod is not made yet", wanted: 3, is: []state{{ordinal: 0}, {ordinal: 1, learner: true, noPod: true}}, want: etcd.Action{Wait: "etcd-1 has no pod"}},
		{
			name: "it has not joined", wanted: 3, is: []state{{ordinal: 0}, {ordinal: 1, learner: true, sick: "it has not joined"}},
			want: etcd.Action{Wait: "etcd-1 is not whole: it has not joined"},
		},
		{name: "it has joined, and is not ready without a vote", wanted: 3, is: []state{{ordinal: 0}, {ordinal: 1, learner: true, notReady: true}}, want: etcd.Action{Promote: 101}},
		{name: "it has its vote", wanted: 3, is: []state{{ordinal: 0}, {ordinal: 1, notReady: true}}, want: etcd.Action{Wait: "pod etcd-1 is not ready"}},
		{name: "the next one", wanted: 3, is: []state{{ordinal: 0}, {ordinal: 1}}, want: etcd.Action{Add: "etcd-2"}},
		{name: "a gap is filled", wanted: 3, is: []state{{ordinal: 0}, {ordinal: 2}}, want: etcd.Action{Add: "etcd-1"}},
		{
			name: "nothing is added while one is sick", wanted: 3, is: []state{{ordinal: 0}, {ordinal: 1, sick: "it follows no leader"}},
			want: etcd.Action{Wait: "etcd-1 is not whole: it follows no leader"},
		},
		{name: "what is outdated goes first", wanted: 3, is: []state{{ordinal: 0, outdated: true, leader: true}}, want: etcd.Action{Replace: "etcd-0"}},

		{name: "all are outdated", wanted: 3, is: []state{{ordinal: 0, outdated: true, leader: true}, {ordinal: 1, outdated: true}, {ordinal: 2, outdated: true}}, want: etcd.Action{Replace: "etcd-1"}},
		{name: "the leader is last", wanted: 3, is: []state{{ordinal: 0, outdated: true, leader: true}, {ordinal: 1}, {ordinal: 2}}, want: etcd.Action{Replace: "etcd-0"}},
		{
			name: "the one before is not back", wanted: 3, is: []state{{ordinal: 0, outdated: true}, {ordinal: 1, notReady: true}, {ordinal: 2, outdated: true}},
			want: etcd.Action{Wait: "pod etcd-1 is not ready"},
		},
		{
			name: "the sick one is first, the leader too", wanted: 3,
			is:   []state{{ordinal: 0, outdated: true}, {ordinal: 1, outdated: true}, {ordinal: 2, outdated: true, leader: true, notReady: true, sick: "it does not answer"}},
			want: etcd.Action{Replace: "etcd-2"},
		},
		{
			name: "the kubelet alone has lost one", wanted: 3, is: []state{{ordinal: 0, outdated: true}, {ordinal: 1, outdated: true, notReady: true}, {ordinal: 2}},
			want: etcd.Action{Wait: "pod etcd-1 is not ready"},
		},
		{
			name: "the network alone has lost one", wanted: 3, is: []state{{ordinal: 0, outdated: true}, {ordinal: 1, outdated: true, sick: "it does not answer"}, {ordinal: 2}},
			want: etcd.Action{Wait: "etcd-1 is not whole: it does not answer"},
		},
		{
			name: "a sick one that is not outdated is the kubelet's", wanted: 3, is: []state{{ordinal: 0, outdated: true}, {ordinal: 1, notReady: true, sick: "it does not answer"}},
			want: etcd.Action{Wait: "etcd-1 is not whole: it does not answer"},
		},
		{
			name: "a member of nobody", wanted: 3, is: []state{{ordinal: 0}, {ordinal: -1, noPod: true, sick: "it is no pod's"}},
			want: etcd.Action{Wait: "there is a member that is no pod's: remove it with etcdctl"},
		},
		{
			name: "one ends", wanted: 3, is: []state{{ordinal: 0, outdated: true}, {ordinal: 1, ending: true}, {ordinal: 2, outdated: true}},
			want: etcd.Action{Wait: "pod etcd-1 ends"},
		},
		{
			name: "it is silent, and one ends", wanted: 3,
			is:   []state{{ordinal: 0, noMember: true, notReady: true, outdated: true}, {ordinal: 1, noMember: true, notReady: true, ending: true}},
			want: etcd.Action{Wait: "pod etcd-1 ends"},
		},

		{name: "it is silent, and its pods start", wanted: 3, is: []state{{ordinal: 0, noMember: true, notReady: true}}, want: etcd.Action{Wait: "it does not answer"}},
		{
			name: "it is silent, alone and outdated", wanted: 1, is: []state{{ordinal: 0, noMember: true, notReady: true, outdated: true}},
			want: etcd.Action{Replace: "etcd-0"},
		},
		{
			name: "it is silent, and may find a majority again", wanted: 3,
			is: []state{
				{ordinal: 0, noMember: true, notReady: true, outdated: true},
				{ordinal: 1, noMember: true, notReady: true, stopped: true},
				{ordinal: 2, noMember: true, notReady: true, outdated: true},
			},
			want: etcd.Action{Wait: "it does not answer"},
		},
		{
			name: "it is silent, and one cannot start", wanted: 3,
			is: []state{
				{ordinal: 0, noMember: true, notReady: true, outdated: true},
				{ordinal: 1, noMember: true, notReady: true, stopped: true, outdated: true},
				{ordinal: 2, noMember: true, notReady: true, outdated: true},
			},
			want: etcd.Action{Replace: "etcd-1"},
		},
		{
			name: "two are sick, and one may come back", wanted: 3,
			is: []state{
				{ordinal: 0, outdated: true, notReady: true, sick: "it does not answer"}, {ordinal: 1, notReady: true, stopped: true, sick: "it does not answer"}, {ordinal: 2},
			},
			want: etcd.Action{Wait: "etcd-0 is not whole: it does not answer"},
		},
		{
			name: "one has lost its volume, and is outdated", wanted: 3,
			is:   []state{{ordinal: 0, outdated: true}, {ordinal: 1, notReady: true, stopped: true, outdated: true, lost: true, sick: "it does not answer"}, {ordinal: 2}},
			want: etcd.Action{Remove: "etcd-1", RemoveID: 101},
		},
		{
			name: "it was taken out", wanted: 3,
			is: []state{{ordinal: 0, outdated: true}, {ordinal: 1, noMember: true, notReady: true, stopped: true}, {ordinal: 2}}, want: etcd.Action{Add: "etcd-1"},
		},
		{
			name: "one has another volume, and is whole with it", wanted: 3, is: []state{{ordinal: 0}, {ordinal: 1, lost: true}, {ordinal: 2}},
		},
		{
			name: "one has lost its volume while another one is sick", wanted: 3,
			is:   []state{{ordinal: 0, sick: "it follows no leader"}, {ordinal: 1, notReady: true, stopped: true, lost: true, sick: "it does not answer"}, {ordinal: 2}},
			want: etcd.Action{Wait: "etcd-0 is not whole: it follows no leader"},
		},
		{
			name: "the only one has lost its volume", wanted: 1, is: []state{{ordinal: 0, noMember: true, notReady: true, stopped: true, lost: true}},
			want: etcd.Action{Wait: "it does not answer, and 1 of 1 members have lost their volumes; spec.restoreFrom of the VirtualCluster restores a backup"},
		},
		{
			name: "one of two has lost its volume, and the other one has all", wanted: 3, is: []state{{ordinal: 0, noMember: true, notReady: true}, {ordinal: 1, noMember: true, notReady: true, lost: true}},
			want: etcd.Action{Wait: "it does not answer"},
		},
		{
			name: "one has another volume and is whole, and another one is sick", wanted: 3, is: []state{{ordinal: 0, sick: "it follows no leader"}, {ordinal: 1, lost: true}, {ordinal: 2}},
			want: etcd.Action{Wait: "etcd-0 is not whole: it follows no leader"},
		},
		{
			name: "one that was added anew has not joined", wanted: 3,
			is:   []state{{ordinal: 0}, {ordinal: 1, learner: true, notReady: true, failed: true, lost: true, sick: "it has not joined"}, {ordinal: 2}},
			want: etcd.Action{Wait: "etcd-1 is not whole: its program ends. If its data is lost for good, delete its claim and its pod"},
		},
		{
			name: "a claim is being deleted", wanted: 1, is: []state{{ordinal: 0, outdated: true, doomed: true}},
			want: etcd.Action{Wait: "the claim of etcd-0 is being deleted, and its data ends with the pod: delete the pod yourself, if that is what you want"},
		},
		{
			name: "files are large and mostly free", wanted: 3, is: []state{{ordinal: 0, size: 90, inUse: 60, leader: true}, {ordinal: 1, size: 90, inUse: 60}, {ordinal: 2, size: 60, inUse: 60}},
			want: etcd.Action{Defragment: "etcd-1"},
		},
		{name: "the leader is left", wanted: 3, is: []state{{ordinal: 0, size: 90, inUse: 60, leader: true}, {ordinal: 1}, {ordinal: 2}}, want: etcd.Action{Defragment: "etcd-0"}},
		{name: "a file is large and little is free", wanted: 1, is: []state{{ordinal: 0, size: 95, inUse: 80}}},
		{name: "a file is small and mostly free", wanted: 1, is: []state{{ordinal: 0, size: 79, inUse: 1}}},
		{
			name: "not while one is sick", wanted: 3, is: []state{{ordinal: 0, size: 90, full: true}, {ordinal: 1, sick: "it does not answer"}, {ordinal: 2}},
			want: etcd.Action{Wait: "etcd-1 is not whole: it does not answer"},
		},
		{name: "it is full", wanted: 1, is: []state{{ordinal: 0, size: 100, inUse: 95, full: true}}, want: etcd.Action{Full: true}},
		{name: "it is full, and may have more", wanted: 1, is: []state{{ordinal: 0, size: 100, inUse: 95, full: true, outdated: true}}, want: etcd.Action{Replace: "etcd-0"}},
		{name: "it was full", wanted: 3, is: []state{{ordinal: 0, size: 50}, {ordinal: 1, size: 50, full: true}, {ordinal: 2, size: 50}}, want: etcd.Action{Disarm: true}},
		{name: "it is full, and a little is free", wanted: 1, is: []state{{ordinal: 0, size: 100, inUse: 89, full: true}}, want: etcd.Action{Defragment: "etcd-0"}},
		{name: "a pod is outdated before files are large", wanted: 1, is: []state{{ordinal: 0, size: 100, full: true, outdated: true}}, want: etcd.Action{Replace: "etcd-0"}},
		{name: "a member is missing before files are large", wanted: 3, is: []state{{ordinal: 0, size: 100, full: true, outdated: true}, {ordinal: 2}}, want: etcd.Action{Add: "etcd-1"}},
		{
			name: "of two that are to stay two none is replaced", wanted: 2, is: []state{{ordinal: 0}, {ordinal: 1, outdated: true}},
			want: etcd.Action{Wait: "etcd-1 is not as it is to be, and is replaced when there are three"},
		},
		{name: "there may not be more than two", wanted: 2, is: []state{{ordinal: 0}, {ordinal: 1, learner: true, notReady: true}}, want: etcd.Action{Wait: "etcd-1 has no vote until there are to be three"}},
		{name: "one is full yet", wanted: 3, is: []state{{ordinal: 0, size: 50}, {ordinal: 1, size: 95, inUse: 90, full: true}, {ordinal: 2, size: 50}}, want: etcd.Action{Full: true}},
		{
			name: "of two none is replaced", wanted: 3, is: []state{{ordinal: 0, outdated: true, leader: true}, {ordinal: 1, outdated: true}},
			want: etcd.Action{Add: "etcd-2"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var names []string
			for ordinal := range tc.wanted {
				names = append(names, fmt.Sprintf("etcd-%d", ordinal))
			}
			var pods []etcd.Pod
			var members []etcd.Member
			for _, is := range tc.is {
				name := fmt.Sprintf("etcd-%d", is.ordinal)
				if is.ordinal < 0 {
					name = ""
				}
				if !is.noPod {
					pods = append(pods, etcd.Pod{Name: name, Ready: !is.notReady, Running: !is.stopped, Outdated: is.outdated, Ending: is.ending, Doomed: is.doomed, Failed: is.failed, Lost: is.lost, DiskFull: is.diskFull})
				}
				if !is.noMember {
					members = append(members, etcd.Member{Name: name, ID: uint64(100 + is.ordinal), Joined: !is.learner, Learner: is.learner, Leader: is.leader, Sick: is.sick, Size: is.size, InUse: is.inUse, Quota: 100, Full: is.full}) //nolint:gosec // a handful
				}
			}
			require.Empty(t, cmp.Diff(tc.want, etcd.Next(names, pods, members)))
		})
	}
}

// FuzzNext: whatever is there, at most one thing is done, and a whole member's pod is replaced only while all others
// are whole.
func FuzzNext(f *testing.F) {
	f.Add(uint64(0), 3)
	f.Add(uint64(0x123456789abcdef), 3)
	f.Fuzz(func(t *testing.T, bits uint64, wanted int) {
		names, pods, members, whole := drawn(bits, wanted)
		action := etcd.Next(names, pods, members)
		if action == (etcd.Action{}) {
			return
		}
		one := []etcd.Action{
			{}, {Wait: action.Wait}, {Replace: action.Replace}, {Add: action.Add}, {Promote: action.Promote}, {Remove: action.Remove, RemoveID: action.RemoveID}, {Defragment: action.Defragment}, {Disarm: true}, {Full: true}, {DiskFull: action.DiskFull},
		}
		require.Contains(t, one, action, "one thing at most")
		touches := whole[action.Replace] || slices.Contains(one[3:5], action) || slices.Contains(one[6:8], action)
		if action.Remove != "" {
			sick := slices.DeleteFunc(slices.Clone(members), func(member etcd.Member) bool { return member.Sick == "" })
			require.Len(t, sick, 1, "all others answer")
			require.Equal(t, action.RemoveID, sick[0].ID)
		}
		for _, member := range members {
			if touches && member.Name != action.Replace {
				require.True(t, whole[member.Name], "%+v while %s is not whole", action, member.Name)
			}
		}
	})
}

// drawn returns a store that bits say, and which of its members are whole.
func drawn(bits uint64, wanted int) (names []string, pods []etcd.Pod, members []etcd.Member, whole map[string]bool) {
	take := func(choices uint64) int { n := bits % choices; bits /= choices; return int(n) } //nolint:gosec // a handful
	names = []string{"etcd-0", "etcd-1", "etcd-2"}[:1+max(0, wanted)%3]
	whole = map[string]bool{}
	for ordinal := range 3 {
		name := fmt.Sprintf("etcd-%d", ordinal)
		ready, sick := take(2) == 0, take(2) == 0
		hasPod, isMember := take(4) > 0, take(4) > 0
		if hasPod {
			pods = append(pods, etcd.Pod{Name: name, Ready: ready, Running: ready || take(2) == 0, Outdated: take(2) == 0, Failed: take(2) == 0, Lost: take(3) == 0, Doomed: take(4) == 0, DiskFull: take(4) == 0})
		}
		if isMember {
			member := etcd.Member{Name: name, ID: uint64(100 + ordinal), Joined: take(4) > 0, Learner: take(4) == 0, Leader: take(3) == 0, Quota: 100, Size: 50 * int64(take(3)), InUse: 50, Full: take(2) == 0} //nolint:gosec // a handful
			if sick {
				member.Sick = "it does not answer"
			}
			members = append(members, member)
		}
		whole[name] = hasPod && isMember && !sick && (ready || members[len(members)-1].Learner)
	}
	return names, pods, members, whole
}
