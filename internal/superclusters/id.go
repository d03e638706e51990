package superclusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/identities"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	acquirePause    = 200 * time.Millisecond
	acquirePatience = 15 * time.Second
)

// readID returns the id that a super cluster gives itself, within probeTimeout.
func readID(ctx context.Context, super kubernetes.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	info, err := super.CoreV1().ConfigMaps(schedulerv1alpha1.SuperClusterInfoNamespace).Get(ctx, schedulerv1alpha1.SuperClusterInfoName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("reading ConfigMap %s/%s: %w", schedulerv1alpha1.SuperClusterInfoNamespace, schedulerv1alpha1.SuperClusterInfoName, err)
	}
	id, exists := "", false
	if err == nil {
		id, exists = info.Data[schedulerv1alpha1.SuperClusterInfoKey]
	}
	if !exists {
		return "", failure(ReasonSuperClusterInfoMissing, fmt.Sprintf(
			"the super cluster has no id: kubectl -n %s create configmap %s --from-literal=%s=<id>",
			schedulerv1alpha1.SuperClusterInfoNamespace, schedulerv1alpha1.SuperClusterInfoName, schedulerv1alpha1.SuperClusterInfoKey))
	}
	if err := tenancy.ValidateSuperClusterID(id); err != nil {
		return "", failure(ReasonInvalidID, err.Error())
	}
	return id, nil
}

// readUID returns the UID of a super cluster's namespace kube-system, which identifies it, and the resource version
// that the super cluster is at, within probeTimeout.
func readUID(ctx context.Context, super kubernetes.Interface) (types.UID, string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return proof.Identify(ctx, super.CoreV1().Namespaces()) //nolint:wrapcheck // it names what was read
}

// superClusterChanged is the error for a super cluster with the id of another one.
func superClusterChanged(id string, changed *changedError) error {
	return failure(ReasonSuperClusterChanged, fmt.Sprintf("this is another super cluster than the one with id %s before: %v. If it is to take its place, "+
		"and what tenants run in the other one is lost: kubectl annotate node %s %s-", id, changed, id, schedulerv1alpha1.AnnotationSuperClusterUID))
}

// acquire makes a Cluster the owner of a super cluster id, unless the super cluster's UID shows that it is another one.
// It waits up to acquirePatience for older Clusters that were not tried yet, and returns an error when another Cluster
// owns the id.
func (c *Controller) acquire(ctx context.Context, cluster types.NamespacedName, id string, uid types.UID) error {
	started := time.Now()
	return wait.PollUntilContextCancel(ctx, acquirePause, true, func(ctx context.Context) (bool, error) {
		again, err := c.tryAcquire(ctx, cluster, id, uid, time.Since(started) < acquirePatience)
		return !again, err
	})
}

// own returns an error when the super cluster with that id and UID is something else to the pool first. node is its
// virtual Node, nil for none.
func (c *Controller) own(ctx context.Context, id string, uid types.UID, node *corev1.Node) error {
	first, err := c.identities.First(ctx, identities.OfSuperCluster(id, node, uid), uid)
	if err != nil || first == nil {
		return err //nolint:wrapcheck // it names what was read
	}
	return &engage.Failure{Final: true, Reason: tenancy.Reason{Reason: ReasonDuplicateControlPlane, Message: fmt.Sprintf(
		"super cluster %s is %s already, and a control plane is one thing: nothing of the other changes. %s", id, first.Holder, first.Ends())}}
}

// tryAcquire reads what idOwners decides by. It returns true for: try again soon.
func (c *Controller) tryAcquire(ctx context.Context, cluster types.NamespacedName, id string, uid types.UID, patient bool) (again bool, err error) {
	node, err := c.writer.get(ctx, id)
	if err != nil {
		return false, err
	}
	var recorded types.NamespacedName
	if node != nil {
		if !isVirtual(node) {
			return false, nodeConflict(id)
		}
		recorded = parseName(node.Annotations[AnnotationClusterRef])
	}
	all, err := c.clusters(ctx)
	if err != nil {
		return false, err
	}
	all = slices.DeleteFunc(all, func(other metav1.PartialObjectMetadata) bool {
		name := client.ObjectKeyFromObject(&other)
		return !c.selects(&other) && name != recorded && c.owners.idOf(name) == ""
	})
	got := c.owners.acquire(cluster, id, recorded, all, patient)
	if got.owner.Name != "" {
		return false, failure(ReasonDuplicateID, fmt.Sprintf("super cluster id %q belongs to Cluster %s: give this super cluster another id", id, got.owner))
	}
	var changed *changedError
	if node != nil && !got.wait && errors.As(checkUID(node, uid), &changed) {
		c.owners.release(cluster)
		return false, superClusterChanged(id, changed)
	}
	if got.wait {
		return true, nil
	}
	if err = c.own(ctx, id, uid, node); err != nil {
		c.owners.release(cluster)
	}
	return false, err
}

// pause waits for duration. It returns false when ctx has ended.
func pause(ctx context.Context, duration time.Duration) bool {
	if duration <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}
