package vnagent_test

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// TestMain fails where a goroutine of vn-agent still runs after all tests have ended.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leftGoroutines(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines of vn-agent are left:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leftGoroutines returns the stacks of goroutines that do not end in time and contain a function of vn-agent, or of the
// packages that copy its streams.
func leftGoroutines() string {
	var left []string
	_ = wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		var stacks strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
		left = nil
		for stack := range strings.SplitSeq(stacks.String(), "\n\n") {
			for _, name := range []string{"superpool/internal/vnagent", "httputil.", "dynamiccertificates."} {
				if strings.Contains(stack, name) {
					left = append(left, stack)
					break
				}
			}
		}
		return len(left) == 0, nil
	})
	return strings.Join(left, "\n\n")
}
