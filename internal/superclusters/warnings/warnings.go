// Package warnings records Warning Events about Clusters of which something lasts.
package warnings

import (
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/tenancy"
)

// Period is how often the Event of a lasting failure is recorded again.
const Period = 10 * time.Minute

// Warnings records Warning Events about Clusters: when a failure is new, and again each ten minutes. It is safe for
// concurrent use.
type Warnings struct {
	Recorder record.EventRecorder

	mu   sync.Mutex
	last map[string]lastEvent // by Cluster and topic
}

type lastEvent struct {
	reason tenancy.Reason
	at     time.Time
}

// Set records the failure of a Cluster in one topic. The zero Reason clears it, so that the next one is new.
func (w *Warnings) Set(cluster *metav1.PartialObjectMetadata, topic string, reason tenancy.Reason) {
	key := client.ObjectKeyFromObject(cluster).String() + " " + topic
	now := time.Now()
	w.mu.Lock()
	last, exists := w.last[key]
	due := reason != tenancy.Reason{} && (!exists || last.reason != reason || now.Sub(last.at) >= Period)
	switch {
	case reason == tenancy.Reason{}:
		delete(w.last, key)
	case due:
		if w.last == nil {
			w.last = map[string]lastEvent{}
		}
		w.last[key] = lastEvent{reason, now}
	}
	w.mu.Unlock()
	if due {
		w.Recorder.Event(cluster, corev1.EventTypeWarning, reason.Reason, tenancy.Cut(reason.Message, tenancy.MaxEventNote))
	}
}

// Forget removes all topics of a Cluster that does not exist any more.
func (w *Warnings) Forget(cluster types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.last, func(key string, _ lastEvent) bool { return strings.HasPrefix(key, cluster.String()+" ") })
}
