// Package failedchoice reads and writes what a tenant's pod or claim says about super clusters that were chosen for it
// and did not take it. A tenant can write it too: it decides about nothing but where and when that object is tried.
//
// Everything here is pure: no clients, no clock, no logging.
package failedchoice

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

const (
	// MaxLength bounds the annotation that is read, in bytes: a longer one counts as none.
	MaxLength = 8192
	// maxSuperClusters bounds the super clusters that are kept, the last that failed.
	maxSuperClusters = 32
	// shortest is how long an object is kept out of a super cluster that failed once, and longest how long at most.
	// What is older than longest is forgotten.
	shortest, longest = 5 * time.Minute, time.Hour
)

// Reasons why a super cluster did not take a pod or a claim.
const (
	// Unschedulable: its scheduler found no node.
	Unschedulable = "Unschedulable"
	// Quota: a ResourceQuota there did not admit the super object.
	Quota = "Quota"
	// Refused: its API server refused the super object.
	Refused = "Refused"
	// NoClass: it does not have the StorageClass of the claim.
	NoClass = "NoClass"
	// NoVolume: its scheduler found no node, because there is no volume for a claim.
	NoVolume = "NoVolume"
	// Limit: what the tenant has there reaches a limit of its TenantPolicy.
	Limit = "Limit"
	// Closed: its virtual Node was cordoned or tainted after the choice, or its Kubernetes is too old for the pod.
	Closed = "Closed"
)

// Failure is that a super cluster did not take an object.
type Failure struct {
	// At is when it last did not.
	At metav1.Time `json:"at"`
	// Count is how often, at least 1, since it last did not fail for an hour.
	Count int32 `json:"count"`
	// Reason is one of the reasons, of the last time.
	Reason string `json:"reason,omitempty"`
}

// Failures are those of one pod or claim by super cluster. They are not changed once they are read. Nil has none.
type Failures map[string]Failure

// Of returns what an object, of a tenant or of the pod view, says. What cannot be read counts as none.
func Of(object metav1.Object) Failures {
	text := object.GetAnnotations()[schedulerv1alpha1.AnnotationFailedSuperClusters]
	if text == "" || len(text) > MaxLength {
		return nil
	}
	var failures Failures
	if json.Unmarshal([]byte(text), &failures) != nil {
		return nil
	}
	return failures
}

// Plus returns failures and another one, now. Those that are forgotten, and the oldest beyond 32, are left out.
func (f Failures) Plus(superCluster, reason string, now time.Time) Failures {
	count := max(f[superCluster].live(now).Count, 0)
	sum := Failures{}
	for name, failure := range f {
		if failure.live(now).Count > 0 {
			sum[name] = failure
		}
	}
	sum[superCluster] = Failure{At: metav1.NewTime(now.UTC().Truncate(time.Second)), Count: min(count, 1000) + 1, Reason: reason}
	for len(sum) > maxSuperClusters {
		delete(sum, sum.Oldest(slices.DeleteFunc(slices.Collect(maps.Keys(sum)), func(name string) bool { return name == superCluster })))
	}
	return sum
}

// live returns the zero Failure in place of one that is forgotten.
func (f Failure) live(now time.Time) Failure {
	if f.Count < 1 || now.Sub(f.At.Time) >= longest {
		return Failure{}
	}
	return f
}

// String returns the annotation.
func (f Failures) String() string {
	if len(f) == 0 {
		return ""
	}
	text, err := json.Marshal(f) // its keys are sorted
	if err != nil {
		return "" // a time beyond the year 9999, which no Plus has written
	}
	return string(text)
}

// Keeps reports whether the object is kept out of a super cluster now. A time that is yet to come counts as now.
func (f Failures) Keeps(superCluster string, now time.Time) bool {
	failure := f[superCluster].live(now)
	return failure.Count > 0 && now.Before(failure.until())
}

// Closed returns which of the super clusters the object is kept out of now, in their order. When it is kept out of all,
// the one that failed first is open again.
func (f Failures) Closed(superClusters []string, now time.Time) []string {
	var kept []string
	for _, name := range superClusters {
		if f.Keeps(name, now) {
			kept = append(kept, name)
		}
	}
	if len(kept) > 0 && len(kept) == len(superClusters) {
		oldest := f.Oldest(kept)
		return slices.DeleteFunc(kept, func(name string) bool { return name == oldest })
	}
	return kept
}

// And returns the failures of two objects that go to one super cluster: of each super cluster those that keep it closed
// for longer.
func (f Failures) And(other Failures) Failures {
	if len(f) == 0 {
		return other
	}
	both := maps.Clone(f)
	for name, failure := range other {
		if known, exists := both[name]; !exists || known.until().Before(failure.until()) {
			both[name] = failure
		}
	}
	return both
}

// until returns when a failure ceases to keep an object out.
func (f Failure) until() time.Time { return f.At.Add(doubled(shortest, f.Count-1)) }

// Oldest returns which of the super clusters failed first, and of those at one time the first by name, "" for none of
// none.
func (f Failures) Oldest(superClusters []string) string {
	if len(superClusters) == 0 {
		return ""
	}
	return slices.MinFunc(superClusters, func(a, b string) int {
		return cmp.Or(f[a].At.Compare(f[b].At.Time), cmp.Compare(a, b))
	})
}

// Patience returns how long a super cluster may take to take the pod: shortest for its first, and twice as long for
// each failure of the last hour, up to an hour.
func (f Failures) Patience(first time.Duration, now time.Time) time.Duration {
	failed := int32(0)
	for _, failure := range f {
		failed = min(failed+min(failure.live(now).Count, 1000), 1000)
	}
	return max(first, doubled(first, failed))
}

// doubled returns duration doubled so many times, at most longest.
func doubled(duration time.Duration, times int32) time.Duration {
	for ; times > 0 && duration < longest; times-- {
		duration *= 2
	}
	return min(duration, longest)
}
