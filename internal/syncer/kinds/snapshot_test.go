package kinds_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenancy"
)

func snapshot(spec, status map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "spec": spec}}
	if status != nil {
		object.Object["status"] = status
	}
	return object
}

// TestSuperSnapshot: what of a tenant's snapshot goes down.
func TestSuperSnapshot(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		tenant, want map[string]any
	}{
		{
			name:   "of a claim",
			tenant: map[string]any{"volumeSnapshotClassName": "quick", "source": map[string]any{"persistentVolumeClaimName": "data", "other": "x"}, "other": "x"},
			want:   map[string]any{"volumeSnapshotClassName": "quick", "source": map[string]any{"persistentVolumeClaimName": "data"}},
		},
		{
			name:   "of a content, for the policy to refuse",
			tenant: map[string]any{"source": map[string]any{"volumeSnapshotContentName": "c"}},
			want:   map[string]any{"source": map[string]any{"volumeSnapshotContentName": "c"}},
		},
		{name: "of another form", tenant: map[string]any{"source": "x", "volumeSnapshotClassName": int64(1)}, want: map[string]any{"source": map[string]any{}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			created := snapshot(nil, nil)
			kinds.SuperSnapshot(snapshot(tc.tenant, nil), created)
			require.Empty(t, cmp.Diff(tc.want, created.Object["spec"]))
		})
	}
	existing := snapshot(map[string]any{"volumeSnapshotClassName": "the default"}, nil)
	existing.SetUID("uid")
	want := existing.DeepCopy()
	kinds.SuperSnapshot(snapshot(map[string]any{"volumeSnapshotClassName": "other"}, nil), existing)
	require.Empty(t, cmp.Diff(want, existing), "what exists cannot change")
}

// TestTenantSnapshotStatus: what a tenant is told.
func TestTenantSnapshotStatus(t *testing.T) {
	t.Parallel()
	before := map[string]any{"readyToUse": false}
	for _, tc := range []struct {
		name        string
		super, want map[string]any
	}{
		{name: "nothing yet", want: before},
		{
			name:  "ready",
			super: map[string]any{"boundVolumeSnapshotContentName": "snapcontent-1", "readyToUse": true, "restoreSize": "1Gi", "creationTime": "now", "volumeGroupSnapshotName": "g"},
			want:  map[string]any{"readyToUse": true, "restoreSize": "1Gi", "creationTime": "now"},
		},
		{
			name:  "an error",
			super: map[string]any{"error": map[string]any{"message": "no " + strings.Repeat("x", 10000), "time": "now"}},
			want:  map[string]any{"error": map[string]any{"message": tenancy.Cut("yes"+strings.Repeat("x", 10000), tenancy.MaxEventNote), "time": "now"}},
		},
		{name: "of another form", super: map[string]any{"readyToUse": "x", "restoreSize": map[string]any{}, "error": "x"}, want: before},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tenant := snapshot(nil, before)
			kinds.TenantSnapshotStatus(snapshot(nil, tc.super), tenant, func(message string) string { return strings.Replace(message, "no ", "yes", 1) })
			require.Empty(t, cmp.Diff(tc.want, tenant.Object["status"]))
		})
	}
}
