package forecast

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/vctest"
)

// bench is a command line with what it prints and says.
type bench struct {
	*verbs
	out, told bytes.Buffer
}

func newBench() *bench {
	b := &bench{}
	b.verbs = &verbs{cli.New(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &b.out, ErrOut: &b.told})}
	return b
}

// run runs a verb with arguments, with the flags of kubectl.
func (b *bench) run(t *testing.T, args ...string) error {
	t.Helper()
	root := &cobra.Command{Use: "kubectl-vc", SilenceUsage: true, SilenceErrors: true}
	b.Flags.AddFlags(root.PersistentFlags())
	root.AddCommand(Commands(b.CLI)...)
	root.SetArgs(args)
	root.SetErr(&b.told)
	return root.ExecuteContext(t.Context())
}

// metaCluster returns one in memory.
func metaCluster(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, tenancyv1alpha1.AddToScheme, schedulerv1alpha1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

// pool returns what a meta cluster has of the pool of vctest.
func pool() (objects []client.Object) {
	of := vctest.Pool()
	for _, node := range of.Nodes {
		objects = append(objects, node)
	}
	for _, np := range of.Placements {
		objects = append(objects, np)
	}
	tenants := vctest.Tenants()
	for i := range tenants {
		objects = append(objects, &tenants[i])
	}
	return objects
}

// TestRefuses: what cannot be meant is refused before anything is asked of a cluster, and ends with exit code 1.
func TestRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	broken := filepath.Dir(write("broken/pool.yaml", "kind: {"))
	for args, want := range map[string]string{
		"explain":                                                       "accepts 1 arg(s), received 0",
		"explain web":                                                   "either --tenant or --namespace must name the tenant",
		"explain web -t a/b -n c":                                       "--tenant and --namespace name two namespaces",
		"explain web -t a/":                                             `--tenant: "a/" is no NAME and no NAMESPACE/NAME`,
		"explain web -t /a":                                             `--tenant: "/a" is no NAME and no NAMESPACE/NAME`,
		"explain web -t a/b/c":                                          `--tenant: "a/b/c" is no NAME and no NAMESPACE/NAME`,
		"explain web -n b -o wide":                                      "give one of json, yaml",
		"explain web -n b --pod 3":                                      "--pod: ",
		"explain web -n b --pod-name p":                                 "--pod-name is of a --tenant",
		"explain web -n b --pod-file /does/not/exist":                   "--pod-file: ",
		"explain web -n b --pod-file " + write("p", ""):                 "--pod-file: /, Kind= is no Pod",
		"explain web -t b --pod 3 --pod-file a":                         "give one of them",
		"explain web -t b --pod-name a --pod-file a":                    "give one of them",
		"explain web -n b --namespace-scheduler-config=/does/not/exist": "--namespace-scheduler-config: ",
		"explain web -n b --kubeconfig=/does/not/exist":                 "/does/not/exist",
		"rebalance --max-moves=0":                                       "--max-moves: 0 is not between 1 and 1000",
		"rebalance --max-moves=1001":                                    "--max-moves: 1001 is not between 1 and 1000",
		"rebalance -o xml":                                              "give one of json, yaml",
		"rebalance --dry-run=perhaps":                                   "give none, client or server",
		"rebalance --dry-run client":                                    "unknown command",
		"rebalance --kubeconfig=/does/not/exist":                        "/does/not/exist",
		"rebalance web":                                                 "unknown command",
		"simulate web":                                                  "unknown command",
		"simulate -o xml":                                               "give one of json, yaml",
		"simulate --kubeconfig=/does/not/exist":                         "/does/not/exist",
		"simulate --from /does/not/exist":                               "--from /does/not/exist: ",
		"simulate --from " + broken:                                     "pool.yaml, document 1: ",
		"simulate --from " + broken + " --default-slice=no":             "--default-slice: ",
		"simulate --from " + broken + " --drain pod/r1":                 `--drain: "pod/r1" names no super cluster: give r1 or node/r1`,
		"simulate --from " + broken + " --namespace-scheduler-config=/does/not/exist": "--namespace-scheduler-config: ",
	} {
		b := newBench()
		args := strings.Fields(args)
		if !strings.Contains(want, "/does/not/exist") {
			args = append(args, "--kubeconfig="+write("meta.kubeconfig", string(builders.Kubeconfig("https://127.0.0.1:1", "token"))))
		}
		err := b.run(t, args...)
		require.ErrorContains(t, err, want, args)
		require.Equal(t, 1, cli.ExitCode(err))
		require.Empty(t, b.out.String())
	}
}

// TestSimulate reads a pool from files: no API server is reached, and the exit code says whether all fits.
func TestSimulate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(cpu string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pool.yaml"), fmt.Appendf(nil, `apiVersion: v1
kind: Node
metadata: {name: r1, labels: {scheduler.tenancy.x-k8s.io/super-cluster: r1}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "100"}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {namespace: web, name: quota}
spec: {hard: {requests.cpu: %q}}
`, cpu), 0o600))
	}
	write("2")
	b := newBench()
	require.NoError(t, b.run(t, "simulate", "--from", dir))
	require.Contains(t, b.out.String(), "tenant  web        1/1     r1=1        new")
	require.Empty(t, b.told.String())

	b = newBench()
	require.NoError(t, b.run(t, "simulate", "--from", dir, "--default-slice", `{"cpu":"500m"}`, "-o", "table"))
	require.Contains(t, b.out.String(), "tenant  web        4/4     r1=4        new")

	b = newBench()
	err := b.run(t, "simulate", "--from", dir, "--drain", "node/r1", "-o", "yaml")
	require.EqualError(t, err, "1 of 1 namespaces does not fit")
	require.Contains(t, b.out.String(), "  why: '0/1 super clusters are available: 1 drained'\n")
	require.EqualError(t, newBench().run(t, "simulate", "--from", dir, "--drain", "r3"), "--drain: there is no super cluster r3")

	write("6")
	b = newBench()
	err = b.run(t, "simulate", "--from", dir, "-o", "json")
	require.EqualError(t, err, "1 of 1 namespaces does not fit")
	require.Equal(t, 3, cli.ExitCode(err))
	require.Contains(t, b.out.String(), `"why": "0/1 super clusters are available: 1 has too little free for the namespace: 6 cpu and 12Gi memory"`)
}

// TestExplain: by the tenant or by its root namespace, with what there is to say in each format.
func TestExplain(t *testing.T) {
	t.Parallel()
	cluster := metaCluster(t, pool()...)
	cfg, err := (&Profiles{}).Load()
	require.NoError(t, err)
	for name, test := range map[string]struct {
		e     explaining
		asked types.NamespacedName
		code  int
		want  string
		err   string
	}{
		"all is there":            {e: explaining{tenant: "acme"}, asked: types.NamespacedName{Namespace: "tenants", Name: "web"}, want: "Nothing is missing"},
		"it waits":                {e: explaining{tenant: "tenants/beta"}, asked: types.NamespacedName{Namespace: "default", Name: "stuck"}, want: "It is number 3 of 4 in the order"},
		"by the root namespace":   {asked: types.NamespacedName{Namespace: vctest.AcmeRoot, Name: "batch"}, want: "It is number 2 of 4 in the order"},
		"as YAML":                 {e: explaining{tenant: "acme", format: cli.OutputYAML}, asked: types.NamespacedName{Namespace: "tenants", Name: "web"}, want: "name: web\n"},
		"no such tenant":          {e: explaining{tenant: "gamma"}, asked: types.NamespacedName{Namespace: "tenants", Name: "web"}, code: 1, err: `--tenant: virtualclusters.tenancy.x-k8s.io "gamma" not found in namespace tenants: kubectl get virtualclusters -A`},
		"no such namespace":       {e: explaining{tenant: "acme"}, asked: types.NamespacedName{Namespace: "tenants", Name: "nothing"}, code: 1, err: "there is no NamespacePlacement " + vctest.AcmeRoot + "/nothing: "},
		"a tenant without Secret": {e: explaining{tenant: "acme", pod: "p"}, asked: types.NamespacedName{Namespace: "tenants", Name: "web"}, code: 1, err: "--pod-name: getting the kubeconfig of acme: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			err := b.say(t.Context(), cluster, cfg, &test.e, test.asked, nil)
			require.Equal(t, test.code, cli.ExitCode(err), "%v", err)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
			}
			require.Contains(t, b.out.String(), test.want)
		})
	}
}

// TestExplainAPodOfTheTenant reads it from the tenant's control plane, by the kubeconfig that the pool has of it.
func TestExplainAPodOfTheTenant(t *testing.T) {
	t.Parallel()
	tenant := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/api/v1/namespaces/web/pods/p" {
			http.NotFound(w, request)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"web","name":"p"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}`)
	}))
	defer tenant.Close()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "acme-kubeconfig"}, Data: map[string][]byte{tenancyv1alpha1.DefaultKubeconfigKey: builders.Kubeconfig(tenant.URL, "secret")},
	}
	cluster := metaCluster(t, append(pool(), secret)...)
	cfg, err := (&Profiles{}).Load()
	require.NoError(t, err)
	b, asked := newBench(), types.NamespacedName{Namespace: "tenants", Name: "web"}
	require.NoError(t, b.say(t.Context(), cluster, cfg, &explaining{tenant: "acme", pod: "p"}, asked, nil))
	require.Contains(t, b.out.String(), "A pod that requests cpu=1 has room in a super cluster, if other pods leave it\n")
	require.Contains(t, b.out.String(), "All of it is in: r1\n")

	err = newBench().say(t.Context(), cluster, cfg, &explaining{tenant: "acme", pod: "q"}, asked, nil)
	require.ErrorContains(t, err, "--pod-name: reading pod q of namespace web of the tenant: ")
	require.Equal(t, 1, cli.ExitCode(err))
}

// TestRebalance: a dry run writes nothing, and else each move is ordered once.
func TestRebalance(t *testing.T) {
	t.Parallel()
	spread := builders.Placement(vctest.AcmeRoot, "spread").Slice("cpu", "30").Quota("cpu", "60").Held("r1", 1, "cpu", "30").Held("r2", 1, "cpu", "30").Obj()
	fuller := builders.Placement(vctest.BetaRoot, "fuller").Slice("cpu", "30").Quota("cpu", "30").Held("r1", 1, "cpu", "30").Obj()
	cluster := metaCluster(t, vctest.SuperNode("r1"), vctest.SuperNode("r2"), spread, fuller)
	cfg, err := (&Profiles{}).Load()
	require.NoError(t, err)
	placements := func() (found []string) {
		list := &schedulerv1alpha1.NamespacePlacementList{}
		require.NoError(t, cluster.List(t.Context(), list))
		for i := range list.Items {
			found = append(found, list.Items[i].Name+" "+list.Items[i].ResourceVersion+" "+list.Items[i].Annotations[schedulerv1alpha1.AnnotationMove])
		}
		return found
	}
	before := placements()
	for _, dry := range []cli.DryRun{cli.DryRunClient, cli.DryRunServer} {
		b := newBench()
		require.NoError(t, b.move(t.Context(), cluster, cfg, &rebalancing{most: 10, dry: dry}))
		require.Contains(t, b.out.String(), "1 slice from r2 to r1")
		require.Equal(t, before, placements(), "nothing is written")
		require.Equal(t, dry == cli.DryRunServer, strings.Contains(b.told.String(), "1 move ordered (server dry run): "))
	}
	b := newBench()
	require.NoError(t, b.move(t.Context(), cluster, cfg, &rebalancing{most: 10, dry: cli.DryRunNone, format: cli.OutputJSON}))
	require.Contains(t, b.out.String(), `"moves": "1 slice from r2 to r1"`)
	require.Equal(t, "1 move ordered: vc-scheduler says in an Event of each namespace what comes of it\n", b.told.String())
	require.Contains(t, strings.Join(placements(), "\n"), `"placements":{"r1":2,"r2":0}`)
}
