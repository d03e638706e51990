package placement

import (
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
	// StepRestore is to write the placements in the place of an annotation that the tenant wrote.
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
// Any other annotation is the tenant's: Restore. Where vc-scheduler never wrote one, an annotation that is there is the
// tenant's too. A tenant that writes, between 2. and 3., exactly what stood there before 2. is taken for a lost 2.
func Publication(status *schedulerv1alpha1.NamespacePlacementStatus, annotation string) Step {
	due, published := Encode(status.Placements), ptr.Deref(status.Published, "")
	switch {
	case due != published && !is(status.Publishing, due):
		return StepRecord
	case annotation == due && status.Publishing == nil:
		return StepNone
	case annotation == due:
		return StepRecord
	case annotation == published || is(status.Publishing, annotation):
		return StepWrite
	}
	return StepRestore
}

// publish sets published and publishing of next from its placements and from the current annotation, nil if it was not
// read.
func publish(next *schedulerv1alpha1.NamespacePlacementStatus, annotation *string) {
	due := Encode(next.Placements)
	if annotation != nil {
		if *annotation == due || is(next.Publishing, *annotation) {
			next.Published = ptr.To(*annotation)
		}
		// What was announced is written by now, or will never be: a write holds only for the version of the namespace
		// that it was made for.
		next.Publishing = nil
	}
	if next.Publishing == nil && due != ptr.Deref(next.Published, "") {
		next.Publishing = &due
	}
}

func is(text *string, value string) bool { return text != nil && *text == value }
