package scheduling

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/vc-scheduler/app"
)

// TestAChosenSuperCluster: a choice decides about what is placed from then on, and one that is invalid, or not allowed,
// changes nothing.
func TestAChosenSuperCluster(t *testing.T) {
	const whole = `{"nodeSelector":{"kubernetes.io/hostname":"r2"},` +
		`"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"NotIn","values":["r1"]}]}]}},` +
		`"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"ScheduleAnyway","nodeTaintsPolicy":"Honor"}]}`
	w := shared
	w.run(t)
	w.namespace(t, "chosen", demoSlice)
	w.annotate(t, "chosen", schedulerv1alpha1.AnnotationClusterChoice, `{"nodeSelector":{"example.com/tier":"gold"}}`)
	w.quota(t, "chosen", "200m", "200Mi")
	w.wantCondition(t, "chosen", schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ReasonChoiceNotAllowed)
	require.Empty(t, w.shown(t, "chosen"))
	w.annotate(t, "chosen", schedulerv1alpha1.AnnotationClusterChoice, whole)
	w.wantShown(t, "chosen", `{"r2":2}`)
	w.wantCondition(t, "chosen", schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ReasonAccepted)

	w.annotate(t, "chosen", schedulerv1alpha1.AnnotationClusterChoice, `{"nodeSelector":{"kubernetes.io/hostname":"r3"}}`)
	w.quota(t, "chosen", "300m", "300Mi")
	w.wantCondition(t, "chosen", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonUnschedulable)
	w.wantPlacedMessage(t, "chosen", "2 do not match the namespace's node selector")
	w.annotate(t, "chosen", schedulerv1alpha1.AnnotationClusterChoice, `{"nodeSelectors":{}}`)
	w.wantCondition(t, "chosen", schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ReasonInvalidChoice)
	w.wantEvent(t, "ResourceQuota", "chosen/quota", schedulerv1alpha1.ReasonInvalidChoice)
	w.annotate(t, "chosen", schedulerv1alpha1.AnnotationClusterChoice, `{"nodeSelector":{"kubernetes.io/hostname":"r1"}}`)
	w.wantShown(t, "chosen", `{"r1":1,"r2":2}`)
}

// TestAQuotaThatIsReplaced: kubectl replace --force deletes and creates. The first vc-scheduler's grace outlasts the
// test, however slow the machine, and is why it is not the shared one, whose grace then ends for the same deletion.
func TestAQuotaThatIsReplaced(t *testing.T) {
	w := shared.with(func(o *app.Options) { o.QuotaGrace = time.Hour })
	stop := w.run(t)
	w.namespace(t, "requota", demoSlice)
	w.quota(t, "requota", "200m", "200Mi")
	w.wantShown(t, "requota", `{"r1":1,"r2":1}`)
	require.NoError(t, w.tenant.Delete(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "requota", Name: "quota"}}))
	w.wantCondition(t, "requota", schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ReasonQuotaGone)
	require.Equal(t, `{"r1":1,"r2":1}`, w.shown(t, "requota"))
	w.quota(t, "requota", "200m", "200Mi")
	w.wantCondition(t, "requota", schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ReasonAccepted)
	require.Equal(t, `{"r1":1,"r2":1}`, w.shown(t, "requota"))
	for _, part := range w.placement(t, "requota").Status.Placements {
		require.Nil(t, part.Leaving)
	}

	require.NoError(t, w.tenant.Delete(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "requota", Name: "quota"}}))
	w.wantCondition(t, "requota", schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ReasonQuotaGone)
	require.Equal(t, `{"r1":1,"r2":1}`, w.shown(t, "requota"))
	stop()
	shared.run(t)
	w.wantShown(t, "requota", "")
	for id := range w.supers {
		w.superQuota(t, id, "requota", "0", "0") // the syncer's answer
	}
	w.wantCondition(t, "requota", schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonNoQuota)
}
