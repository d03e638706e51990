package install

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
)

// leaving is how a super cluster leaves the pool.
type leaving struct {
	common
	kubeconfig
	id string
	// namespace is that of its Cluster.
	namespace string
}

// leave returns the command by which a super cluster leaves the pool.
func (c *verbs) leave() *cobra.Command {
	var l leaving
	command := &cobra.Command{
		Use:   "leave ID [--super-kubeconfig FILE]",
		Short: "Have a super cluster that is drained leave the pool, and remove what join made",
		Long: `leave takes a super cluster out of the pool: it deletes its Cluster, waits until its virtual Node is gone, and removes its Secrets and
its syncer from the meta cluster. Then it removes from the super cluster what join applied there, its id last. Without
--super-kubeconfig it leaves that, and says what is left.

It refuses while anything is placed in the super cluster (kubectl vc drain), and while namespaces of tenants are there. It deletes
nothing that has not the mark of join, label scheduler.tenancy.x-k8s.io/joined: where the super cluster joined by other means,
kubectl vc join marks all of it. Killed at any moment it finishes when it is run again.`,
		Example: `  kubectl vc leave r1 --super-kubeconfig r1.kubeconfig
  kubectl vc leave r1 --super-kubeconfig r1.kubeconfig --dry-run=client
  kubectl vc leave r1`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			l.id = args[0]
			return c.runLeave(command.Context(), &l)
		},
	}
	const patience = 5 * time.Minute
	l.dry.AddFlags(command.Flags())
	command.Flags().DurationVar(&l.Timeout, "timeout", patience, "how long to wait for each step")
	l.addFlags(command)
	return command
}

// runLeave takes a super cluster out of the pool.
func (c *verbs) runLeave(ctx context.Context, l *leaving) error {
	if err := checkID(l.id); err != nil {
		return err
	}
	meta, namespace, err := c.meta(ctx)
	if err != nil {
		return err
	}
	l.namespace = namespace
	var super *cluster
	if l.isGiven() {
		if super, _, err = c.super(ctx, &l.kubeconfig); err != nil {
			return err
		}
		if err := l.owned(ctx, super, meta, l.id); err != nil {
			return err
		}
	}
	registered, err := l.mayLeave(ctx, super, meta)
	if err != nil {
		return err
	}
	if super != nil {
		if err := c.awaitNoTenants(ctx, super, l); err != nil {
			return err
		}
	}
	if err := c.leaveMeta(ctx, meta, l, registered); err != nil {
		return l.again(err)
	}
	if super == nil {
		c.print("super cluster %s left the pool. In it namespace %s, ClusterRoles superpool:* with their bindings and ConfigMap %s/%s are left: kubectl vc leave %s --super-kubeconfig FILE removes them",
			l.id, systemNamespace, schedulerv1alpha1.SuperClusterInfoNamespace, schedulerv1alpha1.SuperClusterInfoName, l.id)
		return nil
	}
	if err := c.leaveSuper(ctx, super, l); err != nil {
		return l.again(err)
	}
	if !l.isDry() {
		c.print("super cluster %s left the pool", l.id)
	}
	return nil
}

// standing is what there is of a super cluster: nil for what is not there.
type standing struct {
	node *corev1.Node
	// cluster is the Cluster that registers it, and made what join made in the meta cluster besides.
	cluster *unstructured.Unstructured
	made    []*metav1.PartialObjectMetadata
	// info is the ConfigMap with its id, nil also where the super cluster is not asked.
	info *corev1.ConfigMap
}

// look returns what there is. super is nil where it is not asked.
func (l *leaving) look(ctx context.Context, super, meta *cluster) (s standing, err error) {
	if s.node, err = virtualNode(ctx, meta, l.id); err != nil {
		return s, err
	}
	if s.cluster, err = l.registered(ctx, meta, s.node); err != nil {
		return s, err
	}
	if s.made, err = l.joined(ctx, meta, metaKinds()); err != nil {
		return s, err
	}
	if super != nil {
		s.info, err = superID(ctx, super)
	}
	return s, err
}

// refusal says why a super cluster is not to leave, whatever is placed there; nil where it may.
func (l *leaving) refusal(s *standing) error {
	if s.node == nil && s.cluster == nil && len(s.made) == 0 && s.info == nil {
		where := ""
		if !l.isGiven() {
			where = " in the meta cluster"
		}
		return fmt.Errorf("super cluster %s is not in the pool, and nothing of it is left%s", l.id, where)
	}
	switch {
	case s.cluster != nil && hasMachines(s.cluster):
		return fmt.Errorf("cluster %s/%s is one that Cluster API makes: who deletes it deletes the super cluster itself, so do that by kubectl where it is meant", l.namespace, l.id)
	case s.cluster != nil && s.cluster.GetLabels()[schedulerv1alpha1.LabelJoined] != l.id, s.info != nil && s.info.Labels[schedulerv1alpha1.LabelJoined] != l.id:
		return fmt.Errorf("super cluster %s has no mark of join, so it joined by other means: kubectl vc join %s --super-kubeconfig FILE marks what is its own", l.id, l.id)
	}
	return l.undrained(s.node)
}

// mayLeave returns the Cluster of a super cluster, nil for none, or an error while it is not to leave. super is nil
// where it is not asked.
func (l *leaving) mayLeave(ctx context.Context, super, meta *cluster) (*unstructured.Unstructured, error) {
	s, err := l.look(ctx, super, meta)
	if err != nil {
		return nil, err
	}
	if err := l.refusal(&s); err != nil {
		return nil, err
	}
	if err := l.empty(ctx, meta); err != nil && s.node != nil {
		return nil, fmt.Errorf("%w: kubectl vc drain %s", err, l.id)
	} else if err != nil { // vc-scheduler moves what is placed where no virtual Node is
		return nil, err
	}
	return s.cluster, nil
}

// empty returns an error where namespaces of tenants have anything in the super cluster, by what the meta cluster says.
func (l *leaving) empty(ctx context.Context, meta *cluster) error {
	placed, err := placedIn(ctx, meta, l.id)
	if err == nil && len(placed) > 0 {
		err = fmt.Errorf("super cluster %s has %s", l.id, named(placed))
	}
	return err
}

// registered returns the Cluster of a super cluster, nil for none.
func (l *leaving) registered(ctx context.Context, meta *cluster, node *corev1.Node) (*unstructured.Unstructured, error) {
	key := types.NamespacedName{Namespace: l.namespace, Name: l.id}
	if node != nil {
		if other := node.Annotations[superclusters.AnnotationClusterRef]; other != "" && other != key.String() {
			return nil, fmt.Errorf("super cluster %s is Cluster %s, and not %s: give its namespace by -n", l.id, other, key)
		}
	}
	mapping, err := meta.RESTMapper().RESTMapping(clusterKind)
	if apimeta.IsNoMatchError(err) {
		return nil, nil //nolint:nilnil // there are none
	}
	if err != nil {
		return nil, fmt.Errorf("asking the meta cluster for Clusters of Cluster API: %w", err)
	}
	return clusterOf(ctx, meta, mapping.GroupVersionKind, key)
}

// undrained returns an error unless a super cluster is drained, or its Cluster was deleted already. node is nil where
// there is none.
func (l *leaving) undrained(node *corev1.Node) error {
	if node == nil {
		return nil
	}
	if ready := condition(node, corev1.NodeReady); ready != nil && ready.Reason == schedulerv1alpha1.ReasonClusterRemoved {
		return nil
	}
	done := condition(node, schedulerv1alpha1.NodeDrained)
	if superclusters.NodeStateOf(node).Drained && done != nil && done.Status == corev1.ConditionTrue {
		return nil
	}
	why := "it is not drained"
	if done != nil && done.Message != "" {
		why = done.Message
	}
	return fmt.Errorf("super cluster %s stays in the pool: %s: kubectl vc drain %s", l.id, why, l.id)
}

// placedIn returns the namespaces of tenants that hold anything in a super cluster.
func placedIn(ctx context.Context, meta *cluster, id string) (names []string, err error) {
	list := &schedulerv1alpha1.NamespacePlacementList{}
	err = meta.List(ctx, list)
	if apimeta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	for i := range list.Items {
		np := &list.Items[i]
		if slices.ContainsFunc(np.Status.Placements, func(part schedulerv1alpha1.ClusterPlacement) bool {
			return part.Cluster == id && (part.Slices > 0 || !slice.Of(part.Reserved).IsZero())
		}) {
			names = append(names, np.Namespace+"/"+np.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// awaitNoTenants waits until the syncer has removed the namespaces of tenants, before anything is taken from it.
func (c *verbs) awaitNoTenants(ctx context.Context, super *cluster, l *leaving) error {
	const patience = time.Minute
	w := l.step("free of namespaces of tenants")
	w.Timeout = min(patience, w.Timeout)
	err := c.Await(ctx, "super cluster "+l.id, w, func(ctx context.Context) (cli.State, error) {
		names, err := tenantNamespaces(ctx, super)
		if err != nil || len(names) == 0 {
			return cli.State{Done: err == nil}, err
		}
		return cli.State{Says: "waiting for the syncer to remove namespaces of tenants: " + named(names)}, nil
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w. Those of tenants that the pool does not know any more are yours to delete: %s", err,
			l.command("delete namespaces -l "+tenancyv1alpha1.LabelCluster+"=KEY"))
	}
	return err
}

// tenantNamespaces returns the namespaces of tenants in a super cluster.
func tenantNamespaces(ctx context.Context, super *cluster) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := super.List(ctx, list, client.HasLabels{tenancyv1alpha1.LabelCluster}); err != nil {
		return nil, fmt.Errorf("listing namespaces of tenants: %w", err)
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

// kindIn is a kind of objects that join makes, and in which namespace: "" for all, or for none.
type kindIn struct {
	schema.GroupVersionKind
	namespace string
}

// metaKinds are those of the meta cluster, in the order in which they are removed, but for the Cluster.
func metaKinds() []kindIn {
	const manager = tenancyv1alpha1.ManagerNamespace
	return []kindIn{
		{appsv1.SchemeGroupVersion.WithKind("Deployment"), manager},
		{appsv1.SchemeGroupVersion.WithKind("StatefulSet"), manager}, // by component manifests/shards
		{rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), ""},
		{rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), manager},
		{corev1.SchemeGroupVersion.WithKind("ServiceAccount"), manager},
		{corev1.SchemeGroupVersion.WithKind("Secret"), ""}, // also where the Cluster was, which may be gone
	}
}

// superKinds are those of a super cluster, in the order in which they are removed, but for its id. What is in
// superpool-system goes with it.
func superKinds() []kindIn {
	return []kindIn{
		{rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"), ""},
		{rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), ""},
		{rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), ""},
		{rbacv1.SchemeGroupVersion.WithKind("Role"), ""},
		{corev1.SchemeGroupVersion.WithKind("Namespace"), ""},
	}
}

// joined returns the objects of these kinds with the mark of the super cluster.
func (l *leaving) joined(ctx context.Context, in *cluster, kinds []kindIn) (objects []*metav1.PartialObjectMetadata, err error) {
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := in.List(ctx, list, client.InNamespace(kind.namespace), client.MatchingLabels{schedulerv1alpha1.LabelJoined: l.id}); err != nil {
			return nil, fmt.Errorf("listing what join made in %s: %w", in.name, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			object.SetGroupVersionKind(kind.GroupVersionKind)
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// leaveMeta removes a super cluster from the meta cluster. registered is its Cluster, nil for none.
func (c *verbs) leaveMeta(ctx context.Context, meta *cluster, l *leaving, registered *unstructured.Unstructured) error {
	w := &writer{verbs: c, cluster: meta, dry: l.dry}
	if registered != nil {
		if err := w.remove(ctx, registered); err != nil {
			return err
		}
	}
	if !l.isDry() {
		err := c.Await(ctx, "virtual Node "+l.id, l.step("gone"), func(ctx context.Context) (cli.State, error) {
			node, err := virtualNode(ctx, meta, l.id)
			if err != nil || node == nil {
				return cli.State{Done: err == nil}, err
			}
			return cli.State{Says: "waiting for vc-scheduler to remove virtual Node " + l.id}, nil
		})
		if err != nil {
			return err
		}
	}
	if err := l.empty(ctx, meta); err != nil { // placed while vc-scheduler removed the virtual Node
		return fmt.Errorf("its syncer stays, which removes that: %w", err)
	}
	objects, err := l.joined(ctx, meta, metaKinds())
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := w.remove(ctx, object); err != nil {
			return err
		}
	}
	name := "vc-syncer-" + l.id
	left, err := workload(ctx, meta, types.NamespacedName{Namespace: tenancyv1alpha1.ManagerNamespace, Name: name})
	if err == nil && left != nil && left.Labels[schedulerv1alpha1.LabelJoined] != l.id {
		c.say("warning: %s has no mark of join, and stays: kubectl -n %s delete deployment,statefulset %s", name, tenancyv1alpha1.ManagerNamespace, name)
	}
	return err
}

// leaveSuper removes from a super cluster what join applied there, its id last: by that it is found when this is run
// again.
func (c *verbs) leaveSuper(ctx context.Context, super *cluster, l *leaving) error {
	switch names, err := tenantNamespaces(ctx, super); {
	case err != nil:
		return err
	case len(names) > 0:
		return fmt.Errorf("super cluster %s has namespaces of tenants again: %s", l.id, named(names))
	}
	objects, err := l.joined(ctx, super, superKinds())
	if err != nil {
		return err
	}
	w := &writer{verbs: c, cluster: super, dry: l.dry, suffix: " in " + l.id}
	for _, object := range objects {
		if err := w.remove(ctx, object); err != nil {
			return err
		}
	}
	if !l.isDry() {
		err := c.Await(ctx, "namespace "+systemNamespace, l.step("gone"), func(ctx context.Context) (cli.State, error) {
			return isGone(ctx, super, l.id)
		})
		if err != nil {
			return err
		}
	}
	info, err := superID(ctx, super)
	if err != nil || info == nil {
		return err
	}
	info.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return w.remove(ctx, info)
}

// isGone returns whether namespace superpool-system is gone, if it has the mark of the super cluster.
func isGone(ctx context.Context, super *cluster, id string) (cli.State, error) {
	namespace := &corev1.Namespace{}
	err := super.Get(ctx, types.NamespacedName{Name: systemNamespace}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return cli.State{Done: true}, nil
	case err != nil:
		return cli.State{}, fmt.Errorf("reading namespace %s: %w", systemNamespace, err)
	case namespace.Labels[schedulerv1alpha1.LabelJoined] != id:
		return cli.State{Done: true, Says: "namespace " + systemNamespace + " stays: it has no mark of join"}, nil
	}
	says := "waiting until namespace " + systemNamespace + " is gone"
	for _, condition := range namespace.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && condition.Type != corev1.NamespaceDeletionDiscoveryFailure {
			says += ": " + condition.Message
		}
	}
	return cli.State{Says: says}, nil
}
