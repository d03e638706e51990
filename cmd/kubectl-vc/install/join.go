package install

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/manifests"
)

// clusterKind is Cluster of Cluster API.
var clusterKind = schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Cluster"}

// errNoClusterAPI is the error for a meta cluster that does not serve clusterKind.
var errNoClusterAPI = errors.New("the meta cluster has no Clusters of Cluster API: install its CustomResourceDefinition clusters.cluster.x-k8s.io (https://cluster-api.sigs.k8s.io)")

// syncerRole is the ClusterRole of all syncers in the meta cluster.
const syncerRole = "superpool:vc-syncer"

// waitsForScheduler is said where vc-scheduler has not seen a change.
const waitsForScheduler = "waiting for vc-scheduler: kubectl -n vc-manager get pods"

// joining is how a cluster joins the pool.
type joining struct {
	common
	kubeconfig
	id string
	// image and registry are of the syncer.
	image, registry string
	// out is the folder for files, "" for none, and output how what is for the meta cluster is printed, "" for not at
	// all: then it is applied.
	out, output string
	force       bool
}

// join returns the command by which a cluster joins the pool as a super cluster.
func (c *verbs) join() *cobra.Command {
	var j joining
	command := &cobra.Command{
		Use:   "join ID --super-kubeconfig FILE",
		Short: "Have a cluster join the pool as a super cluster, and wait until it is Ready",
		Long: `join makes the cluster that a kubeconfig reaches a super cluster of the pool. In that cluster it applies

  its id                  ConfigMap kube-system/supercluster-info; an id that is there already must be the same
  manifests/supercluster  namespace superpool-system, and in it a service account with a role and a token for vc-scheduler and
                          one for the syncer

and in the meta cluster, with these two accounts' credentials (yours are stored nowhere), the Cluster that registers it with its
Secret in the namespace that is meant, and in vc-manager the syncer: a Secret, a service account with its bindings, a Deployment. It
waits until the virtual Node is Ready. The address in the kubeconfig must reach the cluster from where these programs run.

With --out it writes what is for the meta cluster into DIR/cluster_ID in the place of applying it, and with -o yaml it prints that:
both hold credentials. A cluster that another pool has is refused before anything is written. Run again it finishes what was begun,
and brings everything to the manifests of this version; credentials stay. For others delete Secret syncer-token or
vc-scheduler-token of superpool-system first: the old one ends at once, and a syncer reads the new one within two minutes.`,
		Example: `  kubectl vc join r1 --super-kubeconfig r1.kubeconfig
  kubectl vc join r1 --super-kubeconfig r1.kubeconfig --dry-run=server
  kubectl vc join r1 --super-kubeconfig r1.kubeconfig --out pool`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			j.id = args[0]
			return c.runJoin(command.Context(), &j)
		},
	}
	const patience = 5 * time.Minute
	j.dry.AddFlags(command.Flags())
	j.AddFlagsFor(command.Flags(), patience)
	j.addFlags(command)
	command.Flags().StringVar(&j.image, "image", "", "image of the syncer; default: that of this version")
	command.Flags().StringVar(&j.registry, "image-registry", "", "what is before the name of the image, as registry.example.com/superpool; default: that of this version")
	command.Flags().StringVar(&j.out, "out", "", "folder in which cluster_ID is written, in the place of applying it in the meta cluster")
	command.Flags().StringVarP(&j.output, "output", "o", "", `"yaml": print what is for the meta cluster, in the place of applying it there`)
	command.Flags().BoolVar(&j.force, "force-conflicts", false, "take over what others have set of what is applied")
	_ = command.MarkFlagDirname("out") // the flag is there
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return command
}

// values returns what is put into manifests.
func (j *joining) values() manifests.Values {
	values := manifests.Values{ID: j.id, Registry: j.registry}
	if j.image != "" {
		values.Images = map[string]string{"syncer": j.image}
	}
	return values
}

// isElsewhere returns whether what is for the meta cluster is not applied there.
func (j *joining) isElsewhere() bool { return j.out != "" || j.output != "" }

// check says what is wrong with the arguments.
func (j *joining) check() error {
	if j.output != "" && (j.output != "yaml" || j.out != "") {
		return errors.New("-o: give yaml, without --out, or leave it out")
	}
	return errors.Join(checkID(j.id), j.values().Validate())
}

// checkJoin says what is wrong with the arguments, and with where what is printed goes.
func (c *verbs) checkJoin(j *joining) error {
	if err := j.check(); err != nil || j.output == "" {
		return err
	}
	return c.NoTerminal("what has credentials", "write it to a file, or give --out FOLDER") //nolint:wrapcheck // it says what is wrong
}

// runJoin has a cluster join the pool.
func (c *verbs) runJoin(ctx context.Context, j *joining) error {
	if err := c.checkJoin(j); err != nil {
		return err
	}
	super, place, err := c.super(ctx, &j.kubeconfig)
	if err != nil {
		return err
	}
	host, _, err := endpoint(place.Server)
	if err != nil {
		return fmt.Errorf("--super-kubeconfig %s: %w", j.file, err)
	}
	if isOwn(host) && !j.isElsewhere() {
		c.say("warning: %s is an address of this machine, by which no pod of the meta cluster reaches the super cluster", place.Server)
	}
	if place.InsecureSkipTLSVerify {
		c.say("warning: insecure-skip-tls-verify of %s holds for our programs, too: whoever is between gets their tokens", j.file)
	}
	meta, namespace, err := c.meta(ctx)
	if err != nil {
		return err
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 {
		return fmt.Errorf("namespace %q is not a DNS label", namespace)
	}
	r := &registration{id: j.id, namespace: namespace, place: place, tokens: map[string]string{}, values: j.values()}
	if err := errors.Join(j.owned(ctx, super, meta, j.id), j.fits(ctx, meta, r)); err != nil {
		return err
	}
	if err := c.prepare(ctx, super, meta, j); err != nil {
		return j.again(err)
	}
	if err := c.takeTokens(ctx, super, r, j); err != nil {
		return j.again(err)
	}
	files, err := r.files()
	if err != nil {
		return err
	}
	if j.isElsewhere() {
		return c.handOut(j, files)
	}
	if err := c.register(ctx, meta, j, files); err != nil {
		return j.again(err)
	}
	return c.awaitReady(ctx, meta, j)
}

// fits returns an error unless the meta cluster can register the super cluster, and sets in which version of Cluster
// API.
func (j *joining) fits(ctx context.Context, meta *cluster, r *registration) error {
	r.clusterVersion = clusterVersion
	mapping, err := meta.RESTMapper().RESTMapping(clusterKind)
	switch {
	case apimeta.IsNoMatchError(err) && j.isElsewhere():
		return nil
	case apimeta.IsNoMatchError(err):
		return errNoClusterAPI
	case err != nil:
		return fmt.Errorf("asking the meta cluster for Clusters of Cluster API: %w", err)
	}
	r.clusterVersion = mapping.GroupVersionKind.Version
	key := types.NamespacedName{Namespace: r.namespace, Name: r.id}
	node, err := virtualNode(ctx, meta, r.id)
	if err != nil {
		return err
	}
	if node != nil {
		if other := node.Annotations[superclusters.AnnotationClusterRef]; other != "" && other != key.String() {
			return fmt.Errorf("super cluster %s is Cluster %s already, and not %s: give its namespace by -n", r.id, other, key)
		}
	}
	registered, err := clusterOf(ctx, meta, mapping.GroupVersionKind, key)
	if err != nil {
		return err
	}
	if registered != nil && hasMachines(registered) {
		return fmt.Errorf("cluster %s is one that Cluster API makes, with a control plane and machines: give the super cluster another ID", key)
	}
	if j.isElsewhere() {
		return nil
	}
	err = meta.Get(ctx, types.NamespacedName{Name: syncerRole}, &rbacv1.ClusterRole{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the meta cluster has no ClusterRole %s: kubectl vc init", syncerRole)
	}
	if err != nil {
		return fmt.Errorf("asking the meta cluster for ClusterRole %s: %w", syncerRole, err)
	}
	return nil
}

// clusterOf returns a Cluster of Cluster API, nil for none. One that join made for the same super cluster in another
// namespace is an error: vc-scheduler may not have seen it yet.
func clusterOf(ctx context.Context, meta *cluster, kind schema.GroupVersionKind, key types.NamespacedName) (*unstructured.Unstructured, error) {
	joined := &metav1.PartialObjectMetadataList{}
	joined.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := meta.List(ctx, joined, client.MatchingLabels{schedulerv1alpha1.LabelJoined: key.Name}); err != nil {
		return nil, fmt.Errorf("listing Clusters: %w", err)
	}
	for i := range joined.Items {
		if other := client.ObjectKeyFromObject(&joined.Items[i]); other != key {
			return nil, fmt.Errorf("super cluster %s is Cluster %s already, and not %s: give its namespace by -n", key.Name, other, key)
		}
	}
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(kind)
	err := meta.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as it says
	}
	if err != nil {
		return nil, fmt.Errorf("reading Cluster %s: %w", key, err)
	}
	return found, nil
}

// hasMachines returns whether Cluster API makes what a Cluster stands for: who deletes such a Cluster deletes all of
// it.
func hasMachines(cluster *unstructured.Unstructured) bool {
	spec, _, _ := unstructured.NestedMap(cluster.Object, "spec") // nothing but a map is stored there
	return slices.ContainsFunc([]string{"infrastructureRef", "controlPlaneRef", "topology"}, func(field string) bool {
		_, has := spec[field]
		return has
	})
}

// marked marks an object as one that was made for a super cluster.
func marked(object *unstructured.Unstructured, id string) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[schedulerv1alpha1.LabelJoined] = id
	object.SetLabels(labels)
}

// idObject returns the ConfigMap with the id of a super cluster.
func idObject(id string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": schedulerv1alpha1.SuperClusterInfoNamespace, "name": schedulerv1alpha1.SuperClusterInfoName},
		"data":     map[string]any{schedulerv1alpha1.SuperClusterInfoKey: id},
	}}
}

// ofSuper returns what is applied in a super cluster, its id first: where anything of the pool is, leave finds that.
func ofSuper(id string) ([]*unstructured.Unstructured, error) {
	objects, err := manifests.Values{}.Build("supercluster")
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	objects = slices.Insert(objects, 0, idObject(id))
	for _, object := range objects {
		marked(object, id)
		if _, aggregates := object.Object["aggregationRule"]; aggregates {
			delete(object.Object, "rules") // which kube-controller-manager writes
		}
	}
	return objects, nil
}

// prepare applies in a super cluster what the pool needs there, and records whose it is.
func (c *verbs) prepare(ctx context.Context, super, meta *cluster, j *joining) error {
	objects, err := ofSuper(j.id)
	if err != nil {
		return err
	}
	w := c.writer(super, j, " in "+j.id)
	for _, object := range objects {
		if err := w.apply(ctx, object); err != nil {
			return err
		}
	}
	return j.claim(ctx, w, meta)
}

// claim records in a super cluster whose it is, as its syncer does: until that has started, another pool could take it
// under the same id.
func (j *joining) claim(ctx context.Context, w *writer, meta *cluster) error {
	record := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: schedulerv1alpha1.AuthorityNamespace, Name: schedulerv1alpha1.AuthorityName},
		Data:       map[string]string{schedulerv1alpha1.AuthorityIDKey: j.id, schedulerv1alpha1.AuthorityMetaKey: string(meta.uid)},
	}
	if j.isDry() {
		return nil
	}
	switch err := w.cluster.Create(ctx, record.DeepCopy()); {
	case apierrors.IsAlreadyExists(err):
		return j.owned(ctx, w.cluster, meta, j.id)
	case err != nil:
		return fmt.Errorf("recording whose %s is: %w", w.cluster.name, err)
	}
	w.did(record, "created")
	return nil
}

// writer returns how join writes into a cluster. What it does in a super cluster it prints beside what is printed.
func (c *verbs) writer(to *cluster, j *joining, suffix string) *writer {
	w := &writer{verbs: c, cluster: to, dry: j.dry, force: j.force, mend: "kubectl vc join " + j.id + " " + j.flags(), suffix: suffix}
	if j.output != "" {
		beside := *c.CLI
		beside.Out = c.ErrOut
		w.verbs = &verbs{&beside}
	}
	return w
}

// takeTokens waits for the tokens of our accounts in a super cluster. A dry run does without.
func (c *verbs) takeTokens(ctx context.Context, super *cluster, r *registration, j *joining) error {
	const patience = time.Minute
	for _, account := range []string{"vc-scheduler", "syncer"} {
		look := func(ctx context.Context) (cli.State, error) {
			made, err := token(ctx, super, account)
			r.tokens[account] = made
			return cli.State{Done: made != "", Says: "waiting for it: does the super cluster's kube-controller-manager run?"}, err
		}
		if j.isDry() {
			if _, err := look(ctx); err != nil {
				return err
			}
			continue
		}
		w := cli.Waiting{Wait: true, Timeout: patience}
		if err := c.Await(ctx, "the token in Secret "+systemNamespace+"/"+account+"-token of the super cluster", w, look); err != nil {
			return err //nolint:wrapcheck // it says what it did
		}
	}
	return nil
}

// handOut writes or prints what is for the meta cluster.
func (c *verbs) handOut(j *joining, files []file) error {
	if j.out != "" {
		folder, names := filepath.Join(j.out, "cluster_"+j.id), make([]string, 0, len(files))
		for _, f := range files {
			names = append(names, f.name)
		}
		if j.isDry() {
			c.print("%s: %s (dry run)", folder, strings.Join(names, " "))
			return nil
		}
		if err := writeFiles(folder, files); err != nil {
			return err
		}
		c.print("wrote %s: %s", folder, strings.Join(names, " "))
		return nil
	}
	for _, f := range files {
		objects, err := f.objects()
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := c.printObject(object); err != nil {
				return err
			}
		}
	}
	return nil
}

// printObject prints an object as YAML.
func (c *verbs) printObject(object *unstructured.Unstructured) error {
	text, err := yaml.Marshal(object.Object)
	if err == nil {
		_, err = fmt.Fprintf(c.Out, "---\n%s", text)
	}
	if err != nil {
		return fmt.Errorf("printing %s: %w", nameOf(object), err)
	}
	return nil
}

// register applies what is for the meta cluster.
func (c *verbs) register(ctx context.Context, meta *cluster, j *joining, files []file) error {
	w := c.writer(meta, j, "")
	for _, f := range files {
		objects, err := f.objects()
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := w.apply(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitReady waits until the virtual Node of a super cluster is Ready.
func (c *verbs) awaitReady(ctx context.Context, meta *cluster, j *joining) error {
	if j.isDry() || !j.Wait {
		return nil
	}
	err := c.Await(ctx, "super cluster "+j.id, j.step("Ready"), func(ctx context.Context) (cli.State, error) {
		node, err := virtualNode(ctx, meta, j.id)
		if err != nil || node == nil {
			return cli.State{Says: waitsForScheduler}, err
		}
		ready := condition(node, corev1.NodeReady)
		if ready == nil {
			return cli.State{Says: waitsForScheduler}, nil
		}
		return cli.State{Done: ready.Status == corev1.ConditionTrue, Says: ready.Message}, nil
	})
	if err != nil {
		return fmt.Errorf("%w. It goes on to join: kubectl describe node %s, kubectl -n vc-manager logs -l app.kubernetes.io/name=vc-scheduler", err, j.id)
	}
	c.print("node/%s joined", j.id)
	return nil
}

// condition returns a condition of a Node, nil for none.
func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
