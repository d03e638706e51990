package tenant

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
)

// follow says what becomes of a VirtualCluster until it is what was wished for, or is refused. gone is the state where there
// is none any more, or another one of its name.
func (c *verbs) follow(ctx context.Context, cluster client.Client, wished *tenancyv1alpha1.VirtualCluster, w cli.Waiting, of func(*tenancyv1alpha1.VirtualCluster) cli.State, gone cli.State) error {
	key := client.ObjectKeyFromObject(wished)
	return c.Await(ctx, cli.Resource+"/"+key.Name, w, func(ctx context.Context) (cli.State, error) {
		vc := &tenancyv1alpha1.VirtualCluster{}
		switch err := cluster.Get(ctx, key, vc); {
		case apierrors.IsNotFound(err):
			return gone, nil
		case err != nil:
			return cli.State{}, err //nolint:wrapcheck // it says what it did
		case vc.UID != wished.UID:
			return gone, nil
		}
		return of(vc), nil
	})
}

// waitsForManager is said where vc-manager has not seen a change.
const waitsForManager = "waiting for vc-manager: kubectl -n vc-manager get pods"

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
func provisioned(vc *tenancyv1alpha1.VirtualCluster) cli.State {
	upToDate := said(vc, tenancyv1alpha1.ConditionUpToDate)
	switch {
	case upToDate == nil:
		return cli.State{Says: waitsForManager}
	case upToDate.Status == metav1.ConditionTrue:
		return cli.State{Done: true, Says: "all parts are as they are to be, of version " + vc.Status.Version}
	case upToDate.Reason == tenancyv1alpha1.ReasonPaused && vc.Spec.Paused:
		return cli.State{Refused: true, Says: "it is paused: kubectl vc resume " + cli.Named(vc)}
	case upToDate.Reason == tenancyv1alpha1.ReasonInvalid, upToDate.Reason == tenancyv1alpha1.ReasonClusterVersionNotFound:
		return cli.State{Refused: true, Says: upToDate.Message}
	}
	for _, kind := range partConditions {
		if part := said(vc, kind); part != nil && part.Status == metav1.ConditionFalse {
			return cli.State{Says: part.Message}
		}
	}
	return cli.State{Says: upToDate.Message}
}

// runs is how far a tenant is that the pool is to serve.
func runs(vc *tenancyv1alpha1.VirtualCluster) cli.State {
	if vc.Spec.ClusterVersionName != "" {
		if made := provisioned(vc); !made.Done {
			return made
		}
	}
	switch ready := said(vc, tenancyv1alpha1.ConditionReady); {
	case ready == nil:
		return cli.State{Says: "waiting for vc-scheduler: kubectl -n vc-manager get pods"}
	case ready.Status == metav1.ConditionTrue:
		return cli.State{Done: true, Says: "the pool serves it"}
	case ready.Reason == tenancyv1alpha1.ReasonInvalidKubeconfig, ready.Reason == tenancyv1alpha1.ReasonDuplicateControlPlane, ready.Reason == tenancyv1alpha1.ReasonKeyConflict:
		return cli.State{Refused: true, Says: ready.Message}
	default:
		return cli.State{Says: ready.Message}
	}
}
