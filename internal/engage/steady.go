package engage

import (
	"regexp"
	"time"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// steadyPeriod is how long the message of a reason stays at least.
const steadyPeriod = 30 * time.Second

// sourceAddress is what a network error says of its own end of a connection, whose port is another at each try:
// "read tcp 10.0.0.5:43210->10.0.0.6:6443: connection reset by peer".
var sourceAddress = regexp.MustCompile(`\S+:\d+->`)

// Steady keeps the message of a reason, so that a failure that lasts is not written at each try: errors of one cause
// differ in their texts. The zero value is ready for use, by one goroutine at a time.
type Steady struct {
	said tenancy.Reason
	at   time.Time
}

// Of returns what to say of reason: without source addresses, and with the message that was said last of the same
// reason unless that is longer ago than steadyPeriod. Connecting and Connected, and the zero Reason, are no failures
// and stay as they are.
func (s *Steady) Of(reason tenancy.Reason) tenancy.Reason {
	switch reason.Reason {
	case "", tenancyv1alpha1.ReasonConnecting, tenancyv1alpha1.ReasonConnected:
		s.said = reason
		return reason
	}
	reason.Message = sourceAddress.ReplaceAllString(reason.Message, "")
	if reason == s.said || reason.Reason == s.said.Reason && time.Since(s.at) < steadyPeriod {
		return s.said
	}
	s.said, s.at = reason, time.Now()
	return reason
}
