package engage_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/engage"
)

// transport is a control plane that a test scripts.
type transport func() (status int, err error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(*http.Request) (*http.Response, error) {
	status, err := t()
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: http.NoBody}, nil
}

// TestAnswers holds requests back after one that got no answer, until the control plane answers what was asked later.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		status    int
		err       error
		wantHolds bool
	}{
		{name: "it answers", status: http.StatusOK},
		{name: "it refuses", status: http.StatusForbidden},
		{name: "a version is too old", status: http.StatusGone},
		{name: "it does not accept connections", err: errors.New("connection refused"), wantHolds: true},
		{name: "its etcd does not answer", status: http.StatusInternalServerError, wantHolds: true},
		{name: "it is about to end", status: http.StatusServiceUnavailable, wantHolds: true},
		{name: "the informer ends", err: context.Canceled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var answers engage.Answers
				doubts := answers.Doubts()
				status, err := tc.status, tc.err
				informer := answers.Hold(transport(func() (int, error) { return status, err }))
				ask := func(ctx context.Context) error {
					request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://r1/api/v1/pods", http.NoBody)
					require.NoError(t, err)
					response, err := informer.RoundTrip(request)
					if err != nil {
						return err
					}
					return response.Body.Close()
				}
				before := time.Now()
				<-time.After(time.Second)
				require.ErrorIs(t, ask(t.Context()), tc.err)
				require.Len(t, doubts, map[bool]int{true: 1}[tc.wantHolds])
				status, err = http.StatusOK, nil

				impatient, end := context.WithTimeout(t.Context(), time.Hour)
				defer end()
				if !tc.wantHolds {
					require.NoError(t, ask(impatient))
					return
				}
				require.ErrorIs(t, ask(impatient), context.DeadlineExceeded)
				asked := make(chan error, 1)
				go func() { asked <- ask(t.Context()) }()
				synctest.Wait()
				answers.Answered(before)
				synctest.Wait()
				require.Empty(t, asked, "an answer to what was asked before")
				answers.Answered(time.Now())
				require.NoError(t, <-asked)
				require.NoError(t, ask(t.Context()))
			})
		})
	}
}
