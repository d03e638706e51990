package simulation

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// maxFile and maxFiles bound what is read: a kubectl get of ten thousand NamespacePlacements has 30 MB.
	maxFile, maxFiles = 256 << 20, 10_000
	// maxObjects bounds the objects that are kept.
	maxObjects = 200_000
	// topTenant is the tenant of the Namespaces and ResourceQuotas that are in no directory of a tenant.
	topTenant = "tenant"
)

// slowNumber matches values that are numbers which take long to parse, and that no pool has.
var slowNumber = regexp.MustCompile(`(?:^|[:,[\s]\s*)"?[-+]?(?:[0-9.]{40}|[0-9.]+[eE][-+]?[0-9]{3})[0-9.eE]*"?[,}\]\s]`)

// Pool is the state of a pool that a simulation begins with.
type Pool struct {
	// Nodes are the virtual Nodes, sorted by name.
	Nodes []*corev1.Node
	// Placements are the NamespacePlacements, sorted by tenant and name.
	Placements []*schedulerv1alpha1.NamespacePlacement
	// Tenants are the VirtualClusters of files. Live reads none.
	Tenants []tenancyv1alpha1.VirtualCluster
	// Invalid is what is wrong with the quota or the slice of a namespace, by NamespacePlacement.
	Invalid map[types.NamespacedName]string
	// Ignored counts objects that play no part, by kind.
	Ignored map[string]int
}

// Drain gives the virtual Nodes of super clusters a taint that drains them, as an operator does. It fails for a super
// cluster that is not in the pool.
func (p *Pool) Drain(names ...string) error {
	for _, name := range names {
		at := slices.IndexFunc(p.Nodes, func(node *corev1.Node) bool { return node.Name == name })
		if at < 0 {
			return fmt.Errorf("there is no super cluster %s", name)
		}
		node := p.Nodes[at].DeepCopy()
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "drain", Effect: corev1.TaintEffectNoExecute})
		p.Nodes[at] = node
	}
	return nil
}

// Read reads all files of a directory, and of those below it, that end in .yaml, .yml or .json. They hold any number of
// objects, one by one or in lists, as kubectl get -o yaml prints them:
//
//   - Nodes with the label of virtual Nodes, NamespacePlacements, and VirtualClusters, of the meta cluster.
//   - Namespaces and ResourceQuotas of tenants: the name of the directory that holds them, below the first one, is the
//     tenant. They say what a NamespacePlacement of that tenant requests, in place of its spec, or make one. defaults
//     is the slice size of those that name none.
//
// Other objects are counted and ignored.
func Read(dir fs.FS, defaults slice.Amounts) (*Pool, error) {
	r := &reader{
		pool: &Pool{Invalid: map[types.NamespacedName]string{}, Ignored: map[string]int{}}, seen: map[string]string{},
		namespaces: map[types.NamespacedName]*corev1.Namespace{}, quotas: map[types.NamespacedName][]corev1.ResourceQuota{},
	}
	files := 0
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			return nil
		}
		if files++; files > maxFiles {
			return fmt.Errorf("there are more than %d files", maxFiles)
		}
		return r.readFile(dir, name)
	})
	if err != nil {
		return nil, fmt.Errorf("reading objects: %w", err)
	}
	if files == 0 {
		return nil, errors.New("reading objects: no file ends in .yaml, .yml or .json")
	}
	r.request(defaults)
	return r.pool, nil
}

// reader collects the objects of files.
type reader struct {
	pool *Pool
	// seen is where each object was found, by kind and name.
	seen       map[string]string
	namespaces map[types.NamespacedName]*corev1.Namespace
	quotas     map[types.NamespacedName][]corev1.ResourceQuota
}

func (r *reader) readFile(dir fs.FS, name string) error {
	file, err := dir.Open(name)
	if err != nil {
		return err //nolint:wrapcheck // it names the file
	}
	defer func() { _ = file.Close() }()
	limited := &io.LimitedReader{R: file, N: maxFile + 1}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(limited))
	tenant, _, isBelow := strings.Cut(name, "/")
	if !isBelow {
		tenant = topTenant
	}
	for number := 1; ; number++ {
		text, err := documents.Read()
		switch {
		case limited.N <= 0:
			return fmt.Errorf("%s is larger than %d MiB", name, maxFile>>20)
		case errors.Is(err, io.EOF):
			return nil
		case err == nil:
			err = r.readDocument(text, tenant, fmt.Sprintf("%s, document %d", name, number))
		}
		if err != nil {
			return fmt.Errorf("%s, document %d: %w", name, number, err)
		}
	}
}

func (r *reader) readDocument(text []byte, tenant, where string) error {
	encoded, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err //nolint:wrapcheck // the caller names the document
	}
	if bytes.Equal(encoded, []byte("null")) {
		return nil // comments alone
	}
	if slow := slowNumber.Find(encoded); slow != nil {
		return fmt.Errorf("%.40s... is no number of a pool", bytes.TrimLeft(slow, ":,[ \n"))
	}
	return r.readObject(encoded, schema.GroupVersionKind{}, false, tenant, where)
}

// readObject reads one object, or the items of a list. implied is its kind if it has none. A list in a list is an error:
// kubectl prints none, and each list copies what is in it.
func (r *reader) readObject(encoded []byte, implied schema.GroupVersionKind, inList bool, tenant, where string) error {
	var head struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Items             []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(encoded, &head); err != nil {
		return fmt.Errorf("it is no object: %w", err)
	}
	kind := head.GroupVersionKind()
	if kind.Kind == "" {
		kind = implied
	}
	if kind.Kind == "" {
		return errors.New("it has no kind")
	}
	if item, isList := strings.CutSuffix(kind.Kind, "List"); isList {
		if inList {
			return errors.New("it is a list in a list")
		}
		if item != "" {
			kind.Kind = item
		} else {
			kind = schema.GroupVersionKind{}
		}
		for i, encoded := range head.Items {
			if err := r.readObject(encoded, kind, true, tenant, where); err != nil {
				return fmt.Errorf("item %d: %w", i+1, err)
			}
		}
		return nil
	}
	return r.keep(encoded, kind, &head.ObjectMeta, tenant, where)
}

// keep keeps an object, or counts it as ignored.
func (r *reader) keep(encoded []byte, kind schema.GroupVersionKind, meta *metav1.ObjectMeta, tenant, where string) error {
	switch {
	case kind == corev1.SchemeGroupVersion.WithKind("Node") && meta.Labels[schedulerv1alpha1.LabelVirtualNode] != "":
		return add(r, encoded, where, "Node", func(node *corev1.Node) { r.pool.Nodes = append(r.pool.Nodes, node) })
	case kind == schedulerv1alpha1.GroupVersion.WithKind("NamespacePlacement"):
		return add(r, encoded, where, "NamespacePlacement", func(np *schedulerv1alpha1.NamespacePlacement) {
			r.pool.Placements = append(r.pool.Placements, np)
		})
	case kind == tenancyv1alpha1.GroupVersion.WithKind("VirtualCluster"):
		return add(r, encoded, where, "VirtualCluster", func(vc *tenancyv1alpha1.VirtualCluster) { r.pool.Tenants = append(r.pool.Tenants, *vc) })
	case kind == corev1.SchemeGroupVersion.WithKind("Namespace"):
		return add(r, encoded, where, "tenant "+tenant+": Namespace", func(namespace *corev1.Namespace) {
			r.namespaces[types.NamespacedName{Namespace: tenant, Name: namespace.Name}] = namespace
		})
	case kind == corev1.SchemeGroupVersion.WithKind("ResourceQuota"):
		return add(r, encoded, where, "tenant "+tenant+": ResourceQuota", func(quota *corev1.ResourceQuota) {
			key := types.NamespacedName{Namespace: tenant, Name: quota.Namespace}
			r.quotas[key] = append(r.quotas[key], *quota)
		})
	}
	r.pool.Ignored[kind.Kind]++
	return nil
}

// add decodes an object and keeps it. Two of one kind and name are an error.
func add[T any, P interface {
	*T
	client.Object
}](r *reader, encoded []byte, where, kind string, keep func(P),
) error {
	object := P(new(T))
	if err := json.Unmarshal(encoded, object); err != nil {
		return fmt.Errorf("decoding a %s: %w", kind, err)
	}
	if object.GetName() == "" {
		return fmt.Errorf("a %s has no name", kind)
	}
	name := fmt.Sprintf("%s %s", kind, strings.TrimPrefix(client.ObjectKeyFromObject(object).String(), "/"))
	if before, exists := r.seen[name]; exists {
		return fmt.Errorf("%s is in %s, too", name, before)
	}
	if len(r.seen) >= maxObjects {
		return fmt.Errorf("there are more than %d objects", maxObjects)
	}
	r.seen[name] = where
	keep(object)
	return nil
}

// request lets Namespaces and ResourceQuotas say what NamespacePlacements request, and sorts what was read.
func (r *reader) request(defaults slice.Amounts) {
	known := map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement{}
	for _, np := range r.pool.Placements {
		known[client.ObjectKeyFromObject(np)] = np
	}
	keys := maps.Clone(r.namespaces)
	for key := range r.quotas { // their Namespaces need not be there
		if keys[key] == nil {
			keys[key] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}
		}
	}
	for key, namespace := range keys {
		np, exists := known[key]
		if !exists {
			np = &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: key.Name, CreationTimestamp: namespace.CreationTimestamp,
			}}
		}
		namespace.UID = np.Spec.NamespaceUID
		spec, invalid := placement.Spec(namespace, r.quotas[key], &np.Spec, defaults)
		if len(spec.Quota) == 0 && invalid == nil && !exists {
			continue // it requests nothing
		}
		spec.Priority, spec.Weight, spec.NodeSelector, spec.Paused = np.Spec.Priority, np.Spec.Weight, np.Spec.NodeSelector, np.Spec.Paused
		chosen, refused := clusterchoice.Of(namespace, &np.Spec, nil)
		if spec.ClusterChoice = chosen; refused != nil {
			spec.Slice, spec.Quota, invalid = np.Spec.Slice, np.Spec.Quota, cmp.Or(invalid, refused)
		}
		np.Spec = spec
		if invalid != nil {
			r.pool.Invalid[key] = said(*invalid)
		}
		if !exists {
			r.pool.Placements = append(r.pool.Placements, np)
		}
	}
	slices.SortFunc(r.pool.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(r.pool.Placements, func(a, b *schedulerv1alpha1.NamespacePlacement) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func said(reason tenancy.Reason) string { return reason.Reason + ": " + reason.Message }
