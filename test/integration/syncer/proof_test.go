package syncer_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/test/await"
)

// TestProof lets what a syncer asks say that something is gone, and be wrong.
func TestProof(t *testing.T) {
	w := newWorld(t, needs{r2: true, own: true})
	t.Run("a second super cluster with the same id is refused", w.testSecondSuperCluster)
	t.Run("a lost placement is no proof", w.testLostPlacement)
	t.Run("another control plane behind the address of the tenant", w.testOtherTenant)
	t.Run("another super cluster behind the address", w.testOtherSuperCluster)
}

// address is one behind which control planes can be changed, as behind a load balancer.
type address struct {
	*httptest.Server
	behind atomic.Pointer[httputil.ReverseProxy]
	// relist is until when all watches are told that what they have seen is too old, so that informers list anew.
	relist atomic.Pointer[time.Time]
}

// ServeHTTP implements http.Handler.
func (a *address) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	if until := a.relist.Load(); until != nil && time.Now().Before(*until) && in.URL.Query().Get("watch") != "" {
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(http.StatusGone)
		_, _ = out.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"too old resource version","code":410}`))
		return
	}
	a.behind.Load().ServeHTTP(out, in)
}

func newAddress(t *testing.T, config *rest.Config) *address {
	a := &address{}
	a.Server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	a.lead(t, config)
	return a
}

// lead lets another control plane answer from now on. All connections end.
func (a *address) lead(t *testing.T, config *rest.Config) {
	t.Helper()
	transport, err := rest.TransportFor(config)
	require.NoError(t, err)
	target, err := url.Parse(config.Host)
	require.NoError(t, err)
	if target.Host == "" {
		target = &url.URL{Scheme: "https", Host: config.Host}
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = transport, -1
	proxy.ErrorHandler = func(out http.ResponseWriter, _ *http.Request, _ error) { out.WriteHeader(http.StatusBadGateway) }
	until := time.Now().Add(5 * time.Second)
	a.relist.Store(&until)
	a.behind.Store(proxy)
	a.CloseClientConnections()
}

func (a *address) config() *rest.Config { return &rest.Config{Host: a.URL} }

// runs lets a namespace be placed in r1 with a pod that runs, and a Secret.
func (w *world) runs(t *testing.T, namespace string) *schedulerv1alpha1.NamespacePlacement {
	t.Helper()
	placement := w.place(t, namespace, "r1")
	create(t, w.tenant, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "password"}, Data: map[string][]byte{"a": []byte("1")}})
	create(t, w.tenant, newPod(namespace, "pod"))
	w.runIn(t, namespace, "pod", "n1")
	appears(t, w.tenant, namespace, "pod", &corev1.Pod{}, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	appears(t, w.super, w.superName(namespace), "password", &corev1.Secret{}, nil)
	return placement
}

// stillRuns requires that nothing of what runs has made is gone, or goes.
func (w *world) stillRuns(t *testing.T, namespace string) {
	t.Helper()
	stays := func(c client.Client, namespace, name string, object client.Object) {
		t.Helper()
		require.NoError(t, c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object))
		require.Nil(t, object.GetDeletionTimestamp())
	}
	stays(w.super, "", w.superName(namespace), &corev1.Namespace{})
	stays(w.super, w.superName(namespace), "pod", &corev1.Pod{})
	stays(w.super, w.superName(namespace), "password", &corev1.Secret{})
	stays(w.tenant, namespace, "pod", &corev1.Pod{})
}

// testLostPlacement deletes NamespacePlacements while vc-scheduler does not run.
func (w *world) testLostPlacement(t *testing.T) {
	numbers, stop := w.runSyncer(t, w.superConfig)
	defer stop()
	for _, tc := range []struct {
		namespace string
		finalizer bool
	}{{namespace: "lost"}, {namespace: "held", finalizer: true}} {
		placement := w.runs(t, tc.namespace)
		if tc.finalizer {
			await.Change(t, w.meta, placement, func(np *schedulerv1alpha1.NamespacePlacement) {
				np.Finalizers = []string{schedulerv1alpha1.FinalizerUsage}
			})
		}
		require.NoError(t, w.meta.Delete(t.Context(), placement))
		patrols(t, numbers)
		w.stillRuns(t, tc.namespace)

		// It is made again, first without a status.
		if tc.finalizer {
			await.Change(t, w.meta, placement, func(np *schedulerv1alpha1.NamespacePlacement) { np.Finalizers = nil })
		}
		again := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: w.key, Name: tc.namespace}, Spec: placement.Spec}
		create(t, w.meta, again)
		patrols(t, numbers)
		w.stillRuns(t, tc.namespace)
		w.end(t, w.place(t, tc.namespace, "r1"))
		release(t, w.super, w.superName(tc.namespace), "")
	}
}

// testOtherTenant lets another, empty control plane answer for the tenant's, before anybody notices it.
func (w *world) testOtherTenant(t *testing.T) {
	at := newAddress(t, w.tenantConfig)
	r := w.startSyncer(t, w.superConfig, at.config())
	defer r.stop()
	w.runs(t, "swapped")
	at.lead(t, w.super2Config)
	// Its namespaces, and the objects in them, are listed anew: the Services of another control plane come down.
	eventually(t, func() error {
		if waits := waits(t, r); waits < 5 {
			return fmt.Errorf("%v reconciles have waited", waits)
		}
		return nil
	})
	patrols(t, r.numbers)
	w.stillRuns(t, "swapped")

	at.lead(t, w.tenantConfig)
	require.NoError(t, w.tenant.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "swapped", Name: "password"}}))
	vanishes(t, w.super, w.superName("swapped"), "password", &corev1.Secret{})
	create(t, w.tenant, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "swapped", Name: "password"}})
	appears(t, w.super, w.superName("swapped"), "password", &corev1.Secret{}, nil)
	w.stillRuns(t, "swapped")
}

// waits returns how many reconciles have waited for something.
func waits(t *testing.T, r *running) float64 {
	families, err := r.numbers.Gather()
	require.NoError(t, err)
	total := 0.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if family.GetName() == "vc_syncer_reconciles_total" && label.GetName() == "result" && label.GetValue() == "wait" {
					total += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return total
}

// testOtherSuperCluster lets another, empty control plane answer for the super cluster's: no pod of the tenant goes,
// and the syncer ends.
func (w *world) testOtherSuperCluster(t *testing.T) {
	at := newAddress(t, w.superConfig)
	r := w.startSyncer(t, at.config(), w.tenantConfig)
	defer r.stop()
	w.stillRuns(t, "swapped")
	closes(t, r.ready, "the caches are synced")
	at.lead(t, w.super2Config)
	closes(t, r.ended, "the syncer ends")
	require.ErrorIs(t, r.err, proof.ErrOther)
	w.stillRuns(t, "swapped")
}

// testSecondSuperCluster gives r2 the id of r1.
func (w *world) testSecondSuperCluster(t *testing.T) {
	_, stop := w.runSyncer(t, w.superConfig)
	w.runs(t, "first")
	stop() // r1's syncer is away: the second would lead

	info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "supercluster-info"}, Data: map[string]string{"id": "r1"}}
	require.NoError(t, w.super2.Update(t.Context(), info))
	defer func() {
		info.Data, info.ResourceVersion = map[string]string{"id": "r2"}, ""
		require.NoError(t, w.super2.Update(t.Context(), info))
	}()
	first, err := syncer.Identify(t.Context(), w.superConfig)
	require.NoError(t, err)
	second, err := syncer.Identify(t.Context(), w.super2Config)
	require.NoError(t, err)
	require.NotEqual(t, first.Lock(), second.Lock())
	recorded, err := first.Recorded(t.Context(), w.meta)
	require.NoError(t, err)
	require.True(t, recorded)

	account, err := client.New(w.accountConfig, client.Options{Scheme: w.meta.Scheme()})
	require.NoError(t, err)
	_, err = second.Recorded(t.Context(), account)
	require.ErrorIs(t, err, syncer.ErrRefused)
	require.ErrorContains(t, err, "kubectl annotate node r1 scheduler.tenancy.x-k8s.io/super-cluster-uid-")
	second.Refuse(t.Context(), account, err)
	var events corev1.EventList
	require.NoError(t, w.meta.List(t.Context(), &events, client.InNamespace("default")))
	reasons := map[string]string{}
	for i := range events.Items {
		reasons[events.Items[i].InvolvedObject.Name] = events.Items[i].Reason
	}
	require.Equal(t, "SuperClusterRefused", reasons["r1"])

	// One that was started all the same ends, and touches nothing.
	r := w.startSyncer(t, w.super2Config, w.tenantConfig)
	closes(t, r.ended, "the second syncer ends")
	require.ErrorIs(t, r.err, syncer.ErrRefused)
	r.stop()
	w.stillRuns(t, "first")

	// Nobody works on a super cluster that the meta cluster does not record yet.
	node, before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1"}}, map[string]string{}
	await.Change(t, w.meta, node, func(node *corev1.Node) { before, node.Annotations = node.Annotations, nil })
	r = w.startSyncer(t, w.super2Config, w.tenantConfig)
	require.Never(t, func() bool {
		select {
		case <-r.ended:
			return true
		default:
			return false
		}
	}, 3*time.Second, 100*time.Millisecond, "it waits")
	w.stillRuns(t, "first")
	await.Change(t, w.meta, node, func(node *corev1.Node) { node.Annotations = before })
	closes(t, r.ended, "the second syncer ends")
	require.ErrorIs(t, r.err, syncer.ErrRefused)
	w.stillRuns(t, "first")
}
