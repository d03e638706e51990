package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// delete returns the command that deletes a tenant.
func (c *cli) delete() *cobra.Command {
	var w waiting
	var dry dryRun
	var yes bool
	command := c.ofTenant(&cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a tenant with all that it has, and wait until nothing is left",
		Long: `delete deletes a VirtualCluster: what it runs in super clusters, and the control plane that vc-manager made for it with its volumes. One
that was imported stays, and the pool leaves it. It asks first, and waits until nothing is left.`,
		Example: "  kubectl vc delete acme\n  kubectl vc delete acme --yes --timeout=5m",
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return c.remove(command.Context(), args[0], yes, dry, w)
		},
	})
	command.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	w.addFlags(command.Flags())
	dry.addFlags(command.Flags())
	return command
}

// remove deletes a tenant.
func (c *cli) remove(ctx context.Context, name string, yes bool, dry dryRun, w waiting) error {
	cluster, vc, err := c.get(ctx, name)
	if err != nil {
		return err
	}
	what := "leave its control plane, and delete all that runs for it in super clusters"
	if vc.Spec.ClusterVersionName != "" {
		what = "delete its control plane with all volumes and backups, and all that runs for it in super clusters"
	}
	if !yes && dry == dryRunNone {
		if err := c.ask(ctx, fmt.Sprintf("The pool is to %s.\nDelete tenant %s of namespace %s?", what, vc.Name, vc.Namespace)); err != nil {
			return err
		}
	}
	if dry != dryRunClient {
		options := []client.DeleteOption{client.Preconditions{UID: &vc.UID}}
		if dry == dryRunServer {
			options = append(options, client.DryRunAll)
		}
		if err := cluster.Delete(ctx, vc, options...); err != nil {
			return fmt.Errorf("deleting the VirtualCluster: %w", err)
		}
	}
	_, _ = fmt.Fprintf(c.Out, "%s/%s deleted%s\n", resource, vc.Name, dry.suffix()) // nobody reads it who has closed it
	if dry != dryRunNone {
		return nil
	}
	return c.follow(ctx, cluster, vc, w, func(vc *tenancyv1alpha1.VirtualCluster) state {
		if ready := said(vc, tenancyv1alpha1.ConditionReady); ready != nil && ready.Reason == tenancyv1alpha1.ReasonDeleting {
			return state{says: ready.Message}
		}
		return state{says: "its pods and namespaces are being deleted"}
	}, state{done: true, says: "nothing is left of it in super clusters"})
}

// ask asks a person, and returns an error unless the answer is yes.
func (c *cli) ask(ctx context.Context, question string) error {
	if in, isFile := c.In.(*os.File); isFile && !term.IsTerminal(int(in.Fd())) {
		_, _ = fmt.Fprintln(c.ErrOut, question) // as below
		return errors.New("nobody is there to ask: use --yes")
	}
	_, _ = fmt.Fprintf(c.ErrOut, "%s [y/N] ", question) // nobody answers who does not read it
	answers := make(chan string, 1)
	go func() { // it ends with the process
		answer, _ := bufio.NewReader(c.In).ReadString('\n') // no answer is one
		answers <- strings.ToLower(strings.TrimSpace(answer))
	}()
	select {
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return errors.New("nothing was changed")
}
