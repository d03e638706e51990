//go:build realnodes

package realnodes_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

const (
	// shortLife is the least --certificate-validity.
	shortLife = 5 * time.Minute
	renewals  = 3
)

// shortLived lets certificates of a tenant live for minutes, over some renewals, while a watch and a stream of exec are
// held, and a request is sent each second with the kubeconfig that there is then. No request fails, and the watch goes
// on. The stream is begun again now and then: an API server that shows another certificate to vn-agents closes all its
// connections to them, those in use and the one for which it has looked (client-go, transport/cert_rotation.go).
func (c *cluster) shortLived(t *testing.T, name string) {
	t.Helper()
	c.issueFor(t, shortLife)
	tenant, namespace := c.tenantOf(t, name), "short-lived" // it ends with the tenant
	tenant.room(t, namespace)
	tenant.create(t, namespace, newPod(t, "p", "exec sleep 3600"))
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), interval, shortLife, true, func(context.Context) (bool, error) {
		return time.Until(c.expires(t, name)) <= shortLife, nil
	}), "certificates of before are renewed")
	beats := c.beat(t, name, namespace)
	held := c.hold(t, name, namespace)

	began, expires, renewed := time.Now(), c.expires(t, name), time.Now()
	for len(beats.seen) < renewals || time.Since(renewed) < shortLife/3 { // until those of before have ended
		now := c.expires(t, name)
		require.False(t, now.Before(expires), "an earlier end")
		require.True(t, now.After(time.Now()), "a certificate has ended")
		expires = now
		require.Less(t, time.Since(began), 2*renewals*shortLife, "%d renewals", len(beats.seen))
		if beats.next(t) {
			renewed = time.Now()
		}
		held.look()
	}
	t.Logf("in %.0f s and %d renewals none of %d requests failed and the watch went on; streams ended at %v", time.Since(began).Seconds(), len(beats.seen), beats.n, held.ends)
	t.Logf("serving certificates were shown so long after they were issued: %v", beats.seen)
	require.LessOrEqual(t, len(held.ends), 2*(len(beats.seen)+1), "each of two API servers closes its connections to vn-agents once for each certificate")
	require.Equal(t, "beat", next(t, held.lines))
}

// issueFor lets vc-manager issue certificates that live so long, until the end of the test.
func (c *cluster) issueFor(t *testing.T, life time.Duration) {
	t.Helper()
	c.run(t, "vc-manager", "patch", "deployment", "vc-manager", "--type=json", "-p",
		fmt.Sprintf(`[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--certificate-validity=%s"}]`, life))
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if output, err := c.command(ctx, t, "vc-manager", "rollout", "undo", "deployment/vc-manager").CombinedOutput(); err != nil {
			t.Errorf("%s", output)
		}
	})
	c.run(t, "vc-manager", "rollout", "status", "deployment/vc-manager", "--timeout=120s")
}

// expires returns status.certificatesExpire of a VirtualCluster.
func (c *cluster) expires(t *testing.T, name string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, c.run(t, "default", "get", "virtualcluster", name, "-o", "jsonpath={.status.certificatesExpire}"))
	require.NoError(t, err)
	return at
}

// now returns a client of a tenant by the kubeconfig that there is now, on connections of its own.
func (c *cluster) now(ctx context.Context, name string) (*rest.Config, kubernetes.Interface, error) {
	secret, err := c.client.CoreV1().Secrets("default").Get(ctx, name+"-kubeconfig", metav1.GetOptions{})
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // only looked at
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // only looked at
	}
	client, err := kubernetes.NewForConfig(config)
	return config, client, err //nolint:wrapcheck // only looked at
}

// beats writes an object again and again, which a watch sees.
type beats struct {
	meta            *cluster
	name, namespace string
	watch           watch.Interface
	n               int
	// shown is when the certificate ends that an API server showed last, and seen how old each was when it was shown
	// first.
	shown time.Time
	seen  []time.Duration
}

func (c *cluster) beat(t *testing.T, name, namespace string) *beats {
	t.Helper()
	b := &beats{meta: c, name: name, namespace: namespace}
	_, client, err := c.now(t.Context(), name)
	require.NoError(t, err)
	b.watch, err = client.CoreV1().ConfigMaps(namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=beat", TimeoutSeconds: ptr.To[int64](3600)})
	require.NoError(t, err)
	t.Cleanup(b.watch.Stop)
	_, err = client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "beat"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return b
}

// next writes once, and waits until the watch has seen it, and until a second is over. It returns whether an API server
// shows another certificate.
func (b *beats) next(t *testing.T) (renewed bool) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	config, client, err := b.meta.now(ctx, b.name)
	require.NoError(t, err)
	b.n++
	_, err = client.CoreV1().ConfigMaps(b.namespace).Patch(ctx, "beat", "application/merge-patch+json", fmt.Appendf(nil, `{"data": {"n": "%d"}}`, b.n), metav1.PatchOptions{})
	require.NoError(t, err, "request %d", b.n)
	for seen := ""; seen != fmt.Sprint(b.n); {
		select {
		case event, open := <-b.watch.ResultChan():
			require.True(t, open, "the watch goes on")
			config, isConfig := event.Object.(*corev1.ConfigMap)
			require.True(t, isConfig, "%v", event)
			seen = config.Data["n"]
		case <-ctx.Done():
			require.FailNow(t, "the watch sees nothing")
		}
	}
	renewed = b.age(t, config.Host)
	time.Sleep(time.Until(began.Add(time.Second))) //nolint:forbidigo // the pace
	return renewed
}

// age looks at the certificate that an API server shows, and returns whether it is another one. Those of before, which live
// longer, may be shown for a minute yet.
func (b *beats) age(t *testing.T, host string) bool {
	t.Helper()
	at, err := url.Parse(host)
	require.NoError(t, err)
	connection, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", at.Host) //nolint:gosec // it is looked at
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	ends := connection.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter
	if !ends.After(b.shown) || time.Until(ends) > shortLife {
		return false
	}
	if !b.shown.IsZero() {
		b.seen = append(b.seen, time.Since(ends.Add(-shortLife)).Round(time.Second))
	}
	b.shown = ends
	return true
}

// held is a stream of exec that is begun again whenever it ends.
type held struct {
	begin func() <-chan string
	lines <-chan string
	began time.Time
	// ends are when streams ended, also those that ended before they said anything.
	ends []time.Duration
}

func (c *cluster) hold(t *testing.T, name, namespace string) *held {
	t.Helper()
	h := &held{began: time.Now()}
	h.begin = func() <-chan string {
		return start(t, c.tenantOf(t, name).command(t.Context(), t, namespace, "exec", "p", "--", "sh", "-c", "while :; do echo beat; sleep 0.5; done"))
	}
	h.lines = h.begin()
	require.Equal(t, "beat", next(t, h.lines))
	return h
}

// look reads what has come, and begins another stream where this one has ended.
func (h *held) look() {
	for {
		select {
		case _, open := <-h.lines:
			if open {
				continue
			}
			h.ends, h.lines = append(h.ends, time.Since(h.began).Round(time.Second)), h.begin()
			return
		default:
			return
		}
	}
}
