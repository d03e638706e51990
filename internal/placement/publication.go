package placement

import (
	"maps"

	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// Step is what the annotation reconciler does next about the placements annotation of a tenant's namespace.
type Step string

const (
	// StepNone is nothing: the annotation shows the placements, and status.published records it.
	StepNone Step = "None"
	// StepRecord is to read the annotation live and update the status from it (Next with Facts.Annotation): either a
	// write is not recorded in status.published, or the next one is not announced in status.publishing.
	StepRecord Step = "Record"
	// StepWrite is to write the placements: the annotation is an old one of vc-scheduler's own.
	StepWrite Step = "Write"
	// StepRequest is to take over what the tenant wrote as a request for other placements (Ask).
	StepRequest Step = "Request"
	// StepRestore is to write the placements in the place of a request that was refused, and to say why. Of a request
	// that vc-scheduler made itself only the latter is left.
	StepRestore Step = "Restore"
)

// Publication compares the placements annotation of a namespace, "" for none, with the status of its
// NamespacePlacement, and returns the next step. vc-scheduler writes in three steps. Each write can be lost, alone or
// with the process:
//
//  1. status.placements of p, publishing = p  ──►  2. annotation = p  ──►  3. published = p, publishing gone
//
//     lost                  what is found               step
//
//  1. the status as before        None: the decision is made again
//
//  2. annotation = published      Write
//
//  3. annotation = publishing     Record: it is published
//     3., then p changes    annotation = publishing     Record: it is published, and the new p is announced; then Write
//
// Any other annotation is the tenant's: Request, unless it says the same in other words. Where vc-scheduler has yet to
// write its first one, what stands there may be its own, of before the NamespacePlacement was lost: Write. A tenant
// that writes, between 2. and 3., exactly what stood there before 2. is taken for a lost 2. An annotation that is
// requested stands until that is granted, Write, or refused, Restore; the request ends when the annotation is recorded
// that shows the placements, or another text. A request that vc-scheduler made itself (Move) changes no annotation, and
// ends when any is recorded after it was answered.
func Publication(status *schedulerv1alpha1.NamespacePlacementStatus, annotation string) Step {
	due, published := Encode(status.Placements), ptr.Deref(status.Published, "")
	if IsOwn(status.Requested) {
		return publicationOfOwn(status, annotation, due)
	}
	switch {
	case due != published && !is(status.Publishing, due):
		return StepRecord
	case annotation == due && status.Publishing == nil && status.Requested == nil:
		return StepNone
	case annotation == due:
		return StepRecord
	case status.Requested != nil && annotation == status.Requested.Annotation:
		return stepOf(status.Requested.State)
	case annotation == published, is(status.Publishing, annotation), isSame(status.Placements, annotation):
		return StepWrite
	case status.Published == nil && status.Publishing != nil:
		return StepWrite
	}
	return StepRequest
}

// stepOf is the step while the annotation is what the tenant requests.
func stepOf(state schedulerv1alpha1.RequestState) Step {
	switch state {
	case schedulerv1alpha1.RequestWaiting:
		return StepNone
	case schedulerv1alpha1.RequestRefused:
		return StepRestore
	case schedulerv1alpha1.RequestGranted:
	}
	return StepWrite
}

// publicationOfOwn is Publication during a request that vc-scheduler made itself: as without it, until it was answered.
func publicationOfOwn(status *schedulerv1alpha1.NamespacePlacementStatus, annotation, due string) Step {
	switch {
	case status.Requested.State == schedulerv1alpha1.RequestRefused:
		return StepRestore
	case status.Requested.State == schedulerv1alpha1.RequestGranted && annotation == due:
		return StepRecord
	}
	without := *status
	without.Requested = nil
	return Publication(&without, annotation)
}

// isSame reports whether an annotation says of placements what Encode does, in other words.
func isSame(placements []schedulerv1alpha1.ClusterPlacement, annotation string) bool {
	counts, err := Decode(annotation)
	if annotation == "" || err != nil {
		return false
	}
	maps.DeleteFunc(counts, func(_ string, n int32) bool { return n == 0 })
	stand := map[string]int32{}
	for i := range placements {
		if placements[i].Slices > 0 {
			stand[placements[i].Cluster] = placements[i].Slices
		}
	}
	return maps.Equal(counts, stand)
}

// publish sets published and publishing of next from its placements and from the current annotation, nil if it was not
// read.
func publish(next *schedulerv1alpha1.NamespacePlacementStatus, annotation *string) {
	due := Encode(next.Placements)
	if annotation != nil {
		if *annotation == due || is(next.Publishing, *annotation) {
			next.Published = ptr.To(*annotation)
		}
		if endsWith(next.Requested, *annotation, due) {
			next.Requested = nil
		}
		// What was announced is written by now, or will never be: a write holds only for the version of the namespace
		// that it was made for.
		next.Publishing = nil
	}
	if next.Publishing == nil && due != ptr.Deref(next.Published, "") {
		next.Publishing = &due
	}
}

// endsWith reports whether a request ends when this annotation is recorded.
func endsWith(request *schedulerv1alpha1.RequestedPlacements, annotation, due string) bool {
	switch {
	case request == nil:
		return false
	case IsOwn(request):
		return !waiting(request)
	}
	return annotation != request.Annotation || annotation == due
}

func is(text *string, value string) bool { return text != nil && *text == value }
