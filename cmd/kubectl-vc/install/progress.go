package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// lookPeriod is how often what is waited for is looked at.
	lookPeriod = 500 * time.Millisecond
	// mostNamed is how many objects a message names.
	mostNamed = 10
)

// await looks at something until it is done, and says how far it is when that has become something else. what is how an
// error names it. An error of look is said, and looked at again: a cluster may be away for a while.
func (c *verbs) await(ctx context.Context, what string, timeout time.Duration, look func(ctx context.Context) (done bool, says string, err error)) error {
	begun, before := time.Now(), ""
	err := wait.PollUntilContextTimeout(ctx, lookPeriod, timeout, true, func(context.Context) (bool, error) { // a look that has begun is not cut off
		done, says, err := look(ctx)
		if err != nil && ctx.Err() == nil {
			says = err.Error()
		}
		if says = line(says); says != "" && says != before {
			c.say("%5s  %s", time.Since(begun).Round(time.Second), says)
			before = says
		}
		return done && err == nil, nil
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%s after %s: %s", what, timeout, before)
	}
	return err //nolint:wrapcheck // it is that of the context
}

// line returns a text as a line for a terminal: some of it was written by others.
func line(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, text)
}

// named returns the first of some names, and how many there are besides.
func named(names []string) string {
	if others := len(names) - mostNamed; others > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), others)
	}
	return strings.Join(names, ", ")
}
