package provision

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/test/controlplane/launch"
)

// kubelet runs the pods of a root namespace as processes of this machine: with the files of their volumes, a folder for
// each claim, and an address for each pod, in 127.0.0.0/8. The meta cluster's own controllers make the pods.
type kubelet struct {
	meta           client.Client
	namespace, bin string
	// folder holds the files of pods, and network is the URL of the proxy by which pods reach each other by name.
	folder, network string
	// first are the first three bytes of all addresses.
	first string

	// mu guards what follows, which one goroutine alone changes.
	mu sync.Mutex
	// pods that run, by name.
	pods map[string]*pod
	// addresses are those of names: a member of a StatefulSet keeps its own.
	addresses map[string]string
	// fewest is how many pods of etcd that had once been ready ran at least, since it was set.
	fewest int
}

// pod is one that runs.
type pod struct {
	uid       types.UID
	component string
	address   string
	// ready is whether it is, and wasReady whether it was once.
	ready, wasReady bool
	process         *launch.Process
	// ended is when its program ended by itself, zero while it runs, and unsaid whether it was started since its status was said.
	ended  time.Time
	unsaid bool
}

// network returns the first three bytes of addresses of this machine that nobody else is likely to use.
func network() string {
	return fmt.Sprintf("127.%d.%d.", 64+rand.IntN(64), rand.IntN(256)) //nolint:gosec // no secret
}

// newKubelet returns a kubelet that runs until the test ends.
func newKubelet(t *testing.T, meta client.Client, namespace, bin string) *kubelet {
	t.Helper()
	k := &kubelet{
		meta: meta, namespace: namespace, bin: bin, folder: t.TempDir(), first: network(),
		pods: map[string]*pod{}, addresses: map[string]string{},
	}
	k.network = serveNetwork(t, k.dial)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	t.Cleanup(func() {
		stop()
		<-done
		for name, pod := range k.pods {
			pod.process.Kill()
			if t.Failed() {
				log, _ := os.ReadFile(pod.process.Log)
				t.Logf("%s:\n%s", name, log[max(0, len(log)-4000):])
			}
		}
	})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := k.once(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				t.Logf("running pods: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(tick):
			}
		}
	}()
	return k
}

// once brings what runs to what pods say.
func (k *kubelet) once(ctx context.Context) error {
	var list corev1.PodList
	if err := k.meta.List(ctx, &list, client.InNamespace(k.namespace)); err != nil {
		return err
	}
	for name, running := range k.pods {
		if !slices.ContainsFunc(list.Items, func(pod corev1.Pod) bool { return pod.UID == running.uid && pod.DeletionTimestamp == nil }) {
			running.process.Kill()
			k.change(func() { delete(k.pods, name); k.fewest = min(k.fewest, k.storesLocked()) })
		}
	}
	for i := range list.Items {
		if err := k.run(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// storesLocked returns how many pods of etcd run that were ready once.
func (k *kubelet) storesLocked() (n int) {
	for _, running := range k.pods {
		if running.component == "etcd" && running.wasReady {
			n++
		}
	}
	return n
}

// change changes what mu guards.
func (k *kubelet) change(what func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	what()
}

// run runs a pod, again if it has ended, and says whether it is ready.
func (k *kubelet) run(ctx context.Context, of *corev1.Pod) error {
	running := k.pods[of.Name]
	if of.Spec.RestartPolicy == corev1.RestartPolicyNever {
		if ended, err := k.end(ctx, of, running); ended || err != nil {
			return err
		}
	}
	if running == nil {
		running = &pod{uid: of.UID, component: of.Labels["app.kubernetes.io/name"], address: k.addressOf(of.Name)}
	}
	if err := k.write(ctx, of, running.address); err != nil {
		return err
	}
	if err := k.start(ctx, of, running); err != nil || !running.ended.IsZero() {
		return err
	}
	ready := of.Spec.Containers[0].ReadinessProbe != nil && isReady(ctx, of, running.address)
	if running.ready == ready && of.Status.PodIP != "" && !running.unsaid {
		return nil
	}
	before := running.ready
	k.change(func() { running.ready = ready })
	if err := k.say(ctx, of, running); err != nil {
		k.change(func() { running.ready = before })
		return err
	}
	k.change(func() { running.wasReady, running.unsaid = running.wasReady || ready, false })
	return nil
}

// start starts the program of a pod that does not run, and says so where it has ended: it is started again after backOff.
func (k *kubelet) start(ctx context.Context, of *corev1.Pod, running *pod) error {
	if running.process != nil && running.process.Ended() && running.ended.IsZero() {
		running.ended = time.Now()
		k.change(func() { running.ready = false })
		return k.say(ctx, of, running)
	}
	if running.process != nil && running.ended.IsZero() || time.Since(running.ended) < backOff {
		return nil
	}
	command, err := k.command(ctx, of, running.address)
	if err != nil {
		return err
	}
	process, err := launch.Run(k.folder, of.Name, command)
	if err != nil {
		return err
	}
	k.change(func() {
		running.process, running.ended, running.unsaid, k.pods[of.Name] = process, time.Time{}, true, running
	})
	return nil
}

// backOff is after how long a program is started again that has ended.
const backOff = time.Second

// say says that a pod runs, or that its program has ended, and whether it is ready.
func (k *kubelet) say(ctx context.Context, of *corev1.Pod, running *pod) error {
	ready, address := running.ready, running.address
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live := &corev1.Pod{}
		if err := k.meta.Get(ctx, client.ObjectKeyFromObject(of), live); err != nil || live.UID != of.UID {
			return client.IgnoreNotFound(err)
		}
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		live.Status.Phase, live.Status.PodIP, live.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
		live.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
		live.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: live.Spec.Containers[0].Name, Image: live.Spec.Containers[0].Image, Ready: ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}
		if !running.ended.IsZero() {
			live.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			live.Status.ContainerStatuses[0].RestartCount = 1
			live.Status.ContainerStatuses[0].LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
		}
		return k.meta.Status().Update(ctx, live)
	})
}

// end says what became of a pod that runs once, and reports whether it has ended. running is nil where it does not run.
func (k *kubelet) end(ctx context.Context, of *corev1.Pod, running *pod) (bool, error) {
	if of.Status.Phase == corev1.PodSucceeded || of.Status.Phase == corev1.PodFailed {
		return true, nil
	}
	if running == nil || !running.process.Ended() {
		return false, nil
	}
	of.Status.Phase = corev1.PodFailed
	if running.process.Succeeded() {
		of.Status.Phase = corev1.PodSucceeded
	}
	if err := k.meta.Status().Update(ctx, of); err != nil {
		return false, err
	}
	k.change(func() { delete(k.pods, of.Name) })
	return true, nil
}

func (k *kubelet) addressOf(name string) string {
	if k.addresses[name] == "" {
		k.change(func() { k.addresses[name] = fmt.Sprintf("%s%d", k.first, 1+len(k.addresses)) })
	}
	return k.addresses[name]
}

// files returns the folder of a pod's certificates.
func (k *kubelet) files(name string) string { return filepath.Join(k.folder, name) }

// here returns a text of a pod as it is on this machine, with the folders of its volumes in the place of their paths.
func (k *kubelet) here(name, address string, volumes []string, text string) string {
	return strings.NewReplacer(append([]string{"$(POD_NAME)", name, "0.0.0.0", address, "/etc/kubernetes/pki", k.files(name), "/etc/kubernetes/files", k.files(name)}, volumes...)...).Replace(text)
}

// write writes the files of a pod's certificates as they are now, in a pod that runs, too.
func (k *kubelet) write(ctx context.Context, of *corev1.Pod, address string) error {
	for _, volume := range of.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.DownwardAPI != nil {
				for _, item := range source.DownwardAPI.Items {
					key := strings.TrimSuffix(strings.TrimPrefix(item.FieldRef.FieldPath, "metadata.annotations['"), "']")
					if err := k.writeFile(of.Name, address, item.Path, of.Annotations[key]); err != nil {
						return err
					}
				}
				continue
			}
			secret := &corev1.Secret{}
			if err := k.meta.Get(ctx, types.NamespacedName{Namespace: k.namespace, Name: source.Secret.Name}, secret); err != nil {
				return err
			}
			for _, item := range source.Secret.Items {
				content, exists := secret.Data[item.Key]
				if !exists {
					return fmt.Errorf("Secret %s has no key %s", secret.Name, item.Key)
				}
				if err := k.writeFile(of.Name, address, item.Path, string(content)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// writeFile writes a file of a pod, if it has another content.
func (k *kubelet) writeFile(name, address, path, content string) error {
	file, wanted := filepath.Join(k.files(name), path), []byte(k.here(name, address, nil, content))
	if written, err := os.ReadFile(file); err == nil && bytes.Equal(written, wanted) {
		return nil
	}
	return pki.WriteFile(file, wanted)
}

// command returns the command of a pod's container, with its environment.
func (k *kubelet) command(ctx context.Context, of *corev1.Pod, address string) ([]string, error) {
	volumes, err := k.volumes(ctx, of)
	if err != nil {
		return nil, err
	}
	container := &of.Spec.Containers[0]
	command := []string{"/usr/bin/env", "HTTPS_PROXY=" + k.network}
	for _, env := range container.Env {
		value := env.Value
		if env.ValueFrom != nil && env.ValueFrom.ConfigMapKeyRef != nil {
			config := &corev1.ConfigMap{}
			if err := k.meta.Get(ctx, types.NamespacedName{Namespace: k.namespace, Name: env.ValueFrom.ConfigMapKeyRef.Name}, config); err != nil {
				return nil, err
			}
			value = config.Data[env.ValueFrom.ConfigMapKeyRef.Key]
		}
		command = append(command, env.Name+"="+value)
	}
	command = append(command, filepath.Join(k.bin, container.Command[0]))
	for _, argument := range container.Command[1:] {
		command = append(command, k.here(of.Name, address, volumes, argument))
	}
	if container.Name == "etcd" {
		command = append(command, "--unsafe-no-fsync")
	}
	return command, nil
}

// volumes returns the paths of a pod's claims, each with the folder that it is here, which it makes.
func (k *kubelet) volumes(ctx context.Context, of *corev1.Pod) (paths []string, err error) {
	for _, volume := range of.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		if err := k.meta.Get(ctx, types.NamespacedName{Namespace: k.namespace, Name: volume.PersistentVolumeClaim.ClaimName}, claim); err != nil {
			return nil, err
		}
		folder := filepath.Join(k.folder, "volumes", string(claim.UID))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		for _, mount := range of.Spec.Containers[0].VolumeMounts {
			if mount.Name == volume.Name {
				paths = append(paths, mount.MountPath, folder)
			}
		}
	}
	return paths, nil
}

// isReady reports whether a pod's readiness probe is answered.
func isReady(ctx context.Context, of *corev1.Pod, address string) bool {
	probe := of.Spec.Containers[0].ReadinessProbe.HTTPGet
	url := fmt.Sprintf("%s://%s:%d%s", strings.ToLower(cmp.Or(string(probe.Scheme), "http")), address, probe.Port.IntValue(), probe.Path)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := probes.Do(request)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// probes trusts any certificate, as kubelets do.
var probes = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // it sends nothing

// dial connects to a name of the root namespace: that of a pod, or of a Service with a pod that is ready.
func (k *kubelet) dial(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	name, isOurs := strings.CutSuffix(host, "."+k.namespace+".svc")
	if !isOurs {
		return nil, fmt.Errorf("there is no host %s", host)
	}
	name, _, _ = strings.Cut(name, ".")
	k.mu.Lock()
	target := k.addresses[name]
	for _, other := range slices.Sorted(maps.Keys(k.pods)) {
		if running := k.pods[other]; running.component == name && running.ready {
			target = running.address
		}
	}
	k.mu.Unlock()
	if target == "" {
		return nil, fmt.Errorf("nothing is at %s", host)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(target, port))
}

// shown returns the serial numbers of the certificates that the pods of API servers and etcd show, by name. One that has a
// new key already, and not its certificate, shows none.
func (k *kubelet) shown(ctx context.Context) (map[string]string, error) {
	serials := map[string]string{}
	for address, name := range map[string]string{":6443": "kube-apiserver", ":2379": "etcd-0.etcd"} {
		raw, err := k.dial(ctx, name+"."+k.namespace+".svc"+address)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it sends nothing
		if err := conn.HandshakeContext(ctx); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		serials[name] = conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
		if err := conn.Close(); err != nil {
			return nil, err
		}
	}
	return serials, nil
}

// serveNetwork serves a proxy until the test ends, and returns its URL.
func serveNetwork(t *testing.T, dial func(context.Context, string) (net.Conn, error)) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, err := dial(r.Context(), r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer to.Close() //nolint:errcheck // nobody waits for it
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer from.Close() //nolint:errcheck // nobody waits for it
		if _, err := io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
			return
		}
		ended := make(chan struct{}, 2)
		for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1]) // it ends when one of the two closes
				ended <- struct{}{}
			}()
		}
		<-ended
	})}
	go func() { _ = server.Serve(listener) }() // it ends with the test
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return "http://" + listener.Addr().String()
}

// pids returns the process of each pod, by name.
func (k *kubelet) pids() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	pids := map[string]int{}
	for name, running := range k.pods {
		pids[name] = running.process.PID()
	}
	return pids
}

// uids returns the UID of each pod that runs, by name.
func (k *kubelet) uids() map[string]types.UID {
	k.mu.Lock()
	defer k.mu.Unlock()
	uids := map[string]types.UID{}
	for name, running := range k.pods {
		uids[name] = running.uid
	}
	return uids
}

// log returns what a pod of a component that is ready has printed.
func (k *kubelet) log(component string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, running := range k.pods {
		if running.component == component && running.ready {
			log, _ := os.ReadFile(running.process.Log)
			return log
		}
	}
	return nil
}

// count returns how many pods of a component run.
func (k *kubelet) count(component string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, running := range k.pods {
		if running.component == component {
			n++
		}
	}
	return n
}
