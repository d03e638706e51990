package provision

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/secrets"
)

// keysOf returns the keys of the Secrets of all authorities, which are the same ones.
func (b *bed) keysOf() []string {
	b.t.Helper()
	var keys []string
	for _, name := range controlplane.Authorities() {
		of := []string{}
		for _, key := range []string{"tls.crt", "tls.key", "next.crt", "next.key", "previous.crt", "cross.crt"} {
			if len(b.secret(root, name).Data[key]) > 0 {
				of = append(of, key)
			}
		}
		if keys != nil {
			require.Empty(b.t, cmp.Diff(keys, of), name)
		}
		keys = of
	}
	return keys
}

// rotated returns condition Rotated.
func (b *bed) rotated() string {
	b.t.Helper()
	condition := meta.FindStatusCondition(b.vc().Status.Conditions, tenancyv1alpha1.ConditionRotated)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason + ": " + condition.Message
}

// trusts returns the names of those that API servers trust, as they are called in names.
func (b *bed) trusts(authority string, names map[string]string) (trusted []string) {
	b.t.Helper()
	servers := workload(controlplane.APIServer).(*appsv1.Deployment)
	require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKeyFromObject(servers), servers))
	certificates, err := certutil.ParseCertsPEM([]byte(servers.Spec.Template.Annotations["tenancy.x-k8s.io/trusted-"+authority]))
	require.NoError(b.t, err)
	for _, certificate := range certificates {
		trusted = append(trusted, names[certificate.Subject.CommonName])
	}
	return trusted
}

// requireTrusted demands that the certificate of a Secret is believed by who trusts an authority alone.
func requireTrusted(t *testing.T, authority []byte, secret *corev1.Secret) {
	t.Helper()
	shown, err := certutil.ParseCertsPEM(secret.Data[corev1.TLSCertKey])
	require.NoError(t, err)
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	for _, certificate := range shown[1:] {
		between.AddCert(certificate)
	}
	_, err = shown[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, CurrentTime: shown[0].NotBefore})
	require.NoError(t, err)
}

// TestRotation: authorities are replaced in three phases, each of which begins when all parts are whole in the one before,
// and no certificate is shown that somebody does not trust.
func TestRotation(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	require.Empty(t, b.rotated())
	names, before := map[string]string{}, map[string][]byte{}
	for _, name := range controlplane.Authorities() {
		before[name] = b.secret(root, name).Data[corev1.TLSCertKey]
		certificates, err := certutil.ParseCertsPEM(before[name])
		require.NoError(t, err)
		names[certificates[0].Subject.CommonName] = "old"
	}

	at := b.clock.Now().Add(time.Hour)
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RotateAfter = &metav1.Time{Time: at} })
	b.reconcile()
	require.Equal(t, []string{"tls.crt", "tls.key"}, b.keysOf())
	require.Equal(t, "False Waiting: The authorities are replaced from "+at.UTC().Format(time.RFC3339)+" on", b.rotated())

	b.later(time.Hour - time.Minute)
	require.LessOrEqual(t, b.reconcile().RequeueAfter, time.Minute)

	b.later(2 * time.Minute)
	require.LessOrEqual(t, b.reconcile().RequeueAfter, time.Second)
	require.Equal(t, []string{"tls.crt", "tls.key", "next.crt", "next.key"}, b.keysOf())
	require.Equal(t, "False Progressing: 1 of 3: all parts get to trust the new authorities", b.rotated())
	for _, name := range controlplane.Authorities() {
		next, err := pki.ParseAuthority(&pki.Pair{Certificate: b.secret(root, name).Data["next.crt"], Key: b.secret(root, name).Data["next.key"]})
		require.NoError(t, err)
		require.Empty(t, names[next.Name()], "it has another name")
		names[next.Name()] = "new"
	}
	leaf := b.secret(root, "apiserver").Data[corev1.TLSCertKey]
	for range 3 {
		b.reconcile()
	}
	require.Equal(t, []string{"tls.crt", "tls.key", "next.crt", "next.key"}, b.keysOf(), "no part is whole yet")
	require.Equal(t, leaf, b.secret(root, "apiserver").Data[corev1.TLSCertKey])
	b.made()
	for _, name := range controlplane.Authorities() {
		require.Equal(t, []string{"old", "new"}, b.trusts(name, names), name)
	}

	require.Equal(t, []string{"tls.crt", "tls.key", "previous.crt", "cross.crt"}, b.keysOf())
	require.Equal(t, "False Progressing: 2 of 3: the new authorities issue", b.rotated())
	b.reconcile()
	wanted, err := (&controlplane.ControlPlane{Namespace: root, Tenant: b.vc()}).Certificates(time.Hour)
	require.NoError(t, err)
	for _, certificate := range wanted {
		secret := b.secret(root, certificate.Name)
		requireTrusted(t, before[certificate.Authority], secret)
		requireTrusted(t, b.secret(root, certificate.Authority).Data[corev1.TLSCertKey], secret)
	}
	b.made()
	for _, name := range controlplane.Authorities() {
		require.Equal(t, []string{"old", "new"}, b.trusts(name, names), name)
	}
	require.Equal(t, "False Progressing: 2 of 3: the new authorities issue", b.rotated())
	writes := b.writes
	b.reconcile()
	require.Equal(t, writes, b.writes)

	since := b.clock.Now()
	b.later(spreadPeriod - time.Second)
	b.reconcile()
	require.Equal(t, []string{"old", "new"}, b.trusts(controlplane.ServiceAccounts, names))
	b.later(2 * time.Second)
	b.reconcile()
	require.Equal(t, []string{"new", "old"}, b.trusts(controlplane.ServiceAccounts, names), "what signs tokens is replaced when it reads the new key for certain")
	require.Equal(t, []string{"old", "new"}, b.trusts(controlplane.CA, names))
	require.Equal(t, "False Progressing: 2 of 3: the new authorities issue", b.rotated())
	b.made()
	const trusted = "False Issuing: 2 of 3: the new authorities issue, and those of before are trusted"
	require.Equal(t, trusted+" until spec.distrustAfter, which is not set", b.rotated())

	b.delete(b.secret(root, "front-proxy-client"))
	b.made()
	require.Equal(t, []string{"new", "old"}, b.trusts(controlplane.ServiceAccounts, names), "a certificate that is renewed replaces nothing")
	b.later(spreadPeriod)
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) {
		spec.DistrustAfter = &metav1.Time{Time: since.Add(-time.Minute)}
	})
	b.reconcile()
	require.Equal(t, trusted+": spec.distrustAfter is to be later than "+since.UTC().Format(time.RFC3339)+", when the new ones began", b.rotated())
	until := b.clock.Now().Add(time.Minute)
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.DistrustAfter = &metav1.Time{Time: until} })
	require.LessOrEqual(t, b.reconcile().RequeueAfter, time.Minute)
	require.Equal(t, trusted+" until "+until.UTC().Format(time.RFC3339), b.rotated())
	b.later(time.Minute)
	b.ahead = func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.DistrustAfter = nil }
	b.reconcile()
	require.Equal(t, trusted+" until spec.distrustAfter, which is not set", b.rotated(), "the cache is behind")
	b.ahead = nil
	b.reconcile()
	require.Equal(t, []string{"tls.crt", "tls.key"}, b.keysOf())
	require.Equal(t, "False Progressing: 3 of 3: all parts get to trust the new authorities alone", b.rotated())
	vc := b.vc()
	meta.SetStatusCondition(&vc.Status.Conditions, metav1.Condition{Type: tenancyv1alpha1.ConditionRotated, Status: metav1.ConditionFalse, Reason: tenancyv1alpha1.ReasonWaiting})
	require.NoError(t, b.reconciler.Client.Status().Update(t.Context(), vc)) // as if vc-manager had been killed before it said so
	b.reconcile()
	require.Equal(t, "False Progressing: 3 of 3: all parts get to trust the new authorities alone", b.rotated(), "until they do")
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: root, Name: "of-before", Labels: controlplane.Labels(controlplane.APIServer), Finalizers: []string{"example.com/test"},
	}}
	b.create(old)
	b.delete(old.DeepCopy())
	b.made()
	require.Equal(t, "False Progressing: It goes on when a pod of before has ended: kubectl -n "+root+" get pod of-before", b.rotated())
	require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKeyFromObject(old), old))
	old.Finalizers = nil
	b.update(old)
	b.reconcile()
	require.Equal(t, "True Whole: ", b.rotated())
	for _, name := range controlplane.Authorities() {
		require.Equal(t, []string{"new"}, b.trusts(name, names), name)
		require.NotEqual(t, before[name], b.secret(root, name).Data[corev1.TLSCertKey])
	}
	shown, err := certutil.ParseCertsPEM(b.secret(root, "apiserver").Data[corev1.TLSCertKey])
	require.NoError(t, err)
	require.Len(t, shown, 1)

	writes = b.writes
	b.reconcile()
	require.Equal(t, writes, b.writes, "it was wished once")
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.TransparentMetaPrefixes = []string{"example.com"} })
	b.reconcile()
	require.Equal(t, b.vc().Generation, meta.FindStatusCondition(b.vc().Status.Conditions, tenancyv1alpha1.ConditionRotated).ObservedGeneration, "kubectl wait looks at it")
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RotateAfter, spec.DistrustAfter = nil, nil })
	b.reconcile()
	require.Empty(t, b.rotated())
}

// TestARotationThatIsInterrupted: where the Secrets of authorities are in different phases, for a write was lost, each goes
// on for itself.
func TestARotationThatIsInterrupted(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	now := b.clock.Now()
	b.later(time.Minute)
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) {
		spec.RotateAfter, spec.DistrustAfter = &metav1.Time{Time: now.Add(time.Second)}, &metav1.Time{Time: now.Add(99 * time.Hour)}
	})
	before := b.secret(root, controlplane.EtcdCA).Data
	b.reconcile()
	written := b.secret(root, controlplane.EtcdCA)
	require.NotEmpty(t, written.Data["next.crt"])
	written.Data = before
	b.update(written) // as if it had not been written
	b.made()
	require.NotEmpty(t, b.secret(root, controlplane.EtcdCA).Data["next.crt"])
	require.NotEmpty(t, b.secret(root, controlplane.CA).Data["previous.crt"])
	for range 3 {
		b.reconcile()
		require.Equal(t, "False Progressing: 1 of 3: all parts get to trust the new authorities", b.rotated(), "it is said of the one that is behind")
	}
	b.made()
	require.NotEmpty(t, b.secret(root, controlplane.EtcdCA).Data["previous.crt"])
	b.made()
	b.later(100 * time.Hour)
	for range 3 {
		b.made()
	}
	require.Equal(t, []string{"tls.crt", "tls.key"}, b.keysOf())
	require.Equal(t, "True Whole: ", b.rotated())
	for _, name := range controlplane.Authorities() {
		authority, err := pki.ParseAuthority(secrets.PairOf(b.secret(root, name)))
		require.NoError(t, err)
		require.True(t, authority.Made().After(now), name)
	}
}

// TestAnAuthorityThatCannotBeRead: what is wrong in its Secret is said, and nothing is changed then.
func TestAnAuthorityThatCannotBeRead(t *testing.T) {
	t.Parallel()
	other := mustAuthority(t)
	for name, tc := range map[string]struct {
		key  string
		text []byte
		want string
	}{
		"the next one":             {"next.crt", other.Certificate(), "next.crt: it cannot be read"},
		"the one before":           {"previous.crt", []byte("a typo"), "previous.crt: it cannot be read"},
		"what makes it known":      {"cross.crt", other.Certificate(), "cross.crt: it is of another key"},
		"what makes it known, too": {"cross.crt", nil, "cross.crt: it cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.whole()
			secret := b.secret(root, controlplane.CA)
			secret.Data["previous.crt"] = other.Certificate()
			secret.Data[tc.key] = tc.text
			b.update(secret)
			b.reconcile()
			_, message := b.conditions()
			require.Contains(t, message, "Secret "+root+"/ca holds no authority, and all that runs trusts the one that it held: "+tc.want)
			require.Equal(t, secret.Data, b.secret(root, controlplane.CA).Data)
		})
	}
}

// TestAKeyWithoutACertificate: the key of service accounts is made an authority, as old as its Secret, and stays the one
// that it was.
func TestAKeyWithoutACertificate(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	secret := b.secret(root, controlplane.ServiceAccounts)
	key := secret.Data[corev1.TLSPrivateKeyKey]
	b.delete(secret)
	b.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: root, Name: secret.Name, Labels: secret.Labels, CreationTimestamp: metav1.NewTime(b.clock.Now().Add(-time.Hour)),
	}, Data: map[string][]byte{corev1.TLSPrivateKeyKey: key}})
	b.made()
	missing, _ := b.conditions()
	require.Empty(t, missing)
	require.Equal(t, key, b.secret(root, controlplane.ServiceAccounts).Data[corev1.TLSPrivateKeyKey])
	signs, err := pki.ParseAuthority(secrets.PairOf(b.secret(root, controlplane.ServiceAccounts)))
	require.NoError(t, err)
	require.WithinDuration(t, b.clock.Now().Add(-time.Hour), signs.Made(), time.Second)
}

// TestARotationWaits: it begins, and goes on, only while all parts are whole and nothing of before runs, and says so.
func TestARotationWaits(t *testing.T) {
	t.Parallel()
	ending := func(b *bed, component string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: root, Name: "of-before", Labels: controlplane.Labels(component), Finalizers: []string{"example.com/test"},
		}}
		b.create(pod)
		if component != controlplane.EtcdBackup {
			b.delete(pod.DeepCopy())
		}
	}
	for name, tc := range map[string]struct {
		before func(*bed)
		said   string
		mend   func(*bed)
	}{
		"for a part": {
			before: func(b *bed) {
				b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.APIServer.Image = "newer" })
			},
			mend: func(b *bed) { b.made() },
		},
		"for the end of a pause": {
			before: func(b *bed) { b.paused() },
			mend:   func(b *bed) { b.pause(false, false); b.made() },
		},
		"for a version that is none": {
			before: func(b *bed) {
				b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v1.30.0" })
			},
			mend: func(b *bed) {
				b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.KubernetesVersion = "v1.37.2" })
				b.made()
			},
		},
		"for a pod that ends": {
			before: func(b *bed) { ending(b, controlplane.APIServer) },
			said:   "False Progressing: It goes on when a pod of before has ended: kubectl -n " + root + " get pod of-before",
			mend: func(b *bed) {
				pod := &corev1.Pod{}
				require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: root, Name: "of-before"}, pod))
				pod.Finalizers = nil
				b.update(pod)
				b.reconcile()
			},
		},
		"for a backup": {
			before: func(b *bed) { ending(b, controlplane.EtcdBackup) },
			said:   "False Progressing: It goes on when a pod of before has ended: kubectl -n " + root + " get pod of-before",
			mend: func(b *bed) {
				pod := &corev1.Pod{}
				require.NoError(b.t, b.reconciler.Client.Get(b.t.Context(), client.ObjectKey{Namespace: root, Name: "of-before"}, pod))
				pod.Status.Phase = corev1.PodSucceeded
				require.NoError(b.t, b.reconciler.Client.Status().Update(b.t.Context(), pod))
				b.reconcile()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.whole()
			tc.before(b)
			b.later(time.Minute)
			at := b.clock.Now().UTC().Format(time.RFC3339)
			b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RotateAfter = &metav1.Time{Time: b.clock.Now()} })
			for range 3 {
				b.reconcile()
			}
			said := "False Waiting: The authorities are replaced when all parts are whole, from " + at + " on"
			if tc.said != "" {
				said = tc.said
			}
			require.Equal(t, said, b.rotated())
			require.Equal(t, []string{"tls.crt", "tls.key"}, b.keysOf())
			wish := b.vc().Spec.RotateAfter
			b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RotateAfter = nil })
			b.reconcile()
			require.Empty(t, b.rotated(), "it is wished for no more")
			b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RotateAfter = wish })
			b.reconcile()
			require.Equal(t, said, b.rotated())
			tc.mend(b)
			require.Equal(t, "False Progressing: 1 of 3: all parts get to trust the new authorities", b.rotated())
			require.Equal(t, []string{"tls.crt", "tls.key", "next.crt", "next.key"}, b.keysOf())
		})
	}
}

// TestAnAuthorityOfAClockThatIsAhead issues when what it issues is valid.
func TestAnAuthorityOfAClockThatIsAhead(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.whole()
	b.later(time.Hour)
	b.wish(func(spec *tenancyv1alpha1.VirtualClusterSpec) { spec.RotateAfter = &metav1.Time{Time: b.clock.Now()} })
	b.reconcile()
	b.later(-50 * time.Minute)
	b.made()
	require.Equal(t, []string{"tls.crt", "tls.key", "next.crt", "next.key"}, b.keysOf())
	b.later(50 * time.Minute)
	b.reconcile()
	require.Equal(t, []string{"tls.crt", "tls.key", "previous.crt", "cross.crt"}, b.keysOf())
	b.made()
	missing, _ := b.conditions()
	require.Empty(t, cmp.Diff(map[string]string{"Rotated": "Progressing"}, missing))
}
