package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/version"
	"github.com/superpool/superpool/manifests"
	"github.com/superpool/superpool/manifests/parameters"
)

// labelVersion on Deployment vc-scheduler is the version that applied it, of a release.
// Written by kubectl vc init, manifests and charts of a release; read by kubectl vc init.
const labelVersion = "app.kubernetes.io/version"

// crdKind is the kind of definitions.
const crdKind = "CustomResourceDefinition"

// initializing is how a meta cluster is set up.
type initializing struct {
	common
	values         manifests.Values
	withoutManager bool
	// policies is a preset, "" for the one that there is.
	policies, output string
	force            bool
	// back lets it set a meta cluster of a newer version back.
	back bool
}

// init returns the command that sets up the meta cluster.
func (c *verbs) init() *cobra.Command {
	var i initializing
	command := &cobra.Command{
		Use:   "init",
		Short: "Set up the meta cluster, or upgrade it, and wait until our programs run",
		Long: `init applies in the meta cluster what a pool needs there: definitions, namespace vc-manager, vc-scheduler with its rights, TenantPolicies,
and vc-manager, which makes control planes of tenants. It is what kubectl apply -k of manifests/base, manifests/policies and
manifests/vc-manager applies, of this version: run again it changes what is of another version. Give the same flags again.
Definitions are established before policies are applied, and it waits until the Deployments are available.

What VirtualClusters get that name no policy says --policies: "closed" is the least, and "standard" and "trusted" have the content of
the TenantPolicies of these names. Without the flag that stays what it is.

It refuses to set a meta cluster back that a newer version has set up, unless --force says so. What others have set of what is
applied is not taken over, but told. With -o yaml it prints everything, in order, and asks no
cluster: for a repository from which something else applies it. Without --policies that is "closed".`,
		Example: `  kubectl vc init
  kubectl vc init --policies=standard --image-registry=mirror.example.com/superpool
  kubectl vc init --dry-run=server
  kubectl vc init -o yaml >superpool.yaml`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return c.runInit(command.Context(), &i) },
	}
	const patience = 5 * time.Minute
	flags := command.Flags()
	i.dry.AddFlags(flags)
	i.AddFlagsFor(flags, patience)
	flags.StringVar(&i.values.Registry, "image-registry", "", "what is before the names of images, as registry.example.com/superpool; default: that of this version")
	flags.StringToStringVar(&i.values.Images, "image", nil, "image of a program, as vc-scheduler=registry.example.com/vc-scheduler:v1; may be given several times")
	flags.BoolVar(&i.withoutManager, "without-vc-manager", false, "leave vc-manager out: all tenants are imported")
	flags.StringVar(&i.policies, "policies", "", "what tenants may whose VirtualCluster names no policy: closed, standard or trusted; default: as it is, and closed at first and with -o")
	flags.StringVarP(&i.output, "output", "o", "", `"yaml": print what would be applied, and ask no cluster`)
	flags.BoolVar(&i.force, "force-conflicts", false, "take over what others have set of what is applied")
	flags.BoolVar(&i.back, "force", false, "set the meta cluster back, where a newer version has set it up")
	for name, values := range map[string][]string{"policies": parameters.Presets, "output": {"yaml"}} {
		_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	}
	return command
}

// check says what is wrong with the flags.
func (i *initializing) check() error {
	switch {
	case i.output != "" && i.output != "yaml":
		return errors.New("-o: give yaml, or leave it out")
	case i.policies != "" && !slices.Contains(parameters.Presets, i.policies):
		return fmt.Errorf("--policies: give one of %s", strings.Join(parameters.Presets, ", "))
	}
	return i.values.Validate() //nolint:wrapcheck // it says what is wrong
}

// stages returns what is applied, in order. What is in one may need that the one before is established.
func (i *initializing) stages() (stages [][]*unstructured.Unstructured, err error) {
	base, err := i.values.Build("base")
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	isDefinition := func(object *unstructured.Unstructured) bool { return object.GetKind() == crdKind }
	var definitions []*unstructured.Unstructured
	for _, object := range base {
		if isDefinition(object) {
			definitions = append(definitions, object)
		}
	}
	stages = append(stages, definitions, slices.DeleteFunc(base, isDefinition))
	policies, err := i.tenantPolicies()
	if err != nil {
		return nil, err
	}
	stages = append(stages, policies)
	if i.withoutManager {
		return stages, nil
	}
	manager, err := i.values.Build("vc-manager")
	return append(stages, manager), err //nolint:wrapcheck // it says what it did
}

// tenantPolicies returns the TenantPolicies that are shipped; default has the content of the preset.
func (i *initializing) tenantPolicies() ([]*unstructured.Unstructured, error) {
	policies, err := i.values.Build("policies")
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	preset := cmp.Or(i.policies, parameters.Presets[0])
	named := func(name string) *unstructured.Unstructured {
		return policies[slices.IndexFunc(policies, func(object *unstructured.Unstructured) bool { return object.GetName() == name })]
	}
	standard := named(tenancyv1alpha1.DefaultPolicyName)
	standard.SetAnnotations(map[string]string{tenancyv1alpha1.AnnotationPolicies: preset})
	standard.Object["spec"] = named(parameters.PolicyOf(preset)).DeepCopy().Object["spec"]
	return policies, nil
}

// runInit sets up the meta cluster.
func (c *verbs) runInit(ctx context.Context, i *initializing) error {
	if err := i.check(); err != nil {
		return err
	}
	if isRelease(version.String()) {
		i.values.Version = version.String()
	}
	if i.output != "" {
		return c.printStages(i)
	}
	meta, _, err := c.meta(ctx)
	if err != nil {
		return err
	}
	if _, err := meta.RESTMapper().RESTMapping(clusterKind); apimeta.IsNoMatchError(err) {
		return errNoClusterAPI
	} else if err != nil {
		return fmt.Errorf("asking the meta cluster for Clusters of Cluster API: %w", err)
	}
	w := &writer{verbs: c, cluster: meta, dry: i.dry, force: i.force, mend: "kubectl vc init"}
	if err := errors.Join(i.mayUpgrade(ctx, meta), i.keepPreset(ctx, w)); err != nil {
		return err
	}
	stages, err := i.stages()
	if err != nil {
		return err
	}
	for _, objects := range stages {
		for _, object := range objects {
			if err := w.apply(ctx, object); err != nil {
				return i.again(err)
			}
		}
		if err := c.awaitEstablished(ctx, meta, i, objects); err != nil {
			return i.again(err)
		}
	}
	return c.awaitAvailable(ctx, meta, i, slices.Concat(stages...))
}

// printStages prints what would be applied.
func (c *verbs) printStages(i *initializing) error {
	stages, err := i.stages()
	if err != nil {
		return err
	}
	for _, object := range slices.Concat(stages...) {
		if err := c.printObject(object); err != nil {
			return err
		}
	}
	return nil
}

// described is in a version that git has made of a tag before: as a semantic one it is older than that of the tag.
var described = regexp.MustCompile(`-[0-9]+-g[0-9a-f]+|-dirty$`)

// isRelease returns whether a text is the version of a release, which says what is newer; that of a commit does not.
func isRelease(text string) bool {
	parsed, err := utilversion.ParseSemantic(text)
	return err == nil && !described.MatchString(text) && parsed.BuildMetadata() == "" && parsed.AtLeast(utilversion.MustParseSemantic("v0.0.1-0"))
}

// mayUpgrade returns an error where a newer version has set up the meta cluster, unless it is to be set back.
func (i *initializing) mayUpgrade(ctx context.Context, meta *cluster) error {
	found, err := workload(ctx, meta, types.NamespacedName{Namespace: tenancyv1alpha1.ManagerNamespace, Name: "vc-scheduler"})
	if err != nil || found == nil {
		return err
	}
	has := found.Labels[labelVersion]
	if i.back || !isRelease(has) || i.values.Version == "" || !utilversion.MustParseSemantic(i.values.Version).LessThan(utilversion.MustParseSemantic(has)) {
		return nil
	}
	return fmt.Errorf("the meta cluster is of version %s, and this kubectl vc of %s: use that of %s. Where it is to be set back, in the order of docs/operating.md: kubectl vc init --force",
		has, i.values.Version, has)
}

// keepPreset chooses the preset that there is, unless one is asked for.
func (i *initializing) keepPreset(ctx context.Context, w *writer) error {
	if i.policies != "" {
		return nil
	}
	policy := &unstructured.Unstructured{}
	policy.SetGroupVersionKind(tenancyv1alpha1.GroupVersion.WithKind("TenantPolicy"))
	policy.SetName(tenancyv1alpha1.DefaultPolicyName)
	found, err := w.read(ctx, policy)
	if err != nil || found == nil {
		return err
	}
	if preset := found.GetAnnotations()[tenancyv1alpha1.AnnotationPolicies]; slices.Contains(parameters.Presets, preset) {
		i.policies = preset
	}
	return nil
}

// awaitEstablished waits until the meta cluster serves what definitions of objects define.
func (c *verbs) awaitEstablished(ctx context.Context, meta *cluster, i *initializing, objects []*unstructured.Unstructured) error {
	if i.isDry() {
		return nil
	}
	for _, object := range objects {
		if object.GetKind() != crdKind {
			continue
		}
		err := c.Await(ctx, nameOf(object), i.step("established"), func(ctx context.Context) (cli.State, error) {
			found := object.DeepCopy()
			if err := meta.Get(ctx, client.ObjectKeyFromObject(object), found); err != nil {
				return cli.State{}, err //nolint:wrapcheck // it says what it did
			}
			conditions, _, _ := unstructured.NestedSlice(found.Object, "status", "conditions") // nothing else is stored there
			for _, one := range conditions {
				condition, _ := one.(map[string]any)
				if condition["type"] == "Established" && condition["status"] == "True" {
					return cli.State{Done: true}, nil
				}
			}
			return cli.State{Says: "waiting until " + nameOf(object) + " is established"}, nil
		})
		if err != nil {
			return err //nolint:wrapcheck // it says what it did
		}
	}
	return nil
}

// awaitAvailable waits until the Deployments among objects run as they are to.
func (c *verbs) awaitAvailable(ctx context.Context, meta *cluster, i *initializing, objects []*unstructured.Unstructured) error {
	if i.isDry() || !i.Wait {
		return nil
	}
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		err := c.Await(ctx, nameOf(object), i.step("available"), func(ctx context.Context) (cli.State, error) {
			deployment := &appsv1.Deployment{}
			if err := meta.Get(ctx, client.ObjectKeyFromObject(object), deployment); err != nil {
				return cli.State{}, err //nolint:wrapcheck // it says what it did
			}
			done, says := availability(deployment)
			return cli.State{Done: done, Says: says}, nil
		})
		if err != nil {
			return fmt.Errorf("%w. It goes on to start: kubectl -n %s describe pods", err, object.GetNamespace())
		}
	}
	c.print("the meta cluster is set up: kubectl vc join has super clusters join")
	return nil
}

// availability returns whether all replicas of a Deployment are those that it asks for now, and available.
func availability(deployment *appsv1.Deployment) (all bool, says string) {
	wanted := int32(1)
	if deployment.Spec.Replicas != nil {
		wanted = *deployment.Spec.Replicas
	}
	status := &deployment.Status
	all = status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas == wanted && status.AvailableReplicas == wanted && status.Replicas == wanted
	return all, fmt.Sprintf("%d of %d replicas of %s are available", min(status.AvailableReplicas, status.UpdatedReplicas), wanted, deployment.Name)
}
