package placement_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
)

const (
	r1 = `{"r1":1}`
	r2 = `{"r2":1}`
	r3 = `{"r3":1}`
)

func TestPublication(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// due is the super cluster that holds the one slice, "" for none.
		due                   string
		published, publishing *string
		annotation            string
		requested             string // what the tenant requests, and how far it is
		state                 schedulerv1alpha1.RequestState
		want                  placement.Step
	}{
		"nothing is placed":                                      {want: placement.StepNone},
		"nothing is placed any more, and shown":                  {published: ptr.To(""), want: placement.StepNone},
		"up to date":                                             {due: "r1", published: ptr.To(r1), annotation: r1, want: placement.StepNone},
		"placed for the first time":                              {due: "r1", publishing: ptr.To(r1), want: placement.StepWrite},
		"moved":                                                  {due: "r2", published: ptr.To(r1), publishing: ptr.To(r2), annotation: r1, want: placement.StepWrite},
		"nothing is placed any more":                             {published: ptr.To(r1), publishing: ptr.To(""), annotation: r1, want: placement.StepWrite},
		"written, and not recorded":                              {due: "r2", published: ptr.To(r1), publishing: ptr.To(r2), annotation: r2, want: placement.StepRecord},
		"written for the first time, and not recorded":           {due: "r1", publishing: ptr.To(r1), annotation: r1, want: placement.StepRecord},
		"removed, and not recorded":                              {published: ptr.To(r1), publishing: ptr.To(""), want: placement.StepRecord},
		"moved again before it was written":                      {due: "r3", published: ptr.To(r1), publishing: ptr.To(r2), annotation: r1, want: placement.StepRecord},
		"moved again before it was recorded":                     {due: "r3", published: ptr.To(r1), publishing: ptr.To(r2), annotation: r2, want: placement.StepRecord},
		"moved back before it was written":                       {due: "r1", published: ptr.To(r1), publishing: ptr.To(r2), annotation: r1, want: placement.StepRecord},
		"moved back before it was recorded":                      {due: "r1", published: ptr.To(r1), publishing: ptr.To(r2), annotation: r2, want: placement.StepWrite},
		"placed by a version that recorded nothing, and written": {due: "r1", annotation: r1, want: placement.StepRecord},
		"placed by a version that recorded nothing":              {due: "r1", want: placement.StepRecord},
		"the tenant changed it":                                  {due: "r1", published: ptr.To(r1), annotation: r2, want: placement.StepRequest},
		"the tenant removed it":                                  {due: "r1", published: ptr.To(r1), want: placement.StepRequest},
		"the tenant changed it while another was due":            {due: "r2", published: ptr.To(r1), publishing: ptr.To(r2), annotation: r3, want: placement.StepRequest},
		"the tenant removed it while another was due":            {due: "r2", published: ptr.To(r1), publishing: ptr.To(r2), want: placement.StepRequest},
		"the tenant wrote it where nothing is placed":            {annotation: r1, want: placement.StepRequest},
		"the tenant wrote it where nothing is placed any more":   {published: ptr.To(""), annotation: r1, want: placement.StepRequest},
		"the tenant created the namespace with it":               {due: "r1", publishing: ptr.To(r1), annotation: "nonsense", want: placement.StepWrite},
		"the NamespacePlacement was lost":                        {due: "r2", publishing: ptr.To(r2), annotation: r1, want: placement.StepWrite},
		"the tenant wrote the same in other words":               {due: "r1", published: ptr.To(r1), annotation: `{ "r1": 1, "r2": 0 }`, want: placement.StepWrite},
		"a request waits":                                        {due: "r1", published: ptr.To(r1), annotation: r2, requested: r2, state: schedulerv1alpha1.RequestWaiting, want: placement.StepNone},
		"a request to place it anew waits":                       {due: "r1", published: ptr.To(r1), state: schedulerv1alpha1.RequestWaiting, want: placement.StepNone},
		"a request was refused":                                  {due: "r1", published: ptr.To(r1), annotation: r2, requested: r2, state: schedulerv1alpha1.RequestRefused, want: placement.StepRestore},
		"a request was refused, and that is written":             {due: "r1", published: ptr.To(r1), annotation: r1, requested: r2, state: schedulerv1alpha1.RequestRefused, want: placement.StepRecord},
		"a request was granted, as it was written":               {due: "r2", published: ptr.To(r1), publishing: ptr.To(r2), annotation: r2, requested: r2, state: schedulerv1alpha1.RequestGranted, want: placement.StepRecord},
		"a request was granted, in other words":                  {due: "r2", published: ptr.To(r1), publishing: ptr.To(r2), annotation: "{ }", requested: "{ }", state: schedulerv1alpha1.RequestGranted, want: placement.StepWrite},
		"it was placed anew":                                     {due: "r2", published: ptr.To(r1), publishing: ptr.To(r2), state: schedulerv1alpha1.RequestGranted, want: placement.StepWrite},
		"it was placed anew where it was":                        {due: "r1", published: ptr.To(r1), state: schedulerv1alpha1.RequestGranted, want: placement.StepWrite},
		"the tenant takes a request back":                        {due: "r1", published: ptr.To(r1), annotation: r1, requested: r2, state: schedulerv1alpha1.RequestWaiting, want: placement.StepRecord},
		"the tenant writes something else while one waits":       {due: "r1", published: ptr.To(r1), annotation: r3, requested: r2, state: schedulerv1alpha1.RequestWaiting, want: placement.StepRequest},
		"the tenant writes something else before an answer":      {due: "r1", published: ptr.To(r1), annotation: r3, requested: r2, state: schedulerv1alpha1.RequestRefused, want: placement.StepRequest},
		"it is drained, and the tenant takes a request back":     {due: "r3", published: ptr.To(r1), publishing: ptr.To(r3), annotation: r1, requested: r2, state: schedulerv1alpha1.RequestWaiting, want: placement.StepWrite},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := &schedulerv1alpha1.NamespacePlacementStatus{Published: tc.published, Publishing: tc.publishing}
			if tc.state != "" {
				status.Requested = &schedulerv1alpha1.RequestedPlacements{Annotation: tc.requested, State: tc.state}
			}
			if tc.due != "" {
				status.Placements = append(status.Placements, in(tc.due, "1"))
			}
			require.Equal(t, tc.want, placement.Publication(status, tc.annotation))
		})
	}
}

func TestNextPublication(t *testing.T) {
	t.Parallel()
	type text = *string
	for name, tc := range map[string]struct {
		due                           string
		published, publishing         text
		annotation                    text
		requested                     string // what the tenant requests, and how far it is
		state                         schedulerv1alpha1.RequestState
		wantPublished, wantPublishing text
		wantRequested                 bool
	}{
		"nothing is placed":                           {},
		"placed":                                      {due: "r1", wantPublishing: ptr.To(r1)},
		"moved":                                       {due: "r2", published: ptr.To(r1), wantPublished: ptr.To(r1), wantPublishing: ptr.To(r2)},
		"nothing is placed any more":                  {published: ptr.To(r1), wantPublished: ptr.To(r1), wantPublishing: ptr.To("")},
		"moved, with a write under way":               {due: "r3", published: ptr.To(r1), publishing: ptr.To(r2), wantPublished: ptr.To(r1), wantPublishing: ptr.To(r2)},
		"moved back, with a write under way":          {due: "r1", published: ptr.To(r1), publishing: ptr.To(r2), wantPublished: ptr.To(r1), wantPublishing: ptr.To(r2)},
		"written":                                     {due: "r2", published: ptr.To(r1), publishing: ptr.To(r2), annotation: ptr.To(r2), wantPublished: ptr.To(r2)},
		"removed":                                     {published: ptr.To(r1), publishing: ptr.To(""), annotation: ptr.To(""), wantPublished: ptr.To("")},
		"restored where nothing was ever placed":      {annotation: ptr.To(""), wantPublished: ptr.To("")},
		"moved again, and the former is written":      {due: "r3", published: ptr.To(r1), publishing: ptr.To(r2), annotation: ptr.To(r2), wantPublished: ptr.To(r2), wantPublishing: ptr.To(r3)},
		"moved again, and the former is not written":  {due: "r3", published: ptr.To(r1), publishing: ptr.To(r2), annotation: ptr.To(r1), wantPublished: ptr.To(r1), wantPublishing: ptr.To(r3)},
		"moved back, and the former is not written":   {due: "r1", published: ptr.To(r1), publishing: ptr.To(r2), annotation: ptr.To(r1), wantPublished: ptr.To(r1)},
		"moved back, and the former is written":       {due: "r1", published: ptr.To(r1), publishing: ptr.To(r2), annotation: ptr.To(r2), wantPublished: ptr.To(r2), wantPublishing: ptr.To(r1)},
		"the tenant wrote while a write was due":      {due: "r2", published: ptr.To(r1), publishing: ptr.To(r2), annotation: ptr.To(r3), wantPublished: ptr.To(r1), wantPublishing: ptr.To(r2)},
		"the tenant wrote, and nothing is due":        {due: "r1", published: ptr.To(r1), annotation: ptr.To(r3), wantPublished: ptr.To(r1)},
		"of a version that recorded nothing":          {due: "r1", annotation: ptr.To(r1), wantPublished: ptr.To(r1)},
		"of a version that recorded nothing, changed": {due: "r1", annotation: ptr.To(r2), wantPublishing: ptr.To(r1)},
		"a request waits": {
			due: "r1", published: ptr.To(r1), annotation: ptr.To(r2), requested: r2, state: schedulerv1alpha1.RequestWaiting,
			wantPublished: ptr.To(r1), wantRequested: true,
		},
		"the tenant takes a request back": {
			due: "r1", published: ptr.To(r1), annotation: ptr.To(r1), requested: r2, state: schedulerv1alpha1.RequestWaiting, wantPublished: ptr.To(r1),
		},
		"the tenant writes something else than it requests": {
			due: "r1", published: ptr.To(r1), annotation: ptr.To(r3), requested: r2, state: schedulerv1alpha1.RequestWaiting, wantPublished: ptr.To(r1),
		},
		"a request is refused, and its text stands until others are announced and written": {
			due: "r3", published: ptr.To(r1), annotation: ptr.To(r2), requested: r2, state: schedulerv1alpha1.RequestRefused,
			wantPublished: ptr.To(r1), wantPublishing: ptr.To(r3), wantRequested: true,
		},
		"a request is refused, and that is written": {
			due: "r1", published: ptr.To(r1), publishing: ptr.To(r1), annotation: ptr.To(r1), requested: r2, state: schedulerv1alpha1.RequestRefused, wantPublished: ptr.To(r1),
		},
		"a request was granted, and moved again before it is shown": {
			due: "r3", published: ptr.To(r1), publishing: ptr.To(r2), annotation: ptr.To("{ }"), requested: "{ }", state: schedulerv1alpha1.RequestGranted,
			wantPublished: ptr.To(r1), wantPublishing: ptr.To(r3), wantRequested: true,
		},
		"a request was granted, and is shown": {
			due: "r2", published: ptr.To(r1), publishing: ptr.To(r2), annotation: ptr.To(r2), requested: r2, state: schedulerv1alpha1.RequestGranted, wantPublished: ptr.To(r2),
		},
		"nothing was read": {
			due: "r1", published: ptr.To(r1), requested: r2, state: schedulerv1alpha1.RequestRefused, wantPublished: ptr.To(r1), wantRequested: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			np := asks("1")
			np.Status.Published, np.Status.Publishing = tc.published, tc.publishing
			if tc.due != "" {
				np.Status.Placements = append(np.Status.Placements, in(tc.due, "1"))
			}
			if tc.state != "" {
				np.Status.Requested = &schedulerv1alpha1.RequestedPlacements{Annotation: tc.requested, State: tc.state}
			}
			before := np.DeepCopy()
			next, _, _ := placement.Next(np, placement.Facts{Now: noon, Annotation: tc.annotation})
			require.Empty(t, cmp.Diff(before, np))
			require.Empty(t, cmp.Diff(tc.wantPublished, next.Published), "published")
			require.Empty(t, cmp.Diff(tc.wantPublishing, next.Publishing), "publishing")
			require.Equal(t, tc.wantRequested, next.Requested != nil, "requested")
		})
	}
}
