package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/await"
)

// TestRestored restores the control plane of a tenant from a backup while a syncer works on it.
func TestRestored(t *testing.T) {
	w := newWorld(t, needs{ownTenant: true})
	w.place(t, "web", "r1")
	create(t, w.tenant, newPod("web", "before"))
	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, w.controlPlane.Backup(t.Context(), backup))
	create(t, w.tenant, newPod("web", "lost"))
	w.write(t, 300) // more than a control plane that starts writes by itself

	seen := &sessions{}
	r := w.startSyncerWith(t, w.superConfig, w.following(t, seen))
	closes(t, r.ready, "the tenant's caches are synced")
	appears(t, w.super, w.superName("web"), "before", &corev1.Pod{}, nil)
	appears(t, w.super, w.superName("web"), "lost", &corev1.Pod{}, nil)
	require.Equal(t, 1, seen.count())

	require.NoError(t, w.controlPlane.Restore(t.Context(), backup))
	eventually(t, func() error {
		if started := seen.count(); started < 2 {
			return fmt.Errorf("%d sessions", started)
		}
		return nil
	})
	require.Equal(t, engage.ReasonRestored, seen.reason(), "why the first session ended")
	create(t, w.tenant, newPod("web", "after"))
	appears(t, w.super, w.superName("web"), "after", &corev1.Pod{}, nil)
	gone := &corev1.Pod{}
	eventually(t, func() error {
		err := w.super.Get(t.Context(), types.NamespacedName{Namespace: w.superName("web"), Name: "lost"}, gone)
		if err == nil && gone.DeletionTimestamp == nil {
			return fmt.Errorf("super pod %s, which the backup does not have, stays", gone.Name)
		}
		return client.IgnoreNotFound(err)
	})
	w.kept(t)
	require.Equal(t, 2, seen.count(), "one restore, one session")
}

// write raises the resource version of the tenant's control plane.
func (w *world) write(t *testing.T, times int) {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "versions"}}
	create(t, w.tenant, config)
	for i := range times {
		config.Data = map[string]string{"number": fmt.Sprint(i)}
		require.NoError(t, w.tenant.Update(t.Context(), config))
	}
}

// kept requires that what the backup has runs on.
func (w *world) kept(t *testing.T) {
	t.Helper()
	superPod := &corev1.Pod{}
	require.NoError(t, w.super.Get(t.Context(), types.NamespacedName{Namespace: w.superName("web"), Name: "before"}, superPod))
	require.Nil(t, superPod.DeletionTimestamp)
}

// following returns what lets a syncer follow the VirtualCluster of the world, as its program does.
func (w *world) following(t *testing.T, seen *sessions) func(ctrl.Manager, *syncer.Syncer, func()) func(context.Context) error {
	t.Helper()
	create(t, w.meta, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: w.vcName}, Data: map[string][]byte{
		tenancyv1alpha1.DefaultKubeconfigKey: w.controlPlane.KubeConfig,
	}})
	vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "acme", Name: w.vcName}}
	await.Change(t, w.meta, vc, func(vc *tenancyv1alpha1.VirtualCluster) {
		vc.Status.ClusterNamespace, vc.Status.ControlPlaneUID = w.key, w.tenantUID
	}, "status")
	return func(mgr ctrl.Manager, made *syncer.Syncer, ready func()) func(context.Context) error {
		controller := &tenants.Controller{
			Client: mgr.GetClient(), Reader: w.meta, Lifecycle: seen, HealthPeriod: time.Second,
			Engage: func(ctx context.Context, tenant *tenants.Tenant, _ func()) error {
				seen.start()
				tenant.Policy = w.policy
				defer func() { seen.end(context.Cause(ctx)) }()
				return made.Engage(ctx, tenant, ready)
			},
			Serves: made.Serves,
		}
		require.NoError(t, controller.SetupWithManager(mgr))
		return func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}
	}
}

// sessions counts the sessions of a tenant. As a tenants.Lifecycle it lets everything happen.
type sessions struct {
	mu      sync.Mutex
	started int
	// last is the reason of the failure that ended the last session.
	last string
}

var _ tenants.Lifecycle = &sessions{}

func (s *sessions) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started++
}

func (s *sessions) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var failure *engage.Failure
	if errors.As(cause, &failure) {
		s.last = failure.Reason.Reason
	}
}

func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.started
}

func (s *sessions) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Prepare implements tenants.Lifecycle.
func (*sessions) Prepare(context.Context, *tenancyv1alpha1.VirtualCluster) (tenancy.Reason, error) {
	return tenancy.Reason{}, nil
}

// Recognize implements tenants.Lifecycle.
func (*sessions) Recognize(context.Context, *tenancyv1alpha1.VirtualCluster, types.UID) error {
	return nil
}

// Withdraw implements tenants.Lifecycle.
func (*sessions) Withdraw(context.Context, *tenancyv1alpha1.VirtualCluster) error { return nil }

// Report implements tenants.Lifecycle.
func (*sessions) Report(context.Context, *tenancyv1alpha1.VirtualCluster, tenancy.Reason, tenancy.Reason, *tenancy.Reason) (time.Duration, error) {
	return 0, nil
}

// Release implements tenants.Lifecycle.
func (*sessions) Release(context.Context, *tenancyv1alpha1.VirtualCluster) (time.Duration, error) {
	return 0, nil
}
