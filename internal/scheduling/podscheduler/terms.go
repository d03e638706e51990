package podscheduler

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What kube-scheduler keeps of a term of affinity or anti-affinity to pods besides the pod, in bytes: the term with its
// namespaces, a selector, one requirement of it, and one value. Texts are shared with the pod.
const (
	termBytes        = 352
	selectorBytes    = 48
	requirementBytes = 112
	valueBytes       = 16
)

// termsOf returns what kube-scheduler keeps of the terms of a pod, whether it waits or is bound, in bytes; 0 for other
// objects.
func termsOf(object any) (bytes int64) {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.Affinity == nil {
		return 0
	}
	required := func(terms []corev1.PodAffinityTerm) {
		for i := range terms {
			bytes += termOf(&terms[i])
		}
	}
	preferred := func(terms []corev1.WeightedPodAffinityTerm) {
		for i := range terms {
			bytes += termOf(&terms[i].PodAffinityTerm)
		}
	}
	if peers := pod.Spec.Affinity.PodAffinity; peers != nil {
		required(peers.RequiredDuringSchedulingIgnoredDuringExecution)
		preferred(peers.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if peers := pod.Spec.Affinity.PodAntiAffinity; peers != nil {
		required(peers.RequiredDuringSchedulingIgnoredDuringExecution)
		preferred(peers.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return bytes
}

func termOf(term *corev1.PodAffinityTerm) int64 {
	return termBytes + selectorOf(term.LabelSelector) + selectorOf(term.NamespaceSelector) + int64(len(term.Namespaces))*2*valueBytes
}

func selectorOf(selector *metav1.LabelSelector) int64 {
	if selector == nil {
		return 0
	}
	bytes := selectorBytes + int64(len(selector.MatchLabels))*(requirementBytes+valueBytes)
	for i := range selector.MatchExpressions {
		bytes += requirementBytes + int64(len(selector.MatchExpressions[i].Values))*valueBytes
	}
	return bytes
}
