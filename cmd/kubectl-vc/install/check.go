package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/skew"
)

// leastOfMeta is the oldest minor version of Kubernetes 1 of a meta cluster: it serves ValidatingAdmissionPolicies.
const leastOfMeta = 30

// setUp and rejoin are commands that mend what a check has found. setUp is of a meta cluster that is of no Helm release.
const setUp, rejoin = "kubectl vc init", "kubectl vc join"

// helmManager is the value of label app.kubernetes.io/managed-by, and helmRelease and helmNamespace are annotations, of
// what is of a release of Helm. Written by Helm; read by kubectl vc check.
const helmManager, helmRelease, helmNamespace = "Helm", "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"

// finding is what one check has found.
type finding struct {
	// Cluster is where: "meta", or "super".
	Cluster string `json:"cluster"`
	// Check is what was looked at, and Says what there is.
	Check string `json:"check"`
	OK    bool   `json:"ok"`
	Says  string `json:"says"`
	// Mend is the command that mends what is not as it is to be, or what is to be done.
	Mend string `json:"mend,omitempty"`
}

// findings are those of one cluster.
type findings struct {
	cluster *cluster
	where   string
	list    []finding
	// setUp is the command that sets up the meta cluster, or upgrades it.
	setUp string
}

// good and bad add what a check has found.
func (f *findings) good(check, format string, arguments ...any) {
	f.list = append(f.list, finding{Cluster: f.where, Check: check, OK: true, Says: fmt.Sprintf(format, arguments...)})
}

func (f *findings) bad(check, mend, format string, arguments ...any) {
	f.list = append(f.list, finding{Cluster: f.where, Check: check, Says: fmt.Sprintf(format, arguments...), Mend: mend})
}

// check returns the command that looks whether clusters have what a pool needs.
func (c *verbs) check() *cobra.Command {
	var k kubeconfig
	var output cli.Output
	command := &cobra.Command{
		Use:   "check",
		Short: "Look whether the meta cluster, and a super cluster, have what a pool needs",
		Long: `check looks whether the meta cluster has what a pool needs, and whether you have the rights that kubectl vc init and join need. With
--super-kubeconfig it looks at a super cluster, too, or at a cluster that is to become one. It writes nothing.

Each line says whether one thing is as it is to be, and below one that is not there is the command that mends it. The exit code is 1
where one is not.`,
		Example: `  kubectl vc check
  kubectl vc check --super-kubeconfig r1.kubeconfig
  kubectl vc check -o json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return c.runCheck(command.Context(), &k, output) },
	}
	k.addFlags(command)
	output.AddTo(command, cli.OutputJSON, cli.OutputYAML)
	return command
}

// runCheck looks at the clusters, and prints what it has found.
func (c *verbs) runCheck(ctx context.Context, k *kubeconfig, output cli.Output) error {
	meta, namespace, err := c.meta(ctx)
	if err != nil {
		return err
	}
	found, err := checkMeta(ctx, meta, namespace)
	if err != nil {
		return err
	}
	if k.isGiven() {
		super, place, err := c.super(ctx, k)
		if err != nil {
			return err
		}
		ofSuper, err := checkSuper(ctx, k, super, meta, place.Server)
		if err != nil {
			return err
		}
		found = append(found, ofSuper...)
	}
	if err := c.Show(output, found, nil, func(p *page.Page) { report(p, found) }); err != nil {
		return err //nolint:wrapcheck // it says what it did
	}
	failed := len(slices.DeleteFunc(slices.Clone(found), func(f finding) bool { return f.OK }))
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(found))
	}
	return nil
}

// report prints what was found.
func report(p *page.Page, found []finding) {
	for _, f := range found {
		mark, word := "✓", "ok"
		if !f.OK {
			mark, word = "✗", "failed"
		}
		p.Line("%s %-6s  %-5s  %s: %s", mark, word, f.Cluster, f.Check, f.Says)
		if !f.OK {
			p.Row("            " + f.Mend) // not broken into lines: it is to be copied
		}
	}
}

// checkMeta looks at the meta cluster. namespace is where Clusters are to be.
func checkMeta(ctx context.Context, meta *cluster, namespace string) ([]finding, error) {
	by, err := setUpOf(ctx, meta)
	if err != nil {
		return nil, err
	}
	f := &findings{cluster: meta, where: "meta", setUp: by}
	if err := f.version(leastOfMeta); err != nil {
		return nil, err
	}
	f.clusterAPI()
	init := &initializing{}
	stages, err := init.stages()
	if err != nil {
		return nil, err
	}
	objects := slices.Concat(stages...)
	joined := []*unstructured.Unstructured{object(clusterKind.WithVersion(clusterVersion), namespace, "r"), object(corev1.SchemeGroupVersion.WithKind("Secret"), namespace, "r")}
	if err := f.rights(ctx, slices.Concat(objects, joined)); err != nil {
		return nil, err
	}
	for _, look := range []func(context.Context, []*unstructured.Unstructured) error{f.definitions, f.namespace, f.policies, f.deployments} {
		if err := look(ctx, objects); err != nil {
			return nil, err
		}
	}
	return f.list, nil
}

// setUpOf returns the command by which a meta cluster was set up, and is upgraded.
func setUpOf(ctx context.Context, meta *cluster) (string, error) {
	found, err := workload(ctx, meta, types.NamespacedName{Namespace: tenancyv1alpha1.ManagerNamespace, Name: "vc-scheduler"})
	if err != nil || found == nil || found.Labels["app.kubernetes.io/managed-by"] != helmManager {
		return setUp, err
	}
	release, namespace := found.Annotations[helmRelease], found.Annotations[helmNamespace]
	if len(validation.IsDNS1123Subdomain(release))+len(validation.IsDNS1123Label(namespace)) > 0 { // it is to be copied
		release, namespace = "RELEASE", "NAMESPACE"
	}
	return "helm upgrade " + release + " superpool-VERSION.tgz --namespace " + namespace + " --reset-then-reuse-values", nil
}

// object returns an object of which nothing is known but its name.
func object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(kind)
	made.SetNamespace(namespace)
	made.SetName(name)
	return made
}

// version looks at the version of Kubernetes. least is the oldest minor version for other reasons, 0 for none.
func (f *findings) version(least uint) error {
	const check = "version of Kubernetes"
	asks, err := discovery.NewDiscoveryClientForConfig(f.cluster.config)
	if err != nil {
		return fmt.Errorf("asking for the version: %w", err)
	}
	said, err := asks.ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the version: %w", err)
	}
	found, err := skew.Said(said)
	oldest, newest := max(least, skew.Ours()-skew.Minors), skew.Ours()+skew.Minors
	switch mend := fmt.Sprintf("upgrade it: Superpool works with 1.%d to 1.%d", oldest, newest); {
	case err != nil:
		f.bad(check, mend, "%v", err)
	case found.Minor > newest:
		f.bad(check, fmt.Sprintf("upgrade Superpool: this version works with 1.%d to 1.%d", oldest, newest), "%s", found)
	case found.Minor < oldest:
		f.bad(check, mend, "%s", found)
	default:
		f.good(check, "%s", found)
	}
	return nil
}

// clusterAPI looks whether Clusters are served.
func (f *findings) clusterAPI() {
	const check = "Clusters of Cluster API"
	mapping, err := f.cluster.RESTMapper().RESTMapping(clusterKind)
	if err != nil {
		f.bad(check, "install the CustomResourceDefinition clusters.cluster.x-k8s.io of Cluster API: https://cluster-api.sigs.k8s.io", "they are not served: %v", err)
		return
	}
	f.good(check, "served as %s", mapping.GroupVersionKind.Version)
}

// rights looks whether the person may apply objects.
func (f *findings) rights(ctx context.Context, objects []*unstructured.Unstructured) error {
	const check = "your rights"
	var lacks []string
	asked := map[authorizationv1.ResourceAttributes]bool{}
	for _, object := range objects {
		kind := object.GroupVersionKind()
		plural, _ := apimeta.UnsafeGuessKindToResource(kind)
		for _, verb := range []string{"get", "create", "patch"} {
			attributes := authorizationv1.ResourceAttributes{Namespace: object.GetNamespace(), Verb: verb, Group: kind.Group, Resource: plural.Resource}
			if asked[attributes] {
				continue
			}
			asked[attributes] = true
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
			if err := f.cluster.Create(ctx, review); err != nil {
				return fmt.Errorf("asking for your rights: %w", err)
			}
			if !review.Status.Allowed {
				where := ""
				if attributes.Namespace != "" {
					where = " in namespace " + attributes.Namespace
				}
				lacks = append(lacks, verb+" "+plural.GroupResource().String()+where)
			}
		}
	}
	if len(lacks) > 0 {
		f.bad(check, "kubectl create clusterrolebinding superpool-operator --clusterrole=cluster-admin --user=YOU, as an administrator", "you may not %s", named(lacks))
		return nil
	}
	f.good(check, "you may apply all that is to be applied")
	return nil
}

// definitions looks whether our definitions are those of this version.
func (f *findings) definitions(ctx context.Context, objects []*unstructured.Unstructured) error {
	const check = "definitions of Superpool"
	w := &writer{cluster: f.cluster, dry: cli.DryRunServer}
	var missing, others []string
	for _, object := range objects {
		if object.GetKind() != crdKind {
			continue
		}
		there, err := w.read(ctx, object)
		if err != nil {
			return err
		}
		if there == nil {
			missing = append(missing, object.GetName())
			continue
		}
		wanted, err := w.applied(ctx, object, true)
		switch {
		case apierrors.IsForbidden(err): // rights says so
		case err != nil:
			return fmt.Errorf("comparing %s: %w", object.GetName(), err)
		case wanted.GetGeneration() != there.GetGeneration():
			others = append(others, object.GetName())
		}
	}
	switch {
	case len(missing) > 0:
		f.bad(check, f.setUp, "missing: %s", named(missing))
	case len(others) > 0:
		f.bad(check, f.setUp, "of another version: %s", named(others))
	default:
		f.good(check, "of this version")
	}
	return nil
}

// namespace looks at the namespace of our programs, and at the rights of syncers.
func (f *findings) namespace(ctx context.Context, _ []*unstructured.Unstructured) error {
	const check, enforce = "namespace " + tenancyv1alpha1.ManagerNamespace, "pod-security.kubernetes.io/enforce"
	w := &writer{cluster: f.cluster}
	found, err := w.read(ctx, object(corev1.SchemeGroupVersion.WithKind("Namespace"), "", tenancyv1alpha1.ManagerNamespace))
	if err != nil {
		return err
	}
	switch {
	case found == nil:
		f.bad(check, f.setUp, "there is none")
	case found.GetLabels()[enforce] != "restricted":
		f.bad(check, "kubectl label namespace "+tenancyv1alpha1.ManagerNamespace+" "+enforce+"=restricted --overwrite", "it does not enforce Pod Security level restricted")
	default:
		f.good(check, "it enforces Pod Security level restricted")
	}
	return nil
}

// policies looks whether there is a TenantPolicy for VirtualClusters that name none.
func (f *findings) policies(ctx context.Context, _ []*unstructured.Unstructured) error {
	const check = "TenantPolicy " + tenancyv1alpha1.DefaultPolicyName
	w := &writer{cluster: f.cluster}
	found, err := w.read(ctx, object(tenancyv1alpha1.GroupVersion.WithKind("TenantPolicy"), "", tenancyv1alpha1.DefaultPolicyName))
	if err != nil {
		return err
	}
	if found == nil {
		mend := f.setUp
		if mend != setUp {
			mend += " --set policies.enabled=true"
		}
		f.bad(check, mend, "there is none: what is shipped holds")
		return nil
	}
	preset := found.GetAnnotations()[tenancyv1alpha1.AnnotationPolicies]
	if preset == "" {
		preset = "yours"
	}
	f.good(check, "%s", preset)
	return nil
}

// deployments looks whether our programs run.
func (f *findings) deployments(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		if err := f.program(ctx, f.cluster, object.GetName(), object.GetName(), f.setUp); err != nil {
			return err
		}
	}
	return nil
}

// program looks whether a program of ours runs in the meta cluster. mend makes it where it is not there.
func (f *findings) program(ctx context.Context, meta *cluster, check, name, mend string) error {
	found, err := workload(ctx, meta, types.NamespacedName{Namespace: tenancyv1alpha1.ManagerNamespace, Name: name})
	if err != nil {
		return err
	}
	if found == nil {
		if name == "vc-manager" {
			f.good(check, "it is not there: all tenants are imported")
		} else {
			f.bad(check, mend, "it is not there")
		}
		return nil
	}
	switch all, says := availability(found); {
	case found.Spec.Replicas != nil && *found.Spec.Replicas == 0:
		f.good(check, "0 replicas: it runs elsewhere")
	case !all:
		f.bad(check, "kubectl -n "+tenancyv1alpha1.ManagerNamespace+" describe pods", "%s", says)
	default:
		f.good(check, "%s, of image %s", says, found.Spec.Template.Spec.Containers[0].Image)
	}
	return nil
}

// workload returns a Deployment, or as one the StatefulSet in the place of it that component manifests/shards makes, nil
// for neither.
func workload(ctx context.Context, meta *cluster, key types.NamespacedName) (*appsv1.Deployment, error) {
	found := &appsv1.Deployment{}
	err := meta.Get(ctx, key, found)
	if !apierrors.IsNotFound(err) {
		return found, err //nolint:wrapcheck // it says what it did
	}
	sharded := &appsv1.StatefulSet{}
	if err := meta.Get(ctx, key, sharded); err != nil {
		return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // as above
	}
	status := &sharded.Status
	return &appsv1.Deployment{
		ObjectMeta: sharded.ObjectMeta, Spec: appsv1.DeploymentSpec{Replicas: sharded.Spec.Replicas, Template: sharded.Spec.Template},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: status.ObservedGeneration, Replicas: status.Replicas, UpdatedReplicas: status.UpdatedReplicas, AvailableReplicas: status.AvailableReplicas,
		},
	}, nil
}

// checkSuper looks at a super cluster, or at a cluster that is to become one.
func checkSuper(ctx context.Context, k *kubeconfig, super, meta *cluster, server string) ([]finding, error) {
	f := &findings{cluster: super, where: "super"}
	if err := f.version(0); err != nil {
		return nil, err
	}
	host, _, err := endpoint(server)
	switch {
	case err != nil:
		f.bad("address", "give a kubeconfig with a server URL", "%v", err)
	case isOwn(host):
		f.bad("address", "give a kubeconfig with an address that the meta cluster's pods reach", "%s is this machine's own", server)
	default:
		f.good("address", "%s", server)
	}
	info, err := superID(ctx, super)
	if err != nil {
		return nil, err
	}
	id := ""
	if info != nil {
		id = info.Data[schedulerv1alpha1.SuperClusterInfoKey]
	}
	f.owner(ctx, k, meta, id)
	objects, err := ofSuper("r")
	if err != nil {
		return nil, err
	}
	if err := f.rights(ctx, objects); err != nil {
		return nil, err
	}
	if id == "" {
		err := f.controllers(ctx)
		return f.list, err
	}
	again := rejoin + " " + id + " " + k.flags()
	for _, look := range []func(context.Context, string) error{f.tokens, f.podSecurity} {
		if err := look(ctx, again); err != nil {
			return nil, err
		}
	}
	if err := f.program(ctx, meta, "syncer", "vc-syncer-"+id, again); err != nil {
		return nil, err
	}
	err = f.virtualNode(ctx, meta, id)
	return f.list, err
}

// owner looks whose a super cluster is. id is "" where it has none.
func (f *findings) owner(ctx context.Context, k *kubeconfig, meta *cluster, id string) {
	const check = "id and pool"
	switch err := k.owned(ctx, f.cluster, meta, id); {
	case err != nil:
		f.bad(check, "give it the ID, or the pool, that the line above names", "%v", err)
	case id == "":
		f.good(check, "none yet: %s ID %s", rejoin, k.flags())
	default:
		f.good(check, "super cluster %s, which no other pool has", id)
	}
}

// controllers looks whether kube-controller-manager makes what tokens are made for.
func (f *findings) controllers(ctx context.Context) error {
	const check = "kube-controller-manager"
	err := f.cluster.Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "default"}, &corev1.ServiceAccount{})
	switch {
	case apierrors.IsNotFound(err):
		f.bad(check, "start it with controllers serviceaccount and serviceaccount-token", "namespace kube-system has no service account default")
	case err != nil:
		return fmt.Errorf("reading service account default: %w", err)
	default:
		f.good(check, "it makes service accounts")
	}
	return nil
}

// tokens looks whether the super cluster has made tokens for our accounts.
func (f *findings) tokens(ctx context.Context, again string) error {
	const check = "tokens"
	var missing []string
	for _, account := range []string{"vc-scheduler", "syncer"} {
		made, err := token(ctx, f.cluster, account)
		if err != nil {
			return err
		}
		if made == "" {
			missing = append(missing, account)
		}
	}
	if len(missing) > 0 {
		f.bad(check, again+", and let kube-controller-manager run controller serviceaccount-token", "none of %s", strings.Join(missing, ", "))
		return nil
	}
	f.good(check, "of vc-scheduler and syncer")
	return nil
}

// podSecurity looks whether the super cluster refuses a privileged pod where Pod Security level restricted is enforced,
// as a syncer does when it starts.
func (f *findings) podSecurity(ctx context.Context, again string) error {
	const check = "Pod Security"
	privileged := true
	err := f.cluster.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, GenerateName: "pod-security-"},
		Spec: corev1.PodSpec{ServiceAccountName: "syncer", Containers: []corev1.Container{
			{Name: "privileged", Image: "none", SecurityContext: &corev1.SecurityContext{Privileged: &privileged}},
		}},
	}, client.DryRunAll)
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "violates PodSecurity"):
		f.good(check, "enforced")
	case err == nil:
		f.bad(check, "enable admission plugin PodSecurity in its API server", "it takes a privileged pod in namespace %s", systemNamespace)
	default:
		f.bad(check, again, "%v", err)
	}
	return nil
}

// virtualNode looks whether the pool uses a super cluster.
func (f *findings) virtualNode(ctx context.Context, meta *cluster, id string) error {
	const check = "virtual Node"
	node, err := virtualNode(ctx, meta, id)
	if err != nil {
		return err
	}
	if node == nil {
		f.bad(check, "kubectl -n vc-manager logs -l app.kubernetes.io/name=vc-scheduler", "there is none")
		return nil
	}
	ready := condition(node, corev1.NodeReady)
	switch {
	case ready == nil:
		f.bad(check, "kubectl describe node "+id, "it has no condition Ready yet")
	case ready.Status != corev1.ConditionTrue:
		f.bad(check, "kubectl describe node "+id, "%s", ready.Message)
	default:
		f.good(check, "Ready, and of version %s", node.Status.NodeInfo.KubeletVersion)
	}
	return nil
}
