//go:build attacks && siege

package attacks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// TestSiege: tenants try, for as long as the variable SIEGE says, what ended the programs or took what is another's
// before, while the neighbour creates a pod each second. The neighbour's pods run as fast as while the same tenants ask
// for as much and attack nobody, and no program has ended.
func TestSiege(t *testing.T) {
	p := connect(t)
	names := attackers()
	length, err := time.ParseDuration(os.Getenv("SIEGE"))
	require.NoError(t, err, "SIEGE says for how long")
	require.GreaterOrEqual(t, len(names), 3, "ATTACKERS names the tenants that attack")
	namespace := p.neighbour.place(t, "besieged", "", hard("requests.cpu", "1", "requests.memory", "1Gi", "pods", "40"))
	arenas := map[string]string{}
	for _, name := range names {
		besieger := p.tenant(t, name)
		arenas[name] = besieger.arena(t, "siege")
		besieger.create(t, deployment(t, arenas[name], "app", 6))
	}
	pids := p.programs(t)
	idle := p.neighbour.latencies(t, namespace, "idle", time.Minute)

	end := p.together(t, names, "another-scheduler", func(ctx context.Context, besieger *tenant, round int) {
		besieger.behave(ctx, arenas[besieger.name], fmt.Sprint("h", round))
	})
	busy := p.neighbour.latencies(t, namespace, "busy", length/2)
	end()

	end = p.together(t, names, corev1.DefaultSchedulerName, func(ctx context.Context, besieger *tenant, round int) {
		besieger.besiege(ctx, arenas[besieger.name], fmt.Sprint("p", round))
		next := names[(slices.Index(names, besieger.name)+1)%len(names)]
		p.impersonate(ctx, t, besieger.name, []string{"neighbour", "r1", "meta", next}[round%4])
	})
	besieged := p.neighbour.latencies(t, namespace, "first", length/2)
	restore := p.lead(t, names[2], p.server(t, p.tenant(t, names[2]).cluster, twoPodsOfOneUID))
	besieged = append(besieged, p.neighbour.latencies(t, namespace, "second", length/2)...)
	restore()
	end()

	t.Logf("the neighbour's pods run after (median, 90 %%, slowest): idle %s, busy %s, besieged %s",
		quantiles(idle), quantiles(busy), quantiles(besieged))
	require.Equal(t, pids, p.programs(t), "a program has ended")
	require.Less(t, quantile(besieged, 0.5), 2*quantile(busy, 0.5)+time.Second, "the neighbour notices the siege")
}

// together lets each tenant do something again and again, beside a kube-scheduler of its own for pods of a scheduler
// name, until end is called.
func (p *pool) together(t *testing.T, names []string, scheduler string, do func(context.Context, *tenant, int)) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, name := range names {
		one := p.tenant(t, name)
		endScheduler := one.schedule(t, scheduler)
		all.Go(func() {
			defer endScheduler()
			round := 0
			for ; ctx.Err() == nil; round++ {
				do(ctx, one, round)
			}
			t.Logf("%s: %d rounds beside a kube-scheduler for %s", name, round, scheduler)
		})
	}
	return func() {
		stop()
		all.Wait()
	}
}

// behave asks for as much as besiege, and attacks nobody.
func (c *tenant) behave(ctx context.Context, namespace, name string) {
	resources := corev1.ResourceRequirements{Requests: hard("cpu", "5m", "memory", "8Mi")}
	pods := []*corev1.Pod{}
	for _, suffix := range []string{"", "-at-once"} {
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + suffix},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/app", Resources: resources}}},
		})
	}
	for _, pod := range pods {
		_ = c.Create(ctx, pod)
	}
	for range 50 { // until it runs
		if c.Get(ctx, client.ObjectKeyFromObject(pods[0]), pods[0]) != nil || pods[0].Status.Phase == corev1.PodRunning {
			break
		}
		<-time.After(interval)
	}
	for _, pod := range pods {
		_ = c.Delete(ctx, pod, client.GracePeriodSeconds(0))
	}
	_ = c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.MatchingLabels{"app": "app"})
	<-time.After(3 * time.Second)
}

// latencies creates pods for a while, one each second, and returns how long each took to run.
func (c *tenant) latencies(t *testing.T, namespace, name string, length time.Duration) []time.Duration {
	t.Helper()
	var all []time.Duration
	for begun, i := time.Now(), 0; time.Since(begun) < length; i++ {
		started := time.Now()
		pod := newPod(t, namespace, fmt.Sprint(name, "-", i), "")
		c.runs(t, pod)
		all = append(all, time.Since(started))
		require.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), pod, client.GracePeriodSeconds(1))))
		<-time.After(time.Until(started.Add(time.Second)))
	}
	return all
}

func quantile(all []time.Duration, part float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))].Round(time.Millisecond)
}

func quantiles(all []time.Duration) string {
	return fmt.Sprintf("%s, %s, %s of %d", quantile(all, 0.5), quantile(all, 0.9), quantile(all, 1), len(all))
}

// besiege tries everything about one pod, whatever the API server answers.
func (c *tenant) besiege(ctx context.Context, namespace, name string) {
	resources := corev1.ResourceRequirements{Requests: hard("cpu", "5m", "memory", "8Mi")}
	sent := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "registry.example/app", Resources: resources}},
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}},
		},
	}
	at := sent.DeepCopy()
	at.Name, at.Spec.Volumes = name+"-at-once", nil
	for _, pod := range []*corev1.Pod{sent, at} {
		_ = c.Create(ctx, pod)
	}
	c.bindTo(ctx, at, "r2")
	for range 50 { // until it was sent somewhere, and not bound
		if c.Get(ctx, client.ObjectKeyFromObject(sent), sent) != nil || sent.Labels[schedulerv1alpha1.LabelSuperCluster] != "" {
			break
		}
		<-time.After(interval)
	}
	other := map[string]string{"r1": "r2", "r2": "r1"}[sent.Labels[schedulerv1alpha1.LabelSuperCluster]]
	c.bindTo(ctx, sent, other)
	for _, forged := range []corev1.PodStatus{
		{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: time.Now()}, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
		{Phase: corev1.PodPending},
	} {
		if c.Get(ctx, client.ObjectKeyFromObject(sent), sent) == nil {
			sent.Status = forged
			_ = c.Status().Update(ctx, sent)
		}
	}
	for _, pod := range []*corev1.Pod{sent, at} {
		_ = c.Delete(ctx, pod, client.GracePeriodSeconds(0))
	}
	_ = c.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.MatchingLabels{"app": "app"}) // made anew elsewhere
}

func (c *tenant) bindTo(ctx context.Context, pod *corev1.Pod, superCluster string) {
	_ = c.SubResource("binding").Create(ctx, pod.DeepCopy(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: tenancy.NodeName(superCluster, "node-1")},
	})
}

// impersonate lets a VirtualCluster of the attacker's lead to another control plane for a while.
func (p *pool) impersonate(ctx context.Context, t *testing.T, attacker, leadsTo string) {
	secret := p.kubeconfigOf(t, attacker+"-impostor", leadsTo)
	vc := &tenancyv1alpha1.VirtualCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: attacker + "-impostor"},
		Spec:       tenancyv1alpha1.VirtualClusterSpec{KubeconfigSecretRef: &tenancyv1alpha1.SecretKeyRef{Name: secret.Name}},
	}
	if p.meta.Create(ctx, secret) != nil {
		_ = p.meta.Update(ctx, secret)
	}
	_ = p.meta.Create(ctx, vc)
	<-time.After(3 * time.Second)
	_ = p.meta.Delete(context.WithoutCancel(ctx), vc)
	_ = p.meta.Delete(context.WithoutCancel(ctx), secret)
}

// twoPodsOfOneUID answers lists of pods with what no API server has.
func twoPodsOfOneUID(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/api/v1/pods" || r.URL.Query().Get("watch") != "" {
		return false
	}
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i, node := range []string{"r1.node-1", "r2.node-1", "ghost"} {
		list.Items = append(list.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("twin-", i), UID: types.UID("one")}, Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{StartTime: &metav1.Time{Time: time.Now()}, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
		})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list)
	return true
}
