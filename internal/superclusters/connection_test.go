package superclusters

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metafake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

// served is a connection whose nodes and pods are known at once, as informers would take time.
type served struct{ *connection }

func (s *served) Serve(ctx context.Context, ready func()) error {
	ready()
	return s.publish(ctx, NewLedger(), s.ownedID())
}

// TestDeadServer lets a super cluster fall silent while it is served, and come back.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inMeta := metafake.NewClientBuilder().WithStatusSubresource(&corev1.Node{}).Build()
		controller := &Controller{Client: inMeta}
		controller.setDefaults()
		inSuper := fake.NewClientset(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: schedulerv1alpha1.SuperClusterInfoNamespace, Name: schedulerv1alpha1.SuperClusterInfoName},
			Data:       map[string]string{schedulerv1alpha1.SuperClusterInfoKey: "r1"},
		})
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
				conn := controller.connect(name, &rest.Config{Host: "https://r1"}, Headroom{})
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
		{name: "another Cluster owns another", id: "r1", owned: "r2"},
		{name: "no answer", id: "r1", refused: true, want: ReasonUnreachable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			builder := metafake.NewClientBuilder()
			if tc.node != nil {
				builder = builder.WithObjects(tc.node.DeepCopy())
			}
			controller := &Controller{Client: builder.Build()}
			controller.setDefaults()
			if tc.owned != "" {
				require.Empty(t, controller.owners.acquire(types.NamespacedName{Name: "other"}, tc.owned, types.NamespacedName{}, nil, false))
			}
			inSuper := fake.NewClientset()
			if tc.id != "" {
				inSuper = fake.NewClientset(&corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: schedulerv1alpha1.SuperClusterInfoNamespace, Name: schedulerv1alpha1.SuperClusterInfoName},
					Data:       map[string]string{schedulerv1alpha1.SuperClusterInfoKey: tc.id},
				})
			}
			inSuper.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return tc.refused, nil, errors.New("connection refused")
			})
			conn := controller.connect(types.NamespacedName{Name: "mine"}, &rest.Config{Host: "https://r1"}, Headroom{})
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

// TestIDChangesWhileServed: a super cluster that gives itself another id is connected anew.
func TestIDChangesWhileServed(t *testing.T) {
	t.Parallel()
	controller := &Controller{Client: metafake.NewClientBuilder().Build()}
	controller.setDefaults()
	info := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: schedulerv1alpha1.SuperClusterInfoNamespace, Name: schedulerv1alpha1.SuperClusterInfoName},
		Data:       map[string]string{schedulerv1alpha1.SuperClusterInfoKey: "r1"},
	}
	inSuper := fake.NewClientset(info)
	conn := controller.connect(types.NamespacedName{Name: "mine"}, &rest.Config{Host: "https://r1"}, Headroom{})
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
			inSuper := fake.NewClientset()
			node := builders.Node("n1").Obj()
			if tc.first {
				inSuper = fake.NewClientset(node)
			}
			var none *Ledger // its methods panic
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
