package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

// Names of what the super clusters offer, and of the policy that lets tenants have it.
const (
	offered    = "soak"
	policyName = "soak"
	// exhibits is the namespace of a tenant that has one object of each kind.
	exhibits = "exhibits"
)

// exhibited are the resources of which a super cluster holds at least one object for exhibits.
var exhibited = []string{
	"configmaps", "endpointslices", "ingresses", "namespaces", "networkpolicies", "persistentvolumeclaims", "pods", "resourcequotas", "secrets", "serviceaccounts", "services",
}

// inventory names all objects of the meta cluster and of super clusters. Events are not in it, which expire.
func (b *bed) inventory(ctx context.Context) (map[string]bool, error) {
	names := map[string]bool{}
	for _, c := range append([]*cluster{b.meta}, b.supers...) {
		all, err := everything(ctx, c, "")
		if err != nil {
			return nil, err
		}
		for i := range all {
			names[c.name+": "+all[i].String()] = true
		}
	}
	return names, nil
}

// tenantPolicy lets tenants have one object of each kind.
func tenantPolicy() *tenancyv1alpha1.TenantPolicy {
	spec := policy.Default().Spec().DeepCopy()
	spec.Pods.Volumes = append(spec.Pods.Volumes, "persistentVolumeClaim")
	spec.Pods.StorageClasses = []string{offered, disks}
	spec.Limits.PersistentVolumeClaims, spec.Limits.Storage = 100, builders.Resources("storage", "100Gi")["storage"]
	spec.Limits.LoadBalancers, spec.Limits.NodePorts = 50, 100
	spec.Traffic.IngressClasses, spec.Traffic.IngressClass, spec.Traffic.IngressHosts = []string{offered}, offered, []string{"*.example.com"}
	spec.Offers.PriorityClasses = []string{offered}
	return &tenancyv1alpha1.TenantPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}, Spec: *spec}
}

// offer makes what a super cluster offers: classes, and volumes that wait for claims.
func offer(ctx context.Context, super client.Client, tenants int) error {
	objects := []client.Object{
		&storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: offered}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		},
		&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: offered}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/soak"}},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: offered}, Value: 10},
	}
	for i := range tenants {
		objects = append(objects, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("disk-%d", i)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: builders.Resources("storage", "1Gi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: offered,
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/disk"}},
			},
		})
	}
	return controlplane.Create(ctx, super, objects...)
}

// exhibit makes one object of each kind in a tenant.
func exhibit(ctx context.Context, tenant client.Client) error {
	meta, labels := metav1.ObjectMeta{Namespace: exhibits, Name: "one"}, map[string]string{"app": "one"}
	ports := []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}
	pod := &corev1.Pod{ObjectMeta: *meta.DeepCopy(), Spec: corev1.PodSpec{
		DNSPolicy: corev1.DNSDefault, ServiceAccountName: "one", AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
		Containers: []corev1.Container{{Name: "c", Image: "registry.invalid/pause:1", Resources: builders.Requests("cpu", "100m", "memory", "64Mi")}},
		Volumes: []corev1.Volume{
			{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "one"}}},
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}, {Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "one"}}},
			}}}},
		},
	}}
	pod.Labels = labels
	return controlplane.Create(ctx, tenant,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: exhibits, Annotations: map[string]string{schedulerv1alpha1.AnnotationSlice: `{"cpu":"500m","memory":"512Mi"}`}}},
		&corev1.ResourceQuota{ObjectMeta: *meta.DeepCopy(), Spec: corev1.ResourceQuotaSpec{Hard: hard(2)}},
		&corev1.ConfigMap{ObjectMeta: *meta.DeepCopy(), Data: map[string]string{"k": "v"}},
		&corev1.Secret{ObjectMeta: *meta.DeepCopy(), StringData: map[string]string{"k": "v"}},
		&corev1.ServiceAccount{ObjectMeta: *meta.DeepCopy()},
		&corev1.Service{ObjectMeta: *meta.DeepCopy(), Spec: corev1.ServiceSpec{Ports: ports, Selector: labels}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: exhibits, Name: "outside"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: ports, Selector: labels}},
		&networkingv1.NetworkPolicy{ObjectMeta: *meta.DeepCopy(), Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}},
		&networkingv1.Ingress{ObjectMeta: *meta.DeepCopy(), Spec: networkingv1.IngressSpec{IngressClassName: ptr.To(offered), Rules: []networkingv1.IngressRule{{
			Host: "one.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix),
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "one", Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}}},
		}}}},
		&corev1.PersistentVolumeClaim{ObjectMeta: *meta.DeepCopy(), Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To(offered), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: builders.Resources("storage", "1Gi")},
		}},
		pod,
	)
}

// shown returns an error while the exhibits of a tenant are not all in super clusters.
func (b *bed) shown(ctx context.Context, tenant *cluster) error {
	vc, err := b.virtualCluster(ctx, tenant)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, super := range b.supers {
		all, err := everything(ctx, super, tenancyv1alpha1.LabelCluster+"="+tenancy.ClusterKey(vc))
		if err != nil {
			return err
		}
		for i := range all {
			if owner, owned := tenancy.GetOwner(&all[i]); owned && owner.Namespace == exhibits {
				there[all[i].resource] = true
			}
		}
	}
	for _, resource := range exhibited {
		if !there[resource] {
			return fmt.Errorf("no super cluster holds %s of %s", resource, tenant.name)
		}
	}
	pod := &corev1.Pod{}
	if err := tenant.client.Get(ctx, client.ObjectKey{Namespace: exhibits, Name: "one"}, pod); err != nil {
		return err
	}
	if !isReady(pod) {
		return fmt.Errorf("pod %s/one of %s is not ready: %s", exhibits, tenant.name, conditions(pod))
	}
	class := &schedulingv1.PriorityClass{}
	return tenant.client.Get(ctx, client.ObjectKey{Name: offered}, class)
}

// remove removes all tenants, which have one object of each kind and what they made, and returns what is left of them
// in the meta cluster and in super clusters, and what went with them that was there before.
func (b *bed) remove(ctx context.Context, before map[string]bool) ([]string, error) {
	for _, tenant := range b.tenants {
		if err := exhibit(ctx, tenant.client); err != nil {
			return nil, fmt.Errorf("filling %s: %w", tenant.name, err)
		}
	}
	for _, tenant := range b.tenants {
		if err := b.eventually(ctx, b.options.Settle, func(ctx context.Context) error { return b.shown(ctx, tenant) }); err != nil {
			return nil, fmt.Errorf("waiting for one object of each kind of %s: %w", tenant.name, err)
		}
	}
	b.Say("Removing the tenants")
	begin := time.Now()
	for _, tenant := range b.tenants {
		if err := b.meta.client.Delete(ctx, builders.VirtualCluster(tenant.name)); err != nil {
			return nil, fmt.Errorf("removing %s: %w", tenant.name, err)
		}
	}
	var findings []string
	err := b.eventually(ctx, b.options.Settle, func(ctx context.Context) error {
		if err := b.removeSecrets(ctx); err != nil {
			return err
		}
		after, err := b.inventory(ctx)
		if err != nil {
			return err
		}
		if findings = difference(before, after); len(findings) > 0 {
			return fmt.Errorf("%d findings", len(findings))
		}
		b.Say("Nothing is left of the tenants among %d objects after %s", len(after), time.Since(begin).Round(time.Second))
		return nil
	})
	if err != nil && len(findings) == 0 {
		return nil, fmt.Errorf("listing all objects: %w", err)
	}
	return findings, nil
}

// removeSecrets deletes the kubeconfigs of tenants that are gone, as who wrote them does.
func (b *bed) removeSecrets(ctx context.Context) error {
	for _, tenant := range b.tenants {
		_, err := b.virtualCluster(ctx, tenant)
		switch {
		case err == nil:
			return fmt.Errorf("VirtualCluster %s is there", tenant.name)
		case !apierrors.IsNotFound(err):
			return err
		}
		secret := builders.KubeconfigSecret(tenant.name, nil)
		if err := b.meta.client.Delete(ctx, secret); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// difference returns what is in one inventory alone, sorted.
func difference(before, after map[string]bool) []string {
	var all []string
	for name := range after {
		if !before[name] {
			all = append(all, name+" is left")
		}
	}
	for name := range before {
		if !after[name] && !strings.Contains(name, " leases ") {
			all = append(all, name+" is gone, and was no tenant's")
		}
	}
	slices.Sort(all)
	return all
}
