package syncpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

const (
	// maxAnswers bounds status.superClusters, and maxMessage each message.
	maxAnswers, maxMessage = 256, 1024
)

// Report sets the status of a SyncPolicy, which it changes, to what the syncer of a super cluster says of it: refused
// is why the policy itself is not in order, and lacks what it lacks in that super cluster; nil for nothing. Answers of
// other super clusters about an earlier generation are dropped, and of those that left, which is whether one is not in
// the pool any more: those that live answer anew.
func Report(policy *tenancyv1alpha1.SyncPolicy, superCluster string, left func(string) bool, refused, lacks *Refusal) {
	status, generation := &policy.Status, policy.Generation
	answer := tenancyv1alpha1.SyncAnswer{Name: superCluster, ObservedGeneration: generation, Ready: true, Reason: tenancyv1alpha1.ReasonSyncReady}
	for _, refusal := range []*Refusal{lacks, refused} {
		if refusal != nil {
			answer.Ready, answer.Reason, answer.Message = false, refusal.Reason, cut(refusal.Message)
		}
	}
	status.SuperClusters = slices.DeleteFunc(slices.Clone(status.SuperClusters), func(other tenancyv1alpha1.SyncAnswer) bool {
		return other.Name == superCluster || other.ObservedGeneration < generation || left(other.Name)
	})
	if len(status.SuperClusters) < maxAnswers {
		status.SuperClusters = append(status.SuperClusters, answer)
	}
	slices.SortFunc(status.SuperClusters, func(a, b tenancyv1alpha1.SyncAnswer) int { return cmp.Compare(a.Name, b.Name) })

	accepted := metav1.Condition{
		Type: tenancyv1alpha1.ConditionSyncAccepted, Status: metav1.ConditionTrue, Reason: tenancyv1alpha1.ReasonSyncAccepted,
		Message: "the policy is in order", ObservedGeneration: generation,
	}
	if refused != nil {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, refused.Reason, cut(refused.Message)
	}
	status.Conditions = slices.Clone(status.Conditions)
	meta.SetStatusCondition(&status.Conditions, accepted)
	meta.SetStatusCondition(&status.Conditions, ready(status.SuperClusters, refused, generation))
}

// ready returns condition Ready: its reason is that of the super clusters that do not follow the policy, if they have
// one in common.
func ready(answers []tenancyv1alpha1.SyncAnswer, refused *Refusal, generation int64) metav1.Condition {
	condition := metav1.Condition{
		Type: tenancyv1alpha1.ConditionSyncReady, Status: metav1.ConditionTrue, Reason: tenancyv1alpha1.ReasonSyncReady, ObservedGeneration: generation,
	}
	if refused != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, refused.Reason, cut(refused.Message)
		return condition
	}
	var lacking []string
	for i := range answers {
		if answers[i].Ready {
			continue
		}
		if len(lacking) > 0 && condition.Reason != answers[i].Reason {
			condition.Reason = tenancyv1alpha1.ReasonSyncNotReady
		} else {
			condition.Reason = answers[i].Reason
		}
		lacking = append(lacking, fmt.Sprintf("super cluster %s: %s", answers[i].Name, answers[i].Message))
	}
	condition.Message = fmt.Sprintf("%d of %d super clusters follow it", len(answers)-len(lacking), len(answers))
	if len(lacking) > 0 {
		condition.Status = metav1.ConditionFalse
		condition.Message = cut(condition.Message + ". " + strings.Join(lacking, ". "))
	}
	return condition
}

// SameStatus returns whether two states are the same.
func SameStatus(a, b *tenancyv1alpha1.SyncPolicyStatus) bool {
	return equality.Semantic.DeepEqual(a, b)
}

// cut returns the beginning of a message.
func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
}
