// Package registry tests the registries of tenants and super clusters on real API servers: one meta cluster, one super
// cluster and two tenants.
package registry

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/virtualclusters"
	"github.com/superpool/superpool/test/controlplane"
)

const (
	namespace = "default"
	patience  = 40 * time.Second
	tick      = 50 * time.Millisecond
)

// world is the set of API servers that all tests of this package share. Tests use names of their own.
type world struct {
	meta, super, tenant, other *controlplane.ControlPlane
	client                     client.Client // of the meta cluster
	inSuper                    kubernetes.Interface
	inTenant                   kubernetes.Interface
	engaged                    *engagements
}

// engagements counts what Engage was called for.
type engagements struct {
	mu      sync.Mutex
	running map[string]int
	started map[string]int
	// policies are what the connections hold.
	policies map[string]*policy.Ref
}

func (e *engagements) engage(ctx context.Context, tenant *tenants.Tenant, ready func()) error {
	e.mu.Lock()
	e.running[tenant.VirtualCluster.Name]++
	e.started[tenant.VirtualCluster.Name]++
	e.policies[tenant.VirtualCluster.Name] = tenant.Policy
	e.mu.Unlock()
	ready()
	<-ctx.Done()
	e.mu.Lock()
	e.running[tenant.VirtualCluster.Name]--
	e.mu.Unlock()
	return ctx.Err()
}

// policy returns the name and the weight of the policy that a tenant's connection holds.
func (e *engagements) policy(name string) (string, int32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	inForce := e.policies[name].Get()
	return inForce.Name(), inForce.Spec().Scheduling.Weight
}

func (e *engagements) of(name string) (running, started int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[name], e.started[name]
}

// shared is set once by TestMain, before any test runs.
var shared *world

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
	ctx, cancel := context.WithCancel(context.Background())
	w, stop, err := newWorld(ctx)
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the test's control planes:", err)
	} else {
		shared = w
		code = m.Run()
	}
	cancel()
	stop()
	os.Exit(code)
}

func newWorld(ctx context.Context) (*world, func(), error) {
	crds, err := controlplane.MetaCRDs(ctx)
	if err != nil {
		return nil, func() {}, err
	}
	started, stopServers, err := controlplane.Start(controlplane.Options{Role: controlplane.Meta, CRDs: crds}, controlplane.Options{Role: controlplane.Super},
		controlplane.Options{Role: controlplane.Tenant}, controlplane.Options{Role: controlplane.Tenant})
	if err != nil {
		return nil, stopServers, err
	}
	w := &world{meta: started[0], super: started[1], tenant: started[2], other: started[3], engaged: &engagements{running: map[string]int{}, started: map[string]int{}, policies: map[string]*policy.Ref{}}}
	var running sync.WaitGroup
	stop := func() {
		running.Wait()
		stopServers()
	}
	return w, stop, w.run(ctx, &running)
}

// run starts a manager with both registries.
func (w *world) run(ctx context.Context, running *sync.WaitGroup) error {
	scheme := controlplane.Scheme()
	account, err := controlplane.Account(ctx, w.meta, "base/vc-scheduler-rbac.yaml", "vc-manager", "vc-scheduler")
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(account.Config, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	if w.client, err = client.New(w.meta.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if w.inSuper, err = kubernetes.NewForConfig(w.super.Config); err != nil {
		return err
	}
	if w.inTenant, err = kubernetes.NewForConfig(w.tenant.Config); err != nil {
		return err
	}
	recorder := mgr.GetEventRecorderFor("vc-scheduler")
	ofSuperClusters := &superclusters.Controller{Client: mgr.GetClient(), Recorder: recorder, ProbePeriod: time.Second}
	owner := &virtualclusters.Owner{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: recorder, Left: ofSuperClusters.Left}
	ofTenants := &tenants.Controller{Client: mgr.GetClient(), Lifecycle: owner, Engage: w.engaged.engage, Version: tenants.AskVersion}
	if err := ofTenants.SetupWithManager(mgr); err != nil {
		return err
	}
	if err := ofSuperClusters.SetupWithManager(mgr); err != nil {
		return err
	}
	names := &tenants.NameAudit{Reader: mgr.GetClient(), Recorder: recorder, NamespaceProfiles: sets.New("spread"), PodProfiles: sets.New("packing")}
	if err := names.SetupWithManager(mgr); err != nil {
		return err
	}
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "running the manager:", err)
		}
	})
	return nil
}

// eventually polls until check returns "", and fails with what it returned last.
func eventually(t *testing.T, check func() string) {
	t.Helper()
	wrong := "never checked"
	ok := waitFor(t.Context(), func() bool {
		wrong = check()
		return wrong == ""
	})
	require.True(t, ok, wrong)
}

func waitFor(ctx context.Context, done func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		if done() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
}

// awaitEvent waits for a Warning Event about an object, and returns its message.
func awaitEvent(t *testing.T, kind schema.GroupKind, name, reason string) string {
	t.Helper()
	var message string
	eventually(t, func() string {
		var list corev1.EventList
		if err := shared.client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		var seen []string
		for i := range list.Items {
			event := &list.Items[i]
			if event.InvolvedObject.Kind != kind.Kind || event.InvolvedObject.Name != name {
				continue
			}
			if event.Reason == reason && event.Type == corev1.EventTypeWarning {
				message = event.Message
				return ""
			}
			seen = append(seen, event.Reason+": "+event.Message)
		}
		return fmt.Sprintf("no Event %s about %s %s, only %q", reason, kind.Kind, name, seen)
	})
	return message
}

// deadServer returns a kubeconfig like another, of a server that nobody runs.
func deadServer(t *testing.T, kubeconfig []byte) []byte {
	t.Helper()
	config, err := clientcmd.Load(kubeconfig)
	require.NoError(t, err)
	for _, cluster := range config.Clusters {
		cluster.Server = "https://127.0.0.1:1"
	}
	data, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return data
}
