package losses

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// maxNamespaces is how many namespaces the message names, and maxResources how many resources of each.
	maxNamespaces, maxResources = 5, 4
	// maxWhy bounds why one has no room, in bytes.
	maxWhy = 256
)

// conditionOf returns the condition Replaceable that follows from a loss, without times. Of a super cluster whose loss
// the pool survives the message has no figures: it stays as it is while namespaces come and go.
func conditionOf(loss *simulation.Loss) corev1.NodeCondition {
	condition := corev1.NodeCondition{
		Type: schedulerv1alpha1.NodeReplaceable, Status: corev1.ConditionTrue, Reason: superclusters.ReasonFitsElsewhere,
		Message: "What namespaces have here has room in the other super clusters",
	}
	switch {
	case loss.Err != nil:
		condition.Status, condition.Reason = corev1.ConditionUnknown, superclusters.ReasonNotSimulated
		condition.Message = tenancy.Cut("The loss of the super cluster could not be simulated: "+loss.Err.Error(), tenancy.MaxConditionMessage)
	case len(loss.Unplaced) > 0:
		condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, superclusters.ReasonNoRoomElsewhere, messageOf(loss)
	}
	return condition
}

// messageOf says how much has no room elsewhere, and of whom.
func messageOf(loss *simulation.Loss) string {
	sum, names := slice.Amounts{}, []string{}
	for i := range loss.Unplaced {
		unplaced := &loss.Unplaced[i]
		sum = sum.Plus(unplaced.Amounts)
		if i < maxNamespaces {
			names = append(names, fmt.Sprintf("%s (%s: %s)", unplaced.Namespace, few(unplaced.Amounts), tenancy.Cut(unplaced.Why, maxWhy)))
		}
	}
	message := fmt.Sprintf("If it were lost, %d of %d namespaces would wait for %s: %s", len(loss.Unplaced), loss.Namespaces, few(sum), strings.Join(names, ", "))
	if others := len(loss.Unplaced) - maxNamespaces; others > 0 {
		message += fmt.Sprintf(" and %d others", others)
	}
	return message
}

// few says the first resources of amounts.
func few(amounts slice.Amounts) string {
	names := amounts.Names()
	if len(names) <= maxResources {
		return amounts.String()
	}
	first := slice.Amounts{}
	for _, name := range names[:maxResources] {
		first[name] = amounts[name]
	}
	return fmt.Sprintf("%s and %d other resources", first, len(names)-maxResources)
}
