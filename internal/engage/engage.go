// Package engage keeps connections to clusters: it runs at most one connection per object, connects, serves and probes
// the server meanwhile, tries again with backoff, and reports the state of each. A panic of one connection ends that
// connection alone.
package engage

import (
	"context"
	"time"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// ReasonPanicked: a panic ended the connection to a tenant or a super cluster, which is a bug. The stack is in the log,
// and the connection is retried with backoff.
const ReasonPanicked = "Panicked"

// Work is one connection to one cluster. Connect and Serve are called in turn from one goroutine; Probe is called from
// another one while Serve runs, and never twice at a time.
type Work interface {
	// Server names what is connected to, for messages: the URL of an API server, without credentials.
	Server() string
	// Connect asks whether the server answers and is the right one, and acquires what Serve needs. Serve is called
	// after every success, also when ctx has ended meanwhile, so Serve can release it. An error that is no Failure says
	// that this server does not answer, not that another one does not.
	Connect(ctx context.Context) error
	// Probe asks, every HealthPeriod while Serve runs, whether the server still answers and is the right one.
	Probe(ctx context.Context) error
	// Serve works until ctx ends, and returns when all that it started has ended. It calls ready once, when its caches
	// are filled. A panic on a goroutine that Serve started ends the process, unless that goroutine defers Recover.
	Serve(ctx context.Context, ready func()) error
}

// Doubter is a Work that knows when to Probe at once.
type Doubter interface {
	// Doubts signals that the server may not answer any more.
	Doubts() <-chan struct{}
}

// State is what is known of a connection at one moment.
type State struct {
	// Reason is Connecting, Connected, Unreachable, Panicked or the reason of a Failure; never empty.
	tenancy.Reason
	// Ready is true from when Serve has called ready until Serve returns, also while the server does not answer for a
	// while.
	Ready bool
}

// Failure is an error of Work with the reason that State reports for it. Any other error is reported as Unreachable.
type Failure struct {
	tenancy.Reason
	// Final makes a Failure of a health probe end Serve. Without it Serve goes on: informers list and watch again.
	Final bool
	// Costly makes the next try wait for the longest delay: a try that fails costs much.
	Costly bool
	// Pause is how long the next try waits at least, and State says when it is. 0: as long as that of any failure.
	Pause time.Duration
}

// Error implements error: it is the message.
func (f *Failure) Error() string { return f.Message }

func connecting(message string) tenancy.Reason {
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonConnecting, Message: message}
}

func connected(server string) tenancy.Reason {
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonConnected, Message: "Connected to " + server}
}
