package nodeshape

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// maxAnswers is how many sizes of slices a room remembers its answer for.
const maxAnswers = 128

// room is what the slices on a virtual Node leave of the nodes of its super cluster. It follows the Node from one look
// to the next, so that a look costs what has changed in between, and an unchanged Node one comparison.
type room struct {
	mu sync.Mutex
	// generation is that of the NodeInfo that was looked at last, 0 before the first.
	generation int64
	// nodes are nil where the annotation cannot be read.
	nodes *freenodes.Nodes
	// pods are those that placed counts. PodInfos are never changed while they are on a node.
	pods   []fwk.PodInfo
	placed freenodes.Placed
	// held are the slices of Pods that stand for several, by the text that says which.
	held map[string]*heldSlices
	// left is what placed leaves of nodes, nil until it is asked for.
	left *freenodes.Room
	// answers are the outcomes for the sizes that were asked for, by key.
	answers map[string]outcome
}

// heldSlices are the slices that each of some Pods stands for.
type heldSlices struct {
	runs []freenodes.Run
	pods int
}

// outcome is why a slice finds no room, the zero outcome if it finds some.
type outcome struct {
	code   fwk.Code
	reason string
}

func (o outcome) status() *fwk.Status {
	if o.code == fwk.Success {
		return nil
	}
	return fwk.NewStatus(o.code, o.reason)
}

// roomOf returns the outcome for a slice on a virtual Node: the zero outcome if it is not known what its nodes have
// free.
func (pl *NodeShape) roomOf(node fwk.NodeInfo, needed *request) outcome {
	value, exists := pl.rooms.Load(node.Node().Name)
	if !exists {
		value, _ = pl.rooms.LoadOrStore(node.Node().Name, &room{held: map[string]*heldSlices{}, answers: map[string]outcome{}})
	}
	r := value.(*room)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.generation != node.GetGeneration() {
		nodes := pl.freeOf(node.Node())
		if moved := r.count(node.GetPods()); moved || nodes != r.nodes {
			r.nodes, r.left = nodes, nil
			clear(r.answers)
		}
		r.generation = node.GetGeneration()
	}
	if r.nodes == nil {
		return outcome{}
	}
	return r.answer(needed)
}

// count makes placed count pods. It returns whether other pods were counted before. It writes what differs only: most
// of a thousand pods are where they were.
func (r *room) count(pods []fwk.PodInfo) (moved bool) {
	for i, now := range pods {
		switch {
		case i >= len(r.pods):
			r.pods = append(r.pods, now)
		case r.pods[i] == now:
			continue
		default:
			r.placed.Add(r.runsOf(r.pods[i].GetPod(), -1), -1)
			r.pods[i] = now
		}
		r.placed.Add(r.runsOf(now.GetPod(), 1), 1)
		moved = true
	}
	for i := len(pods); i < len(r.pods); i++ {
		r.placed.Add(r.runsOf(r.pods[i].GetPod(), -1), -1)
		moved = true
	}
	r.pods = slices.Delete(r.pods, min(len(pods), len(r.pods)), len(r.pods))
	return moved
}

// runsOf returns the slices that a Pod stands for, and counts the Pod with those of equal slices. What cannot be read
// is no slice.
func (r *room) runsOf(pod *corev1.Pod, sign int) []freenodes.Run {
	text, holds := pod.Annotations[slicepod.AnnotationSlices]
	known := r.held[text]
	if !holds || known == nil {
		runs, err := slicepod.Runs(pod)
		if err != nil {
			runs = nil
		}
		known = &heldSlices{runs: freenodes.RunsOf(runs)}
	}
	if !holds {
		return known.runs
	}
	r.held[text] = known
	if known.pods += sign; known.pods == 0 {
		delete(r.held, text)
	}
	return known.runs
}

func (r *room) answer(needed *request) outcome {
	if known, exists := r.answers[needed.key]; exists {
		return known
	}
	if r.left == nil {
		r.left = r.nodes.Without(&r.placed)
	}
	answer := outcome{}
	switch {
	case !r.nodes.Holds(needed.amounts):
		answer = outcome{fwk.UnschedulableAndUnresolvable, ErrReasonNoNodeFree + " " + wanted(needed.amounts, r.nodes.Largest())}
	case !r.left.Holds(needed.amounts):
		answer = outcome{fwk.Unschedulable, ErrReasonNoNodeLeft + " " + wanted(needed.amounts, needed.amounts)}
	}
	if len(r.answers) >= maxAnswers {
		clear(r.answers)
	}
	r.answers[needed.key] = answer
	return answer
}

// wanted says what a slice needs on one node: what no node has, and how much the freest one has, or else all of it.
func wanted(needed, largest slice.Amounts) string {
	var all, short []string
	for _, name := range needed.Names() {
		d := slice.DimensionOf(name)
		text := fmt.Sprintf("%s %s free", d.Quantity(needed[name]), name)
		all = append(all, text)
		if needed[name] > largest[name] {
			short = append(short, fmt.Sprintf("%s (%s at most)", text, d.Quantity(largest[name])))
		}
	}
	if len(short) > 0 {
		return strings.Join(short, " or ")
	}
	return strings.Join(all, " and ")
}
