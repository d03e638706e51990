package superclusters

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/test/builders"
)

func freeOf(name, class, capacity string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "csi", Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}}, StorageClassName: class,
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"node": name}}, Capacity: ptr.To(resource.MustParse(capacity)),
	}
}

// TestStorage: what CSI drivers publish is in the ledger, and on the virtual Node. A super cluster that does not let it
// be read says nothing, and holds up nothing.
func TestStorage(t *testing.T) {
	t.Parallel()
	notFound := &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound}}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"published":  {want: `{"fast":"100Gi"}`},
		"not served": {err: notFound, want: `{}`},
		"forbidden":  {err: apierrors.NewForbidden(schema.GroupResource{Resource: "csidrivers"}, "", nil), want: `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := builders.Clientset(
				&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}},
				&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "disk"},
				freeOf("n1", "fast", "10Gi"), freeOf("n2", "fast", "100Gi"),
			)
			if tc.err != nil {
				api.PrependReactor("list", "csidrivers", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ledger, dirty := NewLedger(), make(chan struct{}, 100)
			err := runInformers(ctx, api, ledger, func() { dirty <- struct{}{} }, func(ctx context.Context) error {
				for ledger.Capacity().Storage == "" && ctx.Err() == nil {
					select {
					case <-ctx.Done():
					case <-dirty:
					}
				}
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, tc.want, ledger.Capacity().Storage)
			require.False(t, ledger.SetStorage(tc.want), "nothing is written for what is the same")
		})
	}
}

// TestStorageOnNodes: what is not known yet is left as it was, and what is not published any more goes.
func TestStorageOnNodes(t *testing.T) {
	t.Parallel()
	d := desired("", "")
	node := newNode(d)
	for _, step := range []struct{ storage, want string }{
		{"", ""}, {`{"fast":"1Gi"}`, `{"fast":"1Gi"}`}, {"", `{"fast":"1Gi"}`}, {`{"fast":"0"}`, `{"fast":"0"}`}, {"{}", ""},
	} {
		d.capacity.Storage = step.storage
		applyMeta(node, d)
		require.Equal(t, step.want, node.Annotations[schedulerv1alpha1.AnnotationFreeStorage])
	}
}

// TestTrimmedStorageCountsTheSame: what the transform drops is not read.
func TestTrimmedStorageCountsTheSame(t *testing.T) {
	t.Parallel()
	bounded := freeOf("n1", "fast", "9Gi")
	bounded.MaximumVolumeSize = ptr.To(resource.MustParse("1Gi"))
	unreachable := freeOf("n1", "fast", "9Gi")
	unreachable.NodeTopology = nil
	for _, capacity := range []*storagev1.CSIStorageCapacity{freeOf("n1", "fast", "9Gi"), bounded, unreachable} {
		read := func(trim bool) string {
			s, err := newFreeStorage(t.Context(), builders.Clientset(), func(err error) { t.Error(err) })
			require.NoError(t, err)
			for informer, object := range map[cache.SharedIndexInformer]runtime.Object{
				s.drivers:    &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}},
				s.classes:    &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "disk"},
				s.capacities: capacity,
			} {
				stored := any(object)
				if trim {
					stored, err = trimStorage(object)
					require.NoError(t, err)
				}
				require.NoError(t, informer.GetStore().Add(stored))
			}
			return s.sizes().Encode()
		}
		require.Equal(t, read(false), read(true))
	}
	tombstone := cache.DeletedFinalStateUnknown{Key: "csi/n1"}
	got, err := trimStorage(tombstone)
	require.NoError(t, err)
	require.Equal(t, tombstone, got)
}
