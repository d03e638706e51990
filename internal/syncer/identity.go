package syncer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/identities"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenancy"
)

// ReasonSuperClusterRefused: the super cluster of a syncer has the id of another one, whose UID vc-scheduler has
// recorded on the virtual Node, or is the control plane of a tenant. The syncer records the Event on that Node and
// ends.
const ReasonSuperClusterRefused = "SuperClusterRefused"

// ErrRefused is the error for a super cluster with the id of another one, and for one that is the control plane of a
// tenant.
var ErrRefused = errors.New("the super cluster is refused")

// Identity tells a super cluster from all others.
type Identity struct {
	// ID is the id that its ConfigMap supercluster-info says.
	ID string
	// UID is the UID of its namespace kube-system.
	UID types.UID
}

// Lock returns the name of the Lease by which the syncers of this super cluster elect their leader, with which those of
// its shards begin. Those of another one with the same id have another.
func (i Identity) Lock() string {
	hash := sha256.Sum256([]byte(i.UID))
	return i.ID + "-syncer-" + hex.EncodeToString(hash[:4])
}

// Identify reads the identity of the super cluster that config names. An error contains what to apply there.
func Identify(ctx context.Context, config *rest.Config) (Identity, error) {
	super, err := newClient(config, kinds.Specs())
	if err != nil {
		return Identity{}, err
	}
	id, err := readID(ctx, super)
	if err != nil {
		return Identity{}, err
	}
	uid, _, err := proof.Identify(ctx, proof.By(super))
	if err != nil {
		return Identity{}, fmt.Errorf("asking which super cluster it is: %w", err)
	}
	return Identity{ID: id, UID: uid}, nil
}

// readID returns the id of a super cluster.
func readID(ctx context.Context, super client.Reader) (string, error) {
	const hint = "apply in the super cluster a ConfigMap " + schedulerv1alpha1.SuperClusterInfoNamespace + "/" + schedulerv1alpha1.SuperClusterInfoName +
		" with data key " + schedulerv1alpha1.SuperClusterInfoKey
	info := &corev1.ConfigMap{}
	name := types.NamespacedName{Namespace: schedulerv1alpha1.SuperClusterInfoNamespace, Name: schedulerv1alpha1.SuperClusterInfoName}
	if err := super.Get(ctx, name, info); err != nil {
		return "", fmt.Errorf("reading the super cluster id (%s): %w", hint, err)
	}
	id := info.Data[schedulerv1alpha1.SuperClusterInfoKey]
	if err := tenancy.ValidateSuperClusterID(id); err != nil {
		return "", fmt.Errorf("reading the super cluster id (%s): %w", hint, err)
	}
	return id, nil
}

// Recorded returns whether the virtual Node of the super cluster records its UID, by a live read of the meta cluster,
// and ErrRefused if it records that of another one. Until it does, another cluster may be the one with that id.
func (i Identity) Recorded(ctx context.Context, meta client.Reader) (bool, error) {
	node, err := i.recordedOn(ctx, meta)
	return node != nil, err
}

// recordedOn is Recorded, and returns the virtual Node, nil if it records nothing.
func (i Identity) recordedOn(ctx context.Context, meta client.Reader) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := meta.Get(ctx, types.NamespacedName{Name: i.ID}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading virtual Node %s: %w", i.ID, err)
	}
	recorded := types.UID(node.Annotations[schedulerv1alpha1.AnnotationSuperClusterUID])
	if recorded != "" && recorded != i.UID {
		return nil, fmt.Errorf("%w: it is another one than the one with id %s: its namespace kube-system has UID %s, and that of the other %s. Give it an id of its own in ConfigMap %s/%s. "+
			"If it is to take the place of the other, and what tenants run there is lost: kubectl annotate node %s %s-", ErrRefused, i.ID, i.UID, recorded,
			schedulerv1alpha1.SuperClusterInfoNamespace, schedulerv1alpha1.SuperClusterInfoName, i.ID, schedulerv1alpha1.AnnotationSuperClusterUID)
	}
	if recorded == "" {
		return nil, nil
	}
	return node, nil
}

// Refuse records on the virtual Node why a syncer ends, if err is ErrRefused. It writes the Event itself: a recorder's
// queue would end with the process.
func (i Identity) Refuse(ctx context.Context, meta client.Writer, refused error) {
	if !errors.Is(refused, ErrRefused) {
		return
	}
	now := metav1.Now()
	source := "syncer-" + i.ID
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: i.ID + "-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: i.ID, UID: types.UID(i.ID)}, // as kubelets do
		Type:           corev1.EventTypeWarning, Reason: ReasonSuperClusterRefused, Message: tenancy.Cut(refused.Error(), tenancy.MaxEventNote),
		Source: corev1.EventSource{Component: source}, ReportingController: source,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	if err := meta.Create(ctx, event); err != nil {
		klog.FromContext(ctx).Error(err, "Recording that the super cluster is refused")
	}
}

// pause is how often a syncer looks whether it may begin.
const pause = time.Second

// guard holds a syncer to the super cluster with which it began.
type guard struct {
	identity    Identity
	super, meta client.Reader
	// identities tells whose a control plane is.
	identities *identities.Registry
	// metaUID is the UID of the meta cluster.
	metaUID types.UID
	// pooled is whether the meta cluster records the super cluster.
	pooled bool
	period time.Duration
	// answers holds back the informers of the super cluster; nil for none.
	answers *engage.Answers
}

// ofSuper returns the guard that ends the process once the super cluster is another one, has another id, was restored
// from a backup, or is not the one that the meta cluster records. answered is told of its answers.
func (g *guard) ofSuper(answered func(context.Context, time.Time) bool) *proof.Guard {
	return &proof.Guard{
		Name: "super cluster " + g.identity.ID, Namespaces: proof.By(g.super), UID: g.identity.UID, Period: g.period, Answered: answered, Answers: g.answers, Also: g.same,
	}
}

// recorded is Identity.Recorded, and ErrRefused also if the super cluster was the control plane of a tenant first.
func (g *guard) recorded(ctx context.Context) (bool, error) {
	node, err := g.identity.recordedOn(ctx, g.meta)
	if err != nil || node == nil {
		return false, err
	}
	first, err := g.identities.First(ctx, identities.OfSuperCluster(g.identity.ID, node, g.identity.UID), g.identity.UID)
	if err == nil && first != nil {
		err = fmt.Errorf("%w: super cluster %s is %s already", ErrRefused, g.identity.ID, first.Holder)
	}
	return err == nil, err
}

// same returns an error if the super cluster has another id than before, or is refused. The first is proof.ErrOther:
// the guard has asked for the UID a moment ago, and another cluster may answer since.
func (g *guard) same(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	id, err := readID(ctx, g.super)
	switch {
	case err != nil:
		logger.V(2).Info("The super cluster does not say its id", "err", err)
	case id != g.identity.ID:
		return fmt.Errorf("%w, or the super cluster was given another id: it was %s and is %s now", proof.ErrOther, g.identity.ID, id)
	case !g.pooled:
		return nil
	}
	if _, err := g.recorded(ctx); err != nil {
		if errors.Is(err, ErrRefused) {
			return err
		}
		logger.V(2).Info("The meta cluster does not answer", "err", err)
	}
	return nil
}

// wait returns once the meta cluster records the super cluster, or ctx has ended, and at once without a pool. An error
// is ErrRefused.
func (g *guard) wait(ctx context.Context) error {
	if !g.pooled {
		return nil
	}
	for said := false; ; {
		recorded, err := g.recorded(ctx)
		switch {
		case recorded, errors.Is(err, ErrRefused):
			return err
		case !said:
			klog.FromContext(ctx).Info("Waiting for vc-scheduler to record this super cluster on its virtual Node", "node", g.identity.ID, "uid", g.identity.UID, "err", err)
			said = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// claim records in the super cluster its id, and the UID of the meta cluster, and returns an error if others are
// recorded: to another meta cluster all that tenants run here looks as if its VirtualClusters were deleted, and to a
// syncer with another id as if it were bound elsewhere. It asks until the super cluster answers, or ctx has ended. This
// is the first write there, so it asks once more before whether it is the one: a replica may have waited for hours.
func (g *guard) claim(ctx context.Context, super client.Client) error {
	record := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: schedulerv1alpha1.AuthorityNamespace, Name: schedulerv1alpha1.AuthorityName},
		Data:       map[string]string{schedulerv1alpha1.AuthorityIDKey: g.identity.ID, schedulerv1alpha1.AuthorityMetaKey: string(g.metaUID)},
	}
	var last error
	err := wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		var uid types.UID
		if uid, _, last = proof.Identify(ctx, proof.By(super)); last == nil && uid != g.identity.UID {
			return false, fmt.Errorf("super cluster %s: %w: its namespace kube-system has UID %s, and the one before had %s", g.identity.ID, proof.ErrOther, uid, g.identity.UID)
		}
		if last == nil {
			last = super.Create(ctx, record.DeepCopy())
		}
		if apierrors.IsAlreadyExists(last) {
			last = super.Get(ctx, client.ObjectKeyFromObject(record), record)
		}
		if last != nil {
			klog.FromContext(ctx).Error(last, "Recording in the super cluster who decides what runs there; kubectl vc join makes the namespace and the rights",
				"configMap", client.ObjectKeyFromObject(record))
		}
		return last == nil, nil
	})
	switch {
	case errors.Is(err, proof.ErrOther):
		return err //nolint:wrapcheck // it is complete
	case err != nil:
		return nil //nolint:nilerr // ctx has ended
	}
	if id, meta := record.Data[schedulerv1alpha1.AuthorityIDKey], types.UID(record.Data[schedulerv1alpha1.AuthorityMetaKey]); id != g.identity.ID || meta != g.metaUID {
		return fmt.Errorf("the super cluster records id %s, and VirtualClusters in the cluster with UID %s of namespace kube-system, where this syncer has %s and %s. "+
			"If all that tenants run there may be deleted: kubectl delete configmap -n %s %s", id, meta, g.identity.ID, g.metaUID, schedulerv1alpha1.AuthorityNamespace, schedulerv1alpha1.AuthorityName)
	}
	return nil
}
