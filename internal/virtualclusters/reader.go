package virtualclusters

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// errNotRecognized is why a Reader does not connect to a control plane that Owner has not recognized.
var errNotRecognized = errors.New("status.controlPlaneUID is empty: waiting for vc-scheduler to connect")

// Reader implements the methods of Owner for a process that owns no VirtualClusters: it waits for what Owner writes,
// and writes nothing.
type Reader struct {
	// Reader reads root namespaces, which must be up to date.
	Reader client.Reader
	// Recorder records an Event on a VirtualCluster when its control plane has more than the process may keep; nil for
	// none. Its conditions are the Owner's.
	Recorder record.EventRecorder
}

// Prepare returns why the tenant cannot be connected to yet, the zero Reason when Owner has written all that it needs.
func (r Reader) Prepare(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (tenancy.Reason, error) {
	if vc.Status.ClusterNamespace == "" {
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonConnecting, Message: "status.clusterNamespace is empty: waiting for vc-scheduler"}, nil
	}
	if vc.Status.ControlPlaneUID == "" {
		klog.FromContext(ctx).Info("Waiting until vc-scheduler has connected to the control plane and written status.controlPlaneUID")
		return tenancy.Reason{Reason: tenancyv1alpha1.ReasonConnecting, Message: errNotRecognized.Error()}, nil
	}
	return CheckRoot(ctx, r.Reader, vc)
}

// Recognize returns an error: only Owner writes status.
func (r Reader) Recognize(context.Context, *tenancyv1alpha1.VirtualCluster, types.UID) error {
	return errNotRecognized
}

// Withdraw does nothing: Owner removes the UID, and Prepare waits then.
func (r Reader) Withdraw(context.Context, *tenancyv1alpha1.VirtualCluster) error { return nil }

// Report writes nothing but an Event when the state is TooMuchData, which is another in each process. It returns after
// how long a key that belongs to another object is to be checked again, 0 for any other state.
func (r Reader) Report(_ context.Context, vc *tenancyv1alpha1.VirtualCluster, state, _ tenancy.Reason, _ *tenancy.Reason) (time.Duration, error) {
	if state.Reason == tenancyv1alpha1.ReasonTooMuchData && r.Recorder != nil {
		r.Recorder.Event(vc, corev1.EventTypeWarning, state.Reason, tenancy.Cut(state.Message, tenancy.MaxEventNote))
	}
	if state.Reason == tenancyv1alpha1.ReasonKeyConflict {
		return conflictRetryAfter, nil
	}
	return 0, nil
}

// Release does nothing: Owner deletes.
func (r Reader) Release(context.Context, *tenancyv1alpha1.VirtualCluster) (time.Duration, error) {
	return 0, nil
}
