//go:build attacks

package attacks_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// TestSize: more than others can bear.
func TestSize(t *testing.T) {
	p := connect(t)
	before := p.served(t)
	attack(t, "config-maps", alone, func(t *testing.T) {
		namespace, super := p.attacker.sole(t, "configs")
		const limit = 60
		for i := range limit + 20 {
			require.NoError(t, p.attacker.Create(t.Context(), configMap(namespace, fmt.Sprint("c", i), "")))
		}
		eventually(t, "an Event "+tenantLimit, func(ctx context.Context) (bool, any) {
			for i := range limit + 20 {
				if p.attacker.hasWarning(ctx, configMap(namespace, fmt.Sprint("c", i), ""), []string{tenantLimit}, []string{"configmaps", strconv.Itoa(limit)}) {
					return true, nil
				}
			}
			return false, p.attacker.describe(ctx, namespace)
		})
		require.LessOrEqual(t, p.attacker.owned(t, super, "").count, limit)
		p.asServed(t, before)
	}, func(t *testing.T) {
		namespace, super := p.attacker.sole(t, "config")
		// Those of the attack go first.
		eventually(t, "there is room again", func(context.Context) (bool, any) {
			all := p.attacker.owned(t, super, "")
			return all.count < 30, all
		})
		p.attacker.create(t, configMap(namespace, "config", "data"))
		appears(t, super, p.attacker.superNamespace(namespace), "config", &corev1.ConfigMap{}, nil)
	})
	attack(t, "large-config-maps", alone, func(t *testing.T) {
		namespace, super := p.attacker.sole(t, "large")
		for i := range 6 {
			config := configMap(namespace, fmt.Sprint("large", i), strings.Repeat("x", 300<<10))
			require.NoError(t, p.attacker.Create(t.Context(), config))
		}
		eventually(t, "an Event "+tenantLimit, func(ctx context.Context) (bool, any) {
			for i := range 6 {
				if p.attacker.hasWarning(ctx, configMap(namespace, fmt.Sprint("large", i), ""), []string{tenantLimit}, []string{"bytes"}) {
					return true, nil
				}
			}
			return false, p.attacker.describe(ctx, namespace)
		})
		require.LessOrEqual(t, p.attacker.owned(t, super, "").bytes, 1<<20)
	}, func(t *testing.T) {
		namespace, super := p.attacker.sole(t, "medium")
		p.attacker.create(t, configMap(namespace, "medium", strings.Repeat("x", 200<<10)))
		appears(t, super, p.attacker.superNamespace(namespace), "medium", &corev1.ConfigMap{}, nil)
	})
	attack(t, "other-server", alone, func(t *testing.T) {
		pids := p.programs(t)
		endless := func(w http.ResponseWriter, r *http.Request) bool {
			isList := strings.HasSuffix(r.URL.Path, "/poddisruptionbudgets") || strings.HasSuffix(r.URL.Path, "/endpointslices")
			if r.Method != http.MethodGet || r.URL.Query().Get("watch") != "" || !isList {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			_, err := fmt.Fprint(w, `{"kind":"List","metadata":{"resourceVersion":"1"},"items":[`)
			for err == nil && r.Context().Err() == nil {
				_, err = fmt.Fprint(w, strings.Repeat(`{"metadata":{"name":"x","namespace":"x"}},`, 1000))
			}
			return true
		}
		defer p.lead(t, "attacker", p.server(t, p.attacker.cluster, endless))()
		p.ready(t, metav1.ConditionFalse, tenancyv1alpha1.ReasonTooMuchData, "limits.")
		p.asServed(t, before)
		require.Equal(t, pids, p.programs(t), "a program has ended")
	}, func(t *testing.T) {
		p.ready(t, metav1.ConditionTrue, tenancyv1alpha1.ReasonConnected)
		namespace, _ := p.attacker.sole(t, "back")
		p.attacker.runs(t, newPod(t, namespace, "back", ""))
	})
	attack(t, "long-errors", alone, func(t *testing.T) {
		forbidden := func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.URL.Path, "/api/v1/namespaces") || !strings.Contains(r.URL.String(), "kube-system") {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":%q}`, strings.Repeat("no way ", 6000))
			return true
		}
		defer p.lead(t, "attacker", p.server(t, p.attacker.cluster, forbidden))()
		condition := p.ready(t, metav1.ConditionFalse, "", "no way")
		require.LessOrEqual(t, len(condition.Message), 32768)
	}, func(t *testing.T) {
		p.ready(t, metav1.ConditionTrue, tenancyv1alpha1.ReasonConnected)
	})
}

// amount is a number of objects and their size.
type amount struct{ count, bytes int }

// owned returns the tenant's ConfigMaps in a super cluster, in all namespaces for "".
func (c *tenant) owned(t *testing.T, super *cluster, namespace string) amount {
	t.Helper()
	var list corev1.ConfigMapList
	require.NoError(t, super.List(t.Context(), &list, client.InNamespace(namespace), client.MatchingLabels{tenancyv1alpha1.LabelCluster: c.key}))
	sum := amount{count: len(list.Items)}
	for i := range list.Items {
		sum.bytes += list.Items[i].Size()
	}
	return sum
}

// programs returns the pids of the pool's programs, each of which runs and holds no more than it should.
func (p *pool) programs(t *testing.T) map[string]string {
	t.Helper()
	const mostMemory = 2 << 20 // KiB
	pids := map[string]string{}
	for _, program := range bed.Programs {
		pids[program.Name] = strconv.Itoa(program.Process.PID())
		require.Less(t, memory(t, pids[program.Name], "VmRSS"), mostMemory, "%s", program.Name)
	}
	return pids
}

// ready waits until condition Ready of the attacker's VirtualCluster is as wanted, with that reason unless it is "",
// and a message with these texts.
func (p *pool) ready(t *testing.T, status metav1.ConditionStatus, reason string, texts ...string) *metav1.Condition {
	t.Helper()
	var ready *metav1.Condition
	eventually(t, fmt.Sprintf("Ready is %s, %s", status, reason), func(ctx context.Context) (bool, any) {
		vc := &tenancyv1alpha1.VirtualCluster{}
		if err := p.meta.Get(ctx, client.ObjectKey{Namespace: "default", Name: "attacker"}, vc); err != nil {
			return false, err
		}
		ready = meta.FindStatusCondition(vc.Status.Conditions, tenancyv1alpha1.ConditionReady)
		return ready != nil && ready.Status == status && (reason == "" || ready.Reason == reason) && containsAll(ready.Message, texts), fmt.Sprintf("%.500v", ready)
	})
	return ready
}

// lead puts another kubeconfig into a tenant's Secret, and returns a function that puts the former one back.
func (p *pool) lead(t *testing.T, name string, kubeconfig []byte) func() {
	t.Helper()
	var former []byte
	put := func(kubeconfig []byte) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		change(t, p.meta, secret, func(secret *corev1.Secret) {
			former, secret.Data["value"] = secret.Data["value"], kubeconfig
		})
	}
	put(kubeconfig)
	before := former
	return func() { put(before) }
}

// server starts a control plane's API server as its owner can: fault answers the requests for which it returns true,
// the API server all others. It returns a kubeconfig for it.
func (p *pool) server(t *testing.T, of *cluster, fault func(http.ResponseWriter, *http.Request) bool) []byte {
	t.Helper()
	host, err := url.Parse(of.config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(of.config)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(request *httputil.ProxyRequest) {
		request.SetURL(host)
		request.Out.Header.Del("Authorization")
	}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !fault(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "any"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	content, err := clientcmd.Write(*config)
	require.NoError(t, err)
	return content
}

// TestTime: what lasts too long, or ends too early.
//
//nolint:gocyclo // one attack after the other, with its twin
func TestTime(t *testing.T) {
	p := connect(t)
	before := p.served(t)
	attack(t, "grace", alone, func(t *testing.T) {
		namespace, _ := p.attacker.sole(t, "grace")
		superPod, _ := p.attacker.runs(t, newPod(t, namespace, "year", `terminationGracePeriodSeconds: 31536000`))
		require.Equal(t, int64(60), *superPod.Spec.TerminationGracePeriodSeconds)
	}, func(t *testing.T) {
		namespace, _ := p.attacker.sole(t, "graceful")
		superPod, _ := p.attacker.runs(t, newPod(t, namespace, "half-a-minute", `terminationGracePeriodSeconds: 30`))
		require.Equal(t, int64(30), *superPod.Spec.TerminationGracePeriodSeconds)
	})
	attack(t, "force-delete", alone, func(t *testing.T) {
		namespace, super := p.attacker.sole(t, "force")
		pod := newPod(t, namespace, "forced", `terminationGracePeriodSeconds: 31536000`)
		p.attacker.runs(t, pod)
		resume := p.stopNodes(t, super)
		defer resume()
		require.NoError(t, p.attacker.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		require.NoError(t, p.attacker.Delete(t.Context(), object))
		eventually(t, "the tenant's namespace is gone", func(ctx context.Context) (bool, any) {
			err := p.attacker.Get(ctx, client.ObjectKeyFromObject(object), object)
			return apierrors.IsNotFound(err), object.Status
		})
		eventually(t, "the super pod is being deleted", func(ctx context.Context) (bool, any) {
			superPod := p.attacker.superPod(ctx, t, pod)
			return superPod != nil && superPod.DeletionTimestamp != nil && ptr.Deref(superPod.DeletionGracePeriodSeconds, 0) <= 60, superPod
		})
		for started := time.Now(); time.Since(started) < 5*time.Second; {
			np := p.attacker.placement(t.Context(), namespace)
			if p.attacker.superPod(t.Context(), t, pod) == nil {
				break // a node that does not answer for long lets it go
			}
			require.NotNil(t, np, "the reservation is gone, and the super pod runs")
			require.Positive(t, reserved(np.Status.Placements).Sign(), "nothing is reserved, and the super pod runs")
		}
		resume()
		eventually(t, "the reservation goes with the super pod", func(ctx context.Context) (bool, any) {
			return p.attacker.placement(ctx, namespace) == nil, p.attacker.describe(ctx, namespace)
		})
	}, func(t *testing.T) {
		namespace, _ := p.attacker.sole(t, "delete")
		p.attacker.runs(t, newPod(t, namespace, "deleted", ""))
		require.NoError(t, p.attacker.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		eventually(t, "the reservation is gone", func(ctx context.Context) (bool, any) {
			return p.attacker.placement(ctx, namespace) == nil, p.attacker.describe(ctx, namespace)
		})
	})
	attack(t, "forged-end", alone, func(t *testing.T) {
		namespace, _ := p.attacker.sole(t, "forged")
		pod := newPod(t, namespace, "ended", `containers: [{name: c, resources: {requests: {cpu: 150m}}}]`)
		p.attacker.runs(t, pod)
		eventually(t, "the phase is forged", func(ctx context.Context) (bool, any) {
			if err := p.attacker.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return false, err
			}
			pod.Status.Phase = corev1.PodSucceeded
			err := p.attacker.Status().Update(ctx, pod)
			return err == nil, err
		})
		change(t, p.attacker.cluster, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}}, func(quota *corev1.ResourceQuota) {
			quota.Spec.Hard["requests.cpu"] = resource.MustParse("10m")
		})
		for started := time.Now(); time.Since(started) < 6*time.Second; {
			np := p.attacker.placement(t.Context(), namespace)
			superPod := p.attacker.superPod(t.Context(), t, pod)
			if superPod == nil || superPod.Status.Phase != corev1.PodRunning {
				break
			}
			require.NotNil(t, np)
			require.GreaterOrEqual(t, reserved(np.Status.Placements).MilliValue(), int64(150), "less is reserved than the super pod uses")
		}
		require.NoError(t, client.IgnoreNotFound(p.attacker.Delete(t.Context(), pod)))
		eventually(t, "what is not used any more is free", func(ctx context.Context) (bool, any) {
			np := p.attacker.placement(ctx, namespace)
			return np != nil && reserved(np.Status.Placements).MilliValue() == 10, p.attacker.describe(ctx, namespace)
		})
	}, func(t *testing.T) {
		namespace, _ := p.attacker.sole(t, "shrunk")
		change(t, p.attacker.cluster, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "quota"}}, func(quota *corev1.ResourceQuota) {
			quota.Spec.Hard["requests.cpu"] = resource.MustParse("10m")
		})
		eventually(t, "the reservation has shrunk", func(ctx context.Context) (bool, any) {
			np := p.attacker.placement(ctx, namespace)
			return np != nil && reserved(np.Status.Placements).MilliValue() == 10, p.attacker.describe(ctx, namespace)
		})
	})
	attack(t, "slow-webhook", alone, func(t *testing.T) {
		slow := func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet {
				select {
				case <-time.After(8 * time.Second):
				case <-r.Context().Done():
				}
			}
			return false
		}
		namespace := p.attacker.place(t, "slow", "", hard("requests.cpu", "1", "requests.memory", "1Gi", "pods", "60"))
		defer p.lead(t, "attacker", p.server(t, p.attacker.cluster, slow))()
		for i := range 50 {
			p.attacker.create(t, newPod(t, namespace, fmt.Sprint("slow-", i), ""))
		}
		for range 3 {
			p.asServed(t, before)
		}
	}, func(t *testing.T) {
		p.ready(t, metav1.ConditionTrue, tenancyv1alpha1.ReasonConnected)
		namespace, _ := p.attacker.sole(t, "fast")
		p.attacker.runs(t, newPod(t, namespace, "fast", ""))
	})
	attack(t, "other-control-plane", alone, func(t *testing.T) {
		namespace, _ := p.attacker.sole(t, "mine")
		pod := newPod(t, namespace, "mine", "")
		superPod, _ := p.attacker.runs(t, pod)
		restore := p.lead(t, "attacker", p.neighbour.kubeconfig)
		defer restore()
		p.ready(t, metav1.ConditionFalse, tenancyv1alpha1.ReasonControlPlaneChanged)
		p.asServed(t, before)
		still := p.attacker.superPod(t.Context(), t, pod)
		require.NotNil(t, still, "the super pod was deleted")
		require.Equal(t, superPod.UID, still.UID)
		require.Nil(t, still.DeletionTimestamp)
		require.NotNil(t, p.attacker.placement(t.Context(), namespace))
	}, func(t *testing.T) {
		p.ready(t, metav1.ConditionTrue, tenancyv1alpha1.ReasonConnected)
		namespace, _ := p.attacker.sole(t, "mine-again")
		p.attacker.runs(t, newPod(t, namespace, "mine", ""))
	})
}

// stopNodes stops the fake nodes of a super cluster, so that no pod of it ends, and returns a function that lets them
// go on.
func (p *pool) stopNodes(t *testing.T, super *cluster) (resume func()) {
	t.Helper()
	pid := super.kwok.Process.PID()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	return func() { require.NoError(t, syscall.Kill(pid, syscall.SIGCONT)) }
}

// reserved returns the CPU that placements reserve.
func reserved(placements []schedulerv1alpha1.ClusterPlacement) *resource.Quantity {
	sum := &resource.Quantity{}
	for i := range placements {
		sum.Add(placements[i].Reserved[corev1.ResourceCPU])
	}
	return sum
}
