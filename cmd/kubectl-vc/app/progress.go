package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// lookPeriod is how often what is waited for is looked at.
const lookPeriod = 500 * time.Millisecond

// waiting is whether a verb waits until what it wished for is so, and how long.
type waiting struct {
	wait    bool
	timeout time.Duration
}

func (w *waiting) addFlags(flags *pflag.FlagSet) {
	const most = 10 * time.Minute
	w.addFlagsFor(flags, most)
}

// addFlagsFor adds the flags of what takes so long at most, as a rule.
func (w *waiting) addFlagsFor(flags *pflag.FlagSet, most time.Duration) {
	flags.BoolVar(&w.wait, "wait", true, "wait until it is so, and say meanwhile what is waited for")
	flags.DurationVar(&w.timeout, "timeout", most, "how long to wait. What was wished for stays wished for")
}

// state is how far something is: done, or refused for good, or on its way, with what there is to say.
type state struct {
	done    bool
	refused bool
	says    string
	// more is what is said below that, once.
	more []string
}

// follow says what becomes of a VirtualCluster until it is what was wished for, or is refused. gone is the state where there
// is none any more, or another one of its name.
func (c *cli) follow(ctx context.Context, cluster client.Client, wished *tenancyv1alpha1.VirtualCluster, w waiting, of func(*tenancyv1alpha1.VirtualCluster) state, gone state) error {
	key := client.ObjectKeyFromObject(wished)
	return c.await(ctx, resource+"/"+key.Name, w, func(ctx context.Context) (state, error) {
		vc := &tenancyv1alpha1.VirtualCluster{}
		switch err := cluster.Get(ctx, key, vc); {
		case apierrors.IsNotFound(err):
			return gone, nil
		case err != nil:
			return state{}, err //nolint:wrapcheck // it says what it did
		case vc.UID != wished.UID:
			return gone, nil
		}
		return of(vc), nil
	})
}

// await looks at something until it is done or refused, and says how far it is when that has become something else. what is
// how an error names it.
func (c *cli) await(ctx context.Context, what string, w waiting, look func(ctx context.Context) (state, error)) error {
	if !w.wait {
		return nil
	}
	begun, now := time.Now(), state{}
	err := wait.PollUntilContextTimeout(ctx, lookPeriod, w.timeout, true, func(context.Context) (bool, error) { // a look that has begun is not cut off
		before := now
		switch looked, err := look(ctx); {
		case err != nil && ctx.Err() == nil:
			now = state{says: err.Error()} // the meta cluster may be away for a while
		case err == nil:
			now = looked
		}
		now.says = line(now.says)
		if now.says != "" && now.says != before.says && !now.refused {
			_, _ = fmt.Fprintf(c.ErrOut, "%5s  %s\n", time.Since(begun).Round(time.Second), now.says) // nobody reads it who has closed it
		}
		for _, text := range now.more {
			_, _ = fmt.Fprintf(c.ErrOut, "       %s\n", line(text)) // as above
		}
		now.more = nil
		return now.done || now.refused, nil
	})
	switch {
	case now.refused:
		return fmt.Errorf("%s: %s", what, now.says)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Errorf("%s is not there after %s: %s", what, w.timeout, now.says)
	}
	return err //nolint:wrapcheck // it is that of the context
}

// partConditions are those of the parts of a control plane, in the order in which they are made.
var partConditions = []string{
	tenancyv1alpha1.ConditionCertificatesValid, tenancyv1alpha1.ConditionEtcdReady, tenancyv1alpha1.ConditionAPIServerReady, tenancyv1alpha1.ConditionControllerManagerReady,
	tenancyv1alpha1.ConditionExposed,
}

// said returns a condition that is of the VirtualCluster as it is now, nil for none.
func said(vc *tenancyv1alpha1.VirtualCluster, kind string) *metav1.Condition {
	condition := meta.FindStatusCondition(vc.Status.Conditions, kind)
	if condition == nil || condition.ObservedGeneration < vc.Generation {
		return nil
	}
	return condition
}

// provisioned is how far the control plane is that vc-manager makes.
func provisioned(vc *tenancyv1alpha1.VirtualCluster) state {
	upToDate := said(vc, tenancyv1alpha1.ConditionUpToDate)
	switch {
	case upToDate == nil:
		return state{says: "waiting for vc-manager: kubectl -n vc-manager get pods"}
	case upToDate.Status == metav1.ConditionTrue:
		return state{done: true, says: "all parts are as they are to be, of version " + vc.Status.Version}
	case upToDate.Reason == tenancyv1alpha1.ReasonPaused && vc.Spec.Paused:
		return state{refused: true, says: "it is paused: kubectl vc resume " + named(vc)}
	case upToDate.Reason == tenancyv1alpha1.ReasonInvalid, upToDate.Reason == tenancyv1alpha1.ReasonClusterVersionNotFound:
		return state{refused: true, says: upToDate.Message}
	}
	for _, kind := range partConditions {
		if part := said(vc, kind); part != nil && part.Status == metav1.ConditionFalse {
			return state{says: part.Message}
		}
	}
	return state{says: upToDate.Message}
}

// runs is how far a tenant is that the pool is to serve.
func runs(vc *tenancyv1alpha1.VirtualCluster) state {
	if vc.Spec.ClusterVersionName != "" {
		if made := provisioned(vc); !made.done {
			return made
		}
	}
	switch ready := said(vc, tenancyv1alpha1.ConditionReady); {
	case ready == nil:
		return state{says: "waiting for vc-scheduler: kubectl -n vc-manager get pods"}
	case ready.Status == metav1.ConditionTrue:
		return state{done: true, says: "the pool serves it"}
	case ready.Reason == tenancyv1alpha1.ReasonInvalidKubeconfig, ready.Reason == tenancyv1alpha1.ReasonDuplicateControlPlane, ready.Reason == tenancyv1alpha1.ReasonKeyConflict:
		return state{refused: true, says: ready.Message}
	default:
		return state{says: ready.Message}
	}
}
