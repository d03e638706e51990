package proof

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/superpool/superpool/internal/engage"
)

const (
	guardPeriod  = 10 * time.Second
	guardTimeout = 8 * time.Second
)

// Guard ends a process when a control plane on whose informers it rests is another one, or was restored from a backup:
// started again, the process lists everything anew. It runs on every replica.
type Guard struct {
	// Name is for messages: "the meta cluster".
	Name string
	// Namespaces reads it live, without a cache.
	Namespaces Namespaces
	// UID is that of its namespace kube-system; "" for the first that is found.
	UID types.UID
	// Answered is told of each answer of the right control plane, and when it was asked. It returns whether the next
	// answer is urgent. nil: nobody is told.
	Answered func(ctx context.Context, asked time.Time) (urgent bool)
	// Answers holds informers of the control plane back while it does not answer. nil: there are none to hold back.
	Answers *engage.Answers
	// Also is asked after each answer of the right control plane; its error ends the process too. nil: nothing more.
	Also func(context.Context) error
	// Period is how often it is asked; 0 means 10 seconds. While it does not answer, or the next answer is urgent, it
	// is asked ten times as often, and at once when Answers doubts that it does.
	Period time.Duration

	versions engage.Versions
}

var _ manager.LeaderElectionRunnable = &Guard{}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Guard) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It returns an error once the process has to end. That the control plane does not
// answer is no such error.
func (g *Guard) Start(ctx context.Context) error {
	period := g.Period
	if period == 0 {
		period = guardPeriod
	}
	if g.Answers == nil {
		g.Answers = &engage.Answers{}
	}
	for {
		asked, pause := time.Now(), period
		urgent, err := g.look(ctx, asked)
		if err != nil {
			return err
		}
		if urgent {
			pause = period / 10
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.Answers.Doubts():
		case <-time.After(time.Until(asked.Add(pause))):
		}
	}
}

// look asks once, now, and returns whether the next answer is urgent.
func (g *Guard) look(ctx context.Context, asked time.Time) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, guardTimeout)
	defer cancel()
	uid, version, err := Identify(ctx, g.Namespaces)
	if err != nil {
		g.Answers.Failed()
		if !errors.Is(err, context.Canceled) {
			klog.FromContext(ctx).V(2).Info("A control plane does not answer", "controlPlane", g.Name, "err", err)
		}
		return true, nil
	}
	if g.UID == "" {
		g.UID = uid
	}
	if uid != g.UID {
		return false, fmt.Errorf("%s: %w: its namespace kube-system has UID %s, and the one before had %s", g.Name, ErrOther, uid, g.UID)
	}
	if err := g.versions.Observe(version); err != nil {
		return false, fmt.Errorf("%s: %w", g.Name, err)
	}
	g.Answers.Answered(asked)
	urgent := g.Answered != nil && g.Answered(ctx, asked)
	if g.Also == nil {
		return urgent, nil
	}
	return urgent, g.Also(ctx)
}
