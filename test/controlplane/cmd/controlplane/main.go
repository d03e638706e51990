// The command controlplane starts control planes of a bed, and makes the certificates that the bed wants besides. What
// it starts runs on.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/test/controlplane/launch"
)

func main() {
	if err := newCommand().ExecuteContext(signals.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "controlplane", Short: "Starts control planes of a bed, and makes certificates", SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	command.AddCommand(startCommand(), authorityCommand(), certificateCommand(), kubeconfigCommand())
	return command
}

// startCommand starts programs of one control plane and returns when they are ready.
func startCommand() *cobra.Command {
	controlPlane, firstPort := &launch.ControlPlane{}, 0
	command := &cobra.Command{
		Use: "start PROGRAM...", Short: "Start programs of a control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler",
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			var err error
			if controlPlane.Folder, err = filepath.Abs(controlPlane.Folder); err != nil {
				return err
			}
			controlPlane.Ports = launch.PortsFrom(firstPort)
			programs := make([]launch.Program, len(arguments))
			for i, argument := range arguments {
				programs[i] = launch.Program(argument)
			}
			_, err = controlPlane.Start(command.Context(), programs...)
			return err
		},
	}
	flags := command.Flags()
	flags.StringVar(&controlPlane.Name, "name", "", "the control plane's name")
	flags.StringVar(&controlPlane.Folder, "folder", "", "where its state lies, which other control planes can share")
	flags.StringVar(&controlPlane.Bin, "bin", "bin", "where the programs lie")
	flags.StringVar(&controlPlane.Address, "address", "127.0.0.1", "where its API server listens")
	flags.StringVar(&controlPlane.AdvertiseAddress, "advertise-address", "", "where its pods find its API server, if not at --address")
	flags.IntVar(&firstPort, "first-port", 0, "the API server's port; the next four are those of etcd, etcd's peers, controller manager and scheduler")
	flags.StringVar(&controlPlane.ServiceCIDR, "service-cidr", "10.96.0.0/12", "the addresses of its Services")
	flags.StringVar(&controlPlane.ServiceNodePortRange, "service-node-port-range", "", "the node ports of its Services, if not the API server's default")
	flags.StringSliceVar(&controlPlane.DisableAdmission, "disable-admission-plugins", nil, "admission plugins that it does without")
	flags.StringVar(&controlPlane.KubeletCA, "kubelet-ca", "", "the authority (FILE without .crt) of kubelets' serving certificates, if not its own")
	flags.StringVar(&controlPlane.KubeletClientCA, "kubelet-client-ca", "",
		"the authority (FILE without .crt and .key) that signs what its API server shows to kubelets, if not its own")
	flags.BoolVar(&controlPlane.Unlimited, "unlimited", false, "lift the bounds of its API server on requests in flight, and those of its controllers on their own")
	required(command, "name", "folder", "first-port")
	return command
}

func authorityCommand() *cobra.Command {
	var name string
	command := &cobra.Command{
		Use: "authority FILE", Short: "Make a certificate authority: FILE.crt and FILE.key", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			authority, err := pki.NewAuthority(name)
			if err != nil {
				return err
			}
			pair, err := authority.Pair()
			if err != nil {
				return err
			}
			return pair.Write(arguments[0])
		},
	}
	command.Flags().StringVar(&name, "name", "", "its common name")
	required(command, "name")
	return command
}

func certificateCommand() *cobra.Command {
	wanted, authorityFile := certificate{}, ""
	command := &cobra.Command{
		Use: "certificate FILE", Short: "Make or replace a certificate: FILE.crt and FILE.key", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			authority, err := pki.LoadAuthority(authorityFile)
			if err != nil {
				return err
			}
			pair, err := authority.Issue(wanted.Certificate)
			if err != nil {
				return err
			}
			return pair.Write(arguments[0])
		},
	}
	wanted.addFlags(command, &authorityFile)
	command.Flags().IPSliceVar(&wanted.IPs, "ip", nil, "addresses of a server")
	command.Flags().StringSliceVar(&wanted.DNSNames, "dns", nil, "names of a server")
	return command
}

func kubeconfigCommand() *cobra.Command {
	wanted, authorityFile, server := certificate{}, "", ""
	command := &cobra.Command{
		Use: "kubeconfig FILE", Short: "Make a kubeconfig with a client certificate of its own, both signed and verified by one authority",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			authority, err := pki.LoadAuthority(authorityFile)
			if err != nil {
				return err
			}
			content, err := authority.Kubeconfig(server, wanted.Certificate)
			if err != nil {
				return err
			}
			return pki.WriteFile(arguments[0], content)
		},
	}
	wanted.addFlags(command, &authorityFile)
	command.Flags().StringVar(&server, "server", "", "the API server's URL")
	required(command, "server")
	return command
}

// certificate is one that flags describe.
type certificate struct{ pki.Certificate }

func (c *certificate) addFlags(command *cobra.Command, authorityFile *string) {
	command.Flags().StringVar(authorityFile, "authority", "", "who signs: FILE without .crt and .key")
	command.Flags().StringVar(&c.User, "user", "", "the common name, a user for Kubernetes")
	command.Flags().StringSliceVar(&c.Groups, "group", nil, "the organisations, groups for Kubernetes")
	required(command, "authority", "user")
}

func required(command *cobra.Command, flags ...string) {
	for _, flag := range flags {
		if err := command.MarkFlagRequired(flag); err != nil {
			panic(err) // a flag that is not there
		}
	}
}
