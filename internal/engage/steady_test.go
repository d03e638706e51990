package engage_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/tenancy"
)

func TestSteadyWithoutSourceAddresses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, message, want string }{
		{
			name:    "reset",
			message: `Get "https://r1:6443/api": read tcp 10.0.0.5:43210->10.0.0.6:6443: read: connection reset by peer`,
			want:    `Get "https://r1:6443/api": read tcp 10.0.0.6:6443: read: connection reset by peer`,
		},
		{
			name:    "IPv6",
			message: "write tcp [fe80::1%eth0]:43210->[fe80::2]:6443: write: broken pipe", want: "write tcp [fe80::2]:6443: write: broken pipe",
		},
		{
			name:    "DNS",
			message: "dial tcp: lookup r1 on 10.96.0.10:53: read udp 10.0.0.5:37021->10.96.0.10:53: i/o timeout",
			want:    "dial tcp: lookup r1 on 10.96.0.10:53: read udp 10.96.0.10:53: i/o timeout",
		},
		{
			name:    "no source",
			message: "dial tcp 10.0.0.6:6443: connect: connection refused", want: "dial tcp 10.0.0.6:6443: connect: connection refused",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var steady engage.Steady
			require.Equal(t, tc.want, steady.Of(tenancy.Reason{Reason: tenancyv1alpha1.ReasonUnreachable, Message: tc.message}).Message)
		})
	}
}

func TestSteady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var steady engage.Steady
		say := func(after time.Duration, reason, message, want string) {
			t.Helper()
			<-time.After(after)
			require.Equal(t, tenancy.Reason{Reason: reason, Message: want}, steady.Of(tenancy.Reason{Reason: reason, Message: message}))
		}
		say(0, "A", "1", "1")
		say(29*time.Second, "A", "2", "1")
		say(time.Second, "A", "3", "3")
		say(time.Second, "A", "4", "3")
		say(0, "B", "5", "5")
		say(0, "A", "6", "6")
		say(0, "", "", "")
		say(0, "A", "7", "7")
		say(0, tenancyv1alpha1.ReasonConnecting, "8", "8")
		say(0, tenancyv1alpha1.ReasonConnecting, "9", "9")
	})
}

// TestStateIsSteady: a server whose silence has another text at each try does not change the state at each.
func TestStateIsSteady(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		served bool
		errors func(try int) error
		most   int
	}{
		{name: "another port, from the start", errors: anotherPort, most: 4},
		{name: "another port, while served", served: true, errors: anotherPort, most: 4},
		{name: "another text, from the start", errors: anotherText, most: 24},
		{name: "another text, while served", served: true, errors: anotherText, most: 24},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, w := newBed(t), &work{}
				b.RetryPeriod = time.Second
				if tc.served {
					b.pass(0, "a", w)
					b.pass(0, "a", w)
				}
				tries := 0
				w.set(func() error { tries++; return tc.errors(tries) }, nil)
				b.pass(0, "a", w)
				b.pass(10*time.Minute, "a", w)
				require.Greater(t, tries, 500)
				require.LessOrEqual(t, len(b.changes), tc.most)
				b.stop()
				require.NoError(t, <-b.ended)
			})
		})
	}
}

func anotherPort(try int) error {
	return fmt.Errorf("read tcp 10.0.0.5:%d->10.0.0.6:6443: connection reset by peer", 30000+try)
}

func anotherText(try int) error {
	if try%2 == 0 {
		return errors.New("EOF")
	}
	return errors.New("connection reset by peer")
}
