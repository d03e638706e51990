package objects

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// MendingPeriod is how often what somebody has to mend is looked at: nobody tells when it is.
const MendingPeriod = time.Minute

// BrokenError is the error for what vc-manager does not replace, because others trust or have made it: somebody has to
// mend it. It says what to do.
type BrokenError struct{ why string }

// Error implements error.
func (e *BrokenError) Error() string { return e.why }

// Broken returns a BrokenError.
func Broken(format string, values ...any) error { return &BrokenError{fmt.Sprintf(format, values...)} }

// IsRefused reports whether the meta cluster answered, and will answer the same again.
func IsRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsRequestEntityTooLargeError(err)
}
