package provision

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/controlplane"
	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/test/controlplane/launch"
)

// pods runs what workloads of a root namespace say as processes of this machine, one for each, as kubelets and the
// controllers of the meta cluster would as pods: with the files that their volumes have, on free ports of this machine in
// the place of pods' addresses.
type pods struct {
	meta      client.Client
	namespace string
	folder    string
	ports     launch.Ports
	bin       string
	running   map[string]*launch.Process
}

// url returns where the API server that runs serves.
func (p *pods) url() string { return "https://localhost:" + strconv.Itoa(p.ports.APIServer) }

// here returns a text of a pod as it is on this machine.
func (p *pods) here(component, text string) string {
	host := func(name string) string { return name + "." + p.namespace + ".svc" }
	port := func(port int) string { return ":" + strconv.Itoa(port) }
	return strings.NewReplacer(
		host("$(POD_NAME).etcd"), "localhost", host("etcd-0.etcd"), "localhost", host(controlplane.APIServer), "localhost", "$(POD_NAME)", "etcd-0",
		":2379", port(p.ports.Etcd), ":2380", port(p.ports.EtcdPeers), ":2381", port(p.ports.Scheduler), ":6443", port(p.ports.APIServer), ":10257", port(p.ports.ControllerManager),
		"-port=6443", "-port="+strconv.Itoa(p.ports.APIServer), "-port=10257", "-port="+strconv.Itoa(p.ports.ControllerManager), "0.0.0.0", "127.0.0.1",
		"/etc/kubernetes/pki", p.files(component), "/var/lib/etcd", filepath.Join(p.folder, "data"),
	).Replace(text)
}

func (p *pods) files(component string) string { return filepath.Join(p.folder, component) }

// write writes the files of a pod's certificates.
func (p *pods) write(ctx context.Context, component string, pod *corev1.PodSpec) error {
	for _, source := range pod.Volumes[0].Projected.Sources {
		secret := &corev1.Secret{}
		if err := p.meta.Get(ctx, types.NamespacedName{Namespace: p.namespace, Name: source.Secret.Name}, secret); err != nil {
			return err
		}
		for _, item := range source.Secret.Items {
			content, exists := secret.Data[item.Key]
			if !exists {
				return fmt.Errorf("Secret %s has no key %s", secret.Name, item.Key)
			}
			file, wanted := filepath.Join(p.files(component), item.Path), []byte(p.here(component, string(content)))
			if written, err := os.ReadFile(file); err == nil && bytes.Equal(written, wanted) {
				continue
			}
			if err := pki.WriteFile(file, wanted); err != nil {
				return err
			}
		}
	}
	return nil
}

// start runs a pod if it does not run, and returns how many of it are ready.
func (p *pods) start(ctx context.Context, component string, pod *corev1.PodSpec) (ready int32, err error) {
	if err := p.write(ctx, component, pod); err != nil { // as they are now, in a pod that runs, too
		return 0, err
	}
	if p.running[component] != nil {
		if p.ready(ctx, pod) {
			ready = 1
		}
		return ready, nil
	}
	command := []string{filepath.Join(p.bin, component)}
	for _, argument := range pod.Containers[0].Command[1:] {
		command = append(command, p.here(component, argument))
	}
	if component == controlplane.Etcd {
		command = append(command, "--socket-reuse-port", "--unsafe-no-fsync")
	} else {
		command = append(command, "--permit-port-sharing")
	}
	process, err := launch.Run(p.folder, component, command)
	if err == nil {
		p.running[component] = process
	}
	return 0, err
}

// ready reports whether a pod's readiness probe is answered, as a kubelet would ask it.
func (p *pods) ready(ctx context.Context, pod *corev1.PodSpec) bool {
	probe := pod.Containers[0].ReadinessProbe.HTTPGet
	scheme := strings.ToLower(string(probe.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	url := p.here("", fmt.Sprintf("%s://localhost:%d%s", scheme, probe.Port.IntValue(), probe.Path))
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
var probes = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // it sends nothing

// shown returns the serial numbers of the certificates that the API server and etcd show, by port.
func (p *pods) shown(t *testing.T) map[int]string {
	t.Helper()
	serials := map[int]string{}
	for _, port := range []int{p.ports.APIServer, p.ports.Etcd} {
		dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it sends nothing
		conn, err := dialer.DialContext(t.Context(), "tcp", "localhost:"+strconv.Itoa(port))
		require.NoError(t, err)
		serials[port] = conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
		require.NoError(t, conn.Close())
	}
	return serials
}

// run runs all workloads until the test ends, and says of each whether its pod is ready.
func (p *pods) run(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	t.Cleanup(func() {
		stop()
		<-done
		for name, process := range p.running {
			process.Kill()
			if t.Failed() {
				log, _ := os.ReadFile(process.Log)
				t.Logf("%s:\n%s", name, log[max(0, len(log)-4000):])
			}
		}
	})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := p.once(ctx); err != nil && ctx.Err() == nil {
				t.Logf("running pods: %v", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
}

func (p *pods) once(ctx context.Context) error {
	var sets appsv1.StatefulSetList
	if err := p.meta.List(ctx, &sets, client.InNamespace(p.namespace)); err != nil {
		return err
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		ready, err := p.start(ctx, set.Name, &set.Spec.Template.Spec)
		if err != nil {
			return err
		}
		set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: 1, ReadyReplicas: ready, UpdatedReplicas: 1, AvailableReplicas: ready}
		if err := p.meta.Status().Update(ctx, set); err != nil {
			return err
		}
	}
	var deployments appsv1.DeploymentList
	if err := p.meta.List(ctx, &deployments, client.InNamespace(p.namespace)); err != nil {
		return err
	}
	for i := range deployments.Items {
		deployment := &deployments.Items[i]
		ready, err := p.start(ctx, deployment.Name, &deployment.Spec.Template.Spec)
		if err != nil {
			return err
		}
		deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: 1, ReadyReplicas: ready, UpdatedReplicas: 1, AvailableReplicas: ready}
		if err := p.meta.Status().Update(ctx, deployment); err != nil {
			return err
		}
	}
	return nil
}

// newPods returns the pods of a root namespace.
func newPods(t *testing.T, meta client.Client, namespace, bin string) *pods {
	t.Helper()
	ports, release, err := launch.ReservePorts()
	require.NoError(t, err)
	t.Cleanup(release)
	return &pods{meta: meta, namespace: namespace, folder: t.TempDir(), ports: ports, bin: bin, running: map[string]*launch.Process{}}
}
