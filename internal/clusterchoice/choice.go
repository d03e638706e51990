// Package clusterchoice reads which super clusters a tenant wants for a namespace, checks it against the TenantPolicy,
// and puts it onto the Pods that stand for slices, where kube-scheduler's own plugins decide by it.
//
// Everything here is pure: no clients, no clock, no logging, and arguments are never changed but by Onto, which is
// there to do so.
package clusterchoice

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/json"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// What a choice may hold at most. Each term costs time for every slice and super cluster.
const (
	maxLength      = 8 * 1024 // of the annotation, in bytes
	maxSelector    = 32
	maxTerms       = 8 // that are required, and as many that are preferred
	maxExpressions = 16
	maxValues      = 64
	maxTolerations = 16
	maxConstraints = 4
	maxMessage     = 512 // of an error, in bytes
)

// MaxSpreadSlices is how many slices of a namespace may spread over topologies at most. Each that is reserved is a Pod
// of its own then (Spreads), which comes and goes with the choice, and each that waits is filtered anew.
const MaxSpreadSlices = 100

// Of returns which super clusters a namespace is to be placed in: what its annotation says, nil without one. Where that
// is invalid, or rules do not allow it, Of returns the reason and what was accepted last, nil for nothing, without the
// tolerations that are not allowed any more. previous is the spec in force, nil if there is none. rules nil: they are
// not known, and allow all.
func Of(namespace *corev1.Namespace, previous *schedulerv1alpha1.NamespacePlacementSpec, rules *policy.Policy) (*schedulerv1alpha1.ClusterChoice, *tenancy.Reason) {
	text, exists := namespace.Annotations[schedulerv1alpha1.AnnotationClusterChoice]
	if !exists {
		return nil, nil
	}
	refused := func(reason string, err error) (*schedulerv1alpha1.ClusterChoice, *tenancy.Reason) {
		message := fmt.Sprintf("Annotation %s: %s: what the namespace has stays as it is", schedulerv1alpha1.AnnotationClusterChoice, tenancy.Cut(err.Error(), maxMessage))
		return Last(previous, rules), &tenancy.Reason{Reason: reason, Message: message}
	}
	choice, err := Parse(text)
	if err != nil {
		return refused(schedulerv1alpha1.ReasonInvalidChoice, err)
	}
	if rules != nil {
		if err := allowed(choice, rules); err != nil {
			return refused(schedulerv1alpha1.ReasonChoiceNotAllowed, err)
		}
	}
	return choice, nil
}

// TooMany returns why the slices of a spec may not spread over topologies as its choice says, nil if they may, or are
// not to.
func TooMany(spec *schedulerv1alpha1.NamespacePlacementSpec) *tenancy.Reason {
	count := slice.Count(slice.Of(spec.Quota), slice.Of(spec.Slice))
	if !Spreads(spec) || count <= MaxSpreadSlices {
		return nil
	}
	return &tenancy.Reason{Reason: schedulerv1alpha1.ReasonInvalidChoice, Message: fmt.Sprintf(
		"Annotation %s: topologySpreadConstraints: the namespace has %d slices, and %d may spread at most: what the namespace has stays as it is. "+
			"Set a larger slice in annotation %s, or take the constraints out",
		schedulerv1alpha1.AnnotationClusterChoice, count, MaxSpreadSlices, schedulerv1alpha1.AnnotationSlice)}
}

// Last returns the choice of previous with the tolerations that are allowed now. Its other fields allow nothing.
// previous and rules may be nil, as for Of.
func Last(previous *schedulerv1alpha1.NamespacePlacementSpec, rules *policy.Policy) *schedulerv1alpha1.ClusterChoice {
	if previous == nil || previous.ClusterChoice == nil {
		return nil
	}
	last := previous.ClusterChoice.DeepCopy()
	if rules == nil {
		return last
	}
	last.Tolerations = slices.DeleteFunc(last.Tolerations, func(t corev1.Toleration) bool { return !tolerates(t, rules) })
	return last
}

// Parse reads a choice. Unknown and repeated fields are errors, and so is what Kubernetes would not take in a PodSpec.
func Parse(text string) (*schedulerv1alpha1.ClusterChoice, error) {
	if len(text) > maxLength {
		return nil, fmt.Errorf("it is longer than %d characters", maxLength)
	}
	choice := &schedulerv1alpha1.ClusterChoice{}
	strict, err := json.UnmarshalStrict([]byte(text), choice)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return nil, fmt.Errorf(`it is no JSON object such as {"nodeSelector":{"topology.kubernetes.io/region":"eu"}}: %w`, err)
	}
	errs := validateSize(choice)
	if len(errs) == 0 {
		errs = append(validateAsPod(choice), validateForSlices(choice)...)
	}
	if err := errs.ToAggregate(); err != nil {
		return nil, err //nolint:wrapcheck // it names the fields
	}
	return choice, nil
}

// validateSize checks that nothing is longer than it may be.
func validateSize(choice *schedulerv1alpha1.ClusterChoice) (errs field.ErrorList) {
	atMost := func(path *field.Path, count, most int) {
		if count > most {
			errs = append(errs, field.TooMany(path, count, most))
		}
	}
	atMost(field.NewPath("nodeSelector"), len(choice.NodeSelector), maxSelector)
	atMost(field.NewPath("tolerations"), len(choice.Tolerations), maxTolerations)
	atMost(field.NewPath("topologySpreadConstraints"), len(choice.TopologySpreadConstraints), maxConstraints)
	terms := 0
	eachTerm(choice, func(path *field.Path, term *corev1.NodeSelectorTerm) {
		terms++
		atMost(path.Child("matchExpressions"), len(term.MatchExpressions), maxExpressions)
		for i := range term.MatchExpressions {
			atMost(path.Child("matchExpressions").Index(i).Child("values"), len(term.MatchExpressions[i].Values), maxValues)
		}
	})
	atMost(field.NewPath("nodeAffinity"), terms, 2*maxTerms)
	return errs
}

// eachTerm calls visit with all terms of the node affinity.
func eachTerm(choice *schedulerv1alpha1.ClusterChoice, visit func(*field.Path, *corev1.NodeSelectorTerm)) {
	if choice.NodeAffinity == nil {
		return
	}
	path := field.NewPath("nodeAffinity")
	if required := choice.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			visit(path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").Index(i), &required.NodeSelectorTerms[i])
		}
	}
	preferred := choice.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	for i := range preferred {
		visit(path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference"), &preferred[i].Preference)
	}
}

// validateAsPod lets Kubernetes validate the choice as a part of a PodSpec.
func validateAsPod(choice *schedulerv1alpha1.ClusterChoice) field.ErrorList {
	spec := corev1.PodSpec{
		NodeSelector: choice.NodeSelector, Affinity: &corev1.Affinity{NodeAffinity: choice.NodeAffinity}, Tolerations: choice.Tolerations,
		TopologySpreadConstraints: choice.TopologySpreadConstraints,
		RestartPolicy:             corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, TerminationGracePeriodSeconds: ptr.To[int64](0),
		Containers: []corev1.Container{{
			Name: "slice", Image: "none", ImagePullPolicy: corev1.PullNever, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}},
	}
	internal := &core.PodSpec{}
	if err := corev1conversion.Convert_v1_PodSpec_To_core_PodSpec(spec.DeepCopy(), internal, nil); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	errs := validation.ValidatePodSpec(internal, nil, nil, validation.PodValidationOptions{})
	for _, err := range errs {
		err.Field = strings.TrimPrefix(err.Field, "affinity.")
	}
	return errs
}

// validateForSlices checks what a pod may say and a choice of super clusters may not.
func validateForSlices(choice *schedulerv1alpha1.ClusterChoice) (errs field.ErrorList) {
	eachTerm(choice, func(path *field.Path, term *corev1.NodeSelectorTerm) {
		if len(term.MatchFields) > 0 {
			errs = append(errs, field.Forbidden(path.Child("matchFields"), "use label "+corev1.LabelHostname))
		}
	})
	for i := range choice.Tolerations {
		path := field.NewPath("tolerations").Index(i)
		if choice.Tolerations[i].Key == "" {
			errs = append(errs, field.Required(path.Child("key"), ""))
		}
		if effect := choice.Tolerations[i].Effect; effect != corev1.TaintEffectNoSchedule && effect != corev1.TaintEffectPreferNoSchedule {
			errs = append(errs, field.NotSupported(path.Child("effect"), effect, []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule}))
		}
	}
	for i := range choice.TopologySpreadConstraints {
		path := field.NewPath("topologySpreadConstraints").Index(i)
		if choice.TopologySpreadConstraints[i].LabelSelector != nil {
			errs = append(errs, field.Forbidden(path.Child("labelSelector"), "all slices of the namespace count"))
		}
		if len(choice.TopologySpreadConstraints[i].MatchLabelKeys) > 0 {
			errs = append(errs, field.Forbidden(path.Child("matchLabelKeys"), "all slices of the namespace count"))
		}
	}
	return errs
}
