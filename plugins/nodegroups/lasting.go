package nodegroups

import (
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
)

// lasting keeps what one question found out about each virtual Node and its pods, as long as these are the same. Pods
// that ask the same follow each other, and each decision changes the pods of one Node: of ten thousand pods only those
// are looked at again. The zero value is ready for use, by many goroutines.
type lasting[V any] struct {
	mu       sync.Mutex
	question string
	byNode   map[string]found[V]
}

// found is a value of a Node with that generation, which kube-scheduler never gives twice.
type found[V any] struct {
	generation int64
	value      V
}

// ask returns what look finds out about a Node, "" asks each time. Nobody changes it.
func (l *lasting[V]) ask(question string, node fwk.NodeInfo, look func() V) V {
	if question == "" {
		return look()
	}
	name, generation := node.Node().Name, node.GetGeneration()
	l.mu.Lock()
	if l.question != question {
		l.question, l.byNode = question, map[string]found[V]{}
	}
	known, exists := l.byNode[name]
	l.mu.Unlock()
	if exists && known.generation == generation {
		return known.value
	}
	value := look()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.question == question {
		l.byNode[name] = found[V]{generation, value}
	}
	return value
}
