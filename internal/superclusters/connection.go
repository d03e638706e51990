package superclusters

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// probePeriod is how often a super cluster is asked whether it is there, and how often its Lease is renewed. A dead
	// server is found after at most probePeriod + 2 probeTimeouts + probePause, which is less than two periods.
	probePeriod  = 10 * time.Second
	probeTimeout = 4 * time.Second
	probePause   = time.Second
	// retryPeriod is how often one is asked that does not answer. Together with a probeTimeout it finds one that is
	// back within 5 seconds. One that refuses what is asked may have too much to do: it is asked every probePeriod, but
	// for the first startPeriod after a silence, as an API server that starts refuses what it has not read yet.
	retryPeriod = time.Second
	startPeriod = 15 * time.Second

	publishInterval = 500 * time.Millisecond
	longestDelay    = 15 * time.Second
)

// connection is the engage.Work of one super cluster. Connect reads the super cluster's id and makes the Cluster its
// owner; Serve runs informers and publishes the virtual Node; Probe reads the id again, which is what renews the Node's
// Lease. Both read the version of Kubernetes.
type connection struct {
	controller *Controller
	cluster    types.NamespacedName
	config     *rest.Config
	client     kubernetes.Interface // made by Connect
	informing  kubernetes.Interface // made by Connect: the client of informers, which are held back while it does not answer
	answers    engage.Answers
	dirty      chan struct{}       // holds one when capacity, or what the operator says, has changed since the last publish
	probed     chan tenancy.Reason // holds the outcome of the last Probe: why the Node is not Ready, the zero Reason when it is
	uid        types.UID           // of the super cluster, read by Connect
	versions   engage.Versions     // of the super cluster, begun by Connect
	failed     string              // the reason of the last Probe's outcome, "" for none; of the goroutine of Probe
	steady     engage.Steady       // the outcomes of Probe; of its goroutine
	silent     time.Time           // when a Probe last found that it does not answer; of its goroutine
	publishes  atomic.Bool         // whether Serve has read the super cluster, and publishes what it finds

	mu          sync.Mutex
	id          string // owned by the Cluster, "" for none
	declared    usage.Declared
	version     skew.Version // of Kubernetes, as it said last
	unversioned error        // why version is not known, nil if it is
}

func (c *Controller) connect(cluster types.NamespacedName, config *rest.Config, said usage.Declared) *connection {
	return &connection{
		controller: c, cluster: cluster, config: config, declared: said, dirty: make(chan struct{}, 1), probed: make(chan tenancy.Reason, 1),
	}
}

// ownedID returns the super cluster id while the Cluster owns it, else "".
func (c *connection) ownedID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

func (c *connection) setID(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = id
}

func (c *connection) setDeclared(said usage.Declared) {
	c.mu.Lock()
	c.declared = said
	c.mu.Unlock()
	c.touch()
}

func (c *connection) touch() {
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

// Server implements engage.Work.
func (c *connection) Server() string { return c.config.Host }

// Connect implements engage.Work: it acquires the super cluster's id.
func (c *connection) Connect(ctx context.Context) error {
	err := c.connect(ctx)
	if isRefusal(err) {
		return &engage.Failure{Reason: c.refusal(err)}
	}
	return err
}

// isRefusal reports whether an error is the answer of an API server, and says nothing more.
func isRefusal(err error) bool {
	var known *engage.Failure
	var status apierrors.APIStatus
	return errors.As(err, &status) && !errors.As(err, &known)
}

func (c *connection) refusal(err error) tenancy.Reason {
	return tenancy.Reason{Reason: ReasonSuperClusterRefuses, Message: fmt.Sprintf("%s refuses what is asked: %v", c.config.Host, err)}
}

// ofMeta returns an error of the meta cluster as one that says nothing about the super cluster, which has answered: it
// is not lost, and not asked again every retryPeriod, with the meta cluster after it.
func (c *connection) ofMeta(err error) error {
	var known *engage.Failure
	if errors.As(err, &known) {
		return err
	}
	return failure(ReasonOwnerUnknown, fmt.Sprintf("%s answers, and the meta cluster does not say whose it is: %v", c.config.Host, err))
}

func (c *connection) connect(ctx context.Context) error {
	if c.client == nil {
		client, err := kubernetes.NewForConfig(c.config)
		if err != nil {
			return failure(ReasonInvalidKubeconfig, fmt.Sprintf("making a client: %v", err))
		}
		if c.informing, err = kubernetes.NewForConfig(c.answers.Held(c.config)); err != nil {
			return failure(ReasonInvalidKubeconfig, fmt.Sprintf("making a client: %v", err))
		}
		c.client = client
	}
	asked := time.Now()
	id, err := readID(ctx, c.client)
	c.controller.owners.tried(c.cluster, id)
	if err != nil {
		return err
	}
	uid, version, err := readUID(ctx, c.client)
	if err != nil {
		return err
	}
	if err := c.controller.acquire(ctx, c.cluster, id, uid); err != nil {
		return c.ofMeta(err)
	}
	c.uid = uid
	c.versions.Begin()
	_ = c.versions.Observe(version) // the first one goes back behind nothing
	c.setID(id)
	c.readVersion(ctx)
	c.answers.Answered(asked)
	return nil
}

// readVersion asks for the version of Kubernetes, which changes while the super cluster is served. One that it said
// stays known while it does not say another.
func (c *connection) readVersion(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var version skew.Version
	said, err := c.client.Discovery().ServerVersionWithContext(ctx)
	if err == nil {
		version, err = skew.Said(said)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || c.version == (skew.Version{}) {
		c.version, c.unversioned = version, err
	}
}

// Probe implements engage.Work: it asks twice before a super cluster counts as unreachable, or as one that refuses, and
// once while it does. Another id, another UID and a resource version that went back end Serve, and so does any failure
// before Serve has read the super cluster.
func (c *connection) Probe(ctx context.Context) error {
	asked := time.Now()
	err := c.identify(ctx)
	var known *engage.Failure
	if err != nil && !errors.As(err, &known) && c.outcome(err).Reason != c.failed && pause(ctx, probePause) {
		asked = time.Now()
		err = c.identify(ctx)
	}
	if errors.As(err, &known) && known.Final {
		return err
	}
	outcome := c.steady.Of(c.outcome(err))
	c.failed = outcome.Reason
	if c.failed == ReasonSuperClusterUnreachable {
		c.answers.Failed()
		c.silent = asked
	} else {
		c.answers.Answered(asked)
	}
	select {
	case <-c.probed: // an outcome that publish has not seen yet
	default:
	}
	c.probed <- outcome
	switch {
	case err != nil && !c.publishes.Load():
		// The controller publishes how a connection ended. Lists of a server that died are given up much later.
		return &engage.Failure{Final: true, Reason: tenancy.Reason{Reason: clusterReason(outcome.Reason), Message: outcome.Message}}
	case isRefusal(err) && time.Since(c.silent) > startPeriod: // it answers: it is not asked again every retryPeriod
		return &engage.Failure{Reason: outcome}
	}
	return err
}

// outcome returns why a virtual Node is not Ready after a Probe with that error, the zero Reason for nil.
func (c *connection) outcome(err error) tenancy.Reason {
	var known *engage.Failure
	switch {
	case err == nil:
		return tenancy.Reason{}
	case errors.As(err, &known):
		return known.Reason
	case isRefusal(err):
		return c.refusal(err)
	}
	return tenancy.Reason{Reason: ReasonSuperClusterUnreachable, Message: fmt.Sprintf("%s does not answer: %v", c.config.Host, err)}
}

// Doubts implements engage.Doubter.
func (c *connection) Doubts() <-chan struct{} { return c.answers.Doubts() }

// identify asks whether the super cluster is the one that Connect found, as it was or later.
func (c *connection) identify(ctx context.Context) error {
	id := c.ownedID()
	found, err := readID(ctx, c.client)
	if err != nil {
		return err
	}
	if found != id && id != "" {
		return &engage.Failure{Final: true, Reason: tenancy.Reason{
			Reason: ReasonUnreachable, Message: fmt.Sprintf("the super cluster's id was %s and is %s now", id, found),
		}}
	}
	uid, version, err := readUID(ctx, c.client)
	if err != nil {
		return err
	}
	if uid != c.uid {
		return &engage.Failure{Final: true, Reason: tenancy.Reason{
			Reason: ReasonSuperClusterChanged, Message: (&changedError{recorded: c.uid, found: uid}).Error(),
		}}
	}
	var taken *engage.Failure
	if err := c.stillOwn(ctx, id); errors.As(err, &taken) {
		return taken
	} else if err != nil { // the meta cluster does not answer, which says nothing about the super cluster
		klog.FromContext(ctx).V(2).Info("Could not read whose control plane the super cluster is", "superCluster", id, "err", err)
	}
	c.readVersion(ctx)
	return restored(c.versions.Observe(version))
}

// restored returns the error of a super cluster whose versions went back. It is the operator's, and answers: it is
// listed anew at once, however often that happens.
func restored(err error) error {
	var failure *engage.Failure
	if !errors.As(err, &failure) {
		return err
	}
	return &engage.Failure{Final: failure.Final, Reason: failure.Reason}
}

// stillOwn returns an error when the super cluster has become something else to the pool first: somebody recorded its
// UID before its virtual Node did.
func (c *connection) stillOwn(ctx context.Context, id string) error {
	node := &corev1.Node{}
	if err := c.controller.Client.Get(ctx, types.NamespacedName{Name: id}, node); err != nil {
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading virtual Node %s: %w", id, err)
		}
		node = nil
	}
	return c.controller.own(ctx, id, c.uid, node)
}

// Serve implements engage.Work. The id is released at its end.
func (c *connection) Serve(ctx context.Context, ready func()) error {
	id := c.ownedID()
	defer c.controller.owners.release(c.cluster)
	defer c.setID("")
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "superCluster", id))
	select {
	case <-c.probed: // of an earlier Serve
	default:
	}
	ledger := usage.NewLedger()
	defer c.controller.measures.serve(id, &measure{ledger: ledger, touch: c.touch, client: c.client, uid: c.uid})()
	return c.ended(runInformers(ctx, c.informing, ledger, c.touch, func(ctx context.Context) error {
		if !c.controller.measures.waitSynced(ctx) {
			return ctx.Err()
		}
		if err := c.stillOwn(ctx, id); err != nil { // right before the UID is recorded
			return c.ofMeta(err)
		}
		ready()
		c.controller.measures.setAnswers(id, true)
		return c.publish(ctx, ledger, id)
	}))
}

// ended returns the error with which Serve ends. A super cluster that refuses what is read answers: it is not lost.
func (c *connection) ended(err error) error {
	if isRefusal(err) {
		return &engage.Failure{Reason: c.refusal(err)}
	}
	return err
}

// publish writes the virtual Node whenever capacity, or what the operator says of it, has changed, and after each
// probe; a probe that was answered renews the Lease too. It returns when the Node's name is taken.
func (c *connection) publish(ctx context.Context, ledger *usage.Ledger, id string) error {
	defer c.controller.Metrics.forget(id)
	c.publishes.Store(true)
	defer c.publishes.Store(false)
	var failed tenancy.Reason
	var last *corev1.Node // as it was written last, nil to read it
	renew := true
	for {
		published := time.Now()
		desired := c.desiredNode(ledger, id, failed)
		node, err := c.controller.writer.publish(ctx, desired, last)
		last = node
		var changed *changedError
		switch {
		case errors.Is(err, errNodeConflict):
			return nodeConflict(id)
		case errors.As(err, &changed):
			return superClusterChanged(id, changed)
		case err != nil && ctx.Err() == nil:
			last = nil
			klog.FromContext(ctx).Error(err, "Publishing the virtual node, trying again")
		case err == nil && renew && failed == tenancy.Reason{}:
			if err := c.controller.writer.renew(ctx, node); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Renewing the lease, trying again")
			}
		}
		c.controller.Metrics.set(id, desired, c.controller.measures.slicesIn(id), c.controller.DefaultSlice)
		renew = false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case failed = <-c.probed:
			c.controller.measures.setAnswers(id, failed == tenancy.Reason{})
			renew = true
			last = nil // what others wrote is seen once in a probe's period
		case <-c.dirty:
			if !pause(ctx, time.Until(published.Add(publishInterval))) {
				return ctx.Err()
			}
		}
	}
}

// desiredNode returns what the virtual Node has to be. failed is why it is not Ready, the zero Reason when it is.
func (c *connection) desiredNode(ledger *usage.Ledger, id string, failed tenancy.Reason) *desiredNode {
	c.mu.Lock()
	said, version, unversioned := c.declared, c.version, c.unversioned
	c.mu.Unlock()
	d := &desiredNode{
		id: id, uid: c.uid, cluster: c.cluster, capacity: said.Of(ledger.Capacity()), declared: said, version: version, unversioned: unversioned,
		ready: metav1.ConditionTrue,
	}
	d.reason, d.message = readyMessage(&d.capacity)
	if failed != (tenancy.Reason{}) {
		d.ready, d.reason, d.message = metav1.ConditionUnknown, failed.Reason, failed.Message
	}
	return d
}

func failure(reason, message string) error {
	return &engage.Failure{Reason: tenancy.Reason{Reason: reason, Message: message}}
}

func nodeConflict(id string) error {
	return failure(ReasonNodeConflict, fmt.Sprintf("super cluster %s: %v", id, errNodeConflict))
}

// clusterReason translates the reason of a virtual Node's condition into that of an Event.
func clusterReason(reason string) string {
	if reason == ReasonSuperClusterUnreachable {
		return ReasonUnreachable
	}
	return reason
}

// nodeReason translates the reason of an Event into that of a virtual Node's condition.
func nodeReason(reason string) string {
	if reason == ReasonUnreachable {
		return ReasonSuperClusterUnreachable
	}
	return reason
}
