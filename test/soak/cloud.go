package soak

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/test/controlplane"
)

const (
	// disks is the StorageClass whose volumes a cloud makes and removes.
	disks = "disks"
	// selectedNode is the annotation of a claim that tells provisioners that a pod of it has a node (see
	// k8s.io/component-helpers/storage/volume).
	selectedNode = "volume.kubernetes.io/selected-node"
	diskPrefix   = "disk-of-"
)

// cloud plays what a super cluster runs on: its load balancers and disks.
type cloud struct {
	super client.Client
	// address is what all its load balancers have.
	address string
}

// startCloud lets the cloud of a super cluster work until stop.
func (b *bed) startCloud(ctx context.Context, super *cluster, number int) error {
	c := &cloud{super: super.client, address: fmt.Sprintf("198.51.100.%d", number)}
	if err := controlplane.Create(ctx, super.client, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: disks}, Provisioner: "example.com/soak", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, 500*time.Millisecond) == nil {
			for _, work := range []func(context.Context) error{c.balance, c.provision, c.reclaim} {
				if err := work(ctx); err != nil && ctx.Err() == nil && !expected(err) {
					b.Say("The cloud of %s met: %v", super.name, err)
				}
			}
		}
	}()
	b.OnStop(func() { cancel(); <-done })
	return nil
}

// balance gives load balancers their address.
func (c *cloud) balance(ctx context.Context) error {
	var list corev1.ServiceList
	if err := c.super.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		service := &list.Items[i]
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer || len(service.Status.LoadBalancer.Ingress) > 0 {
			continue
		}
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: c.address, IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)}}
		if err := c.super.Status().Update(ctx, service); err != nil {
			return err
		}
	}
	return nil
}

// provision makes the volumes of claims whose pod has a node.
func (c *cloud) provision(ctx context.Context) error {
	var list corev1.PersistentVolumeClaimList
	if err := c.super.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		claim := &list.Items[i]
		if ptr.Deref(claim.Spec.StorageClassName, "") != disks || claim.Annotations[selectedNode] == "" || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
			continue
		}
		err := c.super.Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: diskPrefix + string(claim.UID)},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: disks,
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
				PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: string(claim.UID)}},
			},
		})
		if err != nil && !expected(err) {
			return err
		}
	}
	return nil
}

// reclaim removes the volumes of claims that are gone.
func (c *cloud) reclaim(ctx context.Context) error {
	var list corev1.PersistentVolumeList
	if err := c.super.List(ctx, &list); err != nil {
		return err
	}
	for i := range list.Items {
		volume := &list.Items[i]
		if !strings.HasPrefix(volume.Name, diskPrefix) || volume.Status.Phase != corev1.VolumeReleased || volume.DeletionTimestamp != nil {
			continue
		}
		if err := c.super.Delete(ctx, volume); err != nil {
			return err
		}
	}
	return nil
}
