package syncer_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/superpool/superpool/cmd/syncer/app"
)

// singleKubeconfig is the environment variable with the kubeconfig file of a syncer without a pool: with it, the test
// binary is that program.
const singleKubeconfig = "SUPERPOOL_SINGLE_KUBECONFIG"

// syncerFlags is the environment variable with the flags of a syncer, one a line: with it, the test binary is that
// program.
const syncerFlags = "SUPERPOOL_SYNCER_FLAGS"

func TestMain(m *testing.M) {
	if file := os.Getenv(singleKubeconfig); file != "" {
		if err := single(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if flags := os.Getenv(syncerFlags); flags != "" {
		command, err := app.NewCommand()
		if err == nil {
			command.SetArgs(strings.Split(flags, "\n"))
			err = command.ExecuteContext(ctrl.SetupSignalHandler())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	stopShared()
	os.Exit(code)
}

// single is the program syncer without a pool, until it is killed.
func single(kubeconfig string) error {
	options, err := app.NewOptions()
	if err != nil {
		return err
	}
	options.SuperClusterKubeconfig, options.PodSecurityLevel, options.Election.Elect = kubeconfig, "", false
	options.MetricsBindAddress, options.HealthProbeBindAddress = "0", "0"
	if err := options.Validate(); err != nil {
		return err
	}
	return app.Run(context.Background(), options)
}
