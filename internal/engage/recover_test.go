package engage_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"github.com/superpool/superpool/internal/engage"
)

// TestHandlerRecovers: one object on which a handler panics costs the others nothing, whichever event it comes with.
func TestHandlerRecovers(t *testing.T) {
	t.Parallel()
	var seen []any
	see := func(object any) {
		if object == "hostile" {
			panic(object)
		}
		seen = append(seen, object)
	}
	var failures []error
	fail := func(err error) { failures = append(failures, err) }
	handler := engage.Handler(t.Context(), "test", fail, cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, object any) { see(object) }, DeleteFunc: see,
	})
	handler.OnAdd("hostile", true)
	handler.OnAdd("a", true)
	handler.OnUpdate("a", "hostile")
	handler.OnUpdate("a", "b")
	handler.OnDelete("hostile")
	handler.OnDelete("c")
	require.Equal(t, []any{"a", "b", "c"}, seen)
	require.Len(t, failures, 3)
	for _, err := range failures {
		var failure *engage.Failure
		require.ErrorAs(t, err, &failure)
		require.Equal(t, engage.ReasonPanicked, failure.Reason.Reason)
		require.True(t, failure.Final)
		require.NotContains(t, failure.Message, "hostile", "what a tenant wrote goes to the log alone")
	}
}

// TestHandlerGoesOn: without anybody to tell, a panic ends with the log.
func TestHandlerGoesOn(t *testing.T) {
	t.Parallel()
	calls := 0
	handler := engage.Handler(t.Context(), "test", nil, cache.ResourceEventHandlerFuncs{AddFunc: func(any) { calls++; panic("hostile") }})
	handler.OnAdd("a", false)
	handler.OnAdd("b", false)
	require.Equal(t, 2, calls)
}

func TestTransformRecovers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		transform    cache.TransformFunc
		want         any
		wantErr      string
		wantFailures int
	}{
		"an object": {transform: func(object any) (any, error) { return object, nil }, want: "a"},
		"an error":  {transform: func(any) (any, error) { return nil, errors.New("not a pod") }, wantErr: "not a pod"},
		"a panic":   {transform: func(any) (any, error) { panic("hostile") }, wantErr: "panic", wantFailures: 1},
		"an index":  {transform: func(object any) (any, error) { return object.(string)[7:], nil }, wantErr: "panic", wantFailures: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failures := 0
			got, err := engage.Transform(t.Context(), "test", func(error) { failures++ }, tc.transform)("a")
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.wantFailures, failures)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
		})
	}
}
