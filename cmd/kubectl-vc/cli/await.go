package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/superpool/superpool/internal/page"
)

// LookPeriod is how often what is waited for is looked at.
const LookPeriod = 500 * time.Millisecond

// Waiting is whether a verb waits until what it wished for is so, and how long.
type Waiting struct {
	Wait    bool
	Timeout time.Duration
	// Until is what an error says that something is not by then: "there", unless it says another.
	Until string
}

// AddFlags adds the flags of what takes ten minutes at most, as a rule.
func (w *Waiting) AddFlags(flags *pflag.FlagSet) {
	const most = 10 * time.Minute
	w.AddFlagsFor(flags, most)
}

// AddFlagsFor adds the flags of what takes so long at most, as a rule.
func (w *Waiting) AddFlagsFor(flags *pflag.FlagSet, most time.Duration) {
	flags.BoolVar(&w.Wait, "wait", true, "wait until it is so, and say meanwhile what is waited for")
	flags.DurationVar(&w.Timeout, "timeout", most, "how long to wait. What was wished for stays wished for")
}

// State is how far something is: done, or refused for good, or on its way, with what there is to say.
type State struct {
	Done    bool
	Refused bool
	Says    string
	// More is what is said below that, once.
	More []string
}

// Await looks at something until it is done or refused, and says how far it is when that has become something else. what is
// how an error names it.
func (c *CLI) Await(ctx context.Context, what string, w Waiting, look func(ctx context.Context) (State, error)) error {
	if !w.Wait {
		return nil
	}
	begun, now := time.Now(), State{}
	err := wait.PollUntilContextTimeout(ctx, LookPeriod, w.Timeout, true, func(context.Context) (bool, error) { // a look that has begun is not cut off
		before := now
		switch looked, err := look(ctx); {
		case err != nil && ctx.Err() == nil:
			now = State{Says: err.Error()} // the meta cluster may be away for a while
		case err == nil:
			now = looked
		}
		now.Says = page.Printable(now.Says)
		if now.Says != "" && now.Says != before.Says && !now.Refused {
			_, _ = fmt.Fprintf(c.ErrOut, "%5s  %s\n", time.Since(begun).Round(time.Second), now.Says) // nobody reads it who has closed it
		}
		for _, more := range now.More {
			_, _ = fmt.Fprintf(c.ErrOut, "       %s\n", page.Printable(more)) // as above
		}
		now.More = nil
		return now.Done || now.Refused, nil
	})
	switch {
	case now.Refused:
		return fmt.Errorf("%s: %s", what, now.Says)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Errorf("%s is not %s after %s: %s", what, cmp.Or(w.Until, "there"), w.Timeout, now.Says)
	}
	return err //nolint:wrapcheck // it is that of the context
}
