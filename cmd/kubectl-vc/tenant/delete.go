package tenant

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
)

// delete returns the command that deletes a tenant.
func (c *verbs) delete() *cobra.Command {
	var w cli.Waiting
	var dry cli.DryRun
	var yes bool
	command := c.OfTenant(&cobra.Command{
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
	w.AddFlags(command.Flags())
	dry.AddFlags(command.Flags())
	return command
}

// remove deletes a tenant.
func (c *verbs) remove(ctx context.Context, name string, yes bool, dry cli.DryRun, w cli.Waiting) error {
	cluster, vc, err := c.Get(ctx, name)
	if err != nil {
		return err
	}
	what := "leave its control plane, and delete all that runs for it in super clusters"
	if vc.Spec.ClusterVersionName != "" {
		what = "delete its control plane with all volumes and backups, and all that runs for it in super clusters"
	}
	if !yes && dry == cli.DryRunNone {
		if err := c.Ask(ctx, fmt.Sprintf("The pool is to %s.\nDelete tenant %s of namespace %s?", what, vc.Name, vc.Namespace)); err != nil {
			return err
		}
	}
	if dry != cli.DryRunClient {
		options := []client.DeleteOption{client.Preconditions{UID: &vc.UID}}
		if dry == cli.DryRunServer {
			options = append(options, client.DryRunAll)
		}
		if err := cluster.Delete(ctx, vc, options...); err != nil {
			return fmt.Errorf("deleting the VirtualCluster: %w", err)
		}
	}
	_, _ = fmt.Fprintf(c.Out, "%s/%s deleted%s\n", cli.Resource, vc.Name, dry.Suffix()) // nobody reads it who has closed it
	if dry != cli.DryRunNone {
		return nil
	}
	w.Until = "gone"
	return c.follow(ctx, cluster, vc, w, func(vc *tenancyv1alpha1.VirtualCluster) cli.State {
		if ready := said(vc, tenancyv1alpha1.ConditionReady); ready != nil && ready.Reason == tenancyv1alpha1.ReasonDeleting {
			return cli.State{Says: ready.Message}
		}
		return cli.State{Says: "its pods and namespaces are being deleted"}
	}, cli.State{Done: true, Says: "nothing is left of it in super clusters"})
}
