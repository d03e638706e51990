package kinds_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestSpecs checks what no compiler does: that names differ, that what is woken and made of something names a kind, and
// that what kind namespace clears can be found.
func TestSpecs(t *testing.T) {
	t.Parallel()
	var names []string
	for _, spec := range kinds.Specs() {
		require.NotContains(t, names, spec.Name)
		names = append(names, spec.Name)
	}
	for _, spec := range kinds.Specs() {
		t.Run(spec.Name, func(t *testing.T) {
			t.Parallel()
			require.True(t, spec.Tenant != nil || spec.Super != nil || spec.New != nil, "nothing of it is watched or reconciled")
			if spec.From != "" {
				require.Contains(t, names, spec.From)
			}
			for name := range spec.Wakes {
				require.Contains(t, names, name)
			}
			if spec.Cleared {
				require.Equal(t, kind.ScopePlaced, spec.Scope)
				require.NotNil(t, spec.Super)
			}
			if spec.New != nil {
				require.Equal(t, spec.Name, spec.New(&kind.Env{}).Name())
			}
		})
	}
}

// projecting returns a volume with one source.
func projecting(source corev1.VolumeProjection) []corev1.Volume {
	return []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}}}}
}

// TestChanged: what a change of each kind enqueues.
func TestChanged(t *testing.T) {
	t.Parallel()
	super := func(object client.Object) client.Object {
		tenancy.SetOwner(object, kindtest.OwnerOf("uid"))
		return object
	}
	named := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "-uid")}
	}
	superPod := func(node string) client.Object {
		return super(&corev1.Pod{ObjectMeta: named(kindtest.ClusterKey+"-web", "p"), Spec: corev1.PodSpec{
			NodeName: node, Volumes: projecting(corev1.VolumeProjection{Secret: &corev1.SecretProjection{}}),
		}})
	}
	tenantPod := &corev1.Pod{ObjectMeta: named("web", "p"), Spec: corev1.PodSpec{
		Volumes: projecting(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}),
	}}
	tenantService := &corev1.Service{ObjectMeta: named("web", "s")}
	quota := func(cpu string) client.Object {
		return super(&corev1.ResourceQuota{
			ObjectMeta: named(kindtest.ClusterKey+"-web", "superpool"),
			Status:     corev1.ResourceQuotaStatus{Used: corev1.ResourceList{"requests.cpu": resource.MustParse(cpu)}},
		})
	}
	unmarked := &corev1.Secret{ObjectMeta: named(kindtest.ClusterKey+"-web", "x")}
	// What is in namespace web: one Service and one pod.
	everything := []string{"namespace web", "pod web/there", "service web/s", "token web/there/there-uid"}
	withNodes := slices.Sorted(slices.Values(append([]string{"node "}, everything...))) // which say what the tenant holds
	withOffers := slices.Sorted(slices.Values(append([]string{"offer "}, withNodes...)))
	for _, tc := range []struct {
		name string
		kind.Change
		want []string
	}{
		{name: "a tenant's pod is new", Change: kind.Change{Kind: "pod", Current: tenantPod}, want: []string{"pod web/p", "token web/p/p-uid"}},
		{
			name: "a tenant's pod is gone", Change: kind.Change{Kind: "pod", Old: tenantPod},
			want: []string{"namespace web", "pod web/p", "token web/p/p-uid"},
		},
		{
			name: "a tenant's pod without tokens", want: []string{"pod web/p"},
			Change: kind.Change{Kind: "pod", Current: &corev1.Pod{
				ObjectMeta: named("web", "p"), Spec: corev1.PodSpec{Volumes: projecting(corev1.VolumeProjection{Secret: &corev1.SecretProjection{}})},
			}},
		},
		{
			name: "a super pod without tokens", want: []string{"pod web/p", "pod web/waits"},
			Change: kind.Change{Kind: "pod", Side: kind.SuperSide, Current: super(&corev1.Pod{ObjectMeta: named(kindtest.ClusterKey+"-web", "p")})},
		},
		{name: "a tenant's Service is new", Change: kind.Change{Kind: "service", Current: tenantService}, want: []string{"namespace web", "service web/s"}},
		{name: "a tenant's Service changed", Change: kind.Change{Kind: "service", Old: tenantService, Current: tenantService}, want: []string{"service web/s"}},
		{
			name: "a tenant's namespace is new", want: []string{"namespace web", "node "}, // its reconcile enqueues what is in it
			Change: kind.Change{Kind: "namespace", Current: &corev1.Namespace{ObjectMeta: named("", "web")}},
		},
		{
			name: "a tenant's namespace changed", want: []string{"namespace web", "node "},
			Change: kind.Change{Kind: "namespace", Old: &corev1.Namespace{}, Current: &corev1.Namespace{ObjectMeta: named("", "web")}},
		},
		{name: "a tenant's own Node", Change: kind.Change{Kind: "node", Current: &corev1.Node{ObjectMeta: named("", "n1")}}},
		{
			name: "a Node of ours in a tenant", want: []string{"node n1"},
			Change: kind.Change{Kind: "node", Current: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1.n1", Annotations: map[string]string{
				"tenancy.x-k8s.io/supernode": "n1",
			}}}},
		},
		{
			name: "a super pod is new", Change: kind.Change{Kind: "pod", Side: kind.SuperSide, Current: superPod("")},
			want: []string{"pod web/p", "pod web/waits", "token web/p/uid"},
		},
		{
			name: "a super pod got a node", Change: kind.Change{Kind: "pod", Side: kind.SuperSide, Old: superPod(""), Current: superPod("n1")},
			want: []string{"pod web/p"},
		},
		{
			name: "a super pod is gone", Change: kind.Change{Kind: "pod", Side: kind.SuperSide, Old: superPod("n1")},
			want: []string{"node n1", "pod web/p", "token web/p/uid"},
		},
		{name: "somebody else's object", Change: kind.Change{Kind: "secret", Side: kind.SuperSide, Current: unmarked}},
		{
			name: "the owner is removed", want: []string{"secret web/x"},
			Change: kind.Change{Kind: "secret", Side: kind.SuperSide, Old: super(&corev1.Secret{ObjectMeta: named(kindtest.ClusterKey+"-web", "x")}), Current: unmarked},
		},
		{
			name: "a super namespace changed", want: []string{"isolation web/superpool-isolation", "namespace web"},
			Change: kind.Change{Kind: "namespace", Side: kind.SuperSide, Old: super(&corev1.Namespace{ObjectMeta: named("", kindtest.ClusterKey+"-web")}), Current: super(&corev1.Namespace{ObjectMeta: named("", kindtest.ClusterKey+"-web")})},
		},
		{name: "a quota is new", Change: kind.Change{Kind: "resourcequota", Side: kind.SuperSide, Current: quota("1")}, want: append([]string{"isolation web/superpool-isolation"}, withOffers...)},
		{name: "more of a quota is used", Change: kind.Change{Kind: "resourcequota", Side: kind.SuperSide, Old: quota("1"), Current: quota("2")}},
		{
			name: "less of a quota is used", want: []string{"pod web/waits"},
			Change: kind.Change{Kind: "resourcequota", Side: kind.SuperSide, Old: quota("2"), Current: quota("1")},
		},
		{
			name: "an Event", want: []string{"event web/p.1"},
			Change: kind.Change{Kind: "event", Side: kind.SuperSide, Current: &corev1.Event{ObjectMeta: named(kindtest.ClusterKey+"-web", "p.1")}},
		},
		{
			name: "an Event is gone", Change: kind.Change{Kind: "event", Side: kind.SuperSide, Old: &corev1.Event{ObjectMeta: named(kindtest.ClusterKey+"-web", "p.1")}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			p.TenantCache[kind.Pod] = []client.Object{&corev1.Pod{ObjectMeta: named("web", "there")}, &corev1.Pod{ObjectMeta: named("db", "p")}}
			p.TenantCache[kind.Service] = []client.Object{tenantService}
			p.Env.QuotaWaiters.Add(engine.Key{Tenant: kindtest.ClusterKey, Kind: "pod", Namespace: "web", Name: "waits"})
			if tc.Side == kind.TenantSide {
				tc.Tenant = kindtest.ClusterKey
			}
			var got []string
			for _, key := range p.Env.Changed(tc.Change) {
				require.Equal(t, kindtest.ClusterKey, key.Tenant)
				name := key.Name
				if key.Namespace != "" {
					name = key.Namespace + "/" + key.Name
				}
				got = append(got, fmt.Sprintf("%s %s", key.Kind, name))
			}
			slices.Sort(got)
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

// TestInSync: what is resynced without a change that is known waits behind what is new, unless something looks undone.
func TestInSync(t *testing.T) {
	t.Parallel()
	pod := func(phase corev1.PodPhase, changes ...func(*corev1.Pod)) *corev1.Pod {
		made := builders.Pod("web", "p").Phase(phase).Obj()
		for _, change := range changes {
			change(made)
		}
		return made
	}
	deleted := func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	ready := func(pod *corev1.Pod) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	runs := pod(corev1.PodRunning, ready)
	for _, tc := range []struct {
		name          string
		tenant, super *corev1.Pod
		// away is a tenant that is not connected; unsynced are sides whose caches are not filled.
		away, unsynced, superUnsynced bool
		kind                          string
		want                          bool
	}{
		{name: "a pod that runs", tenant: runs, super: runs, want: true},
		{name: "a pod that has ended on both sides", tenant: pod(corev1.PodSucceeded), super: pod(corev1.PodSucceeded), want: true},
		{name: "a pod that has ended and is gone", tenant: pod(corev1.PodFailed), want: true},
		{name: "a pod that is lost", tenant: runs},
		{name: "a pod that is evicted", tenant: runs, super: pod(corev1.PodRunning, ready, deleted)},
		{name: "a pod that has failed", tenant: runs, super: pod(corev1.PodFailed)},
		{name: "a pod that is no longer ready", tenant: runs, super: pod(corev1.PodRunning)},
		{name: "a new pod", tenant: pod(corev1.PodPending)},
		{name: "a pod that does not run yet", tenant: pod(corev1.PodPending), super: pod(corev1.PodPending)},
		{name: "a pod that nobody has looked at", tenant: pod(""), super: pod("")},
		{name: "a pod that is being deleted", tenant: pod(corev1.PodRunning, ready, deleted), super: runs},
		{name: "a pod whose tenant is not told that it runs", tenant: pod(corev1.PodPending), super: runs},
		{name: "a pod whose tenant does not have it", super: runs},
		{name: "a pod of a tenant that is not connected", super: runs, away: true, want: true},
		{name: "a pod of a tenant that is not read yet", super: runs, unsynced: true, want: true},
		{name: "a pod that runs as its tenant knows, the super cluster is not read yet", tenant: runs, superUnsynced: true, want: true},
		{name: "a new pod, the super cluster is not read yet", tenant: pod(corev1.PodPending), superUnsynced: true},
		{name: "what neither side has told", unsynced: true, superUnsynced: true},
		{name: "a pod that is new to both", super: pod(corev1.PodPending), away: true},
		{name: "what nobody knows", away: true},
		{name: "a kind that cannot say", tenant: runs, super: runs, kind: kind.Secret},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			kindName := kind.Pod
			if tc.kind != "" {
				kindName = tc.kind
			}
			if tc.tenant != nil {
				p.TenantCache[kindName] = []client.Object{tc.tenant}
			}
			if tc.super != nil {
				copied := tc.super.DeepCopy()
				copied.Namespace = kindtest.ClusterKey + "-web"
				p.SuperCache[kindName] = []client.Object{copied}
			}
			if tc.away {
				p.Env.Tenant = func(string) *kind.Tenant { return nil }
			}
			if tc.unsynced {
				p.Tenant.Cache = kindtest.Unfilled{Cache: p.TenantCache, Of: kindName}
			}
			if tc.superUnsynced {
				p.Env.SuperCache = kindtest.Unfilled{Cache: p.SuperCache, Of: kindName}
			}
			require.Equal(t, tc.want, p.Env.InSync(engine.Key{Tenant: kindtest.ClusterKey, Kind: kindName, Namespace: "web", Name: "p"}))
		})
	}
}
