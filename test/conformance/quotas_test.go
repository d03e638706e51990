package main

import (
	"context"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

// TestQuotaComesFirst makes a test's namespace on a real API server: it gets the service account that a test waits for
// after its quota.
func TestQuotaComesFirst(t *testing.T) {
	started, stop, err := controlplane.Start(controlplane.Options{Role: controlplane.Tenant})
	t.Cleanup(stop)
	require.NoError(t, err)
	tenant, err := kubernetes.NewForConfig(started[0].Config)
	require.NoError(t, err)
	for range 2 { // a run after one that was killed
		require.NoError(t, quotasFirst(t.Context(), tenant))
	}
	for name, labels := range map[string]map[string]string{"of-a-test": {labelFramework: "pods"}, "of-somebody": nil} {
		_, err := tenant.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	account := func(ctx context.Context, namespace, name string) error {
		_, err := tenant.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	eventually := func(what string, condition func(err error) bool) {
		t.Helper()
		require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			return condition(account(ctx, "of-a-test", "default")), nil
		}), what)
	}

	// An API server takes a moment to meet a policy.
	eventually("the service account is refused", apierrors.IsForbidden)
	require.ErrorContains(t, account(t.Context(), "of-a-test", "default"), "the namespace has no quota yet")
	require.NoError(t, account(t.Context(), "of-a-test", "another"))
	require.NoError(t, account(t.Context(), "of-somebody", "default"))

	require.Error(t, putQuota(t.Context(), tenant, "of-a-test", &room{storage: resource.MustParse("-1"), slices: 2}))
	namespace, err := tenant.CoreV1().Namespaces().Get(t.Context(), "of-a-test", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotContains(t, namespace.Labels, labelReady, "it has no quota")

	require.NoError(t, putQuota(t.Context(), tenant, "of-a-test", &room{cpu: resource.MustParse("300m"), storage: resource.MustParse("5Gi"), slices: 2}))
	eventually("the service account is let in", func(err error) bool { return err == nil })
	quota, err := tenant.CoreV1().ResourceQuotas("of-a-test").Get(t.Context(), quotaName, metav1.GetOptions{})
	require.NoError(t, err)
	hard := quota.Spec.Hard[corev1.ResourceRequestsEphemeralStorage]
	require.Equal(t, "5Gi", hard.String())
	require.NotContains(t, quota.Spec.Hard, corev1.ResourceRequestsCPU, "pods without requests would be refused")
	namespace, err = tenant.CoreV1().Namespaces().Get(t.Context(), "of-a-test", metav1.GetOptions{})
	require.NoError(t, err)
	require.JSONEq(t, `{"cpu":"150m","memory":"512Mi","ephemeral-storage":"2560Mi"}`, namespace.Annotations[schedulerv1alpha1.AnnotationSlice])
	choice, err := clusterchoice.Parse(namespace.Annotations[schedulerv1alpha1.AnnotationClusterChoice])
	require.NoError(t, err)
	require.Len(t, choice.TopologySpreadConstraints, 1)

	// A run that makes no quotas, after one that did.
	_, err = tenant.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "without-quotas", Labels: map[string]string{labelFramework: "pods"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.True(t, apierrors.IsForbidden(account(t.Context(), "without-quotas", "default")))
	for range 2 {
		stop, err := setQuotas(t.Context(), "", tenant, false, nil, io.Discard)
		require.NoError(t, err)
		stop()
	}
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		return account(ctx, "without-quotas", "default") == nil, nil
	}))
}

// TestAQuotaWaitsForTheAPIServer lets the first requests fail as they do while an API server starts, and with answers
// that stay.
func TestAQuotaWaitsForTheAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		failure  error
		failures int
		wantMade bool
	}{
		"at once":        {wantMade: true},
		"after a while":  {failure: syscall.ECONNREFUSED, failures: 20, wantMade: true},
		"overloaded":     {failure: apierrors.NewInternalError(io.ErrUnexpectedEOF), failures: 3, wantMade: true},
		"never":          {failure: syscall.ECONNREFUSED, failures: 1000},
		"no namespace":   {failure: apierrors.NewNotFound(corev1.Resource("namespaces"), "test"), failures: 1},
		"not acceptable": {failure: apierrors.NewForbidden(corev1.Resource("resourcequotas"), quotaName, io.EOF), failures: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tenant := builders.Clientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "test"}})
				failed := 0
				tenant.PrependReactor("create", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
					failed++
					return failed <= tc.failures, nil, tc.failure
				})
				err := putQuotaPatiently(t.Context(), tenant, "test", &room{cpu: resource.MustParse("300m"), slices: 1})
				if !tc.wantMade {
					require.ErrorIs(t, err, tc.failure)
					return
				}
				require.NoError(t, err)
				_, err = tenant.CoreV1().ResourceQuotas("test").Get(t.Context(), quotaName, metav1.GetOptions{})
				require.NoError(t, err)
			})
		})
	}
}
