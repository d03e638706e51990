package provision

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/etcd"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/secrets"
	"github.com/superpool/superpool/internal/provision/stores"
	"github.com/superpool/superpool/test/builders/etcdtest"
)

// newExternalBed returns a bed whose ClusterVersion names an external store, and that store.
func newExternalBed(t *testing.T) (*bed, *etcdtest.Shared) {
	t.Helper()
	authority, err := pki.NewAuthority("etcd")
	require.NoError(t, err)
	pair, err := authority.Pair()
	require.NoError(t, err)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "external"}, Type: controlplane.ExternalSecretType, Data: secrets.DataOf(pair)}
	secret.Data["ca.crt"] = authority.Certificate()
	b := newBed(t, nil, secret)
	b.reconciler.Network.Manager = "vc-manager"
	shared := etcdtest.NewShared("a")
	b.shared = func(endpoints []string) (stores.SharedEtcd, error) {
		shared.Endpoints = endpoints
		return shared, nil
	}
	b.change(external("https://b:2379", "https://a:2379"))
	return b, shared
}

// external lets a ClusterVersion name an external store.
func external(endpoints ...string) func(*tenancyv1alpha1.ClusterVersionSpec) {
	return func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.Etcd, version.ExternalEtcd = tenancyv1alpha1.ComponentTemplate{}, &tenancyv1alpha1.ExternalEtcd{Endpoints: endpoints, SecretName: "external"}
	}
}

// served makes all parts but a store.
func (b *bed) served() {
	b.t.Helper()
	for _, name := range []string{controlplane.APIServer, controlplane.ControllerManager} {
		b.reconcile()
		b.ready(name)
	}
	b.reconcile()
	missing, message := b.conditions()
	require.Empty(b.t, missing, message)
}

// flags returns the flags of the API servers.
func (b *bed) flags() []string {
	b.t.Helper()
	servers := &appsv1.Deployment{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: root, Name: controlplane.APIServer}, servers))
	return servers.Spec.Template.Spec.Containers[0].Command
}

// told returns ConfigMap etcd.
func (b *bed) told() *corev1.ConfigMap {
	b.t.Helper()
	told := &corev1.ConfigMap{}
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: root, Name: "etcd"}, told))
	return told
}

// letGo takes the finalizer out of ConfigMap etcd, and returns it.
func (b *bed) letGo() *corev1.ConfigMap {
	b.t.Helper()
	told := b.told()
	told.Finalizers = nil
	b.update(told)
	return told
}

// TestAnExternalStore: API servers ask an external store below the tenant's prefix, by a certificate with its name, and
// nothing of a store is in the root namespace. Nothing is written that is there.
func TestAnExternalStore(t *testing.T) {
	t.Parallel()
	b, shared := newExternalBed(t)
	b.served()
	require.Equal(t, []string{"kube-apiserver", "kube-controller-manager"}, b.exists())
	require.Equal(t, map[string]string{"superpool-uid": "/superpool/uid/"}, shared.Users)
	require.Subset(t, b.flags(), []string{
		"--etcd-servers=https://a:2379,https://b:2379", "--etcd-prefix=/superpool/uid", "--etcd-compaction-interval=0",
		"--etcd-certfile=/etc/kubernetes/pki/external-etcd-client.crt",
	})
	issued, err := tls.X509KeyPair(b.secret(root, "external-etcd-client").Data["tls.crt"], b.secret(root, "external-etcd-client").Data["tls.key"])
	require.NoError(t, err)
	require.Equal(t, "superpool-uid", issued.Leaf.Subject.CommonName)
	require.Equal(t, []string{controlplane.FinalizerExternal}, b.told().Finalizers)
	b.reconcile()
	before, recorded := b.writes, b.recorded
	b.reconcile()
	require.Equal(t, before, b.writes, "all of it is there")
	require.Equal(t, recorded+1, b.recorded)

	b.clock.SetTime(b.clock.Now().Add(21 * 24 * time.Hour))
	require.NoError(t, b.reconciler.Client.Delete(t.Context(), &tenancyv1alpha1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "v1.37"}}))
	b.reconcile()
	renewed, err := tls.X509KeyPair(b.secret(root, "external-etcd-client").Data["tls.crt"], b.secret(root, "external-etcd-client").Data["tls.key"])
	require.NoError(t, err)
	require.True(t, renewed.Leaf.NotAfter.After(issued.Leaf.NotAfter), "it is renewed, whatever became of the ClusterVersion")
}

const lostExternal = "ConfigMap " + root + "/etcd does not say where the external etcd is which the control plane has: restore it"

// TestAnotherExternalStore: the store of a control plane stays the one that it is, and the API servers that run as they are,
// whatever a ClusterVersion says, and wherever it is found.
func TestAnotherExternalStore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*tenancyv1alpha1.ClusterVersionSpec)
		with    func(b *bed, shared *etcdtest.Shared)
		message string
		// reason of EtcdReady, "" where it is True.
		reason string
	}{
		"one of its own": {
			change: func(version *tenancyv1alpha1.ClusterVersionSpec) {
				version.ExternalEtcd, version.Etcd.Image = nil, "etcd"
			},
			message: "ClusterVersion v1.37: the control plane has an external etcd, and keeps it: give externalEtcd; what runs goes on",
		},
		"another one": {
			with: func(_ *bed, shared *etcdtest.Shared) { shared.Identity = "c" }, change: external("https://c:2379"),
			message: "At https://c:2379 is another etcd, of ID c, than the one with the tenant's objects, of ID a", reason: "Invalid",
		},
		"one that knows no users": {
			with: func(_ *bed, shared *etcdtest.Shared) { shared.Err = etcd.ErrOpen }, reason: "Invalid", change: external("https://c:2379"),
			message: "The external etcd at https://c:2379 knows no users, and each tenant would read all others: etcdctl user add root --no-password && etcdctl user grant-role root root && etcdctl auth enable",
		},
		"one that does not know root": {
			with: func(_ *bed, shared *etcdtest.Shared) { shared.Err = etcd.ErrNotRoot }, reason: "Invalid", change: external("https://c:2379"),
			message: "The external etcd at https://c:2379 does not take what Secret vc-manager/external signs for user root: it needs --client-cert-auth, and tls.crt of the Secret in --trusted-ca-file",
		},
		"one with another certificate": {
			with: func(_ *bed, shared *etcdtest.Shared) { shared.Err = etcd.ErrUntrusted }, reason: "Invalid", change: external("https://c:2379"),
			message: "The external etcd at https://c:2379 shows a certificate that ca.crt of Secret vc-manager/external has not signed, or for another name",
		},
		"one that is silent": {
			with: func(_ *bed, shared *etcdtest.Shared) { shared.Err = errors.New("no answer") }, reason: "Progressing", change: external("https://c:2379"),
			message: "The external etcd at https://c:2379 does not answer vc-manager",
		},
		"one that was emptied": {
			with: func(_ *bed, shared *etcdtest.Shared) { clear(shared.Users) }, reason: "Invalid", change: external("https://a:2379", "https://b:2379"),
			message: "Waiting for etcd",
		},
		"a Secret that is gone": {
			with: func(b *bed, _ *etcdtest.Shared) { b.delete(b.secret("vc-manager", "external")) }, reason: "-", change: external("https://c:2379"),
			message: "There is no Secret vc-manager/external, of type tenancy.x-k8s.io/external-etcd, which has the authorities of the external etcd: create it",
		},
		"a Secret of another type": {
			with: func(b *bed, _ *etcdtest.Shared) {
				secret := b.secret("vc-manager", "external")
				b.delete(secret)
				b.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "external"}, Type: corev1.SecretTypeOpaque, Data: secret.Data})
			},
			reason: "-", change: external("https://c:2379"), message: "Secret vc-manager/external is of type Opaque: make it anew, of type tenancy.x-k8s.io/external-etcd",
		},
		"a ConfigMap that is gone": {
			with: func(b *bed, _ *etcdtest.Shared) {
				b.delete(b.letGo())
			},
			change: external("https://a:2379", "https://b:2379"),
			reason: "-", message: lostExternal,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, shared := newExternalBed(t)
			b.served()
			before := b.flags()
			if test.with != nil {
				test.with(b, shared)
			}
			b.change(test.change)
			b.reconcile()
			missing, message := b.conditions()
			require.Equal(t, test.message, message)
			if test.reason != "-" {
				require.Equal(t, test.reason, missing[tenancyv1alpha1.ConditionEtcdReady])
			}
			require.Equal(t, before, b.flags())
			require.Equal(t, []string{"kube-apiserver", "kube-controller-manager"}, b.exists())
		})
	}
}

// TestAnExternalStoreMoves: the same store at another place is followed.
func TestAnExternalStoreMoves(t *testing.T) {
	t.Parallel()
	b, shared := newExternalBed(t)
	b.served()
	b.change(external("https://c:2379"))
	b.reconcile()
	require.Contains(t, b.flags(), "--etcd-servers=https://c:2379")
	require.Equal(t, "https://c:2379", b.told().Data["external-endpoints"])
	require.Equal(t, []string{"https://c:2379"}, shared.Endpoints)
}

// TestAStoreOfItsOwnStays: a control plane with a store of its own gets no external one.
func TestAStoreOfItsOwnStays(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	before := b.flags()
	b.change(external("https://a:2379"))
	b.reconcile()
	_, message := b.conditions()
	require.Equal(t, "ClusterVersion v1.37: the control plane has an etcd of its own, and keeps it: give etcd; what runs goes on", message)
	require.Equal(t, before, b.flags())
}

// TestAnExternalStoreResumes: a tenant that is paused no more has its control plane again where it was, whatever is wanted.
func TestAnExternalStoreResumes(t *testing.T) {
	t.Parallel()
	b, shared := newExternalBed(t)
	b.served()
	b.pause(true, true)
	for range 3 {
		b.reconcile()
		b.ended(controlplane.APIServer)
		b.ended(controlplane.ControllerManager)
	}
	require.Equal(t, []int32{0, 0}, b.servers())
	b.pause(false, false)
	b.change(external("https://c:2379"))
	b.shared = func(endpoints []string) (stores.SharedEtcd, error) {
		if endpoints[0] == "https://c:2379" {
			return etcdtest.NewShared("c"), nil
		}
		return shared, nil
	}
	b.reconcile()
	require.Equal(t, []int32{1, 1}, b.servers())
	missing, _ := b.conditions()
	require.NotContains(t, missing, tenancyv1alpha1.ConditionEtcdReady)
}

// TestAnExternalStoreThatLostATenant: one that does not know the tenant any more is not taken for its own, until somebody says so.
func TestAnExternalStoreThatLostATenant(t *testing.T) {
	t.Parallel()
	b, shared := newExternalBed(t)
	b.served()
	clear(shared.Users)
	b.reconcile()
	require.Empty(t, shared.Users)
	said := meta.FindStatusCondition(b.vc().Status.Conditions, tenancyv1alpha1.ConditionEtcdReady)
	require.Contains(t, said.Message, "does not know user superpool-uid any more")
	told := b.told()
	told.Data["external-id"] = ""
	b.update(told)
	b.reconcile()
	require.Equal(t, map[string]string{"superpool-uid": "/superpool/uid/"}, shared.Users)
	missing, _ := b.conditions()
	require.Empty(t, missing)
}

// servers returns how many API servers and controller managers there are to be.
func (b *bed) servers() (replicas []int32) {
	b.t.Helper()
	for _, name := range []string{controlplane.APIServer, controlplane.ControllerManager} {
		deployment := &appsv1.Deployment{}
		require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: root, Name: name}, deployment))
		replicas = append(replicas, *deployment.Spec.Replicas)
	}
	return replicas
}

// TestWhatIsLeftOfAnExternalStore: a control plane of which little is left gets no other store than it had.
func TestWhatIsLeftOfAnExternalStore(t *testing.T) {
	t.Parallel()
	t.Run("external, of which a certificate is left", func(t *testing.T) {
		t.Parallel()
		b, shared := newExternalBed(t)
		b.served()
		b.delete(b.letGo())
		b.delete(workload(controlplane.APIServer))
		shared.Identity = "c"
		b.reconcile()
		_, message := b.conditions()
		require.Equal(t, lostExternal, message)
		require.Equal(t, []string{"kube-controller-manager"}, b.exists())
	})
	t.Run("external, of which nothing is left", func(t *testing.T) {
		t.Parallel()
		b, shared := newExternalBed(t)
		b.served()
		for _, left := range []client.Object{b.letGo(), workload(controlplane.APIServer), b.secret(root, controlplane.ExternalClient)} {
			b.delete(left)
		}
		shared.Identity = "c"
		b.reconcile()
		_, message := b.conditions()
		require.Equal(t, "ClusterVersion v1.37: nothing says which etcd the control plane has: restore ConfigMap "+root+"/etcd; what runs goes on", message)
	})
	t.Run("its own, of which API servers are left", func(t *testing.T) {
		t.Parallel()
		b, shared := newExternalBed(t)
		b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
			version.ExternalEtcd, version.Etcd.Image, version.Etcd.Replicas = nil, "etcd", 1
		})
		b.whole()
		b.delete(b.told())
		b.delete(workload(controlplane.Etcd))
		b.change(external("https://a:2379"))
		b.reconcile()
		_, message := b.conditions()
		require.Contains(t, message, "the control plane has an etcd of its own, and keeps it")
		require.Empty(t, shared.Users)
	})
}

// TestConfigMapOfAnExternalStore: the finalizer is put back that somebody has taken out, and a ConfigMap that is being deleted is
// told of with what to do.
func TestConfigMapOfAnExternalStore(t *testing.T) {
	t.Parallel()
	b, _ := newExternalBed(t)
	b.served()
	b.letGo()
	b.reconcile()
	require.Equal(t, []string{controlplane.FinalizerExternal}, b.told().Finalizers)
	b.delete(b.told())
	b.reconcile()
	said := meta.FindStatusCondition(b.vc().Status.Conditions, tenancyv1alpha1.ConditionEtcdReady)
	require.Equal(t, "ConfigMap "+root+"/etcd, which says where the store is, was deleted: save it, take its finalizer out, and create it again", said.Message)
}

// unmade is a store that makes no users.
type unmade struct{ *etcdtest.Shared }

func (*unmade) Admit(context.Context, string, string) error { return errors.New("no answer") }

// TestAnExternalStoreOfMany: where others ask such stores what was said stays said, and one that was never asked is no store yet.
func TestAnExternalStoreOfMany(t *testing.T) {
	t.Parallel()
	b, shared := newExternalBed(t)
	free := b.busy()
	b.reconcile()
	require.Empty(t, b.exists())
	free()
	b.shared = func([]string) (stores.SharedEtcd, error) { return &unmade{shared}, nil }
	b.reconcile() // vc-manager is killed before the user is made
	b.shared = func([]string) (stores.SharedEtcd, error) { return shared, nil }
	free = b.busy()
	b.reconcile()
	require.Empty(t, b.exists())
	free()
	b.served()
	shared.Err = errors.New("no answer")
	b.reconcile()
	before, _ := b.conditions()
	require.Equal(t, "Progressing", before[tenancyv1alpha1.ConditionEtcdReady])
	shared.Err = nil
	b.busy()
	b.reconcile()
	after, _ := b.conditions()
	require.Equal(t, before, after)
}
