package virtualclusters

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

func newOwner(t *testing.T, objects ...client.Object) (*Owner, *record.FakeRecorder) {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(scheme.AddToScheme(s), tenancyv1alpha1.AddToScheme(s), schedulerv1alpha1.AddToScheme(s)))
	c := builders.Client(s).WithObjects(objects...).WithStatusSubresource(&tenancyv1alpha1.VirtualCluster{}).Build()
	events := record.NewFakeRecorder(10)
	return &Owner{Client: c, Reader: c, Recorder: events}, events
}

func (o *Owner) stored(t *testing.T, name string) *tenancyv1alpha1.VirtualCluster {
	t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(t, o.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, vc))
	return vc
}

// TestOwnerPrepares writes what the Reader of another process waits for, step by step.
func TestOwnerPrepares(t *testing.T) {
	t.Parallel()
	owner, _ := newOwner(t, builders.VirtualCluster("a"))
	reader := Reader{Reader: owner.Client}
	waits := func(want string) {
		t.Helper()
		got, err := reader.Prepare(t.Context(), owner.stored(t, "a"))
		require.NoError(t, err)
		require.Equal(t, want, got.Message)
	}
	waits("status.clusterNamespace is empty: waiting for vc-scheduler")

	vc := owner.stored(t, "a")
	got, err := owner.Prepare(t.Context(), vc)
	require.NoError(t, err)
	require.Empty(t, got)
	require.Contains(t, owner.stored(t, "a").Finalizers, FinalizerPlacements)
	key := owner.stored(t, "a").Status.ClusterNamespace
	require.NotEmpty(t, key)
	waits("status.controlPlaneUID is empty: waiting for vc-scheduler to connect")
	require.ErrorIs(t, reader.Recognize(t.Context(), vc, "u1"), errNotRecognized)

	require.NoError(t, owner.Recognize(t.Context(), vc, "u1"))
	require.Equal(t, types.UID("u1"), owner.stored(t, "a").Status.ControlPlaneUID)
	waits("")

	before := owner.stored(t, "a")
	_, err = owner.Prepare(t.Context(), vc)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(before, owner.stored(t, "a")), "nothing is missing, nothing is written")
	require.NoError(t, owner.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key}}))
	waits("Waiting for the root namespace " + key)
}

func TestRootConflict(t *testing.T) {
	t.Parallel()
	vc := builders.VirtualCluster("a")
	now := metav1.Now()
	for _, tc := range []struct {
		name   string
		change func(*corev1.Namespace)
		want   string // of the message; "" for no conflict
	}{
		{name: "its own", change: func(*corev1.Namespace) {}},
		{name: "being deleted", change: func(root *corev1.Namespace) { root.DeletionTimestamp = &now }, want: "Namespace key is being deleted: vc-scheduler creates it again afterwards"},
		{
			name: "no annotations", change: func(root *corev1.Namespace) { root.Annotations = nil },
			want: "Namespace key exists and was not made for this VirtualCluster: delete or rename one of them",
		},
		{
			name: "made anew", change: func(root *corev1.Namespace) { root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID] = "older" },
			want: "Namespace key belongs to VirtualCluster default/a with UID older",
		},
		{
			name: "no root namespace", change: func(root *corev1.Namespace) { delete(root.Annotations, tenancyv1alpha1.AnnotationRootNamespace) },
			want: "Namespace key belongs to VirtualCluster default/a with UID uid-a",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			root := newRoot(vc, "key")
			tc.change(root)
			want := tenancy.Reason{}
			if tc.want != "" {
				want = tenancy.Reason{Reason: tenancyv1alpha1.ReasonKeyConflict, Message: tc.want}
			}
			require.Empty(t, cmp.Diff(want, rootConflict(vc, root)))
		})
	}
}

func TestRootOwner(t *testing.T) {
	t.Parallel()
	root := newRoot(builders.VirtualCluster("a"), "key")
	got, ok := RootOwner(root)
	require.True(t, ok)
	require.Equal(t, types.NamespacedName{Namespace: "default", Name: "a"}, got)
	require.Equal(t, "restricted", root.Labels["pod-security.kubernetes.io/enforce"])
	for key := range root.Annotations {
		if key == tenancyv1alpha1.AnnotationVirtualClusterUID || key == tenancyv1alpha1.AnnotationVirtualClusterNamespace {
			continue
		}
		partial := root.DeepCopy()
		delete(partial.Annotations, key)
		_, ok := RootOwner(partial)
		require.False(t, ok, "without %s", key)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	owner, events := newOwner(t, builders.VirtualCluster("a"))
	report := func(reason, message string) time.Duration {
		t.Helper()
		again, err := owner.Report(t.Context(), owner.stored(t, "a"), tenancy.Reason{Reason: reason, Message: message}, tenancy.Reason{}, nil)
		require.NoError(t, err)
		return again
	}
	for _, tc := range []struct {
		name, reason, message string
		wantStatus            metav1.ConditionStatus
		wantEvent             string // "" for none
		wantAgain             time.Duration
	}{
		{name: "connecting", reason: tenancyv1alpha1.ReasonConnecting, message: "m1", wantStatus: metav1.ConditionFalse},
		{name: "connected", reason: tenancyv1alpha1.ReasonConnected, message: "m2", wantStatus: metav1.ConditionTrue, wantEvent: "Normal Connected m2"},
		{name: "unreachable", reason: tenancyv1alpha1.ReasonUnreachable, message: "m3", wantStatus: metav1.ConditionFalse, wantEvent: "Warning Unreachable m3"},
		{name: "another message", reason: tenancyv1alpha1.ReasonUnreachable, message: "m4", wantStatus: metav1.ConditionFalse},
		{
			name: "key conflict", reason: tenancyv1alpha1.ReasonKeyConflict, message: "m5", wantStatus: metav1.ConditionFalse,
			wantEvent: "Warning KeyConflict m5", wantAgain: conflictRetryAfter,
		},
		{name: "the same again", reason: tenancyv1alpha1.ReasonKeyConflict, message: "m5", wantStatus: metav1.ConditionFalse, wantAgain: conflictRetryAfter},
	} {
		require.Equal(t, tc.wantAgain, report(tc.reason, tc.message), tc.name)
		ready := meta.FindStatusCondition(owner.stored(t, "a").Status.Conditions, tenancyv1alpha1.ConditionReady)
		require.NotNil(t, ready, tc.name)
		require.Equal(t, []string{string(tc.wantStatus), tc.reason, tc.message}, []string{string(ready.Status), ready.Reason, ready.Message}, tc.name)
		event := ""
		select {
		case event = <-events.Events:
		default:
		}
		require.Equal(t, tc.wantEvent, event, tc.name)
	}
}

func TestReaderReportsNothing(t *testing.T) {
	t.Parallel()
	var reader Reader
	again, err := reader.Report(t.Context(), builders.VirtualCluster("a"), tenancy.Reason{Reason: tenancyv1alpha1.ReasonKeyConflict}, tenancy.Reason{}, nil)
	require.NoError(t, err)
	require.Equal(t, conflictRetryAfter, again, "the other object may go")
	again, err = reader.Report(t.Context(), builders.VirtualCluster("a"), tenancy.Reason{Reason: tenancyv1alpha1.ReasonConnected}, tenancy.Reason{}, nil)
	require.NoError(t, err)
	require.Zero(t, again)
	again, err = reader.Release(t.Context(), builders.VirtualCluster("a"))
	require.NoError(t, err)
	require.Zero(t, again)
}

// TestServiceCIDRsOfAll gives many tenants the same addresses: the message about each stays short.
func TestServiceCIDRsOfAll(t *testing.T) {
	t.Parallel()
	var objects []client.Object
	for i := range 1000 {
		vc := builders.VirtualCluster(fmt.Sprintf("t%03d", i))
		vc.Spec.ServiceCIDRs = []string{"10.96.0.0/12"}
		objects = append(objects, vc)
	}
	owner, _ := newOwner(t, objects...)
	shared, err := owner.overlap(t.Context(), builders.VirtualCluster("t000"))
	require.NoError(t, err)
	require.Equal(t, overlaps{}, shared, "this one names no range")
	vc := builders.VirtualCluster("t000")
	vc.Spec.ServiceCIDRs = []string{"10.96.0.0/12"}
	shared, err = owner.overlap(t.Context(), vc)
	require.NoError(t, err)
	require.Contains(t, shared.cidrs, "with 10.96.0.0/12 of default/t001, 10.96.0.0/12 of default/t002, 10.96.0.0/12 of default/t003, others: ")
}

// TestSharedNodePorts compares a range of node ports with those of others.
func TestSharedNodePorts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		own, other string
		want       string
	}{
		{own: "30000-30099"},
		{other: "30000-30099"},
		{own: "30000-30099", other: "30100-30199"},
		{own: "30000-30099", other: "29900-29999"},
		{own: "30000-30099", other: "30099-30099", want: "30099-30099 of default/other"},
		{own: "30000-30099", other: "29000-31000", want: "29000-31000 of default/other"},
		{own: "30000-30099", other: "30000-30000", want: "30000-30000 of default/other"},
		{own: "30000-30099", other: "nonsense"},
	} {
		vc, other := builders.VirtualCluster("vc"), builders.VirtualCluster("other")
		vc.Spec.ServiceNodePortRange, other.Spec.ServiceNodePortRange = tc.own, tc.other
		owner, _ := newOwner(t, vc, other)
		shared, err := owner.overlap(t.Context(), vc)
		require.NoError(t, err)
		require.Equal(t, tc.want != "", shared.nodePorts != "", "%+v: %s", tc, shared.nodePorts)
		require.Contains(t, shared.nodePorts, tc.want)
		require.Empty(t, shared.cidrs)
		setConditions(vc, tenancy.Reason{}, tenancy.Reason{}, nil, shared)
		require.Equal(t, tc.want != "", meta.IsStatusConditionTrue(vc.Status.Conditions, tenancyv1alpha1.ConditionServiceNodePortsOverlap))
	}
}
