package app

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/vctest"
)

// metaAPI is an API server with the pool and the tenants of vctest. It answers what is written by a dry run with what was sent,
// and keeps nothing.
type metaAPI struct {
	objects map[string][]client.Object // by path of their list
	groups  map[schema.GroupVersion][]metav1.APIResource
	// forwards serves port-forwards.
	forwards http.Handler

	mu sync.Mutex
	// asked is what was asked for, and wrote what was to be written not by a dry run.
	asked, wrote []string
}

// newMetaAPI starts one, and returns it with the file of a kubeconfig.
func newMetaAPI(t *testing.T) (*metaAPI, string) {
	t.Helper()
	api := &metaAPI{objects: map[string][]client.Object{}, groups: map[schema.GroupVersion][]metav1.APIResource{}}
	tenancy, scheduling := tenancyv1alpha1.GroupVersion, schedulerv1alpha1.GroupVersion
	for _, node := range vctest.Pool().Nodes {
		api.add(corev1.SchemeGroupVersion.WithKind("Node"), "nodes", false, node)
	}
	for _, np := range vctest.Placements() {
		api.add(scheduling.WithKind("NamespacePlacement"), "namespaceplacements", true, np)
	}
	tenants := vctest.Tenants()
	for i, ago := range []time.Duration{252 * time.Hour, 50*time.Hour + 30*time.Minute} {
		tenants[i].CreationTimestamp, tenants[i].Status.CertificatesExpire = metav1.NewTime(time.Now().Add(-ago)), nil // no figure depends on today
		tenants[i].Status.Conditions = append(tenants[i].Status.Conditions, vctest.Is(tenancyv1alpha1.ConditionBackedUp))
		api.add(tenancy.WithKind("VirtualCluster"), "virtualclusters", true, &tenants[i])
	}
	api.add(tenancy.WithKind("ClusterVersion"), "clusterversions", false, &tenancyv1alpha1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "v1.37"}})
	api.add(corev1.SchemeGroupVersion.WithKind("Pod"), "pods", true)
	api.add(corev1.SchemeGroupVersion.WithKind("Secret"), "secrets", true)
	api.add(corev1.SchemeGroupVersion.WithKind("Namespace"), "namespaces", false, builders.Namespace("kube-system"))
	api.add(schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta2", Kind: "Cluster"}, "clusters", true)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "meta.kubeconfig")
	require.NoError(t, os.WriteFile(file, builders.Kubeconfig(server.URL, "token"), 0o600))
	return api, file
}

// add serves a kind, with objects of it.
func (a *metaAPI) add(kind schema.GroupVersionKind, resource string, isNamespaced bool, objects ...client.Object) {
	version := kind.GroupVersion()
	if !slices.ContainsFunc(a.groups[version], func(of metav1.APIResource) bool { return of.Name == resource }) {
		a.groups[version] = append(a.groups[version], metav1.APIResource{Name: resource, Kind: kind.Kind, Namespaced: isNamespaced, Verbs: metav1.Verbs{"get", "list"}})
	}
	prefix := "/apis/" + version.String()
	if version.Group == "" {
		prefix = "/api/" + version.String()
	}
	for _, object := range objects {
		object.GetObjectKind().SetGroupVersionKind(kind)
		object.SetResourceVersion("1")
		path := prefix + "/" + resource
		a.objects[path] = append(a.objects[path], object)
		if isNamespaced {
			path = prefix + "/namespaces/" + object.GetNamespace() + "/" + resource
			a.objects[path] = append(a.objects[path], object)
		}
	}
}

// ServeHTTP implements http.Handler.
func (a *metaAPI) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	path := request.URL.Path
	if strings.HasSuffix(path, "/portforward") && a.forwards != nil {
		a.forwards.ServeHTTP(w, request)
		return
	}
	a.mu.Lock()
	a.asked = append(a.asked, request.Method+" "+path)
	body, _ := io.ReadAll(request.Body) // what is cut off is no dry run
	isDry := request.URL.Query().Get("dryRun") == metav1.DryRunAll || request.Method == http.MethodDelete && bytes.Contains(body, []byte(`"dryRun":["All"]`))
	if request.Method != http.MethodGet && !isDry {
		a.wrote = append(a.wrote, request.Method+" "+path)
	}
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch objects, isList := a.objects[path]; {
	case request.Method == http.MethodPost:
		_, _ = w.Write(body) // it is what would be made
		return
	case path == "/version":
		answer = version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"}
	case path == "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path == "/apis":
		answer = a.groupList()
	case isList:
		answer = map[string]any{"kind": objects[0].GetObjectKind().GroupVersionKind().Kind + "List", "apiVersion": objects[0].GetObjectKind().GroupVersionKind().GroupVersion().String(), "metadata": map[string]any{}, "items": objects}
	default:
		answer = a.one(path)
	}
	if status, is := answer.(*metav1.Status); is {
		w.WriteHeader(int(status.Code))
	}
	_ = json.NewEncoder(w).Encode(answer) // the client sees what is wrong with it
}

func (a *metaAPI) groupList() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for version := range a.groups {
		if version.Group != "" {
			of := metav1.GroupVersionForDiscovery{GroupVersion: version.String(), Version: version.Version}
			list.Groups = append(list.Groups, metav1.APIGroup{Name: version.Group, Versions: []metav1.GroupVersionForDiscovery{of}, PreferredVersion: of})
		}
	}
	return list
}

// one returns what a path is: the resources of a group, an object, an empty list, or nothing.
func (a *metaAPI) one(path string) any {
	for version, resources := range a.groups {
		if path == "/apis/"+version.String() || path == "/api/"+version.String() {
			return metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version.String(), APIResources: resources}
		}
	}
	folder, name := path[:strings.LastIndex(path, "/")], path[strings.LastIndex(path, "/")+1:]
	for _, object := range a.objects[folder] {
		if object.GetName() == name {
			return object
		}
	}
	for version, resources := range a.groups {
		for _, resource := range resources {
			if name == resource.Name && strings.Contains(path, version.String()) {
				return map[string]any{"kind": resource.Kind + "List", "apiVersion": version.String(), "metadata": map[string]any{}, "items": []any{}}
			}
		}
	}
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: name + " not found"}
}

// outcome is what a command has printed and said, and its error.
type outcome struct {
	printed, said string
	err           error
}

// run runs a command whose output is so wide, 0 for no terminal. Nobody answers what it asks.
func run(t *testing.T, columns int, kubeconfig string, args ...string) outcome {
	t.Helper()
	var out, told bytes.Buffer
	c := cli.New(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &told})
	c.Columns = columns
	command := newCommand(c)
	command.SetArgs(append([]string{"--kubeconfig", kubeconfig, "-n", "tenants"}, args...))
	err := command.ExecuteContext(t.Context())
	return outcome{out.String(), told.String(), err}
}

// verbsOf returns all commands below one that do something.
func verbsOf(command *cobra.Command) (verbs []*cobra.Command) {
	for _, verb := range command.Commands() {
		switch {
		case verb.Name() == "help" || verb.Name() == "completion":
		case verb.HasSubCommands():
			verbs = append(verbs, verbsOf(verb)...)
		default:
			verbs = append(verbs, verb)
		}
	}
	return verbs
}
