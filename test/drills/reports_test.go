//go:build drills

package drills_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

// orders is the namespace of TestReports.
const orders = "orders"

// TestReports: what users of other virtual clusters and federations have reported as bugs of those, of a tenant with
// policy standard whose controllers run. Each case leaves what it made, under names of its own.
func TestReports(t *testing.T) {
	ctx := bounded(t)
	b := newBed(ctx, t, "standard")
	for _, super := range b.supers {
		require.NoError(t, controlplane.Create(ctx, super.Client,
			&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disks"}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)},
			&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/web"}}))
	}
	b.create(ctx, t, "orders.yaml")
	eventually(ctx, t, "the placements", map[string]int{"r1": 1, "r2": 1}, b.placements(orders))
	for _, report := range []struct {
		name string
		run  func(b *bed, ctx context.Context, t *testing.T)
	}{
		{"a Secret that is made again has another type", (*bed).secretOfAnotherType},
		{"a copy that is changed is put back", (*bed).changedCopy},
		{"a Service has one type after the other", (*bed).serviceOfManyTypes},
		{"a load balancer's address comes up from the home", (*bed).loadBalancer},
		{"endpoints come before their Service", (*bed).endpointsFirst},
		{"a Service and its pods are made again at once", (*bed).serviceAgain},
		{"a Job has dots in its name", (*bed).jobWithDots},
		{"gates of a pod are removed one by one", (*bed).gates},
		{"a claim and its pod are deleted", (*bed).claimAgain},
		{"an Ingress goes down", (*bed).ingress},
		{"what a tenant writes whole is put right", (*bed).replaced},
		{"a super namespace is deleted", (*bed).superNamespaceDeleted},
	} {
		passed := t.Run(report.name, func(t *testing.T) {
			defer func() { assert.NoError(t, b.Ended()) }()
			report.run(b, ctx, t)
		})
		if !passed {
			var events corev1.EventList
			require.NoError(t, b.tenant.List(ctx, &events, client.InNamespace(orders)))
			for i := range events.Items {
				event := &events.Items[i]
				t.Log(event.Type, event.Reason, event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Message)
			}
			t.Fatal("the cases after it were not run")
		}
	}
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: orders, Name: name} }

// below waits until holds returns no error of the copy of an object in each super cluster.
func below[T client.Object](ctx context.Context, t *testing.T, b *bed, of T, holds func(copied T) error) {
	t.Helper()
	for id, super := range b.supers {
		eventually(ctx, t, fmt.Sprintf("whether %s is right in %s", of.GetName(), id), true, func(ctx context.Context) (bool, error) {
			copied := of.DeepCopyObject().(T)
			if err := super.Client.Get(ctx, client.ObjectKey{Namespace: tenancy.SuperNamespace(b.key, orders), Name: of.GetName()}, copied); err != nil {
				return false, err
			}
			return true, holds(copied)
		})
	}
}

// goneBelow waits until no super cluster has a copy of an object.
func goneBelow[T client.Object](ctx context.Context, t *testing.T, b *bed, of T) {
	t.Helper()
	for id, super := range b.supers {
		eventually(ctx, t, fmt.Sprintf("whether %s is gone in %s", of.GetName(), id), true, func(ctx context.Context) (bool, error) {
			err := super.Client.Get(ctx, client.ObjectKey{Namespace: tenancy.SuperNamespace(b.key, orders), Name: of.GetName()}, of.DeepCopyObject().(T))
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
}

// is returns an error unless both are equal.
func is[T comparable](want, got T) error {
	if want != got {
		return fmt.Errorf("it is %v, not %v", got, want)
	}
	return nil
}

func (b *bed) secretOfAnotherType(ctx context.Context, t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: named("registry"), StringData: map[string]string{"a": "b"}}
	require.NoError(t, b.tenant.Create(ctx, secret))
	below(ctx, t, b, secret, func(copied *corev1.Secret) error { return is(corev1.SecretTypeOpaque, copied.Type) })
	require.NoError(t, b.tenant.Delete(ctx, secret))
	require.NoError(t, b.tenant.Create(ctx, &corev1.Secret{
		ObjectMeta: named("registry"), Type: corev1.SecretTypeDockerConfigJson, StringData: map[string]string{corev1.DockerConfigJsonKey: `{"auths":{}}`},
	}))
	below(ctx, t, b, secret, func(copied *corev1.Secret) error { return is(corev1.SecretTypeDockerConfigJson, copied.Type) })
}

func (b *bed) changedCopy(ctx context.Context, t *testing.T) {
	config := &corev1.ConfigMap{ObjectMeta: named("drift"), Data: map[string]string{"key": "value"}}
	require.NoError(t, b.tenant.Create(ctx, config))
	asWritten := func(copied *corev1.ConfigMap) error { return is("value", copied.Data["key"]) }
	below(ctx, t, b, config, asWritten)
	for _, super := range b.supers {
		copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenancy.SuperNamespace(b.key, orders), Name: config.Name}}
		await.Change(t, super.Client, copied, func(copied *corev1.ConfigMap) { copied.Data["key"] = "changed" })
	}
	below(ctx, t, b, config, asWritten)
}

func (b *bed) serviceOfManyTypes(ctx context.Context, t *testing.T) {
	service := &corev1.Service{ObjectMeta: named("many"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "a.example.com"}}
	require.NoError(t, b.tenant.Create(ctx, service))
	external := func(spec *corev1.ServiceSpec) {
		*spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "b.example.com"}
	}
	port := corev1.ServicePort{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 80}
	for _, change := range []func(spec *corev1.ServiceSpec){
		func(spec *corev1.ServiceSpec) {
			*spec = corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{port}}
		},
		external,
		func(spec *corev1.ServiceSpec) {
			*spec = corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{port}}
		},
		external,
		func(spec *corev1.ServiceSpec) {
			udp := corev1.ServicePort{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80}
			*spec = corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{port, udp}}
		},
	} {
		await.Change(t, b.tenant, service, func(service *corev1.Service) { change(&service.Spec) })
		require.NoError(t, b.tenant.Get(ctx, client.ObjectKeyFromObject(service), service))
		want := service.Spec
		if want.Type == corev1.ServiceTypeExternalName { // a name for the tenant's DNS: nothing of it goes down
			goneBelow(ctx, t, b, service)
			continue
		}
		below(ctx, t, b, service, func(copied *corev1.Service) error {
			return errors.Join(is(want.Type, copied.Spec.Type),
				is(want.ClusterIP == corev1.ClusterIPNone, copied.Spec.ClusterIP == corev1.ClusterIPNone), is(len(want.Ports), len(copied.Spec.Ports)))
		})
	}
}

func (b *bed) loadBalancer(ctx context.Context, t *testing.T) {
	service := &corev1.Service{ObjectMeta: named("front"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	require.NoError(t, b.tenant.Create(ctx, service))
	below(ctx, t, b, service, func(copied *corev1.Service) error { return is(corev1.ServiceTypeClusterIP, copied.Spec.Type) })
	await.Change(t, b.tenant, service, func(service *corev1.Service) { service.Spec.Type = corev1.ServiceTypeLoadBalancer })
	types := func(ctx context.Context) ([]string, error) {
		var found []string
		for id, super := range b.supers {
			copied := &corev1.Service{}
			if err := super.Client.Get(ctx, client.ObjectKey{Namespace: tenancy.SuperNamespace(b.key, orders), Name: service.Name}, copied); err != nil {
				return nil, err
			}
			if copied.Spec.Type == corev1.ServiceTypeLoadBalancer {
				found = append(found, id)
			}
		}
		return found, nil
	}
	eventually(ctx, t, "where it is a load balancer", 1, func(ctx context.Context) (int, error) {
		found, err := types(ctx)
		return len(found), err
	})
	home := now(ctx, t, types)[0]
	// Plays the cloud.
	copied := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: tenancy.SuperNamespace(b.key, orders), Name: service.Name}}
	await.Change(t, b.supers[home].Client, copied, func(copied *corev1.Service) {
		copied.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	}, "status")
	eventually(ctx, t, "the address", "192.0.2.1", func(ctx context.Context) (string, error) {
		err := b.tenant.Get(ctx, client.ObjectKeyFromObject(service), service)
		if len(service.Status.LoadBalancer.Ingress) == 0 {
			return "", err
		}
		return service.Status.LoadBalancer.Ingress[0].IP, err
	})
}

// addresses are those that the slices of a Service have in a super cluster.
func (b *bed) addresses(id, service string) get[string] {
	return func(ctx context.Context) (string, error) {
		var list discoveryv1.EndpointSliceList
		err := b.supers[id].Client.List(ctx, &list, client.InNamespace(tenancy.SuperNamespace(b.key, orders)), client.MatchingLabels{discoveryv1.LabelServiceName: service})
		var found []string
		for i := range list.Items {
			for j := range list.Items[i].Endpoints {
				found = append(found, list.Items[i].Endpoints[j].Addresses...)
			}
		}
		slices.Sort(found)
		return strings.Join(found, " "), err
	}
}

func (b *bed) endpointsFirst(ctx context.Context, t *testing.T) {
	//nolint:staticcheck // They are deprecated, and what the report is about.
	endpoints := &corev1.Endpoints{ObjectMeta: named("outside"), Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "203.0.113.7"}}, Ports: []corev1.EndpointPort{{Port: 80}}}}}
	service := &corev1.Service{ObjectMeta: named("outside"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}}}
	require.NoError(t, b.tenant.Create(ctx, endpoints))
	require.NoError(t, b.tenant.Create(ctx, service))
	for id := range b.supers {
		eventually(ctx, t, "the addresses in "+id, "203.0.113.7", b.addresses(id, "outside"))
	}
	require.NoError(t, b.tenant.Delete(ctx, service))
	require.NoError(t, client.IgnoreNotFound(b.tenant.Delete(ctx, endpoints)))
	for id := range b.supers {
		eventually(ctx, t, "the addresses in "+id, "", b.addresses(id, "outside"))
	}
}

func (b *bed) pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := builders.Pod(orders, name, "cpu", "50m", "memory", "50Mi").Obj()
	pod.Labels = map[string]string{"app": name}
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	for _, change := range change {
		change(pod)
	}
	return pod
}

// phase is that of a tenant's pod, "" if there is none.
func (b *bed) phase(name string) get[corev1.PodPhase] {
	return func(ctx context.Context) (corev1.PodPhase, error) {
		pod := &corev1.Pod{}
		err := b.tenant.Get(ctx, client.ObjectKey{Namespace: orders, Name: name}, pod)
		return pod.Status.Phase, client.IgnoreNotFound(err)
	}
}

func (b *bed) serviceAgain(ctx context.Context, t *testing.T) {
	again := func() []client.Object {
		service := &corev1.Service{ObjectMeta: named("again"), Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "again"}, Ports: []corev1.ServicePort{{Port: 80}}}}
		return []client.Object{service, b.pod("again")}
	}
	for range 10 {
		require.NoError(t, controlplane.Create(ctx, b.tenant, again()...))
		for _, object := range again() {
			require.NoError(t, b.tenant.Delete(ctx, object, client.GracePeriodSeconds(0)))
		}
	}
	require.NoError(t, controlplane.Create(ctx, b.tenant, again()...))
	eventually(ctx, t, "the pod's phase", corev1.PodRunning, b.phase("again"))
	pod := &corev1.Pod{}
	require.NoError(t, b.tenant.Get(ctx, client.ObjectKey{Namespace: orders, Name: "again"}, pod))
	for id := range b.supers {
		eventually(ctx, t, "the addresses in "+id, pod.Status.PodIP, b.addresses(id, "again"))
	}
}

func (b *bed) jobWithDots(ctx context.Context, t *testing.T) {
	job := &batchv1.Job{ObjectMeta: named("my-job.extra"), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: b.pod("").Spec}}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	require.NoError(t, b.tenant.Create(ctx, job))
	eventually(ctx, t, "how many pods of it are ready", 1, func(ctx context.Context) (int, error) {
		err := b.tenant.Get(ctx, client.ObjectKeyFromObject(job), job)
		return int(ptr.Deref(job.Status.Ready, 0)), err
	})
}

func (b *bed) gates(ctx context.Context, t *testing.T) {
	pod := b.pod("gated", func(pod *corev1.Pod) {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/a"}, {Name: "example.com/b"}}
	})
	require.NoError(t, b.tenant.Create(ctx, pod))
	await.Change(t, b.tenant, pod, func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "r2.node-1"} })
	await.Change(t, b.tenant, pod, func(pod *corev1.Pod) { pod.Spec.SchedulingGates = pod.Spec.SchedulingGates[1:] })
	require.NoError(t, b.tenant.Create(ctx, b.pod("behind"))) // what comes behind it is placed
	eventually(ctx, t, "the phase of the one behind", corev1.PodRunning, b.phase("behind"))
	equal(ctx, t, "its phase", corev1.PodPending, b.phase("gated"))
	await.Change(t, b.tenant, pod, func(pod *corev1.Pod) { pod.Spec.SchedulingGates = nil })
	eventually(ctx, t, "its phase", corev1.PodRunning, b.phase("gated"))
	require.NoError(t, b.tenant.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	require.Equal(t, "r2.node-1", pod.Spec.NodeName)
}

func (b *bed) claimAgain(ctx context.Context, t *testing.T) {
	for id, super := range b.supers {
		for i := range 2 {
			require.NoError(t, super.Client.Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", id, i)}, Spec: corev1.PersistentVolumeSpec{
				StorageClassName: "disks", Capacity: builders.Resources("storage", "1Gi"),
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			}}))
		}
	}
	b.create(ctx, t, "stateful.yaml")
	eventually(ctx, t, "the pod's phase", corev1.PodRunning, b.phase("db-0"))
	claim := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: orders, Name: "data-db-0"}
	require.NoError(t, b.tenant.Get(ctx, key, claim))
	first := claim.UID
	require.NoError(t, b.tenant.Delete(ctx, claim))
	require.NoError(t, b.tenant.Delete(ctx, b.pod("db-0")))
	eventually(ctx, t, "the claim is another one, and bound", true, func(ctx context.Context) (bool, error) {
		claim := &corev1.PersistentVolumeClaim{}
		err := b.tenant.Get(ctx, key, claim)
		return claim.UID != first && claim.Status.Phase == corev1.ClaimBound, client.IgnoreNotFound(err)
	})
	eventually(ctx, t, "the pod's phase", corev1.PodRunning, b.phase("db-0"))
}

func (b *bed) ingress(ctx context.Context, t *testing.T) {
	ingress := &networkingv1.Ingress{ObjectMeta: named("front"), Spec: networkingv1.IngressSpec{
		IngressClassName: ptr.To("web"),
		Rules: []networkingv1.IngressRule{{Host: "shop.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
			Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "front", Port: networkingv1.ServiceBackendPort{Number: 80}}},
		}}}}}},
	}}
	require.NoError(t, b.tenant.Create(ctx, ingress))
	eventually(ctx, t, "in how many super clusters it is", 1, func(ctx context.Context) (int, error) {
		count := 0
		for _, super := range b.supers {
			err := super.Client.Get(ctx, client.ObjectKey{Namespace: tenancy.SuperNamespace(b.key, orders), Name: ingress.Name}, &networkingv1.Ingress{})
			if client.IgnoreNotFound(err) != nil {
				return 0, err
			}
			if err == nil {
				count++
			}
		}
		return count, nil
	})
}

// replaced writes a pod and its namespace as who has only a file of them does: without what Superpool wrote.
func (b *bed) replaced(ctx context.Context, t *testing.T) {
	pod := b.pod("again")
	require.NoError(t, b.tenant.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	before := pod.DeepCopy()
	await.Change(t, b.tenant, pod, func(pod *corev1.Pod) { pod.Annotations, pod.Labels = nil, map[string]string{"app": "again"} })
	await.Change(t, b.tenant, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: orders}}, func(namespace *corev1.Namespace) {
		namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationSlice: namespace.Annotations[schedulerv1alpha1.AnnotationSlice]}
		namespace.Labels = nil
	})
	eventually(ctx, t, "the pod's super cluster", before.Annotations[schedulerv1alpha1.AnnotationSuperCluster], func(ctx context.Context) (string, error) {
		err := b.tenant.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster], err
	})
	require.Equal(t, before.UID, pod.UID)
	equal(ctx, t, "the pod's phase", corev1.PodRunning, b.phase("again"))
	eventually(ctx, t, "the placements", map[string]int{"r1": 1, "r2": 1}, b.placements(orders))
}

// superNamespaceDeleted deletes that of r1, where pods have finished and others run.
func (b *bed) superNamespaceDeleted(ctx context.Context, t *testing.T) {
	in1 := func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "r1.node-1"} }
	deployment := &appsv1.Deployment{ObjectMeta: named("web"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: b.pod("web", in1).Spec},
	}}
	require.NoError(t, controlplane.Create(ctx, b.tenant, b.pod("succeeded", in1), b.pod("failed", in1), deployment))
	super, name := b.supers["r1"].Client, tenancy.SuperNamespace(b.key, orders)
	uids := map[string]types.UID{}
	for pod, phase := range map[string]corev1.PodPhase{"succeeded": corev1.PodSucceeded, "failed": corev1.PodFailed} {
		eventually(ctx, t, pod, corev1.PodRunning, b.phase(pod))
		copied := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: pod}}
		await.Change(t, super, copied, func(copied *corev1.Pod) { copied.Status.Phase = phase }, "status")
		eventually(ctx, t, pod, phase, b.phase(pod))
		of := b.pod(pod)
		require.NoError(t, b.tenant.Get(ctx, client.ObjectKeyFromObject(of), of))
		uids[pod] = of.UID
	}
	available := func(ctx context.Context) (int, error) {
		err := b.tenant.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
		return int(deployment.Status.AvailableReplicas), err
	}
	eventually(ctx, t, "how many pods of the Deployment are available", 1, available)
	namespace := &corev1.Namespace{}
	require.NoError(t, super.Get(ctx, client.ObjectKey{Name: name}, namespace))
	first := namespace.UID
	require.NoError(t, super.Delete(ctx, namespace))
	eventually(ctx, t, "the super namespace is another one", true, func(ctx context.Context) (bool, error) {
		namespace := &corev1.Namespace{}
		err := super.Get(ctx, client.ObjectKey{Name: name}, namespace)
		return err == nil && namespace.UID != first && namespace.DeletionTimestamp == nil, client.IgnoreNotFound(err)
	})
	below(ctx, t, b, &corev1.ConfigMap{ObjectMeta: named("drift")}, func(copied *corev1.ConfigMap) error { return is("value", copied.Data["key"]) })
	eventually(ctx, t, "what runs of the Deployment there", 1, func(ctx context.Context) (int, error) {
		var pods corev1.PodList
		err := super.List(ctx, &pods, client.InNamespace(name), client.MatchingLabels{"app": "web"}, client.MatchingFields{"status.phase": "Running"})
		return len(pods.Items), err
	})
	eventually(ctx, t, "how many pods of the Deployment are available", 1, available)
	for pod, phase := range map[string]corev1.PodPhase{"succeeded": corev1.PodSucceeded, "failed": corev1.PodFailed} {
		of := b.pod(pod)
		require.NoError(t, b.tenant.Get(ctx, client.ObjectKeyFromObject(of), of))
		require.Equal(t, phase, of.Status.Phase)
		require.Equal(t, uids[pod], of.UID)
		require.True(t, apierrors.IsNotFound(super.Get(ctx, client.ObjectKey{Namespace: name, Name: pod}, &corev1.Pod{})), "%s runs again", pod)
	}
}
