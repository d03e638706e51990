package superclusters

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// probePeriod is how often a super cluster is asked whether it is there, and how often its Lease is renewed. A dead
	// server is found after at most probePeriod + 2 probeTimeouts + probePause, which is less than two periods.
	probePeriod  = 10 * time.Second
	probeTimeout = 4 * time.Second
	probePause   = time.Second

	publishInterval = 500 * time.Millisecond
	longestDelay    = 15 * time.Second
)

// connection is the engage.Work of one super cluster. Connect reads the super cluster's id and makes the Cluster its
// owner; Serve runs informers and publishes the virtual Node; Probe reads the id again, which is what renews the Node's
// Lease.
type connection struct {
	controller *Controller
	cluster    types.NamespacedName
	config     *rest.Config
	client     kubernetes.Interface // made by Connect
	dirty      chan struct{}        // holds one when capacity or headroom has changed since the last publish
	probed     chan string          // holds the outcome of the last Probe: why the super cluster is unreachable, "" when it answers

	mu       sync.Mutex
	id       string // owned by the Cluster, "" for none
	headroom Headroom
}

func (c *Controller) connect(cluster types.NamespacedName, config *rest.Config, headroom Headroom) *connection {
	return &connection{
		controller: c, cluster: cluster, config: config, headroom: headroom, dirty: make(chan struct{}, 1), probed: make(chan string, 1),
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

func (c *connection) setHeadroom(headroom Headroom) {
	c.mu.Lock()
	c.headroom = headroom
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
	if c.client == nil {
		client, err := kubernetes.NewForConfig(c.config)
		if err != nil {
			return failure(ReasonInvalidKubeconfig, fmt.Sprintf("making a client: %v", err))
		}
		c.client = client
	}
	id, err := readID(ctx, c.client)
	c.controller.owners.tried(c.cluster, id)
	if err != nil {
		return err
	}
	if err := c.controller.acquire(ctx, c.cluster, id); err != nil {
		return err
	}
	c.setID(id)
	return nil
}

// Probe implements engage.Work: it asks twice before a super cluster counts as unreachable. Another id ends Serve.
func (c *connection) Probe(ctx context.Context) error {
	id := c.ownedID()
	found, err := readID(ctx, c.client)
	var known *engage.Failure
	if err != nil && !errors.As(err, &known) && pause(ctx, probePause) {
		found, err = readID(ctx, c.client)
	}
	if err == nil && found != id && id != "" {
		return &engage.Failure{Final: true, Reason: tenancy.Reason{
			Reason: ReasonUnreachable, Message: fmt.Sprintf("the super cluster's id was %s and is %s now", id, found),
		}}
	}
	unreachable := ""
	if err != nil && !errors.As(err, &known) {
		unreachable = fmt.Sprintf("%s does not answer: %v", c.config.Host, err)
	}
	select {
	case <-c.probed: // an outcome that publish has not seen yet
	default:
	}
	c.probed <- unreachable
	return err
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
	ledger := NewLedger()
	return runInformers(ctx, c.client, ledger, c.touch, func(ctx context.Context) error {
		ready()
		return c.publish(ctx, ledger, id)
	})
}

// publish writes the virtual Node whenever capacity or headroom has changed, and after each probe; a probe that was
// answered renews the Lease too. It returns when the Node's name is taken.
func (c *connection) publish(ctx context.Context, ledger *Ledger, id string) error {
	renew, unreachable := true, ""
	for {
		published := time.Now()
		node, err := c.controller.writer.publish(ctx, c.desiredNode(ledger, id, unreachable))
		switch {
		case errors.Is(err, errNodeConflict):
			return nodeConflict(id)
		case err != nil && ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Publishing the virtual node, trying again")
		case err == nil && renew && unreachable == "":
			if err := c.controller.writer.renew(ctx, node); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Renewing the lease, trying again")
			}
		}
		renew = false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case unreachable = <-c.probed:
			renew = true
		case <-c.dirty:
			if !pause(ctx, time.Until(published.Add(publishInterval))) {
				return ctx.Err()
			}
		}
	}
}

// desiredNode returns what the virtual Node has to be. unreachable is why the super cluster does not answer, "" when it
// does.
func (c *connection) desiredNode(ledger *Ledger, id, unreachable string) *desiredNode {
	c.mu.Lock()
	headroom := c.headroom
	c.mu.Unlock()
	d := &desiredNode{id: id, cluster: c.cluster, capacity: ledger.Capacity(), headroom: headroom, ready: metav1.ConditionTrue}
	d.reason, d.message = readyMessage(&d.capacity)
	if unreachable != "" {
		d.ready, d.reason, d.message = metav1.ConditionUnknown, ReasonSuperClusterUnreachable, unreachable
	}
	return d
}

func failure(reason, message string) error {
	return &engage.Failure{Reason: tenancy.Reason{Reason: reason, Message: message}}
}

func nodeConflict(id string) error {
	return failure(ReasonNodeConflict, fmt.Sprintf("super cluster %s: %v", id, errNodeConflict))
}

// nodeReason translates the reason of an Event into that of a virtual Node's condition.
func nodeReason(reason string) string {
	if reason == ReasonUnreachable {
		return ReasonSuperClusterUnreachable
	}
	return reason
}
