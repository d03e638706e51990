package provision

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/spf13/pflag"

	"github.com/superpool/superpool/cmd/vc-manager/app"
)

func TestMain(m *testing.M) {
	if os.Getenv(asManager) == "" {
		os.Exit(m.Run())
	}
	options := app.NewOptions()
	options.MetricsBindAddress, options.HealthProbeBindAddress, options.LeaderElect = "0", "0", false
	flags := pflag.NewFlagSet("vc-manager", pflag.ExitOnError)
	options.AddFlags(flags)
	err := flags.Parse(os.Args[1:])
	if err == nil {
		err = app.Run(context.Background(), options) // certificates that are not valid for an hour are not for others
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
