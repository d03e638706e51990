package stores

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
)

// TestBackupsAreSpread: tenants of one schedule do not begin at once, and none earlier than it says.
func TestBackupsAreSpread(t *testing.T) {
	t.Parallel()
	plane := &controlplane.ControlPlane{Version: &tenancyv1alpha1.ClusterVersion{}}
	of := &Backups{store: &Store{stores: newBed(t).stores, plane: plane}}
	plane.Version.Spec.Backup = &tenancyv1alpha1.BackupTemplate{Schedule: "0 3 * * *"}
	at := time.Date(2026, 11, 28, 3, 5, 0, 0, time.UTC)
	of.made = []batchv1.Job{{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)}}}
	distinct := map[time.Time]bool{}
	for i := range 100 {
		plane.Tenant = &tenancyv1alpha1.VirtualCluster{}
		plane.Tenant.UID = types.UID(fmt.Sprint(i))
		due, err := of.due()
		require.NoError(t, err)
		require.False(t, due.Before(time.Date(2026, 11, 29, 3, 0, 0, 0, time.UTC)), due)
		require.True(t, due.Before(time.Date(2026, 11, 29, 5, 24, 0, 0, time.UTC)), due)
		distinct[due] = true
	}
	require.Greater(t, len(distinct), 80)
}
