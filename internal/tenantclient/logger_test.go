package tenantclient_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// TestLogsAreBounded: what a session logs of a tenant has a size, a line and all of it, whoever made the logger of it.
func TestLogsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"a": long}}
	for _, tc := range []struct {
		name string
		log  func(klog.Logger)
		want string
	}{
		{name: "errors", log: func(logger klog.Logger) { logger.Error(errors.New(long), "Failed to watch", "type", "Pod") }, want: "(cut, of 100000 bytes)"},
		{name: "texts", log: func(logger klog.Logger) { logger.V(2).Info("Refused", "reason", long) }, want: "(cut, of 100000 bytes)"},
		{name: "objects", log: func(logger klog.Logger) { logger.Info("Unexpected", "object", object) }, want: "*v1.ConfigMap"},
		{name: "events", log: func(logger klog.Logger) { logger.Info("Unexpected", "event", watch.Event{Type: "ODD", Object: object}) }, want: "event ODD"},
		{name: "values of a logger", log: func(logger klog.Logger) {
			klog.LoggerWithValues(klog.LoggerWithName(logger, "a"), "b", long).Info("Reading")
		}, want: "(cut, of 100000 bytes)"},
		{name: "short lines", log: func(logger klog.Logger) { logger.Info("Reading") }, want: "Reading"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var lines []string
			inner := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 2})
			err := bounded(t).Serve(klog.NewContext(t.Context(), inner), func(ctx context.Context) error {
				for range 6_000 {
					tc.log(klog.FromContext(ctx))
				}
				return nil
			})
			require.NoError(t, err)
			require.Contains(t, lines[0], tc.want)
			written := 0
			for _, line := range lines {
				require.Less(t, len(line), 17<<10)
				written += len(line)
			}
			require.Less(t, written, 3<<20)
			require.Less(t, len(lines), 5_900)
		})
	}
}
