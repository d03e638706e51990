package etcd

import (
	"cmp"
	"fmt"
	"slices"
)

// Pod is that of a member.
type Pod struct {
	Name string
	// Ready is whether the kubelet finds it so, Running whether its program runs, Outdated whether it is not as it is to
	// be, and Ending whether it was deleted and has not ended.
	Ready, Running, Outdated, Ending bool
	// Claim is the UID of its claim, "" for none, and Doomed whether that ends with the pod.
	Claim  string
	Doomed bool
	// Failed is whether its program was started again, and does not run, and Lost whether it does so with another volume than
	// its member had: a program that finds its data runs.
	Failed, Lost bool
	// DiskFull is whether its program ended last because its disk is full. It goes on by itself when that has room.
	DiskFull bool
}

// Action is what is done next. At most one of its fields is set, but for RemoveID; none is: nothing is left to do.
type Action struct {
	// Wait is what is waited for.
	Wait string
	// Replace is the pod that is deleted, so that another takes its place, and Add the pod whose member is added.
	Replace, Add string
	// Defragment is the pod whose member gives back what is free in its file.
	Defragment string
	// Disarm is whether the store has room again, and is told so. Full is whether it has none, and nothing else is left to do.
	Disarm, Full bool
	// DiskFull is the pod whose disk is full.
	DiskFull string
	// Promote is the ID of the member that gets its vote.
	Promote uint64
	// Remove is the pod whose member is taken out, and RemoveID the ID of that.
	Remove   string
	RemoveID uint64
}

// Next returns what is done next for a store to have the pods of these names, all as they are to be. Every member is
// whole before another one is touched, so that a majority stays whatever happens meanwhile, and as the store is read
// again before each step, a step that was taken and forgotten is found:
//
//	a member without its volume, or a sick pod that is outdated → wait for whoever is sick → a learner's vote →
//	other outdated pods, the leader's last → a member more → room in files that are large and partly free
//
// A member that has lost its volume is taken out while the store has all others whole, and is added as one of those that
// are missing: it has forgotten what it has promised.
//
// A pod is sick when neither the kubelet nor the store has it whole: one that only one of them has lost may be the
// majority's. While another one is sick too, or the store does not answer, its members may be about to find a majority
// again: then only a pod whose program does not run is replaced, or the only one there is. Nothing is done while a pod
// ends.
func Next(names []string, pods []Pod, members []Member) Action {
	action := next(names, pods, members)
	if slices.ContainsFunc(pods, func(pod Pod) bool { return pod.Doomed && pod.Name == action.Replace }) {
		return Action{Wait: "the claim of " + action.Replace + " is being deleted, and its data ends with the pod: delete the pod yourself, if that is what you want"}
	}
	return action
}

// next is Next, whatever becomes of claims.
func next(names []string, pods []Pod, members []Member) Action {
	for _, pod := range pods {
		if pod.Ending {
			return Action{Wait: "pod " + pod.Name + " ends"}
		}
	}
	if len(members) == 0 {
		return silent(pods)
	}
	podOf := map[string]Pod{}
	for _, pod := range pods {
		podOf[pod.Name] = pod
	}
	var waits Action
	for _, member := range members {
		pod, exists := podOf[member.Name]
		if exists && member.Sick != "" {
			if action := mend(member, pod, members); action != (Action{}) {
				return action
			}
		}
		waits = cmp.Or(waits, lacks(member, pod, exists))
	}
	if waits != (Action{}) {
		return waits
	}
	return whole(names, podOf, members)
}

// mend returns what is done with a member that is sick and its pod, nothing where it may get well.
func mend(member Member, pod Pod, members []Member) Action {
	isAlone := !slices.ContainsFunc(members, func(other Member) bool { return other.Sick != "" && other.ID != member.ID })
	switch {
	case isAlone && pod.Lost && member.Joined && len(members) > 1:
		return Action{Remove: member.Name, RemoveID: member.ID}
	case !pod.Ready && pod.Outdated && (isAlone || !pod.Running):
		return Action{Replace: pod.Name}
	}
	return Action{}
}

// whole is Next for a store whose members are all whole.
func whole(names []string, podOf map[string]Pod, members []Member) Action {
	var outdated []Member
	for _, member := range members {
		switch {
		case member.Learner && len(names) == 2: // two with a vote are silent where one is
			return Action{Wait: member.Name + " has no vote until there are to be three"}
		case member.Learner:
			return Action{Promote: member.ID}
		}
		if podOf[member.Name].Outdated {
			outdated = append(outdated, member)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(members, func(member Member) bool { return member.Name == name })
	})
	switch {
	case len(missing) > 0 && (len(outdated) == 0 || len(members) == 2): // one of two is no majority
		return Action{Add: missing[0]}
	case len(outdated) > 0 && len(members) == 2:
		return Action{Wait: outdated[0].Name + " is not as it is to be, and is replaced when there are three"}
	case len(outdated) > 0:
		return Action{Replace: leaderLast(outdated).Name}
	}
	return makeRoom(members)
}

// makeRoom is Next for a store of which nothing is left to do but for the size of its files.
func makeRoom(members []Member) Action {
	fragmented := slices.DeleteFunc(slices.Clone(members), func(member Member) bool { return !isFragmented(member) })
	isFull := slices.ContainsFunc(members, func(member Member) bool { return member.Full })
	switch {
	case len(fragmented) > 0:
		return Action{Defragment: leaderLast(fragmented).Name}
	case isFull && !slices.ContainsFunc(members, lacksRoom):
		return Action{Disarm: true}
	}
	return Action{Full: isFull}
}

// maxQuota is the largest quota with which a file and a copy of it fit in the volume of a member, of 8 GiB, beside its log.
const maxQuota = 3 << 30

// isFragmented reports whether a file is near its quota, by which etcd judges, and a part of it is free that is worth it.
func isFragmented(member Member) bool {
	tenth := member.Quota / 10
	worth := 2 * tenth
	if member.Full {
		worth = tenth
	}
	return tenth > 0 && member.Quota <= maxQuota && member.Size > 8*tenth && member.Size-member.InUse > worth
}

// lacksRoom reports whether a file is as large as it may be, or nearly, or that is not known. A quota below 0 is none.
func lacksRoom(member Member) bool {
	return member.Quota == 0 || member.Quota > 0 && member.Size >= member.Quota/10*9
}

// leaderLast returns the first of some members, the leader only where there is no other one.
func leaderLast(members []Member) Member {
	last := func(member Member) int {
		if member.Leader {
			return 1
		}
		return 0
	}
	return slices.MinFunc(members, func(a, b Member) int { return cmp.Or(last(a)-last(b), cmp.Compare(a.Name, b.Name)) })
}

// silent is Next for a store that does not answer.
func silent(pods []Pod) Action {
	for _, pod := range pods {
		if pod.Outdated && !pod.Ready && (!pod.Running || len(pods) == 1) {
			return Action{Replace: pod.Name}
		}
	}
	lost := 0
	for _, pod := range pods {
		if pod.Lost {
			lost++
		}
	}
	if 2*lost > len(pods) {
		return Action{Wait: fmt.Sprintf("it does not answer, and %d of %d members have lost their volumes; spec.restoreFrom of the VirtualCluster restores a backup", lost, len(pods))}
	}
	if at := slices.IndexFunc(pods, func(pod Pod) bool { return !pod.Ready && pod.DiskFull }); at >= 0 {
		return Action{DiskFull: pods[at].Name}
	}
	return Action{Wait: "it does not answer"}
}

// lacks returns what a member that is not whole is waited for, nothing when it is.
func lacks(member Member, pod Pod, exists bool) Action {
	switch {
	case member.Name == "":
		return Action{Wait: "there is a member that is no pod's: remove it with etcdctl"}
	case !exists:
		return Action{Wait: member.Name + " has no pod"}
	case member.Sick != "" && pod.DiskFull:
		return Action{DiskFull: member.Name}
	case member.Sick != "" && pod.Failed:
		return Action{Wait: member.Name + " is not whole: its program ends. If its data is lost for good, delete its claim and its pod"}
	case member.Sick != "":
		return Action{Wait: fmt.Sprintf("%s is not whole: %s", member.Name, member.Sick)}
	case !pod.Ready && !member.Learner: // without a vote it answers no reads, by which readiness is judged
		return Action{Wait: fmt.Sprintf("pod %s is not ready", member.Name)}
	}
	return Action{}
}
