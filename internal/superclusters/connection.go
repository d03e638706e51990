package superclusters

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// probePeriod is how often a super cluster is asked whether it is there, and how often its Lease is renewed. A dead server
	// is found after at most probePeriod + 2 probeTimeouts + probePause, which is less than two periods.
	probePeriod  = 10 * time.Second
	probeTimeout = 4 * time.Second
	probePause   = time.Second

	publishInterval = 500 * time.Millisecond
	claimPause      = 200 * time.Millisecond
	claimPatience   = 15 * time.Second

	firstDelay     = time.Second
	longestDelay   = 15 * time.Second
	backoffFactor  = 2
	backoffJitter  = 0.1
	backoffStepMax = 1 << 30
)

// trouble is an error with the reason of its Event.
type trouble struct {
	reason string
	err    error
}

func (t *trouble) Error() string { return t.err.Error() }

func (t *trouble) Unwrap() error { return t.err }

// state is what a connection tells the registry.
type state struct {
	// id is the super cluster id, once it is held.
	id string
	// serving says that the connection itself keeps the virtual Node true.
	serving bool
	// reason and message say what is wrong, "" for nothing.
	reason, message string
}

// connection is one instance of a super cluster:
//
//	           trouble
//	   ┌──────────────────────────────────────────────┐
//	   ▼                                              │
//	(delay) ──► read id ──► claim it ──► fill caches ──► serve: publish, probe, renew the Lease
type connection struct {
	registry *Registry
	cluster  types.NamespacedName
	config   *rest.Config
	dirty    chan struct{}

	mu       sync.Mutex
	state    state
	headroom Headroom
}

func (r *Registry) connect(cluster types.NamespacedName, config *rest.Config, headroom Headroom) *connection {
	return &connection{registry: r, cluster: cluster, config: config, headroom: headroom, dirty: make(chan struct{}, 1)}
}

func (c *connection) current() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *connection) set(ctx context.Context, next state) {
	c.mu.Lock()
	changed := c.state != next && ctx.Err() == nil
	if changed {
		c.state = next
	}
	c.mu.Unlock()
	if changed {
		c.registry.instances.Changed(c.cluster)
	}
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

// Run implements kubeconfig.Work.
func (c *connection) Run(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "cluster", c.cluster)
	ctx = klog.NewContext(ctx, logger)
	logger.V(2).Info("Connecting to super cluster", "server", c.config.Host)
	defer logger.V(2).Info("Left super cluster")
	defer c.registry.claims.release(c.cluster)
	backoff := newBackoff()
	for ctx.Err() == nil {
		err := c.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if c.current().serving {
			backoff = newBackoff()
		}
		c.registry.claims.release(c.cluster)
		delay := backoff.Step()
		logger.V(2).Info("Super cluster is not connected, trying again", "delay", delay, "err", err)
		c.set(ctx, stateOf(err))
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

func stateOf(err error) state {
	var known *trouble
	if errors.As(err, &known) {
		return state{reason: known.reason, message: known.Error()}
	}
	return state{reason: ReasonUnreachable, message: err.Error()}
}

// once connects and serves until something is wrong. It never returns nil.
func (c *connection) once(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return &trouble{ReasonInvalidKubeconfig, fmt.Errorf("making a client: %w", err)}
	}
	id, err := c.readID(ctx, client)
	c.registry.claims.tried(c.cluster, id)
	if err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "superCluster", id))
	if err := c.claim(ctx, id); err != nil {
		return err
	}
	c.set(ctx, state{id: id})
	ledger := NewLedger()
	return follow(ctx, client, ledger, c.touch, func(ctx context.Context) error { return c.serve(ctx, client, ledger, id) })
}

// readID returns the id that the super cluster gives itself.
func (c *connection) readID(ctx context.Context, client kubernetes.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	info, err := client.CoreV1().ConfigMaps(schedulerv1alpha1.SuperClusterInfoNamespace).Get(ctx, schedulerv1alpha1.SuperClusterInfoName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("asking %s: %w", c.config.Host, err)
	}
	id, exists := "", false
	if err == nil {
		id, exists = info.Data[schedulerv1alpha1.SuperClusterInfoKey]
	}
	if !exists {
		return "", &trouble{ReasonSuperClusterInfoMissing, fmt.Errorf(
			"the super cluster does not say its id: kubectl -n %s create configmap %s --from-literal=%s=<id>",
			schedulerv1alpha1.SuperClusterInfoNamespace, schedulerv1alpha1.SuperClusterInfoName, schedulerv1alpha1.SuperClusterInfoKey)}
	}
	if err := tenancy.ValidateSuperClusterID(id); err != nil {
		return "", &trouble{ReasonInvalidID, err}
	}
	return id, nil
}

// claim takes the id, or returns why another Cluster has it.
func (c *connection) claim(ctx context.Context, id string) error {
	deadline := time.Now().Add(claimPatience)
	for {
		patient := time.Now().Before(deadline)
		wait, err := c.registry.claim(ctx, c.cluster, id, patient)
		if err != nil || !wait {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(claimPause):
		}
	}
}

// serve publishes the virtual Node whenever something changed, and probes the super cluster. It returns when the super cluster has
// another id, or the Node's name is taken.
func (c *connection) serve(ctx context.Context, client kubernetes.Interface, ledger *Ledger, id string) error {
	ticker := time.NewTicker(probePeriod)
	defer ticker.Stop()
	current := state{id: id, serving: true}
	renew := true
	for {
		c.set(ctx, current)
		published := time.Now()
		node, err := c.registry.writer.publish(ctx, c.view(ledger, &current))
		switch {
		case errors.Is(err, errNodeConflict):
			return &trouble{ReasonNodeConflict, fmt.Errorf("super cluster %s: %w", id, err)}
		case err != nil && ctx.Err() == nil:
			klog.FromContext(ctx).Error(err, "Publishing the virtual node, trying again")
		case err == nil && renew && current.reason != ReasonUnreachable:
			if err := c.registry.writer.renew(ctx, node); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Renewing the lease, trying again")
			}
		}
		renew = false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			renew = true
			if current, err = c.probe(ctx, client, id); err != nil {
				return err
			}
		case <-c.dirty:
			if !c.pause(ctx, time.Until(published.Add(publishInterval))) {
				return ctx.Err()
			}
		}
	}
}

// probe asks the super cluster for its id, twice before it is called unreachable. It returns an error when the id is another one.
func (c *connection) probe(ctx context.Context, client kubernetes.Interface, id string) (state, error) {
	serving := state{id: id, serving: true}
	found, err := c.readID(ctx, client)
	var known *trouble
	if err != nil && !errors.As(err, &known) && c.pause(ctx, probePause) {
		found, err = c.readID(ctx, client)
	}
	switch {
	case err == nil && found != id:
		return serving, fmt.Errorf("the super cluster's id was %s and is %s now", id, found)
	case err != nil:
		wrong := stateOf(err)
		serving.reason, serving.message = wrong.reason, wrong.message
	}
	return serving, nil
}

func (c *connection) pause(ctx context.Context, duration time.Duration) bool {
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

func (c *connection) view(ledger *Ledger, current *state) *view {
	c.mu.Lock()
	headroom := c.headroom
	c.mu.Unlock()
	v := &view{id: current.id, cluster: c.cluster, capacity: ledger.Capacity(), headroom: headroom, ready: metav1.ConditionTrue}
	v.reason, v.message = readyMessage(&v.capacity)
	if current.reason == ReasonUnreachable {
		v.ready, v.reason, v.message = metav1.ConditionUnknown, ReasonSuperClusterUnreachable, current.message
	}
	return v
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: firstDelay, Factor: backoffFactor, Jitter: backoffJitter, Steps: backoffStepMax, Cap: longestDelay}
}

// nodeReason translates the reason of an Event into that of a virtual Node's condition.
func nodeReason(reason string) string {
	if reason == ReasonUnreachable {
		return ReasonSuperClusterUnreachable
	}
	return reason
}
