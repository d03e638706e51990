package tenants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/identities"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/virtualclusters"
	"github.com/superpool/superpool/test/builders"
)

// harness drives a Controller by hand: changes of instances arrive in a channel, as they would in a queue. Tests that
// let instances run do so in a bubble of synctest, where time stands still while a goroutine can go on.
type harness struct {
	*Controller
	t       *testing.T
	events  *record.FakeRecorder
	changes chan types.NamespacedName
	// again are whether VirtualClusters are to be reconciled once more in a second, by name.
	again map[string]bool

	mu      sync.Mutex
	log     []string
	fail    error // of Engage
	dead    map[string]bool
	version string
	uids    map[string]types.UID // of control planes, by token; others lead to one
	block   chan struct{}        // when not nil, a cancelled Engage waits for it
}

func newHarness(t *testing.T, objects ...client.Object) *harness {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(scheme.AddToScheme(s), tenancyv1alpha1.AddToScheme(s), schedulerv1alpha1.AddToScheme(s)))
	h := &harness{
		t:       t,
		events:  record.NewFakeRecorder(100),
		changes: make(chan types.NamespacedName, 1000),
		again:   map[string]bool{},
		dead:    map[string]bool{},
		uids:    map[string]types.UID{},
	}
	meta := builders.Client(s).WithObjects(objects...).WithStatusSubresource(&tenancyv1alpha1.VirtualCluster{}).
		WithIndex(&tenancyv1alpha1.VirtualCluster{}, secretIndex, indexSecret).WithIndex(&tenancyv1alpha1.VirtualCluster{}, rootIndex, indexRoot).
		WithIndex(&tenancyv1alpha1.VirtualCluster{}, policyIndex, indexPolicy).
		WithIndex(&tenancyv1alpha1.VirtualCluster{}, identities.Index, identities.IndexVirtualCluster).
		WithIndex(&corev1.Namespace{}, metav1.ObjectNameField, func(object client.Object) []string { return []string{object.GetName()} }).Build()
	h.Controller = &Controller{
		Client:    meta,
		Lifecycle: &virtualclusters.Owner{Client: meta, Reader: meta, Recorder: h.events},
		Engage:    h.engage,
		probe:     h.answers,
	}
	h.setDefaults()
	h.supervisor.OnChange(func(name types.NamespacedName) { h.changes <- name })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.supervisor.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return h
}

func (h *harness) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *harness) engage(ctx context.Context, tenant *Tenant, ready func()) error {
	h.note("start %s %s", tenant.VirtualCluster.Name, tenant.Config.BearerToken)
	h.mu.Lock()
	fail, block := h.fail, h.block
	h.mu.Unlock()
	if fail != nil {
		return fail
	}
	ready()
	<-ctx.Done()
	if block != nil {
		<-block
	}
	h.note("end %s %s", tenant.VirtualCluster.Name, tenant.Config.BearerToken)
	return ctx.Err()
}

func (h *harness) answers(_ context.Context, config *rest.Config) (types.UID, string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead[config.Host] {
		return "", "", errors.New("connection refused")
	}
	if uid, exists := h.uids[config.BearerToken]; exists {
		return uid, h.version, nil
	}
	return "kube-system", h.version, nil
}

// setVersion sets the resource version that all control planes are at.
func (h *harness) setVersion(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version = version
}

// lead says which control plane a token leads to.
func (h *harness) lead(token string, uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uids[token] = uid
}

func (h *harness) setDead(host string, dead bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead[host] = dead
}

func (h *harness) setFail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail = err
}

func (h *harness) reconcile(name string) reconcile.Result {
	h.t.Helper()
	result, err := h.Reconcile(h.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}})
	require.NoError(h.t, err)
	h.again[name] = result.RequeueAfter == time.Second
	return result
}

// settle lets the instances run until each of them waits, and reconciles what they changed, until nothing changes. The
// bubble's own.
//
// A connection and a reconcile may write a VirtualCluster at the same moment. The one that comes second tries again: a
// connection after some 10 ms (retry.DefaultRetry), a reconcile after a second.
func (h *harness) settle() {
	h.t.Helper()
	h.drain()
	<-time.After(50 * time.Millisecond)
	h.drain()
	for name, again := range maps.Clone(h.again) {
		if again {
			<-time.After(time.Second)
			h.reconcile(name)
			h.drain()
		}
	}
}

func (h *harness) drain() {
	h.t.Helper()
	for {
		synctest.Wait()
		select {
		case name := <-h.changes:
			h.reconcile(name.Name)
		default:
			return
		}
	}
}

// pass lets time go by, then settles.
func (h *harness) pass(duration time.Duration) {
	h.t.Helper()
	<-time.After(duration)
	h.settle()
}

func (h *harness) logged() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.log...)
}

func (h *harness) ready(name string) string {
	h.t.Helper()
	var vc tenancyv1alpha1.VirtualCluster
	require.NoError(h.t, h.Client.Get(h.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &vc))
	condition := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionReady)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + "/" + condition.Reason
}

// key returns the cluster key of a VirtualCluster.
func (h *harness) key(name string) string {
	h.t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{}
	require.NoError(h.t, h.Client.Get(h.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, vc))
	return vc.Status.ClusterNamespace
}

// secretWith holds the kubeconfig of a control plane for a token, by which the harness tells connections apart.
func secretWith(name, token string) *corev1.Secret {
	return builders.KubeconfigSecret(name, builders.Kubeconfig("https://"+name+":6443", token))
}

func TestBadSecrets(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		secret *corev1.Secret
		want   string
	}{
		{name: "none", want: tenancyv1alpha1.ReasonSecretNotFound},
		{name: "no key", secret: &corev1.Secret{Data: map[string][]byte{"other": nil}}, want: tenancyv1alpha1.ReasonSecretNotFound},
		{name: "empty", secret: &corev1.Secret{Data: map[string][]byte{"value": nil}}, want: tenancyv1alpha1.ReasonInvalidKubeconfig},
		{name: "nonsense", secret: &corev1.Secret{Data: map[string][]byte{"value": []byte("{{{")}}, want: tenancyv1alpha1.ReasonInvalidKubeconfig},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				objects := []client.Object{builders.VirtualCluster("bad"), builders.VirtualCluster("good"), secretWith("good", "t1")}
				if tc.secret != nil {
					tc.secret.Namespace, tc.secret.Name = "default", "bad"
					objects = append(objects, tc.secret)
				}
				h := newHarness(t, objects...)
				h.reconcile("bad")
				h.reconcile("good")
				h.settle()
				require.Equal(t, "True/Connected", h.ready("good"))
				require.Equal(t, "False/"+tc.want, h.ready("bad"))
				require.Contains(t, <-h.events.Events, "Warning "+tc.want)
				require.Equal(t, []string{"start good t1"}, h.logged())
			})
		})
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		h.block = make(chan struct{})
		h.reconcile("a")
		h.settle()
		require.Equal(t, "True/Connected", h.ready("a"))
		require.NoError(t, h.Client.Update(t.Context(), secretWith("a", "t2")))
		h.reconcile("a")
		h.settle()
		h.reconcile("a")
		h.settle()
		require.Equal(t, []string{"start a t1"}, h.logged(), "the old one has not ended")
		close(h.block)
		h.settle()
		require.Equal(t, []string{"start a t1", "end a t1", "start a t2"}, h.logged())
		require.Equal(t, "True/Connected", h.ready("a"))
		h.reconcile("a")
		h.settle()
		require.Len(t, h.logged(), 3, "nothing changed, nothing restarts")
	})
}

// TestServes has a program that works on some tenants only, and reads the kubeconfigs of those alone.
func TestServes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		var forbidden error
		reads := 0
		h.Reader = interceptor.NewClient(h.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if _, isSecret := object.(*corev1.Secret); isSecret {
					reads++
					if forbidden != nil {
						return forbidden
					}
				}
				return c.Get(ctx, key, object, options...)
			},
		})
		h.reconcile("a") // without Serves, as vc-scheduler, which writes the cluster key
		h.settle()
		serves := false
		h.Serves = func(_ context.Context, key string) (bool, time.Duration, error) {
			require.NotEmpty(t, key)
			return serves, time.Minute, nil
		}
		h.reconcile("a") // ends what runs
		h.settle()
		h.log, reads = nil, 0
		require.Equal(t, time.Minute, h.reconcile("a").RequeueAfter)
		h.settle()
		require.Empty(t, h.logged())
		require.Zero(t, reads, "its kubeconfig is nobody's business")

		serves, forbidden = true, apierrors.NewForbidden(corev1.Resource("secrets"), "a", nil)
		require.Equal(t, grantRetryAfter, h.reconcile("a").RequeueAfter, "vc-scheduler has yet to grant it")
		forbidden = nil
		h.reconcile("a")
		h.settle()
		require.Equal(t, []string{"start a t1"}, h.logged())
		require.Empty(t, h.ofPlacement(t.Context(), builders.Placement(h.key("a"), "n").Obj()), "it is served, and it is connected")

		serves = false
		require.Len(t, h.ofPlacement(t.Context(), builders.Placement(h.key("a"), "n").Obj()), 1)
		h.reconcile("a")
		h.settle()
		require.Equal(t, []string{"start a t1", "end a t1"}, h.logged())
	})
}

// TestHas has a program that works on the tenants of a shard.
func TestHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := builders.VirtualCluster("a"), builders.VirtualCluster("b")
		a.UID, b.UID = "uid-a", "uid-b"
		h := newHarness(t, a, b, secretWith("a", "t1"), secretWith("b", "t2"))
		h.Has = func(tenant types.UID) bool { return tenant == "uid-a" }
		h.reconcile("a")
		h.reconcile("b")
		h.settle()
		require.Equal(t, []string{"start a t1"}, h.logged())
	})
}

// TestControlPlaneChanged gives a tenant the kubeconfig of another control plane by mistake, takes that back, and then
// means it.
func TestControlPlaneChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		h.lead("other", "another")
		h.reconcile("a")
		h.settle()
		require.Equal(t, "True/Connected", h.ready("a"))
		rotate := func(token string) {
			require.NoError(t, h.Client.Update(t.Context(), secretWith("a", token)))
			h.reconcile("a")
			h.settle()
		}
		rotate("other")
		require.Equal(t, "False/ControlPlaneChanged", h.ready("a"))
		h.pass(time.Hour)
		require.Equal(t, []string{"start a t1", "end a t1"}, h.logged(), "the other one is not looked at")
		rotate("t2")
		require.Equal(t, "True/Connected", h.ready("a"))
		require.Equal(t, []string{"start a t1", "end a t1", "start a t2"}, h.logged())

		rotate("other")
		require.Equal(t, "False/ControlPlaneChanged", h.ready("a"))
		var vc tenancyv1alpha1.VirtualCluster
		require.NoError(t, h.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, &vc))
		message := meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionReady).Message
		_, patch, found := strings.Cut(message, "--type=merge -p ")
		require.True(t, found, message)
		require.NoError(t, h.Client.Status().Patch(t.Context(), &vc, client.RawPatch(types.MergePatchType, []byte(strings.Trim(patch, "'")))))
		h.pass(longestDelay + healthPeriod)
		require.Equal(t, "True/Connected", h.ready("a"))
		require.Equal(t, "start a other", h.logged()[len(h.logged())-1])
	})
}

// newSharedHarness is newHarness for VirtualClusters whose kubeconfigs lead to one control plane, in a meta cluster
// that knows what each control plane is.
func newSharedHarness(t *testing.T, objects ...client.Object) *harness {
	t.Helper()
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "meta"}}
	h := newHarness(t, append(objects, system, secretWith("a", "t1"), secretWith("b", "t2"))...)
	h.identities = &identities.Registry{Live: h.Client, Cached: h.Client, Indexed: true}
	return h
}

// created returns a VirtualCluster that was created at a moment and records a control plane, "" for none.
func created(name string, seconds int64, recorded types.UID) *tenancyv1alpha1.VirtualCluster {
	vc := builders.VirtualCluster(name)
	vc.CreationTimestamp, vc.Status.ControlPlaneUID = metav1.Unix(seconds, 0), recorded
	return vc
}

// TestDuplicateControlPlane: nothing is engaged for a second VirtualCluster of one control plane before the first one
// is gone.
func TestDuplicateControlPlane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSharedHarness(t, created("a", 1, ""), created("b", 2, ""))
		for _, name := range []string{"a", "b"} {
			h.reconcile(name)
			h.settle()
		}
		h.pass(time.Hour)
		require.Equal(t, "True/Connected", h.ready("a"))
		require.Equal(t, "False/DuplicateControlPlane", h.ready("b"))
		require.Equal(t, []string{"start a t1"}, h.logged())
		vc := &tenancyv1alpha1.VirtualCluster{}
		require.NoError(t, h.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "b"}, vc))
		require.Contains(t, meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionReady).Message, "VirtualCluster default/a")
		require.Empty(t, vc.Status.ControlPlaneUID, "no other program connects")

		require.NoError(t, h.Client.Delete(t.Context(), created("a", 1, "")))
		h.reconcile("a")
		h.settle()
		require.True(t, apierrors.IsNotFound(h.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, vc)))
		h.pass(longestDelay * 2)
		require.Equal(t, "True/Connected", h.ready("b"))
		require.Equal(t, []string{"start a t1", "end a t1", "start b t2"}, h.logged())
	})
}

// TestRecordedTwice: of two VirtualClusters that record one control plane, as a version recorded it that compared
// nothing, or as both record it at once, the older one keeps it.
func TestRecordedTwice(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]string{"the older one first": {"a", "b"}, "the younger one first": {"b", "a"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newSharedHarness(t, created("a", 1, "kube-system"), created("b", 2, "kube-system"))
				for _, name := range order {
					h.reconcile(name)
					h.settle()
				}
				require.Equal(t, "True/Connected", h.ready("a"))
				require.Equal(t, "False/DuplicateControlPlane", h.ready("b"))
				require.Equal(t, []string{"start a t1"}, h.logged())
			})
		})
	}
}

// TestRecordedMeanwhile: an older VirtualCluster turns out to have recorded the control plane that a connection is on.
func TestRecordedMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newSharedHarness(t, created("b", 2, ""))
		h.reconcile("b")
		h.settle()
		require.Equal(t, "True/Connected", h.ready("b"))
		require.NoError(t, h.Client.Create(t.Context(), created("a", 1, "kube-system")))
		h.pass(healthPeriod)
		require.Equal(t, "False/DuplicateControlPlane", h.ready("b"))
		require.Equal(t, []string{"start b t2", "end b t2"}, h.logged())
	})
}

// TestNoTenants: neither the meta cluster nor a super cluster is a tenant.
func TestNoTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r1 := builders.VirtualNode("r1").Obj()
		r1.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperClusterUID: "uid-r1"}
		h := newSharedHarness(t, created("a", 1, ""), created("b", 2, ""), r1)
		h.lead("t1", "meta")
		h.lead("t2", "uid-r1")
		for _, name := range []string{"a", "b"} {
			h.reconcile(name)
			h.settle()
			require.Equal(t, "False/DuplicateControlPlane", h.ready(name))
		}
		require.Empty(t, h.logged())
		require.NoError(t, h.Client.Delete(t.Context(), r1))
		h.pass(longestDelay * 2)
		require.Equal(t, "True/Connected", h.ready("b"))
		require.Equal(t, "False/DuplicateControlPlane", h.ready("a"))
	})
}

// TestSyncersKnowAllSuperClusters: a syncer, whose cache has the virtual Node of its own super cluster alone, does not
// connect to a control plane that both a VirtualCluster and an older super cluster record.
func TestSyncersKnowAllSuperClusters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r2 := builders.VirtualNode("r2").Obj()
		r2.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperClusterUID: "kube-system"}
		h := newSharedHarness(t, created("a", 1, ""), r2)
		h.identities = nil // of a version that compared nothing
		h.reconcile("a")
		h.settle()
		require.Equal(t, "True/Connected", h.ready("a"))

		live := h.Client
		h.Reader, h.Lifecycle = live, virtualclusters.Reader{Reader: live}
		h.Client = interceptor.NewClient(live.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, nodes := list.(*corev1.NodeList); nodes {
					return nil
				}
				return to.List(ctx, list, options...)
			},
		})
		serves := false
		h.Serves = func(context.Context, string) (bool, time.Duration, error) { return serves, 0, nil }
		h.identities = h.registry()
		h.reconcile("a")
		h.settle()
		serves = true
		h.reconcile("a")
		h.pass(2 * longestDelay)
		require.Equal(t, []string{"start a t1", "end a t1"}, h.logged())
		require.NoError(t, live.Delete(t.Context(), r2))
		h.pass(4 * longestDelay)
		require.Equal(t, []string{"start a t1", "end a t1", "start a t1"}, h.logged())
	})
}

// TestAnotherAnswers: behind one address another control plane answers from now on.
func TestAnotherAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		h.reconcile("a")
		h.settle()
		h.lead("t1", "another")
		h.pass(healthPeriod)
		require.Equal(t, "False/ControlPlaneChanged", h.ready("a"))
		h.pass(time.Hour)
		require.Equal(t, []string{"start a t1", "end a t1"}, h.logged())
		h.lead("t1", "kube-system")
		h.pass(2 * longestDelay)
		require.Equal(t, "True/Connected", h.ready("a"))
	})
}

func TestHealthAndBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		h.setDead("https://a:6443", true)
		h.reconcile("a")
		h.settle()
		require.Equal(t, "False/Unreachable", h.ready("a"))
		h.setDead("https://a:6443", false)
		h.pass(time.Second / 2)
		require.Equal(t, "False/Unreachable", h.ready("a"), "it is not asked again at once")
		h.pass(time.Second)
		require.Equal(t, "True/Connected", h.ready("a"))

		h.setDead("https://a:6443", true)
		h.pass(healthPeriod)
		require.Equal(t, "False/Unreachable", h.ready("a"))
		h.setDead("https://a:6443", false)
		h.pass(healthPeriod)
		require.Equal(t, "True/Connected", h.ready("a"))
		require.Equal(t, []string{"start a t1"}, h.logged(), "the instance goes on")
	})
}

// TestPausedTenant: the work on it goes on while it gives back what it holds, and ends then. Its control plane need not
// answer any more.
func TestPausedTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		h.Lifecycle.(*virtualclusters.Owner).Runs = func(context.Context, string) ([]string, bool) { return nil, true }
		pause := func(paused bool) {
			vc := &tenancyv1alpha1.VirtualCluster{}
			require.NoError(t, h.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, vc))
			vc.Spec.Paused = paused
			require.NoError(t, h.Client.Update(t.Context(), vc))
			h.reconcile("a")
			h.settle()
		}
		h.reconcile("a")
		h.settle()
		held := builders.Placement(h.key("a"), "web").Obj()
		require.NoError(t, h.Client.Create(t.Context(), held))
		policy := h.policies.ref(types.NamespacedName{Namespace: "default", Name: "a"})
		pause(true)
		require.Equal(t, "True/Connected", h.ready("a"))
		require.True(t, policy.Paused(), "who works on it knows")
		require.Equal(t, []string{"start a t1"}, h.logged(), "nothing restarts")

		held.Spec.Paused = true
		require.NoError(t, h.Client.Update(t.Context(), held))
		h.reconcile("a")
		h.setDead("https://a:6443", true)
		h.reconcile("a") // its own status is an event
		h.settle()
		require.Equal(t, "False/Paused", h.ready("a"))
		require.Equal(t, []string{"start a t1", "end a t1"}, h.logged())

		h.setDead("https://a:6443", false)
		pause(false)
		h.reconcile("a")
		h.settle()
		require.Equal(t, "True/Connected", h.ready("a"))
		require.False(t, policy.Paused())
	})
}

// TestRestored: the resource versions of a control plane go back, as after it was restored from a backup. The work on
// it ends and starts anew, which lists everything.
func TestRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		h.setVersion("200")
		h.reconcile("a")
		h.settle()
		h.setVersion("300")
		h.pass(2 * healthPeriod)
		require.Equal(t, []string{"start a t1"}, h.logged())
		h.setVersion("250")
		h.pass(healthPeriod + 2*time.Second)
		require.Equal(t, []string{"start a t1", "end a t1", "start a t1"}, h.logged())
		require.Equal(t, "True/Connected", h.ready("a"))
		h.pass(3 * healthPeriod)
		require.Len(t, h.logged(), 3, "once")
	})
}

// TestVersionSkew: a tenant whose control plane Superpool does not work with is told so, and served as before.
func TestVersionSkew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		var says atomic.Value
		h.Version = func(context.Context, *rest.Config) (skew.Version, error) { return skew.Parse(says.Load().(string)) }
		says.Store("v1.30.1")
		h.reconcile("a")
		h.settle()
		condition := func() *metav1.Condition {
			vc := &tenancyv1alpha1.VirtualCluster{}
			require.NoError(t, h.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, vc))
			return meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionVersionSkew)
		}
		told := condition()
		require.NotNil(t, told)
		require.Equal(t, []any{metav1.ConditionTrue, tenancyv1alpha1.ReasonVersionTooOld}, []any{told.Status, told.Reason})
		require.Contains(t, told.Message, "has Kubernetes 1.30.1, and Superpool, built from 1.")
		var events []string
		for len(h.events.Events) > 0 {
			events = append(events, <-h.events.Events)
		}
		require.Contains(t, events, "Warning VersionTooOld "+told.Message)

		says.Store("what")
		h.pass(2 * healthPeriod)
		require.Equal(t, told, condition(), "what it said last holds")

		says.Store(fmt.Sprintf("v1.%d.0", skew.Ours()))
		h.pass(healthPeriod + time.Second)
		require.Nil(t, condition(), "it was upgraded")
		require.Equal(t, "True/Connected", h.ready("a"))
		require.Equal(t, []string{"start a t1"}, h.logged())
		require.Empty(t, h.events.Events)
	})
}

// TestRestoredAgainAndAgain: a control plane whose resource version goes back at each probe has everything listed ever
// more rarely, not twice a minute.
func TestRestoredAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		h.setVersion("1000000")
		h.reconcile("a")
		h.settle()
		starts := func() (count int) {
			for _, line := range h.logged() {
				if strings.HasPrefix(line, "start ") {
					count++
				}
			}
			return count
		}
		for at := 999999; at > 999999-24*60*4; at-- {
			h.setVersion(strconv.Itoa(at))
			h.pass(15 * time.Second)
		}
		require.Greater(t, starts(), 20)
		require.Less(t, starts(), 40)
	})
}

// TestRecognizedMeanwhile: another control plane answers and becomes the tenant's, between two probes. What was listed
// of the one before is not its.
func TestRecognizedMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		var uids []types.UID
		work := h.Engage
		h.Engage = func(ctx context.Context, tenant *Tenant, ready func()) error {
			uids = append(uids, tenant.ControlPlaneUID)
			return work(ctx, tenant, ready)
		}
		h.reconcile("a")
		h.settle()
		h.lead("t1", "another")
		vc := &tenancyv1alpha1.VirtualCluster{}
		require.NoError(t, h.Client.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "a"}, vc))
		vc.Status.ControlPlaneUID = "another"
		require.NoError(t, h.Client.Status().Update(t.Context(), vc))
		h.pass(healthPeriod + 2*time.Second)
		require.Equal(t, []types.UID{"kube-system", "another"}, uids)
	})
}

func TestEngageFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		h.setFail(errors.New("boom"))
		h.reconcile("a")
		h.settle()
		require.Equal(t, "False/Unreachable", h.ready("a"))
		h.pass(time.Hour)
		tries := len(h.logged())
		require.InDelta(t, time.Hour/longestDelay, tries, 10, "each try waits longer than the one before it, up to longestDelay")
		h.setFail(nil)
		h.pass(2 * longestDelay)
		require.Equal(t, "True/Connected", h.ready("a"))
		require.Len(t, h.logged(), tries+1)
	})
}

// TestEngagePanics: work that panics on the input of one tenant is a state of that tenant, and another tenant does not
// notice.
func TestEngagePanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("hostile"), secretWith("hostile", "t1"), builders.VirtualCluster("good"), secretWith("good", "t2"))
		work := h.Engage
		var mended atomic.Bool
		h.Engage = func(ctx context.Context, tenant *Tenant, ready func()) error {
			if tenant.VirtualCluster.Name == "hostile" && !mended.Load() {
				ready()
				panic("s3cret")
			}
			return work(ctx, tenant, ready)
		}
		h.reconcile("good")
		h.reconcile("hostile")
		h.settle()
		require.Equal(t, "True/Connected", h.ready("good"))
		require.Equal(t, "False/Panicked", h.ready("hostile"))
		h.pass(time.Hour)
		require.Equal(t, "False/Panicked", h.ready("hostile"))
		require.Equal(t, []string{"start good t2"}, h.logged(), "the good one goes on")
		warned := 0
		for range len(h.events.Events) {
			event := <-h.events.Events
			require.NotContains(t, event, "s3cret")
			if strings.HasPrefix(event, "Warning Panicked ") {
				warned++
			}
		}
		require.NotZero(t, warned)
		mended.Store(true)
		h.pass(2 * longestDelay)
		require.Equal(t, "True/Connected", h.ready("hostile"))
	})
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		h.reconcile("a")
		h.settle()
		require.Equal(t, "True/Connected", h.ready("a"))
		vc := &tenancyv1alpha1.VirtualCluster{}
		require.NoError(t, h.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"}, vc))
		require.Contains(t, vc.Finalizers, virtualclusters.FinalizerPlacements)
		key := vc.Status.ClusterNamespace
		placement := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: key, Name: "web", Finalizers: []string{"x/y"}}}
		require.NoError(t, h.Client.Create(t.Context(), placement))

		require.NoError(t, h.Client.Delete(t.Context(), vc))
		h.reconcile("a")
		h.settle()
		require.Equal(t, []string{"start a t1", "end a t1"}, h.logged())
		require.NotZero(t, h.reconcile("a").RequeueAfter, "a placement is still there")
		require.NoError(t, h.Client.Get(t.Context(), client.ObjectKey{Name: key}, &corev1.Namespace{}))
		require.NoError(t, h.Client.Get(t.Context(), client.ObjectKeyFromObject(placement), placement))
		placement.Finalizers = nil
		require.NoError(t, h.Client.Update(t.Context(), placement))
		h.reconcile("a")
		for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key}}, vc} {
			require.True(t, apierrors.IsNotFound(h.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object)))
		}
	})
}

func TestForeignRootNamespace(t *testing.T) {
	t.Parallel()
	vc := builders.VirtualCluster("a")
	vc.Status.ClusterNamespace = "taken"
	for _, annotations := range []map[string]string{nil, {
		tenancyv1alpha1.AnnotationRootNamespace: "true", tenancyv1alpha1.AnnotationVirtualClusterUID: "another",
		tenancyv1alpha1.AnnotationVirtualClusterName: "b", tenancyv1alpha1.AnnotationVirtualClusterNamespace: "default",
	}} {
		foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "taken", Annotations: annotations}}
		h := newHarness(t, vc.DeepCopy(), secretWith("a", "t1"), foreign.DeepCopy())
		h.reconcile("a")
		require.Equal(t, "False/KeyConflict", h.ready("a"))
		require.NoError(t, h.Client.Delete(t.Context(), vc.DeepCopy()))
		h.reconcile("a")
		var left corev1.Namespace
		require.NoError(t, h.Client.Get(t.Context(), client.ObjectKey{Name: "taken"}, &left), "it is not ours to delete")
		require.Equal(t, annotations, left.Annotations)
		require.Empty(t, h.logged())
	}
}

func TestReaderNeverWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		h.Lifecycle = virtualclusters.Reader{Reader: h.Client}
		h.reconcile("a")
		require.Empty(t, h.logged(), "it waits for the cluster key")

		owner := newHarness(t, builders.VirtualCluster("a"), secretWith("a", "t1"))
		owner.setDead("https://a:6443", true)
		owner.reconcile("a")
		owner.settle()
		h.Client, h.Reader, h.Lifecycle = owner.Client, owner.Client, virtualclusters.Reader{Reader: owner.Client}
		h.reconcile("a")
		h.settle()
		require.Empty(t, h.logged(), "it waits for the control plane that is the tenant's")

		owner.setDead("https://a:6443", false)
		owner.pass(longestDelay)
		require.Equal(t, "True/Connected", owner.ready("a"))
		var before, after tenancyv1alpha1.VirtualCluster
		require.NoError(t, owner.Client.Get(t.Context(), client.ObjectKeyFromObject(builders.VirtualCluster("a")), &before))
		h.reconcile("a")
		h.settle()
		require.Equal(t, []string{"start a t1"}, h.logged())
		require.NoError(t, owner.Client.Get(t.Context(), client.ObjectKeyFromObject(builders.VirtualCluster("a")), &after))
		require.Empty(t, cmp.Diff(before, after), "it reports nothing")
	})
}

func TestServiceCIDRs(t *testing.T) {
	t.Parallel()
	vc := builders.VirtualCluster("a")
	vc.Spec.ServiceCIDRs = []string{"10.97.0.0/16", "fd00:97::/112"}
	h := newHarness(t, vc, secretWith("a", "t1"))
	tenant, before, trouble, err := h.resolve(t.Context(), vc)
	require.NoError(t, err)
	require.Empty(t, trouble)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16"), netip.MustParsePrefix("fd00:97::/112")}, tenant.ServiceCIDRs)
	vc.Spec.ServiceCIDRs = vc.Spec.ServiceCIDRs[:1]
	_, after, _, err := h.resolve(t.Context(), vc)
	require.NoError(t, err)
	require.NotEqual(t, before, after, "other addresses make another instance")
	vc.Spec.ServiceCIDRs = []string{"10.97.0.0"}
	_, _, _, err = h.resolve(t.Context(), vc)
	require.ErrorContains(t, err, "reading serviceCIDRs")
}

// TestServiceCIDRsOverlap gives two tenants the same addresses, and then one of them others.
func TestServiceCIDRsOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ranges := map[string][]string{"first": {"10.96.0.0/12"}, "second": {"fd00::/112", "10.97.0.0/16"}, "apart": {"10.112.0.0/16"}, "none": nil, "wrong": {"10.96.0.0"}}
		var objects []client.Object
		for name, cidrs := range ranges {
			vc := builders.VirtualCluster(name)
			vc.Spec.ServiceCIDRs = cidrs
			objects = append(objects, vc, secretWith(name, "t"))
		}
		h := newHarness(t, objects...)
		get := func(name string) *tenancyv1alpha1.VirtualCluster {
			var vc tenancyv1alpha1.VirtualCluster
			require.NoError(t, h.Client.Get(t.Context(), client.ObjectKeyFromObject(builders.VirtualCluster(name)), &vc))
			return &vc
		}
		overlap := func(name string) string {
			if condition := meta.FindStatusCondition(get(name).Status.Conditions, tenancyv1alpha1.ConditionServiceCIDRsOverlap); condition != nil {
				return string(condition.Status) + " " + condition.Message
			}
			return ""
		}
		for name := range ranges {
			if name != "wrong" {
				h.reconcile(name)
			}
		}
		h.pass(time.Second) // a connection whose write was a conflict tries again
		require.Contains(t, overlap("first"), "True serviceCIDRs 10.96.0.0/12 share addresses with 10.97.0.0/16 of default/second: ")
		require.Contains(t, overlap("second"), "True serviceCIDRs fd00::/112, 10.97.0.0/16 share addresses with 10.96.0.0/12 of default/first: ")
		require.Empty(t, overlap("apart"))
		require.Empty(t, overlap("none"))
		require.Equal(t, "True/Connected", h.ready("first"), "nobody is stopped for it")
		require.Equal(t, "True/Connected", h.ready("second"), "nobody is stopped for it")
		events := map[string]int{}
		for range len(h.events.Events) {
			events[strings.Join(strings.Fields(<-h.events.Events)[:2], " ")]++
		}
		require.Equal(t, map[string]int{"Warning SharedAddresses": 2, "Normal Connected": 4}, events)
		require.Equal(t, 30*time.Second, h.reconcile("first").RequeueAfter)

		first := get("first")
		first.Spec.ServiceCIDRs = []string{"10.98.0.0/16"}
		require.NoError(t, h.Client.Update(t.Context(), first))
		for _, name := range []string{"first", "second"} {
			h.reconcile(name)
			h.settle()
			require.Empty(t, overlap(name))
			require.Zero(t, h.reconcile(name).RequeueAfter)
		}
	})
}
