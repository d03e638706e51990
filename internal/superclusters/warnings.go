package superclusters

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

// eventPeriod is how often the Event of a lasting failure is recorded again.
const eventPeriod = 10 * time.Minute

// warnings records Warning Events about Clusters: when a failure is new, and again each eventPeriod. It is safe for
// concurrent use.
type warnings struct {
	recorder record.EventRecorder

	mu   sync.Mutex
	last map[string]lastEvent // by Cluster and topic
}

type lastEvent struct {
	reason tenancy.Reason
	at     time.Time
}

// set records the failure of a Cluster in one topic. The zero Reason clears it, so that the next one is new.
func (w *warnings) set(cluster *metav1.PartialObjectMetadata, topic string, reason tenancy.Reason) {
	key := client.ObjectKeyFromObject(cluster).String() + " " + topic
	now := time.Now()
	w.mu.Lock()
	last, exists := w.last[key]
	due := reason != tenancy.Reason{} && (!exists || last.reason != reason || now.Sub(last.at) >= eventPeriod)
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
		w.recorder.Event(cluster, corev1.EventTypeWarning, reason.Reason, tenancy.Cut(reason.Message, tenancy.MaxEventNote))
	}
}

// forget removes all topics of a Cluster that does not exist any more.
func (w *warnings) forget(cluster types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.last, func(key string, _ lastEvent) bool { return strings.HasPrefix(key, cluster.String()+" ") })
}
