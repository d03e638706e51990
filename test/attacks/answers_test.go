//go:build attacks

package attacks_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// listOf reports whether a request is a list of a resource, and not a watch.
func listOf(r *http.Request, resource string) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+resource) && r.URL.Query().Get("watch") == ""
}

func answerJSON(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprint(w, text)
}

// TestAnswers: answers of an API server of its own that are short, and much when they are decoded, copied or logged.
//
//nolint:gocyclo // one attack after the other, with its twin
func TestAnswers(t *testing.T) {
	p := connect(t)
	back := func(t *testing.T) {
		p.ready(t, metav1.ConditionTrue, tenancyv1alpha1.ReasonConnected)
		namespace, _ := p.attacker.sole(t, "answered")
		p.attacker.runs(t, newPod(t, namespace, "answered", ""))
	}
	// told counts what syncers have told the operator of lists of a resource that were too much.
	told := func(ctx context.Context, resource string) (count int32) {
		var events corev1.EventList
		if p.meta.List(ctx, &events, client.InNamespace("default")) != nil {
			return 0
		}
		for i := range events.Items {
			event := &events.Items[i]
			if event.InvolvedObject.Name == "attacker" && event.Reason == tenancyv1alpha1.ReasonTooMuchData && containsAll(event.Message, []string{resource}) {
				count += event.Count
			}
		}
		return count
	}
	// tooMuch leads the programs to an API server whose lists of a resource are too much, and waits until that is told.
	tooMuch := func(t *testing.T, resource string, fault func(http.ResponseWriter, *http.Request) bool) {
		t.Helper()
		before := told(t.Context(), resource)
		p.withinMemory(t, func() {
			defer p.lead(t, "attacker", p.server(t, p.attacker.cluster, fault))()
			eventually(t, "an Event TooMuchData about "+resource, func(ctx context.Context) (bool, any) { return told(ctx, resource) > before, nil })
		})
	}
	p.attacker.sole(t, "answers") // so that a syncer reads of the tenant
	attack(t, "pages", alone, func(t *testing.T) {
		const most = 60 // for a program that does not stop
		page := `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"1","continue":"c"},"items":[` +
			`{"metadata":{"name":"a","namespace":"default"},"endpoints":[` + strings.Repeat("{},", 129_999) + `{}]}]}`
		var pages atomic.Int64
		endless := func(w http.ResponseWriter, r *http.Request) bool {
			if !listOf(r, "endpointslices") || pages.Add(1) > most {
				return false
			}
			answerJSON(w, http.StatusOK, page)
			return true
		}
		tooMuch(t, "endpointslices", endless)
	}, back)
	attack(t, "arrays", alone, func(t *testing.T) {
		snapshots := `{"kind":"VolumeSnapshotList","apiVersion":"snapshot.storage.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[` +
			`{"kind":"VolumeSnapshot","apiVersion":"snapshot.storage.k8s.io/v1","metadata":{"name":"a","namespace":"default"},"spec":[` + strings.Repeat("[],", 2_500_000) + `[]]}]}`
		hollow := func(w http.ResponseWriter, r *http.Request) bool {
			if !listOf(r, "volumesnapshots") {
				return false
			}
			answerJSON(w, http.StatusOK, snapshots)
			return true
		}
		tooMuch(t, "volumesnapshots", hollow)
	}, back)
	attack(t, "denials", alone, func(t *testing.T) {
		denial := `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"` + strings.Repeat("no way ", 1<<20) + `"}`
		var denials atomic.Int64
		webhook := func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet || !strings.HasSuffix(r.URL.Path, "/status") || !strings.Contains(r.URL.Path, "/pods/") {
				return false
			}
			denials.Add(1)
			answerJSON(w, http.StatusForbidden, denial)
			return true
		}
		namespace, _ := p.attacker.sole(t, "denied")
		logs := p.logs(t)
		p.withinMemory(t, func() {
			defer p.lead(t, "attacker", p.server(t, p.attacker.cluster, webhook))()
			for i := range 4 {
				p.attacker.create(t, newPod(t, namespace, fmt.Sprint("denied-", i), ""))
			}
			eventually(t, "eight denials", func(context.Context) (bool, any) { return denials.Load() >= 8, denials.Load() })
		})
		require.Less(t, p.logs(t)-logs, int64(2<<20), "bytes in all logs, for denials of 7 MB")
	}, back)
	attack(t, "flood", alone, func(t *testing.T) {
		event := `{"type":"MODIFIED","object":{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","addressType":"IPv4","metadata":{"name":"a","namespace":"default","resourceVersion":"2"}}}` + "\n"
		var sent atomic.Int64
		flood := func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/endpointslices") || r.URL.Query().Get("watch") == "" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			for err := error(nil); err == nil && r.Context().Err() == nil; sent.Add(100) {
				_, err = fmt.Fprint(w, strings.Repeat(event, 100))
			}
			return true
		}
		p.withinMemory(t, func() {
			defer p.lead(t, "attacker", p.server(t, p.attacker.cluster, flood))()
			eventually(t, "a program reads the watch", func(context.Context) (bool, any) { return sent.Load() > 20_000, sent.Load() })
			p.served(t)
			// Two syncers read it. Before that come the events that may come at once, and what the kernel buffers.
			eventually(t, "less than 10,000 events come in in a second", func(context.Context) (bool, any) {
				begun, before := time.Now(), sent.Load()
				<-time.After(time.Second)
				perSecond := float64(sent.Load()-before) / time.Since(begun).Seconds()
				return perSecond < 10_000, perSecond
			})
			slow := sent.Load()
			eventually(t, "the watch is read on, not closed", func(context.Context) (bool, any) {
				return sent.Load() > slow+10_000, sent.Load() - slow
			})
		})
	}, back)
}

// logs returns how many bytes all programs have logged.
func (p *pool) logs(t *testing.T) int64 {
	t.Helper()
	sum := int64(0)
	for _, program := range bed.Programs {
		info, err := os.Stat(program.Process.Log)
		require.NoError(t, err)
		sum += info.Size()
	}
	return sum
}
