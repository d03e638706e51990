package pool

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/vctest"
)

// bench is a command line on a meta cluster in memory, with what is said of it.
type bench struct {
	*verbs
	cluster   client.WithWatch
	out, told bytes.Buffer
	// writes is how often a Node was written, dry runs included.
	writes int
	// after is called after a Node was patched, nil for nothing.
	after func(t *testing.T, b *bench, node *corev1.Node)
	// before is called before a Node is patched, once.
	before func()
}

func newBench(t *testing.T, answer string, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, schedulerv1alpha1.AddToScheme(scheme))
	b := &bench{}
	b.cluster = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&corev1.Node{}).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if before := b.before; before != nil {
				b.before = nil
				before()
			}
			data, err := patch.Data(object)
			require.NoError(t, err)
			require.Contains(t, string(data), `"resourceVersion"`, "nothing is written by a stale read")
			b.writes++
			if err := c.Patch(ctx, object, patch, options...); err != nil {
				return err
			}
			if node, is := object.(*corev1.Node); is && b.after != nil {
				b.after(t, b, node)
			}
			return nil
		},
	}).Build()
	b.verbs = &verbs{&cli.CLI{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(answer), Out: &b.out, ErrOut: &b.told}}}
	return b
}

// node returns a virtual Node as it is.
func (b *bench) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	require.NoError(t, b.cluster.Get(t.Context(), client.ObjectKey{Name: name}, node))
	return node
}

// keeps says whether a super cluster is drained, as vc-scheduler does.
func keeps(t *testing.T, b *bench, node *corev1.Node) {
	t.Helper()
	live := b.node(t, node.Name)
	live.Status.Conditions = slices.DeleteFunc(live.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == schedulerv1alpha1.NodeDrained })
	if superclusters.NodeStateOf(live).Drained {
		vctest.IsLeft(live)
	}
	require.NoError(t, b.cluster.Status().Update(t.Context(), live))
}

func changeNamed(t *testing.T, verb string) *nodeChange {
	t.Helper()
	all := nodeChanges()
	at := slices.IndexFunc(all, func(change nodeChange) bool { return strings.HasPrefix(change.use, verb+" ") })
	require.GreaterOrEqual(t, at, 0, verb)
	return &all[at]
}

// TestNodeChanges: what cordon, uncordon and undrain change, and what they refuse. Dry runs write nothing.
func TestNodeChanges(t *testing.T) {
	t.Parallel()
	worker := vctest.SuperNode("n1")
	delete(worker.Labels, schedulerv1alpha1.LabelVirtualNode)
	drainedToo := vctest.Tainted("example.com/x", corev1.TaintEffectNoExecute)
	for name, test := range map[string]struct {
		verb   string
		node   *corev1.Node
		want   *corev1.Node // as before, where it is nil
		past   string
		refuse string
	}{
		"cordon":                    {verb: "cordon", node: vctest.SuperNode("r1"), want: vctest.SuperNode("r1", vctest.Cordoned), past: "cordoned"},
		"cordon again":              {verb: "cordon", node: vctest.SuperNode("r1", vctest.Cordoned), past: "unchanged"},
		"uncordon":                  {verb: "uncordon", node: vctest.SuperNode("r1", vctest.Cordoned, vctest.Drains), want: vctest.SuperNode("r1", vctest.Drains), past: "uncordoned"},
		"undrain":                   {verb: "undrain", node: vctest.SuperNode("r1", vctest.Cordoned, vctest.Drains), want: vctest.SuperNode("r1", vctest.Cordoned), past: "undrained"},
		"undrain again":             {verb: "undrain", node: vctest.SuperNode("r1", vctest.Tainted("maintenance", corev1.TaintEffectNoSchedule)), past: "unchanged"},
		"somebody else drains, too": {verb: "undrain", node: vctest.SuperNode("r1", drainedToo, vctest.Drains), want: vctest.SuperNode("r1", drainedToo), past: "undrained", refuse: "node/r1: taint example.com/x drains it, too: kubectl taint node r1 example.com/x:NoExecute-"},
		"no super cluster":          {verb: "cordon", node: worker, refuse: "super cluster n1: node/n1 is a node of the meta cluster, and no super cluster: kubectl vc pool"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, dry := range []cli.DryRun{cli.DryRunClient, cli.DryRunServer, cli.DryRunNone} {
				b := newBench(t, "", test.node.DeepCopy())
				before := b.node(t, test.node.Name)
				err := b.changeOne(t.Context(), b.cluster, changeNamed(t, test.verb), test.node.Name, dry)
				if test.refuse == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, test.refuse)
				}
				if test.past != "" {
					require.Equal(t, "node/"+test.node.Name+" "+test.past+dry.Suffix()+"\n", b.out.String())
				}
				if dry != cli.DryRunNone || test.want == nil {
					require.Equal(t, before.ResourceVersion, b.node(t, test.node.Name).ResourceVersion, "nothing is written")
					continue
				}
				require.Empty(t, cmp.Diff(test.want.Spec, b.node(t, test.node.Name).Spec))
			}
		})
	}
	b := newBench(t, "", vctest.SuperNode("r1"))
	require.EqualError(t, b.changeOne(t.Context(), b.cluster, changeNamed(t, "cordon"), "r2", cli.DryRunNone), "super cluster r2: there is no super cluster r2: kubectl vc pool")
}

// TestChangeNodeBesideOthers: what somebody else changes meanwhile stays, and a Node that is no super cluster any more is
// refused.
func TestChangeNodeBesideOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t, "", vctest.SuperNode("r1"))
	b.before = func() {
		node := b.node(t, "r1")
		vctest.Tainted("example.com/gpu", corev1.TaintEffectNoSchedule)(node)
		require.NoError(t, b.cluster.Update(t.Context(), node))
	}
	_, changed, err := changeNode(t.Context(), b.cluster, "r1", cli.DryRunNone, wishDrained)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, 2, b.writes)
	require.Empty(t, cmp.Diff(vctest.SuperNode("r1", vctest.Tainted("example.com/gpu", corev1.TaintEffectNoSchedule), vctest.Drains).Spec, b.node(t, "r1").Spec))

	b.before = func() {
		node := b.node(t, "r1")
		delete(node.Labels, schedulerv1alpha1.LabelVirtualNode)
		require.NoError(t, b.cluster.Update(t.Context(), node))
	}
	_, _, err = changeNode(t.Context(), b.cluster, "r1", cli.DryRunNone, wishUndrained)
	require.ErrorContains(t, err, "is a node of the meta cluster")
	require.True(t, superclusters.NodeStateOf(b.node(t, "r1")).Drained)
}

// TestHowFarASuperClusterIs: what is waited for, by what is said of the virtual Node as it is now.
func TestHowFarASuperClusterIs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node *corev1.Node
		of   func(*corev1.Node) cli.State
		want cli.State
	}{
		"nobody has seen the drain":      {node: vctest.SuperNode("r1", vctest.Drains), of: drainedSoFar, want: cli.State{Says: "waiting for vc-scheduler: kubectl -n vc-manager get pods"}},
		"it is drained":                  {node: vctest.SuperNode("r1", vctest.Drains, vctest.IsNotLeft), of: drainedSoFar, want: cli.State{Says: "Namespaces that are still placed here: 2"}},
		"nothing is there":               {node: vctest.SuperNode("r1", vctest.Drains, vctest.IsLeft), of: drainedSoFar, want: cli.State{Done: true, Says: "No namespace is placed here"}},
		"it is not drained any more":     {node: vctest.SuperNode("r1", vctest.IsLeft), of: drainedSoFar, want: cli.State{Refused: true, Says: "somebody has undrained it"}},
		"it is used again":               {node: vctest.SuperNode("r1"), of: inUse, want: cli.State{Done: true, Says: "it is in use again"}},
		"nobody has seen the end":        {node: vctest.SuperNode("r1", vctest.IsLeft), of: inUse, want: cli.State{Says: "waiting for vc-scheduler to see that it is not drained"}},
		"it is not Ready":                {node: vctest.SuperNode("r1", vctest.Silent), of: inUse, want: cli.State{Says: "no route to host"}},
		"nothing new goes there":         {node: vctest.SuperNode("r1", vctest.Says(schedulerv1alpha1.NodeVersionSkew, corev1.ConditionTrue, "TooNew", "v1.99 is too new")), of: inUse, want: cli.State{Says: "v1.99 is too new"}},
		"it has not begun":               {node: vctest.SuperNode("r1", func(node *corev1.Node) { node.Status.Conditions = nil }), of: inUse, want: cli.State{Says: "waiting for vc-scheduler: kubectl -n vc-manager get pods"}},
		"it is drained by somebody":      {node: vctest.SuperNode("r1", vctest.Drains, vctest.IsLeft), of: inUse, want: cli.State{Refused: true, Says: "somebody has drained it again"}},
		"it is drained by another taint": {node: vctest.SuperNode("r1", vctest.Tainted("x", corev1.TaintEffectNoExecute)), of: inUse, want: cli.State{Refused: true, Says: "taint x drains it, too: kubectl taint node r1 x:NoExecute-"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, cmp.Diff(test.want, test.of(test.node), cmp.AllowUnexported(cli.State{})))
		})
	}
}

// crowded returns a pool of two super clusters: web fits into r2, and large does not.
func crowded() []client.Object {
	return []client.Object{
		vctest.SuperNode("r1"), vctest.SuperNode("r2"),
		builders.Placement("acme", "web").Slice("cpu", "1").Quota("cpu", "2").Held("r1", 2, "cpu", "2").Obj(),
		builders.Placement("acme", "large").Slice("cpu", "90").Quota("cpu", "90").Held("r1", 1, "cpu", "90").Obj(),
		builders.Placement("beta", "other").Slice("cpu", "50").Quota("cpu", "50").Held("r2", 1, "cpu", "50").Obj(),
	}
}

func quickly(timeout time.Duration) draining {
	return draining{Waiting: cli.Waiting{Wait: true, Timeout: timeout}, dry: cli.DryRunNone}
}

// TestDrainAsks: what would not fit is told before anything is written, and exit code 3 is that of a dry run.
func TestDrainAsks(t *testing.T) {
	t.Parallel()
	for _, dry := range []cli.DryRun{cli.DryRunClient, cli.DryRunServer} {
		b, d := newBench(t, "", crowded()...), quickly(0)
		before := b.node(t, "r1").ResourceVersion
		d.dry = dry
		err := b.drainOne(t.Context(), b.cluster, "r1", &d)
		require.EqualError(t, err, "1 of 2 namespaces does not fit")
		require.Equal(t, 3, cli.ExitCode(err))
		require.Contains(t, b.out.String(), "\nnode/r1 drained"+dry.Suffix()+"\n")
		require.Contains(t, b.out.String(), "r1=2 -> r2=2")
		require.Equal(t, before, b.node(t, "r1").ResourceVersion, "nothing is written")

		b.out.Reset()
		err = b.rolling(t.Context(), b.cluster, &d)
		require.EqualError(t, err, "super cluster r1: 1 of 2 namespaces does not fit", "the first of them")
		require.Equal(t, 3, cli.ExitCode(err))
		require.Contains(t, b.out.String(), "Super cluster r2:\n", "the others are tried all the same")
	}

	b, d := newBench(t, "n\n", crowded()...), quickly(0)
	require.EqualError(t, b.drainOne(t.Context(), b.cluster, "r1", &d), "nothing was changed")
	require.Contains(t, b.told.String(), "1 namespace of super cluster r1 would not fit elsewhere, and stay there until there is room:\n  acme/large waits for cpu=90: ")
	require.Zero(t, b.writes)

	b = newBench(t, "y\n", crowded()...)
	require.ErrorContains(t, b.drainOne(t.Context(), b.cluster, "r1", &d), "node/r1 is not drained after 0s: waiting for vc-scheduler")
	require.True(t, superclusters.NodeStateOf(b.node(t, "r1")).Drained, "what was wished for stays wished for")
	b.told.Reset()
	require.ErrorContains(t, b.drainOne(t.Context(), b.cluster, "r1", &d), "it goes on to be drained: kubectl vc pool r1 says what stays and why")
	require.NotContains(t, b.told.String(), "would not fit", "it is asked once")
	require.Equal(t, 1, b.writes, "a second drain waits")

	d.isSure, d.Wait = true, false
	b = newBench(t, "", crowded()...)
	require.NoError(t, b.drainOne(t.Context(), b.cluster, "r1", &d))
	require.Equal(t, "node/r1 draining\n", b.out.String())
	require.EqualError(t, b.drainOne(t.Context(), b.cluster, "r3", &d), "there is no super cluster r3: kubectl vc pool")
}

// TestDrainBesideWhatWaits: what waits in any case, to grow or elsewhere, is no reason to ask, and what has begun to leave and
// waits for room is one of exit code 3.
func TestDrainBesideWhatWaits(t *testing.T) {
	t.Parallel()
	grows := builders.Placement("acme", "grows").Slice("cpu", "1").Quota("cpu", "300").Held("r1", 2, "cpu", "2").Obj()
	elsewhere := builders.Placement("beta", "new").Slice("cpu", "200").Quota("cpu", "200").Obj()
	b, d := newBench(t, "", vctest.SuperNode("r1"), vctest.SuperNode("r2"), grows, elsewhere), quickly(0)
	d.dry = cli.DryRunClient
	require.NoError(t, b.drainOne(t.Context(), b.cluster, "r1", &d))
	require.Contains(t, b.out.String(), "r1=2 -> r2=2")
	require.Contains(t, b.told.String(), "in memory")
	d.dry, d.Wait = cli.DryRunNone, false
	require.NoError(t, b.drainOne(t.Context(), b.cluster, "r1", &d))

	stuck := vctest.Leaving(builders.Placement("acme", "stuck").Slice("cpu", "90").Quota("cpu", "90").Held("r1", 1, "cpu", "90").Obj(), schedulerv1alpha1.LeavingDrained, "cpu", "90")
	other := builders.Placement("beta", "other").Slice("cpu", "50").Quota("cpu", "50").Held("r2", 1, "cpu", "50").Obj()
	b, d = newBench(t, "", vctest.SuperNode("r1", vctest.Drains, vctest.IsNotLeft), vctest.SuperNode("r2"), stuck, other), quickly(0)
	d.dry = cli.DryRunClient
	err := b.drainOne(t.Context(), b.cluster, "r1", &d)
	require.EqualError(t, err, "1 of 1 namespaces does not fit")
	require.Equal(t, 3, cli.ExitCode(err))
}

// TestDrainWithNobodyToAsk: what does not fit is said where nobody can answer.
func TestDrainWithNobodyToAsk(t *testing.T) {
	t.Parallel()
	b, d := newBench(t, "", crowded()...), quickly(0)
	nobody, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { require.NoError(t, nobody.Close()) }()
	b.In = nobody
	require.EqualError(t, b.drainOne(t.Context(), b.cluster, "r1", &d), "nobody is there to ask: use --yes")
	require.Contains(t, b.told.String(), "acme/large waits for cpu=90")
	require.Zero(t, b.writes)
}

// TestDrainWaits: it is said what has not left, and a condition of the drain before ends nothing.
func TestDrainWaits(t *testing.T) {
	t.Parallel()
	b, d := newBench(t, "", crowded()...), quickly(0)
	d.isSure = true
	b.after = keeps // though namespaces are there
	require.ErrorContains(t, b.drainOne(t.Context(), b.cluster, "r1", &d), "node/r1 is not drained after 0s: waiting for vc-scheduler")
	b.after = func(t *testing.T, b *bench, node *corev1.Node) {
		t.Helper()
		live := b.node(t, node.Name)
		vctest.IsNotLeft(live)
		require.NoError(t, b.cluster.Status().Update(t.Context(), live))
	}
	b.told.Reset()
	require.ErrorContains(t, b.drainOne(t.Context(), b.cluster, "r2", &d), "Namespaces that are still placed here: 2")
	require.Equal(t, "   0s  Namespaces that are still placed here: 2\n       beta/other: cpu=50: it is not to leave yet\n", b.told.String())

	b.after = keeps
	lists := 0
	counted := interceptor.NewClient(b.cluster, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		lists++
		return c.List(ctx, list, options...)
	}})
	require.NoError(t, b.changeOne(t.Context(), b.cluster, changeNamed(t, "undrain"), "r1", cli.DryRunNone))
	d.Timeout = 3 * cli.LookPeriod
	require.ErrorContains(t, b.drainOne(t.Context(), counted, "r1", &d), "waiting for vc-scheduler")
	require.Equal(t, 1, lists, "all NamespacePlacements are not listed at each look")
	d.Timeout = 0

	b.after = nil
	require.NoError(t, b.changeOne(t.Context(), b.cluster, changeNamed(t, "undrain"), "r2", cli.DryRunNone))
	b.after = func(t *testing.T, b *bench, _ *corev1.Node) {
		t.Helper()
		b.after = nil
		require.NoError(t, b.changeOne(t.Context(), b.cluster, changeNamed(t, "undrain"), "r2", cli.DryRunNone))
	}
	require.EqualError(t, b.drainOne(t.Context(), b.cluster, "r2", &d), "node/r2: somebody has undrained it")

	b = newBench(t, "", vctest.SuperNode("r1"), vctest.SuperNode("r2"))
	b.after = keeps
	require.NoError(t, b.drainOne(t.Context(), b.cluster, "r1", &d))
	require.Equal(t, "node/r1 drained\n", b.out.String())

	ctx, cancel := context.WithCancel(t.Context())
	b.after = func(*testing.T, *bench, *corev1.Node) { cancel() } // as Ctrl-C does
	d.Timeout = time.Minute
	require.ErrorIs(t, b.drainOne(ctx, b.cluster, "r2", &d), context.Canceled)
	require.True(t, superclusters.NodeStateOf(b.node(t, "r2")).Drained)
}

// TestUnfitting: a question names what is in the super cluster and fits nowhere else, and not all of it.
func TestUnfitting(t *testing.T) {
	t.Parallel()
	waits := func(name, in string) simulation.Namespace {
		return simulation.Namespace{Tenant: "acme", Name: name, Change: simulation.Waits, Before: map[string]int32{in: 1}, Stays: []string{in}, Missing: "cpu=1", Why: "no\x1b[2Jroom"}
	}
	report := &simulation.Report{Namespaces: []simulation.Namespace{waits("elsewhere", "r2"), {Tenant: "acme", Name: "moves", Change: simulation.Moves, Before: map[string]int32{"r1": 1}}}}
	require.Empty(t, unfitting(report, "r1"))
	for range 12 {
		report.Namespaces = append(report.Namespaces, waits("here", "r1"))
	}
	question := unfitting(report, "r1")
	require.Equal(t, 13, strings.Count(question, "\n")+1)
	require.Contains(t, question, "  acme/here waits for cpu=1: no\ufffd[2Jroom\n")
	require.Contains(t, question, "\n  and 2 more\nDrain super cluster r1?")
}

// TestTurns: super clusters in the order of their names, without those that are drained already.
func TestTurns(t *testing.T) {
	t.Parallel()
	nodes := []corev1.Node{*vctest.SuperNode("r3"), *vctest.SuperNode("r1", vctest.Drains), *vctest.SuperNode("r2", vctest.Cordoned), *vctest.SuperNode("r4", vctest.Tainted("x", corev1.TaintEffectNoExecute))}
	for from, test := range map[string]struct{ turns, left []string }{
		"":   {turns: []string{"r2", "r3"}, left: []string{"r1", "r4"}},
		"r1": {turns: []string{"r1", "r2", "r3"}, left: []string{"r4"}},
		"r3": {turns: []string{"r3"}, left: []string{"r4"}},
		"r4": {turns: []string{"r4"}},
	} {
		turns, left, err := turnsOf(nodes, from)
		require.NoError(t, err)
		require.Equal(t, test.turns, turns, from)
		require.Equal(t, test.left, left, from)
	}
	_, _, err := turnsOf(nodes, "r5")
	require.EqualError(t, err, "--from: there is no super cluster r5: kubectl vc pool")
	_, _, err = turnsOf(nodes[1:2], "")
	require.EqualError(t, err, "no super cluster is left to drain: kubectl vc pool")
}

// TestRolling: each super cluster is empty while the command runs, and in use before the next one. What fails stops it, and
// says how to go on.
func TestRolling(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	b := newBench(t, "", vctest.SuperNode("r1"), vctest.SuperNode("r2"), vctest.SuperNode("r3"), vctest.SuperNode("r4", vctest.Drains, vctest.IsLeft))
	b.after = func(t *testing.T, b *bench, node *corev1.Node) {
		t.Helper()
		keeps(t, b, node)
		file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		word := "undrained "
		if superclusters.NodeStateOf(node).Drained {
			word = "drained "
		}
		_, err = file.WriteString(word + node.Name + "\n")
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	logged := func() string {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		require.NoError(t, os.Remove(log))
		return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ", ")
	}
	d := quickly(time.Minute)
	d.all, d.oneByOne = true, true
	d.each = `echo "$SUPERCLUSTER" >>` + log + `; test "$SUPERCLUSTER" != 'r2'`
	err := b.rolling(t.Context(), b.cluster, &d)
	require.EqualError(t, err, "node/r2: the command of --each: exit status 1; it stays drained: kubectl vc undrain r2 has it in use again; mend that, and go on: "+
		"kubectl vc drain --all --one-by-one --from r2 --each '"+strings.ReplaceAll(d.each, "'", `'\''`)+"'")
	require.Equal(t, 1, cli.ExitCode(err))
	require.Equal(t, "drained r1, r1, undrained r1, drained r2, r2", logged())
	require.Contains(t, b.told.String(), "super cluster r4 is drained already, and is left alone")

	d.each, d.from = `echo "$SUPERCLUSTER" >>`+log, "r2"
	require.NoError(t, b.rolling(t.Context(), b.cluster, &d))
	require.Equal(t, "r2, undrained r2, drained r3, r3, undrained r3", logged(), "r2 was drained before")
	require.True(t, superclusters.NodeStateOf(b.node(t, "r4")).Drained)

	d.from, d.dry = "", cli.DryRunClient
	writes := b.writes
	require.NoError(t, b.rolling(t.Context(), b.cluster, &d))
	require.Equal(t, writes, b.writes)
	require.Contains(t, b.out.String(), "Super cluster r3:\n\nTENANT")

	d.dry, d.Timeout = cli.DryRunNone, 0
	b.after = func(t *testing.T, b *bench, node *corev1.Node) {
		t.Helper()
		if superclusters.NodeStateOf(node).Drained {
			keeps(t, b, node)
		}
	}
	err = b.rolling(t.Context(), b.cluster, &d)
	require.ErrorContains(t, err, "node/r1 is not in use again after 0s: waiting for vc-scheduler to see that it is not drained; it is not drained any more; mend that, and go on: kubectl vc drain --all --one-by-one --from r2 ")
}

// TestRollingBesideOthers: a super cluster that somebody else drains meanwhile stays drained, and the next one is left as it
// is.
func TestRollingBesideOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t, "", vctest.SuperNode("r1"), vctest.SuperNode("r2"), vctest.SuperNode("r3"))
	b.after = func(t *testing.T, b *bench, node *corev1.Node) {
		t.Helper()
		keeps(t, b, node)
		if other := b.node(t, "r2"); !superclusters.NodeStateOf(other).Drained {
			vctest.Drains(other)
			require.NoError(t, b.cluster.Update(t.Context(), other))
			keeps(t, b, other)
		}
	}
	d := quickly(time.Minute)
	d.all, d.oneByOne, d.each = true, true, "true"
	err := b.rolling(t.Context(), b.cluster, &d)
	require.ErrorContains(t, err, "node/r2: somebody else has drained it meanwhile, and it is left alone; mend that, and go on: kubectl vc drain --all --one-by-one --from r3 ")
	require.True(t, superclusters.NodeStateOf(b.node(t, "r2")).Drained, "it is not ours to undrain")
	require.False(t, superclusters.NodeStateOf(b.node(t, "r3")).Drained)
	require.Equal(t, "node/r1 drained\nnode/r1 undrained\n", b.out.String())
}

// TestDrainAcrossConflicts: a Node that never stops changing is told of.
func TestDrainAcrossConflicts(t *testing.T) {
	t.Parallel()
	b := newBench(t, "", vctest.SuperNode("r1"))
	cluster := interceptor.NewClient(b.cluster, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "r1", nil)
	}})
	d := quickly(0)
	d.isSure = true
	require.ErrorContains(t, b.drainOne(t.Context(), cluster, "r1", &d), "super cluster r1: Operation cannot be fulfilled on nodes")
}
