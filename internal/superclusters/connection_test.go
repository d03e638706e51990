package superclusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

// served is a connection whose nodes and pods are known at once, as informers would take time.
type served struct{ *connection }

func (s *served) Serve(ctx context.Context, ready func()) error {
	ready()
	return s.publish(ctx, usage.NewLedger(), s.ownedID())
}

func superClusterInfo(id string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: schedulerv1alpha1.SuperClusterInfoNamespace, Name: schedulerv1alpha1.SuperClusterInfoName},
		Data:       map[string]string{schedulerv1alpha1.SuperClusterInfoKey: id},
	}
}

// kubeSystem is the namespace that identifies a super cluster.
func kubeSystem(uid types.UID) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}
}

// recorded is the virtual Node r1 of a super cluster with that UID, "" for none.
func recorded(uid string) *corev1.Node {
	node := builders.VirtualNode("r1").Obj()
	if uid != "" {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, schedulerv1alpha1.AnnotationSuperClusterUID, uid)
	}
	return node
}

// TestDeadServer lets a super cluster fall silent while it is served, and come back.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inMeta := builders.Client(scheme.Scheme).WithStatusSubresource(&corev1.Node{}).Build()
		controller := &Controller{Client: inMeta}
		controller.setDefaults()
		inSuper := builders.Clientset(superClusterInfo("r1"), kubeSystem("uid-r1"))
		var dead atomic.Bool
		inSuper.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return dead.Load(), nil, errors.New("connection refused")
		})
		supervisor := engage.Supervisor[*served]{Kind: "cluster", HealthPeriod: probePeriod, LongestDelay: longestDelay}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- supervisor.Start(ctx) }()
		defer func() {
			cancel()
			require.NoError(t, <-ended)
		}()
		current := func() tenancy.Reason {
			name := types.NamespacedName{Namespace: "default", Name: "first"}
			state, running := supervisor.Ensure(name, "1", func() *served {
				conn := controller.connect(name, &rest.Config{Host: "https://r1"}, usage.Declared{})
				conn.client = inSuper
				return &served{conn}
			})
			require.True(t, running)
			return failureOf(state)
		}
		require.Empty(t, current())

		ready := func() corev1.ConditionStatus {
			var node corev1.Node
			require.NoError(t, inMeta.Get(t.Context(), client.ObjectKey{Name: "r1"}, &node))
			return node.Status.Conditions[0].Status
		}
		renewed := func() time.Time {
			var lease coordinationv1.Lease
			require.NoError(t, inMeta.Get(t.Context(), client.ObjectKey{Namespace: leaseNamespace, Name: "r1"}, &lease))
			return lease.Spec.RenewTime.Time
		}
		synctest.Wait()
		start := time.Now()
		require.Equal(t, corev1.ConditionTrue, ready())
		require.True(t, renewed().Equal(start))

		<-time.After(probePeriod + 1)
		require.True(t, renewed().Equal(start.Add(probePeriod)), "each probe renews the lease")

		dead.Store(true)
		<-time.After(probePeriod)
		require.Equal(t, corev1.ConditionTrue, ready(), "it is asked a second time")
		<-time.After(probePause)
		require.Equal(t, corev1.ConditionUnknown, ready())
		require.Equal(t, ReasonUnreachable, current().Reason)
		<-time.After(time.Hour)
		require.True(t, renewed().Equal(start.Add(probePeriod)), "the lease of a dead server is not renewed")

		dead.Store(false)
		<-time.After(probePeriod)
		require.Equal(t, corev1.ConditionTrue, ready())
		require.Empty(t, current())
		require.LessOrEqual(t, time.Since(renewed()), probePeriod)
	})
}

// TestVersion: the virtual Node says which version of Kubernetes the super cluster has, as it is upgraded. One that
// Superpool does not work with gets nothing new.
func TestVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inMeta := builders.Client(scheme.Scheme).WithStatusSubresource(&corev1.Node{}).Build()
		controller := &Controller{Client: inMeta}
		controller.setDefaults()
		inSuper := builders.Clientset(superClusterInfo("r1"), kubeSystem("uid-r1"))
		var says atomic.Value
		inSuper.PrependReactor("get", "version", func(clienttesting.Action) (bool, runtime.Object, error) {
			inSuper.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: says.Load().(string)}
			return says.Load() == "", nil, errors.New("it is forbidden")
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		defer func() {
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
		}()
		conn := controller.connect(types.NamespacedName{Namespace: "default", Name: "first"}, &rest.Config{Host: "https://r1"}, usage.Declared{})
		conn.client = inSuper
		outside := func(text string) string {
			parsed, err := skew.Parse(text)
			require.NoError(t, err)
			return fmt.Sprintf("True %s %s. Nothing new is sent there, and what runs there goes on", parsed.Outside().Reason, parsed.Outside().Message)
		}
		for i, tc := range []struct{ says, want, wantCondition string }{
			{says: "", wantCondition: "Unknown VersionUnknown The version of the API server is not known: it is forbidden"},
			{says: "1.x", wantCondition: `Unknown VersionUnknown The version of the API server is not known: it says version "1.x", which is none of Kubernetes 1`},
			{says: "v1.32.1", want: "v1.32.1", wantCondition: outside("v1.32.1")},
			{says: "", want: "v1.32.1", wantCondition: outside("v1.32.1")},
			{says: fmt.Sprintf("v1.%d.0", skew.Ours()), want: fmt.Sprintf("v1.%d.0", skew.Ours())},
			{says: "v1.99.0", want: "v1.99.0", wantCondition: outside("v1.99.0")},
			{says: "none", want: "v1.99.0", wantCondition: outside("v1.99.0")},
		} {
			says.Store(tc.says)
			if i == 0 {
				require.NoError(t, conn.Connect(ctx))
				go func() { ended <- (&served{conn}).Serve(ctx, func() {}) }()
			} else {
				require.NoError(t, conn.Probe(ctx))
			}
			synctest.Wait()
			node := &corev1.Node{}
			require.NoError(t, inMeta.Get(ctx, client.ObjectKey{Name: "r1"}, node))
			require.Equal(t, tc.want, node.Status.NodeInfo.KubeletVersion)
			got := ""
			if condition := findCondition(node, schedulerv1alpha1.NodeVersionSkew); condition != nil {
				got = fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, condition.Message)
			}
			require.Equal(t, tc.wantCondition, got)
			isClosed := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
				return taint == corev1.Taint{Key: schedulerv1alpha1.TaintVersionSkew, Effect: corev1.TaintEffectNoSchedule}
			})
			require.Equal(t, strings.HasPrefix(got, "True"), isClosed)
			require.Equal(t, corev1.ConditionTrue, findCondition(node, corev1.NodeReady).Status)
		}
	})
}

// TestBackWithinSeconds: a super cluster that is back is Ready 5 seconds later at most, however long it was silent and
// whatever its silence was like, while it is served and before.
func TestBackWithinSeconds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ hangs, fromStart bool }{
		"refuses connections":                {},
		"hangs":                              {hangs: true},
		"refuses connections from the start": {fromStart: true},
		"hangs from the start":               {hangs: true, fromStart: true},
	} {
		for after := range 20 { // at any moment of the periods
			silent := 10*time.Minute + time.Duration(after)*time.Second
			t.Run(fmt.Sprintf("%s, for %s", name, silent), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					inMeta := builders.Client(scheme.Scheme).WithStatusSubresource(&corev1.Node{}).Build()
					controller := &Controller{Client: inMeta}
					controller.setDefaults()
					inSuper := builders.Clientset(superClusterInfo("r1"), kubeSystem("uid-r1"))
					var dead atomic.Bool
					dead.Store(tc.fromStart)
					inSuper.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
						if !dead.Load() {
							return false, nil, nil
						}
						if tc.hangs {
							<-time.After(probeTimeout)
						}
						return true, nil, errors.New("no answer")
					})
					supervisor := engage.Supervisor[*served]{
						Kind: "cluster", HealthPeriod: probePeriod, LongestDelay: longestDelay, RetryPeriod: controller.supervisor.RetryPeriod,
					}
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- supervisor.Start(ctx) }()
					defer func() {
						cancel()
						require.NoError(t, <-ended)
					}()
					name := types.NamespacedName{Namespace: "default", Name: "first"}
					_, running := supervisor.Ensure(name, "1", func() *served {
						conn := controller.connect(name, &rest.Config{Host: "https://r1"}, usage.Declared{})
						conn.client = inSuper
						return &served{conn}
					})
					require.True(t, running)
					<-time.After(time.Minute)
					dead.Store(true)
					<-time.After(silent)
					dead.Store(false)
					<-time.After(5 * time.Second)
					synctest.Wait()
					node := &corev1.Node{}
					require.NoError(t, inMeta.Get(t.Context(), client.ObjectKey{Name: "r1"}, node))
					require.Equal(t, corev1.ConditionTrue, node.Status.Conditions[0].Status)
				})
			})
		}
	}
}

// TestRefusesWhileServed: a super cluster that answers, and has too much to do or lets nobody read, is not asked every
// second. Its Node says so.
func TestRefusesWhileServed(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"403": apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no role")),
		"429": apierrors.NewTooManyRequests("later", 1),
		"500": apierrors.NewInternalError(errors.New("etcd is full")),
		"503": apierrors.NewServiceUnavailable("shutting down"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newServedBed(t)
				h.answer(nil)
				h.ensure()
				<-time.After(time.Minute)
				h.answer(refusal)
				before := h.asked.Load()
				<-time.After(10 * time.Minute)
				synctest.Wait()
				require.InDelta(t, 10*time.Minute/probePeriod, h.asked.Load()-before, 2, "once in a period, and a second time at first")
				require.Equal(t, corev1.ConditionUnknown, h.ready().Status)
				require.Equal(t, ReasonSuperClusterRefuses, h.ready().Reason)
				require.Equal(t, ReasonSuperClusterRefuses, h.ensure().Reason.Reason)
				h.answer(nil)
				<-time.After(probePeriod)
				synctest.Wait()
				require.Equal(t, corev1.ConditionTrue, h.ready().Status)

				h.answer(errors.New("connection refused"))
				<-time.After(time.Minute + retryPeriod/2)
				h.answer(refusal) // as one that starts
				<-time.After(retryPeriod)
				h.answer(nil)
				<-time.After(5 * time.Second)
				synctest.Wait()
				require.Equal(t, corev1.ConditionTrue, h.ready().Status, "it is asked twice before it counts as one that refuses")

				h.answer(errors.New("connection refused"))
				<-time.After(time.Minute + retryPeriod/2)
				h.answer(refusal) // as one that starts slowly
				<-time.After(probePeriod / 2)
				h.answer(nil)
				<-time.After(2 * retryPeriod)
				synctest.Wait()
				require.Equal(t, corev1.ConditionTrue, h.ready().Status, "after a silence it is asked every second")
			})
		})
	}
}

// TestSilenceIsWrittenOnce: the virtual Node of a super cluster whose errors differ at each try is not written each
// time.
func TestSilenceIsWrittenOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newServedBed(t)
		h.ensure()
		<-time.After(time.Minute)
		h.answer(errors.New("connection refused"))
		<-time.After(time.Minute)
		synctest.Wait()
		before, tries := h.written.Load(), h.asked.Load()
		for port := range 600 {
			h.answer(fmt.Errorf("read tcp 10.0.0.5:%d->10.0.0.6:6443: connection reset by peer", 30000+port))
			<-time.After(time.Second)
		}
		require.Greater(t, h.asked.Load()-tries, int64(500))
		require.LessOrEqual(t, h.written.Load()-before, int64(1))
		require.Contains(t, h.ready().Message, "read tcp 10.0.0.6:6443: connection reset by peer")
	})
}

// TestRestoredAgainAndAgain: a super cluster whose versions go back often is connected all the time, but for seconds.
func TestRestoredAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newServedBed(t)
		version := 1_000_000
		h.super.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return true, &corev1.NamespaceList{
				ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(version)}, Items: []corev1.Namespace{*kubeSystem("uid-r1")},
			}, nil
		})
		h.ensure()
		for i := range 10 {
			<-time.After(5 * time.Minute)
			require.Equal(t, tenancyv1alpha1.ReasonConnected, h.ensure().Reason.Reason, i)
			h.mu.Lock()
			version--
			h.mu.Unlock()
			noticed := false
			for end := time.Now().Add(probePeriod + longestDelay); time.Now().Before(end); <-time.After(time.Second / 2) {
				noticed = noticed || h.ensure().Reason.Reason == engage.ReasonRestored
			}
			require.True(t, noticed, i)
			require.Equal(t, tenancyv1alpha1.ReasonConnected, h.ensure().Reason.Reason, i)
		}
	})
}

// TestMetaClusterDoesNotAnswer: a super cluster answers, and the meta cluster does not say whose it is. It is asked
// with backoff, and the super cluster is not lost.
func TestMetaClusterDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"no answer": context.DeadlineExceeded,
		"a refusal": apierrors.NewTooManyRequests("later", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newServedBed(t)
				var asked atomic.Int64
				h.writer.reader = builders.Client(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
					Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
						asked.Add(1)
						return err
					},
				}).Build()
				h.ensure()
				<-time.After(10 * time.Minute)
				require.InDelta(t, 10*time.Minute/longestDelay, asked.Load(), 5)
				require.Equal(t, ReasonOwnerUnknown, h.ensure().Reason.Reason)
			})
		})
	}
}

// servedBed is a connection to super cluster r1 in a bubble of synctest.
type servedBed struct {
	*Controller
	t          *testing.T
	super      *fake.Clientset
	supervisor *engage.Supervisor[*served]
	asked      atomic.Int64 // requests to the super cluster
	written    atomic.Int64 // the statuses of virtual Nodes
	mu         sync.Mutex
	err        error
}

func newServedBed(t *testing.T) *servedBed {
	t.Helper()
	h := &servedBed{t: t, super: builders.Clientset(superClusterInfo("r1"), kubeSystem("uid-r1"))}
	h.Controller = &Controller{Client: builders.Client(scheme.Scheme).WithStatusSubresource(&corev1.Node{}).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
		) error {
			h.written.Add(1)
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		},
	}).Build()}
	h.setDefaults()
	h.super.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		h.asked.Add(1)
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.err != nil, nil, h.err
	})
	h.supervisor = &engage.Supervisor[*served]{
		Kind: "cluster", HealthPeriod: probePeriod, LongestDelay: longestDelay, RetryPeriod: h.Controller.supervisor.RetryPeriod,
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.supervisor.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return h
}

// answer makes the super cluster answer with an error, or as it is.
func (h *servedBed) answer(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// ensure connects, and returns the state of the connection.
func (h *servedBed) ensure() engage.State {
	h.t.Helper()
	state, running := h.supervisor.Ensure(firstCluster, "1", func() *served {
		conn := h.connect(firstCluster, &rest.Config{Host: "https://r1"}, usage.Declared{})
		conn.client = h.super
		return &served{conn}
	})
	require.True(h.t, running)
	return state
}

// ready returns the condition Ready of the virtual Node.
func (h *servedBed) ready() corev1.NodeCondition {
	h.t.Helper()
	node := &corev1.Node{}
	require.NoError(h.t, h.Client.Get(h.t.Context(), client.ObjectKey{Name: "r1"}, node))
	return node.Status.Conditions[0]
}

// TestOutcomesOfConnect gives super clusters every id that they must not have.
func TestOutcomesOfConnect(t *testing.T) {
	t.Parallel()
	ordinary := builders.Node("r1").Obj()
	for _, tc := range []struct {
		name    string
		id      string // "" for no ConfigMap
		node    *corev1.Node
		owned   string // the id that another Cluster owns
		refused bool   // the super cluster answers nothing
		want    string // the reason, "" for success
	}{
		{name: "free", id: "r1"},
		{name: "no id", want: ReasonSuperClusterInfoMissing},
		{name: "no name of a Node", id: "R_1", want: ReasonInvalidID},
		{name: "an ordinary Node has its name", id: "r1", node: ordinary, want: ReasonNodeConflict},
		{name: "another Cluster owns it", id: "r1", owned: "r1", want: ReasonDuplicateID},
		{name: "the same as before", id: "r1", node: recorded("uid-r1")},
		{name: "not recorded yet", id: "r1", node: recorded("")},
		{name: "another super cluster had it before", id: "r1", node: recorded("uid-of-another"), want: ReasonSuperClusterChanged},
		{name: "another Cluster owns another", id: "r1", owned: "r2"},
		{name: "no answer", id: "r1", refused: true, want: ReasonUnreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			builder := builders.Client(scheme.Scheme)
			if tc.node != nil {
				builder = builder.WithObjects(tc.node.DeepCopy())
			}
			controller := &Controller{Client: builder.Build()}
			controller.setDefaults()
			if tc.owned != "" {
				require.Empty(t, controller.owners.acquire(types.NamespacedName{Name: "other"}, tc.owned, types.NamespacedName{}, nil, false))
			}
			inSuper := builders.Clientset(kubeSystem("uid-r1"))
			if tc.id != "" {
				require.NoError(t, inSuper.Tracker().Add(superClusterInfo(tc.id)))
			}
			inSuper.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return tc.refused, nil, errors.New("connection refused")
			})
			conn := controller.connect(types.NamespacedName{Name: "mine"}, &rest.Config{Host: "https://r1"}, usage.Declared{})
			conn.client = inSuper
			err := conn.Connect(t.Context())
			got := ""
			var failed *engage.Failure
			switch {
			case errors.As(err, &failed):
				got = failed.Reason.Reason
			case err != nil:
				got = ReasonUnreachable
			}
			require.Equal(t, tc.want, got, err)
			require.Equal(t, tc.want == "", conn.ownedID() == "r1")
		})
	}
}

// TestSilentWhileItIsRead: a super cluster that falls silent while it is read for the first time counts as unreachable
// as soon as a probe has failed, not when the lists are given up.
func TestSilentWhileItIsRead(t *testing.T) {
	t.Parallel()
	controller := &Controller{Client: builders.Client(scheme.Scheme).Build()}
	controller.setDefaults()
	inSuper := builders.Clientset(superClusterInfo("r1"), kubeSystem("uid-r1"))
	conn := controller.connect(types.NamespacedName{Name: "mine"}, &rest.Config{Host: "https://r1"}, usage.Declared{})
	conn.client = inSuper
	require.NoError(t, conn.Connect(t.Context()))
	require.NoError(t, conn.Probe(t.Context()))
	inSuper.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	var failed *engage.Failure
	require.ErrorAs(t, conn.Probe(t.Context()), &failed)
	require.True(t, failed.Final, "Serve ends")
	require.Equal(t, ReasonUnreachable, failed.Reason.Reason)

	conn.publishes.Store(true)
	require.Error(t, conn.Probe(t.Context()))
	require.NotErrorAs(t, conn.Probe(t.Context()), &failed, "Serve goes on, and publishes that")
}

// TestIDChangesWhileServed: a super cluster that gives itself another id is connected anew.
func TestIDChangesWhileServed(t *testing.T) {
	t.Parallel()
	controller := &Controller{Client: builders.Client(scheme.Scheme).Build()}
	controller.setDefaults()
	info := superClusterInfo("r1")
	inSuper := builders.Clientset(info, kubeSystem("uid-r1"))
	conn := controller.connect(types.NamespacedName{Name: "mine"}, &rest.Config{Host: "https://r1"}, usage.Declared{})
	conn.client = inSuper
	require.NoError(t, conn.Connect(t.Context()))
	require.NoError(t, conn.Probe(t.Context()))
	info = info.DeepCopy()
	info.Data[schedulerv1alpha1.SuperClusterInfoKey] = "r2"
	_, err := inSuper.CoreV1().ConfigMaps(info.Namespace).Update(t.Context(), info, metav1.UpdateOptions{})
	require.NoError(t, err)
	var failed *engage.Failure
	require.ErrorAs(t, conn.Probe(t.Context()), &failed)
	require.True(t, failed.Final)
	require.Equal(t, "the super cluster's id was r1 and is r2 now", failed.Message)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, conn.Serve(ended, func() {}), "Serve is called after each success of Connect, to release the id")
	require.Empty(t, conn.ownedID())
	require.Empty(t, controller.owners.acquire(types.NamespacedName{Name: "other"}, "r1", types.NamespacedName{}, nil, false))
}

// TestAnotherSuperClusterWhileServed: what answers under the same address and id is another cluster, or one that was
// restored from a backup.
func TestAnotherSuperClusterWhileServed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, uid, version, want string
	}{
		{name: "the same", uid: "uid-r1", version: "11"},
		{name: "another", uid: "uid-of-another", version: "11", want: ReasonSuperClusterChanged},
		{name: "restored", uid: "uid-r1", version: "9", want: engage.ReasonRestored},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			controller := &Controller{Client: builders.Client(scheme.Scheme).Build()}
			controller.setDefaults()
			answer := &corev1.NamespaceList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}, Items: []corev1.Namespace{*kubeSystem("uid-r1")}}
			inSuper := builders.Clientset(superClusterInfo("r1"))
			inSuper.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, answer, nil })
			conn := controller.connect(types.NamespacedName{Name: "mine"}, &rest.Config{Host: "https://r1"}, usage.Declared{})
			conn.client = inSuper
			require.NoError(t, conn.Connect(t.Context()))
			answer = &corev1.NamespaceList{ListMeta: metav1.ListMeta{ResourceVersion: tc.version}, Items: []corev1.Namespace{*kubeSystem(types.UID(tc.uid))}}
			err := conn.Probe(t.Context())
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			var failed *engage.Failure
			require.ErrorAs(t, err, &failed)
			require.True(t, failed.Final, "informers list anew")
			require.Equal(t, tc.want, failed.Reason.Reason)
		})
	}
}

// TestMayNotRead: a super cluster that answers, and lets vc-scheduler read no claims, is not one that is lost.
func TestMayNotRead(t *testing.T) {
	t.Parallel()
	conn := (&Controller{}).connect(types.NamespacedName{Name: "mine"}, &rest.Config{Host: "https://r1"}, usage.Declared{})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "", errors.New("no role"))
	var failed *engage.Failure
	require.ErrorAs(t, conn.ended(fmt.Errorf("reading nodes, pods, quotas and claims: %w", forbidden)), &failed)
	require.Equal(t, ReasonSuperClusterRefuses, failed.Reason.Reason)
	require.Contains(t, failed.Message, "persistentvolumeclaims is forbidden")
	require.ErrorIs(t, conn.ended(context.Canceled), context.Canceled)
	require.Equal(t, nodeConflict("r1"), conn.ended(nodeConflict("r1")))
}

// TestNameless: a super cluster that loses the ConfigMap with its id is not Ready, and its Node says why.
func TestNameless(t *testing.T) {
	t.Parallel()
	inMeta := builders.Client(scheme.Scheme).WithStatusSubresource(&corev1.Node{}).Build()
	controller := &Controller{Client: inMeta}
	controller.setDefaults()
	inSuper := builders.Clientset(superClusterInfo("r1"), kubeSystem("uid-r1"))
	conn := controller.connect(types.NamespacedName{Name: "mine"}, &rest.Config{Host: "https://r1"}, usage.Declared{})
	conn.client = inSuper
	require.NoError(t, conn.Connect(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = conn.publish(ctx, usage.NewLedger(), "r1") })
	defer running.Wait()
	defer cancel()
	ready := func() string {
		var node corev1.Node
		if err := inMeta.Get(t.Context(), client.ObjectKey{Name: "r1"}, &node); err != nil || len(node.Status.Conditions) == 0 {
			return ""
		}
		return string(node.Status.Conditions[0].Status) + "/" + node.Status.Conditions[0].Reason
	}
	require.Eventually(t, func() bool { return ready() == "True/"+ReasonNoNodes }, 10*time.Second, time.Millisecond)
	require.NoError(t, inSuper.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "kube-system", schedulerv1alpha1.SuperClusterInfoName))
	require.Error(t, conn.Probe(t.Context()))
	require.Eventually(t, func() bool { return ready() == "Unknown/"+ReasonSuperClusterInfoMissing }, 10*time.Second, time.Millisecond)
}

// TestPanicOfAnEventHandler: what a super cluster sends can make the ledger panic, on a goroutine of an informer. The
// connection fails.
func TestPanicOfAnEventHandler(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		first bool // it panics on the first list, else once work runs
	}{{name: "on the first list", first: true}, {name: "while serving"}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inSuper := builders.Clientset()
			node := builders.Node("n1").Obj()
			if tc.first {
				inSuper = builders.Clientset(node)
			}
			var none *usage.Ledger // its methods panic
			err := runInformers(t.Context(), inSuper, none, func() {}, func(ctx context.Context) error {
				if !tc.first {
					_, err := inSuper.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
					require.NoError(t, err)
				}
				<-ctx.Done()
				return ctx.Err()
			})
			var failed *engage.Failure
			require.ErrorAs(t, err, &failed)
			require.Equal(t, engage.ReasonPanicked, failed.Reason.Reason)
		})
	}
}
