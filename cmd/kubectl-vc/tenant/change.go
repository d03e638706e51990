// Package tenant is the verbs that make, use, change, show and delete tenants.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/controlplane"
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
	// asks is what a person is asked before, "" for nothing.
	asks string
	// wish changes what is wished for. value is that of the flag, "true" for a switch that is set.
	wish func(vc *tenancyv1alpha1.VirtualCluster, args []string, value string, now time.Time) error
	// of says how far it is, of a VirtualCluster that was changed to wished.
	of func(vc *tenancyv1alpha1.VirtualCluster, wished *tenancyv1alpha1.VirtualClusterSpec) cli.State
}

// changes returns all of them.
func changes() []change {
	return []change{
		{
			use: "pause NAME", short: "Give back what a tenant holds of the pool",
			long: `pause deletes the tenant's pods, whatever their disruption budgets say, and gives its slices to others: for that it waits. A control
plane that vc-manager makes is scaled to nothing then. All other objects, volumes and quotas stay.`,
			example: "  kubectl vc pause acme", past: "paused", args: 1,
			wish: func(vc *tenancyv1alpha1.VirtualCluster, _ []string, _ string, _ time.Time) error {
				vc.Spec.Paused = true
				return nil
			},
			of: pausing,
		},
		{
			use: "resume NAME", short: "Let a tenant that is paused have what it had",
			long:    "resume starts the control plane of a tenant again, and lets its namespaces wait for room: where they had it, if it is free.",
			example: "  kubectl vc resume acme", past: "resumed", args: 1,
			wish: func(vc *tenancyv1alpha1.VirtualCluster, _ []string, _ string, _ time.Time) error {
				vc.Spec.Paused = false
				return nil
			},
			of: func(vc *tenancyv1alpha1.VirtualCluster, _ *tenancyv1alpha1.VirtualClusterSpec) cli.State {
				return runs(vc)
			},
		},
		{
			use: "upgrade NAME --to CLUSTERVERSION", short: "Bring a tenant's control plane to another version",
			long: `upgrade names another ClusterVersion: etcd, API servers and controller managers follow, in this order. A version that the control
plane cannot become now is refused, and what runs goes on: name the one of before.`,
			example: "  kubectl get clusterversions\n  kubectl vc upgrade acme --to v1.37", past: "upgraded", args: 1,
			flag: "to", usage: "name of the ClusterVersion", complete: &tenancyv1alpha1.ClusterVersionList{},
			wish: func(vc *tenancyv1alpha1.VirtualCluster, _ []string, to string, _ time.Time) error {
				switch {
				case to == "":
					return errors.New("--to is missing: kubectl get clusterversions")
				case vc.Spec.ClusterVersionName == "":
					return errors.New("its control plane is imported: whoever runs it upgrades it")
				}
				vc.Spec.ClusterVersionName = to
				return nil
			},
			of: func(vc *tenancyv1alpha1.VirtualCluster, _ *tenancyv1alpha1.VirtualClusterSpec) cli.State {
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
			use: "backup NAME", short: "Make a backup of a tenant's etcd now",
			long: `backup has vc-manager make a backup in the volume that there is for the scheduled ones, where the oldest one makes room for it. It waits
until that is whole, and says its name. The ClusterVersion must have spec.backup.

With -o it writes a snapshot to a file, and nothing in the cluster: of a member of etcd that is Ready, by a port-forward to its pod, with
the sum that etcdutl checks. For that your kubeconfig must allow to get Secrets, list pods and create pods/portforward in the
tenant's root namespace. It has all that the tenant stores, Secrets too.`,
			example: "  kubectl vc backup acme\n  kubectl vc backup acme -o acme.db", past: "backed up", args: 1,
			wish: backUp, of: backedUp,
		},
		{
			use: "restore NAME BACKUP", short: "Make a tenant's etcd anew of a backup",
			long: `restore ends all programs of a control plane and starts them with what a backup has. All that was written since is gone. The
volumes of before stay.`,
			example: "  kubectl -n KEY get jobs -l app.kubernetes.io/name=etcd-backup\n  kubectl vc restore acme etcd-backup-20261128-030000", past: "restored", args: 2,
			asks: "All that was written since the backup will be gone.", wish: restore,
			of: restored,
		},
	}
}

// pausing is how far a tenant is that is to be paused.
func pausing(vc *tenancyv1alpha1.VirtualCluster, _ *tenancyv1alpha1.VirtualClusterSpec) cli.State {
	paused := said(vc, tenancyv1alpha1.ConditionPaused)
	switch {
	case paused == nil:
		return cli.State{Says: "waiting for vc-scheduler"}
	case paused.Reason == tenancyv1alpha1.ReasonNoPool:
		return cli.State{Refused: true, Says: paused.Message}
	default:
		return cli.State{Done: paused.Status == metav1.ConditionTrue, Says: paused.Message}
	}
}

// backUp wishes for a backup that is begun from now on.
func backUp(vc *tenancyv1alpha1.VirtualCluster, _ []string, _ string, now time.Time) error {
	switch {
	case vc.Spec.ClusterVersionName == "":
		return errors.New("its control plane is imported: whoever runs it backs it up")
	case vc.Spec.Paused:
		return fmt.Errorf("it is paused, and its etcd does not run: kubectl vc resume %s", cli.Named(vc))
	case meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionBackedUp) == nil:
		return fmt.Errorf("vc-manager makes no backups of it: they need spec.backup of ClusterVersion %s", vc.Spec.ClusterVersionName)
	}
	vc.Spec.BackupAfter = ptr.To(metav1.NewTime(now.Truncate(time.Second))) // as it is stored
	return nil
}

// backedUp is how far a backup is that was wished for. One that was begun before is none, whatever an older vc-manager says.
func backedUp(vc *tenancyv1alpha1.VirtualCluster, wished *tenancyv1alpha1.VirtualClusterSpec) cli.State {
	condition := said(vc, tenancyv1alpha1.ConditionBackedUp)
	switch name := vc.Status.LastBackupName; {
	case condition == nil:
		return cli.State{Says: waitsForManager}
	case condition.Reason == tenancyv1alpha1.ReasonFailed, condition.Reason == tenancyv1alpha1.ReasonInvalid:
		return cli.State{Refused: true, Says: condition.Message}
	case condition.Status != metav1.ConditionTrue:
		return cli.State{Says: condition.Message}
	case controlplane.BackupBegun(name).Before(wished.BackupAfter.Time):
		return cli.State{Says: waitsForManager}
	default:
		return cli.State{Done: true, Says: fmt.Sprintf("%[1]s is whole: kubectl vc restore %[2]s %[1]s makes its etcd anew of it", name, cli.Named(vc))}
	}
}

// restore wishes for a backup, unless it was restored already: the wish would change nothing.
func restore(vc *tenancyv1alpha1.VirtualCluster, args []string, _ string, _ time.Time) error {
	switch {
	case vc.Spec.ClusterVersionName == "":
		return errors.New("its control plane is imported: whoever runs it restores it")
	case vc.Spec.RestoreFrom == args[1]:
		return fmt.Errorf("spec.restoreFrom names it already; to restore from it again clear that, and wait until status.restoredFrom is clear: "+
			"kubectl -n %s patch virtualcluster %s --type=merge -p '{\"spec\": {\"restoreFrom\": null}}'", vc.Namespace, vc.Name)
	}
	vc.Spec.RestoreFrom = args[1]
	return nil
}

// rotate wishes for new authorities, or for those of before to be trusted no more. Where some are being replaced nothing else
// is wished for: each wish replaces those that were made before it.
func rotate(vc *tenancyv1alpha1.VirtualCluster, _ []string, distrust string, now time.Time) error {
	rotated := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionRotated)
	runs := rotated != nil && rotated.Status != metav1.ConditionTrue && vc.Spec.RotateAfter != nil
	switch {
	case vc.Spec.ClusterVersionName == "":
		return errors.New("its control plane is imported: whoever runs it replaces its authorities")
	case distrust == "" && runs:
	case distrust == "":
		vc.Spec.RotateAfter, vc.Spec.DistrustAfter = ptr.To(metav1.NewTime(now)), nil
	case !runs || rotated.Reason != tenancyv1alpha1.ReasonIssuing:
		return fmt.Errorf("no authorities of before wait to be distrusted: kubectl vc rotate %s replaces them, and waits for that", cli.Named(vc))
	default:
		vc.Spec.DistrustAfter = ptr.To(metav1.NewTime(now))
	}
	return nil
}

// rotating is how far the authorities of a control plane are replaced: so far that those of before may be distrusted, or were.
func rotating(vc *tenancyv1alpha1.VirtualCluster, wished *tenancyv1alpha1.VirtualClusterSpec) cli.State {
	if now := provisioned(vc); now.Refused {
		return now
	}
	rotated := said(vc, tenancyv1alpha1.ConditionRotated)
	switch {
	case rotated == nil:
		return cli.State{Says: "waiting for vc-manager"}
	case rotated.Status == metav1.ConditionTrue:
		return cli.State{Done: true, Says: "the new authorities alone are trusted"}
	case rotated.Reason == tenancyv1alpha1.ReasonIssuing && wished.DistrustAfter == nil:
		return cli.State{Done: true, Says: rotated.Message + ": hand out new kubeconfigs, then kubectl vc rotate " + cli.Named(vc) + " --distrust"}
	default:
		return cli.State{Says: rotated.Message}
	}
}

// restored is how far a control plane is that is to be made anew of a backup.
func restored(vc *tenancyv1alpha1.VirtualCluster, wished *tenancyv1alpha1.VirtualClusterSpec) cli.State {
	now, upToDate := provisioned(vc), said(vc, tenancyv1alpha1.ConditionUpToDate)
	switch {
	case now.Done && vc.Status.RestoredFrom != wished.RestoreFrom:
		return cli.State{Says: "waiting for vc-manager"}
	case upToDate != nil && upToDate.Reason == tenancyv1alpha1.ReasonFailed: // three Jobs have
		return cli.State{Refused: true, Says: upToDate.Message}
	}
	return now
}

// wishes are the values of the flags of a change.
type wishes struct {
	cli.Waiting
	dry    cli.DryRun
	value  string
	isSet  bool
	isSure bool
}

// change returns the command of a change.
func (c *verbs) change(of *change) *cobra.Command {
	var w wishes
	command := c.OfTenant(&cobra.Command{
		Use: of.use, Short: of.short, Long: of.long, Example: of.example, Args: cobra.ExactArgs(of.args),
		RunE: func(command *cobra.Command, args []string) error {
			if w.isSet {
				w.value = "true"
			}
			return c.run(command.Context(), of, args, &w)
		},
	})
	w.AddFlags(command.Flags())
	w.dry.AddFlags(command.Flags())
	if of.asks != "" {
		command.Flags().BoolVarP(&w.isSure, "yes", "y", false, "do not ask")
	}
	switch {
	case of.isSwitch:
		command.Flags().BoolVar(&w.isSet, of.flag, false, of.usage)
	case of.flag != "":
		command.Flags().StringVar(&w.value, of.flag, "", of.usage)
		_ = command.RegisterFlagCompletionFunc(of.flag, c.Names(of.complete)) // the flag is there
	}
	return command
}

// run changes a VirtualCluster and waits until it is so.
func (c *verbs) run(ctx context.Context, of *change, args []string, w *wishes) error {
	cluster, vc, err := c.Get(ctx, args[0])
	if err != nil {
		return err
	}
	before := vc.DeepCopy()
	if err := of.wish(vc, args, w.value, time.Now()); err != nil {
		return fmt.Errorf("%s/%s: %w", cli.Resource, vc.Name, err)
	}
	if of.asks != "" && !w.isSure && w.dry == cli.DryRunNone {
		if err := c.Ask(ctx, fmt.Sprintf("%s\n%s tenant %s of namespace %s?", of.asks, of.verb(), vc.Name, vc.Namespace)); err != nil {
			return err
		}
	}
	past := of.past
	if equality.Semantic.DeepEqual(before.Spec, vc.Spec) {
		past = "unchanged"
	} else if w.dry != cli.DryRunClient {
		before.UID = "" // so that the patch names it, and changes no other one of that name
		if err := cluster.Patch(ctx, vc, client.MergeFrom(before), w.dry.Options()...); err != nil {
			return fmt.Errorf("changing the VirtualCluster: %w", err)
		}
	}
	if w.dry == cli.DryRunNone {
		wished := vc.Spec.DeepCopy()
		w.Until = of.past
		if err := c.follow(ctx, cluster, vc, w.Waiting, func(vc *tenancyv1alpha1.VirtualCluster) cli.State { return of.of(vc, wished) },
			cli.State{Refused: true, Says: "it was deleted meanwhile"}); err != nil {
			return err
		}
	}
	_, _ = fmt.Fprintf(c.Out, "%s/%s %s%s\n", cli.Resource, vc.Name, past, w.dry.Suffix()) // nobody reads it who has closed it
	return nil
}

// verb returns the name of a change, as a sentence begins.
func (of *change) verb() string {
	verb, _, _ := strings.Cut(of.use, " ")
	return strings.ToUpper(verb[:1]) + verb[1:]
}
