//go:build attacks

package attacks_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/superpool/superpool/test/controlplane"
	testpool "github.com/superpool/superpool/test/pool"
)

const neighbourName = "neighbour"

// bed is the pool of all tests: super clusters r1 and r2, the tenants that attack, and a neighbour.
var bed *testpool.Pool

// attackers returns the names of the tenants that attack, of variable ATTACKERS.
func attackers() []string {
	return strings.Fields(cmp.Or(os.Getenv("ATTACKERS"), "attacker"))
}

// TestMain starts the pool and takes it down. The logs are in _output/attacks-logs then.
func TestMain(m *testing.M) {
	flag.Parse()
	var deadline time.Time
	if length := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration); length > 0 { //nolint:forcetypeassert // package testing makes it so
		deadline = time.Now().Add(length)
	}
	ctx, stop := testpool.Interruptible(context.Background(), deadline) //nolint:forbidigo // a TestMain has no context
	code, err := run(ctx, m)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacks:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, m *testing.M) (code int, err error) {
	root, err := controlplane.Root()
	if err != nil {
		return 1, err
	}
	logs := filepath.Join(root, "_output", "attacks-logs")
	if err := os.RemoveAll(logs); err != nil {
		return 1, err
	}
	bed, err = testpool.New(testpool.Options{
		Supers: []string{"r1", "r2"}, Tenants: append(attackers(), neighbourName), Unlimited: true, Policy: policyOf,
		Flags: func(string) ([]string, error) { return []string{"-v=4"}, nil },
		Log:   os.Stdout, Keep: logs,
	})
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, bed.Stop()) }()
	if err := start(ctx); err != nil {
		return 1, fmt.Errorf("starting the pool: %w", err)
	}
	bed.Say("The pool runs")
	done := make(chan int, 1)
	go func() { done <- m.Run() }()
	select {
	case code = <-done:
		return code, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // as package testing would a minute later
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2) // what cannot be written cannot be told either
		}
		return 1, context.Cause(ctx)
	}
}

// policyOf returns the TenantPolicy of a tenant: the neighbour, which is to notice nothing, has the default one.
func policyOf(tenant string) string {
	if tenant == neighbourName {
		return "default"
	}
	return "attacked"
}

func start(ctx context.Context) error {
	if err := bed.StartControlPlanes(ctx); err != nil {
		return err
	}
	if err := bed.CreatePolicies(ctx); err != nil {
		return err
	}
	if err := create(ctx, bed.Meta, "policy.yaml"); err != nil {
		return err
	}
	for _, super := range bed.Supers {
		if err := create(ctx, super, "supercluster.yaml"); err != nil {
			return err
		}
		if err := bed.Join(ctx, super, nil, "--node-lease-duration-seconds", "40"); err != nil { // else nodes are lost after 50 s
			return err
		}
	}
	if err := bed.StartPrograms(ctx); err != nil {
		return err
	}
	return bed.Import(ctx)
}

// create creates the objects of a file in testdata.
func create(ctx context.Context, at *testpool.Cluster, file string) error {
	content, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		return err
	}
	return at.Create(ctx, content)
}
