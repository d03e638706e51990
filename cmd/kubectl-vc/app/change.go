package app

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// change is a verb that changes a field of a VirtualCluster and waits until it is so.
type change struct {
	use, short, long, example string
	// past is what was done, as kubectl says it.
	past string
	args int
	// flag is a flag of the verb, with what it is for, "" for none. complete is the kind of its values, nil for none.
	flag, usage string
	isSwitch    bool
	complete    client.ObjectList
	// wish changes what is wished for. value is that of the flag.
	wish func(spec *tenancyv1alpha1.VirtualClusterSpec, args []string, value string, now time.Time) error
	// of says how far it is, of a VirtualCluster that was changed to wished.
	of func(vc *tenancyv1alpha1.VirtualCluster, wished *tenancyv1alpha1.VirtualClusterSpec) state
}

// changes returns all of them.
func changes() []change {
	return []change{
		{
			use: "pause NAME", short: "Give back what a tenant holds of the pool",
			long: `pause deletes the tenant's pods, whatever their disruption budgets say, gives its slices to others, and scales a control plane
that vc-manager makes to nothing. All other objects, volumes and quotas stay.`,
			example: "  kubectl vc pause acme", past: "paused", args: 1,
			wish: func(spec *tenancyv1alpha1.VirtualClusterSpec, _ []string, _ string, _ time.Time) error {
				spec.Paused = true
				return nil
			},
			of: pausing,
		},
		{
			use: "resume NAME", short: "Let a tenant that is paused have what it had",
			long:    "resume starts the control plane of a tenant again, and lets its namespaces wait for room: where they had it, if it is free.",
			example: "  kubectl vc resume acme", past: "resumed", args: 1,
			wish: func(spec *tenancyv1alpha1.VirtualClusterSpec, _ []string, _ string, _ time.Time) error {
				spec.Paused = false
				return nil
			},
			of: func(vc *tenancyv1alpha1.VirtualCluster, _ *tenancyv1alpha1.VirtualClusterSpec) state { return runs(vc) },
		},
		{
			use: "upgrade NAME --to CLUSTERVERSION", short: "Bring a tenant's control plane to another version",
			long: `upgrade names another ClusterVersion: etcd, API servers and controller managers follow, in this order. A version that the control
plane cannot become now is refused, and what runs goes on: name the one of before.`,
			example: "  kubectl get clusterversions\n  kubectl vc upgrade acme --to v1.37", past: "upgraded", args: 1,
			flag: "to", usage: "name of the ClusterVersion", complete: &tenancyv1alpha1.ClusterVersionList{},
			wish: func(spec *tenancyv1alpha1.VirtualClusterSpec, _ []string, to string, _ time.Time) error {
				switch {
				case to == "":
					return fmt.Errorf("--to is missing: kubectl get clusterversions")
				case spec.ClusterVersionName == "":
					return fmt.Errorf("its control plane is imported: whoever runs it upgrades it")
				}
				spec.ClusterVersionName = to
				return nil
			},
			of: func(vc *tenancyv1alpha1.VirtualCluster, _ *tenancyv1alpha1.VirtualClusterSpec) state {
				return provisioned(vc)
			},
		},
		{
			use: "rotate NAME", short: "Replace a tenant's authorities and the key that signs its tokens",
			long: `rotate has a control plane that vc-manager makes trust new authorities, and then issue with them. Those of before are trusted until
you distrust them: kubeconfigs, certificates and tokens that they have signed are refused from then on.`,
			example: "  kubectl vc rotate acme\n  kubectl vc rotate acme --distrust", past: "rotated", args: 1,
			flag: "distrust", usage: "trust those no more that were replaced before", isSwitch: true,
			wish: rotate, of: rotating,
		},
		{
			use: "restore NAME BACKUP", short: "Make a tenant's etcd anew of a backup",
			long: `restore ends all programs of a control plane and starts them with what a backup has. All that was written since is gone. The
volumes of before stay.`,
			example: "  kubectl -n KEY get jobs -l app.kubernetes.io/name=etcd-backup\n  kubectl vc restore acme etcd-backup-20261128-030000", past: "restored", args: 2,
			wish: func(spec *tenancyv1alpha1.VirtualClusterSpec, args []string, _ string, _ time.Time) error {
				spec.RestoreFrom = args[1]
				return nil
			},
			of: restored,
		},
	}
}

// pausing is how far a tenant is that is to be paused.
func pausing(vc *tenancyv1alpha1.VirtualCluster, _ *tenancyv1alpha1.VirtualClusterSpec) state {
	paused := said(vc, tenancyv1alpha1.ConditionPaused)
	switch {
	case paused == nil:
		return state{says: "waiting for vc-scheduler"}
	case paused.Reason == tenancyv1alpha1.ReasonNoPool:
		return state{refused: true, says: paused.Message}
	default:
		return state{done: paused.Status == metav1.ConditionTrue, says: paused.Message}
	}
}

// rotate wishes for new authorities, or for those of before to be trusted no more.
func rotate(spec *tenancyv1alpha1.VirtualClusterSpec, _ []string, distrust string, now time.Time) error {
	switch {
	case spec.ClusterVersionName == "":
		return fmt.Errorf("its control plane is imported: whoever runs it replaces its authorities")
	case distrust == "true" && spec.RotateAfter == nil:
		return fmt.Errorf("none of its authorities were replaced: leave --distrust out first")
	case distrust == "true":
		spec.DistrustAfter = ptr.To(metav1.NewTime(now))
	default:
		spec.RotateAfter, spec.DistrustAfter = ptr.To(metav1.NewTime(now)), nil
	}
	return nil
}

// rotating is how far the authorities of a control plane are replaced: so far that those of before may be distrusted, or were.
func rotating(vc *tenancyv1alpha1.VirtualCluster, wished *tenancyv1alpha1.VirtualClusterSpec) state {
	if now := provisioned(vc); now.refused {
		return now
	}
	rotated := said(vc, tenancyv1alpha1.ConditionRotated)
	switch {
	case rotated == nil:
		return state{says: "waiting for vc-manager"}
	case rotated.Status == metav1.ConditionTrue:
		return state{done: true, says: "the new authorities alone are trusted"}
	case rotated.Reason == tenancyv1alpha1.ReasonWaiting && wished.DistrustAfter == nil && isTrue(vc, tenancyv1alpha1.ConditionUpToDate):
		return state{done: true, says: rotated.Message + ": hand out new kubeconfigs, then kubectl vc rotate " + vc.Name + " --distrust"}
	default:
		return state{says: rotated.Message}
	}
}

// restored is how far a control plane is that is to be made anew of a backup.
func restored(vc *tenancyv1alpha1.VirtualCluster, wished *tenancyv1alpha1.VirtualClusterSpec) state {
	now := provisioned(vc)
	if now.done && vc.Status.RestoredFrom != wished.RestoreFrom {
		return state{says: "waiting for vc-manager"}
	}
	return now
}

// change returns the command of a change.
func (c *cli) change(of *change) *cobra.Command {
	var w waiting
	var dry dryRun
	var value string
	command := c.ofTenant(&cobra.Command{
		Use: of.use, Short: of.short, Long: of.long, Example: of.example, Args: cobra.ExactArgs(of.args),
		RunE: func(command *cobra.Command, args []string) error {
			return c.run(command.Context(), of, args, value, dry, w)
		},
	})
	w.addFlags(command.Flags())
	dry.addFlags(command.Flags())
	switch {
	case of.isSwitch:
		command.Flags().StringVar(&value, of.flag, "", of.usage)
		command.Flags().Lookup(of.flag).NoOptDefVal = "true"
	case of.flag != "":
		command.Flags().StringVar(&value, of.flag, "", of.usage)
		_ = command.RegisterFlagCompletionFunc(of.flag, c.names(of.complete)) // the flag is there
	}
	return command
}

// run changes a VirtualCluster and waits until it is so.
func (c *cli) run(ctx context.Context, of *change, args []string, value string, dry dryRun, w waiting) error {
	cluster, vc, err := c.get(ctx, args[0])
	if err != nil {
		return err
	}
	before := vc.DeepCopy()
	if err := of.wish(&vc.Spec, args, value, time.Now()); err != nil {
		return fmt.Errorf("%s/%s: %w", resource, vc.Name, err)
	}
	if dry != dryRunClient {
		if err := cluster.Patch(ctx, vc, client.MergeFrom(before), dry.options()...); err != nil {
			return fmt.Errorf("changing the VirtualCluster: %w", err)
		}
	}
	_, _ = fmt.Fprintf(c.Out, "%s/%s %s%s\n", resource, vc.Name, of.past, dry.suffix()) // nobody reads it who has closed it
	if dry != dryRunNone {
		return nil
	}
	wished := vc.Spec.DeepCopy()
	return c.follow(ctx, cluster, client.ObjectKeyFromObject(vc), w, func(vc *tenancyv1alpha1.VirtualCluster) state { return of.of(vc, wished) },
		state{refused: true, says: "it was deleted meanwhile"})
}

// dryRun is whether nothing is changed: none, client or server, as kubectl has it.
type dryRun string

const (
	dryRunNone   dryRun = "none"
	dryRunClient dryRun = "client"
	dryRunServer dryRun = "server"
)

func (d *dryRun) addFlags(flags *pflag.FlagSet) {
	*d = dryRunNone
	flags.Var(d, "dry-run", `"none"; "client": print what would be done; "server": have the API server check it, too`)
}

// String implements pflag.Value.
func (d *dryRun) String() string { return string(*d) }

// Set implements pflag.Value.
func (d *dryRun) Set(text string) error {
	switch dryRun(text) {
	case dryRunNone, dryRunClient, dryRunServer:
		*d = dryRun(text)
		return nil
	}
	return fmt.Errorf("give none, client or server")
}

// Type implements pflag.Value.
func (*dryRun) Type() string { return "none|client|server" }

// suffix is what is said behind what was done.
func (d dryRun) suffix() string {
	switch d {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	case dryRunNone:
	}
	return ""
}

// options are those of a Patch.
func (d dryRun) options() []client.PatchOption {
	if d == dryRunServer {
		return []client.PatchOption{client.DryRunAll}
	}
	return nil
}
