package tokens_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/kinds/tokens"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// withSecret projects a Secret into a pod, which is no token.
func withSecret(pod *corev1.Pod) {
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{Secret: &corev1.SecretProjection{}},
	}}}}}
}

func TestNextTokenStep(t *testing.T) {
	t.Parallel()
	owner := kindtest.OwnerOf("uid")
	secret := func(owner tenancy.Owner, deleted bool) *corev1.Secret {
		made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web"}}
		tenancy.SetOwner(made, owner)
		if deleted {
			made.DeletionTimestamp = ptr.To(metav1.Unix(1_000_000, 0))
		}
		return made
	}
	running := kindtest.StepPod("super", kindtest.OwnedBy(owner))
	wants := kindtest.StepPod("uid", kindtest.WithToken, kindtest.Bound("r1.n1"))
	own, foreign := secret(owner, false), secret(kindtest.OwnerOf("another"), false)
	for _, tc := range []struct {
		name      string
		tenantPod *corev1.Pod
		superPod  *corev1.Pod
		secret    *corev1.Secret
		want      tokens.TokenStep
	}{
		{name: "a pod on a node", tenantPod: wants, superPod: running, want: tokens.TokenStepIssue},
		{name: "a pod with tokens", tenantPod: wants, superPod: running, secret: own, want: tokens.TokenStepIssue},
		{name: "a Secret of another pod", tenantPod: wants, superPod: running, secret: foreign, want: tokens.TokenStepWarnConflict},
		{name: "a Secret without owner", tenantPod: wants, superPod: running, secret: &corev1.Secret{}, want: tokens.TokenStepWarnConflict},
		{name: "a Secret that is being deleted", tenantPod: wants, superPod: running, secret: secret(owner, true)},
		{name: "a Secret of another pod that is being deleted", tenantPod: wants, superPod: running, secret: secret(kindtest.OwnerOf("another"), true)},
		{name: "no super pod yet", tenantPod: wants},
		{name: "no super pod any more", tenantPod: wants, secret: own},
		{name: "a super pod of another tenant pod", tenantPod: wants, superPod: kindtest.StepPod("super", kindtest.OwnedBy(kindtest.OwnerOf("another")))},
		{name: "a super pod without owner", tenantPod: wants, superPod: kindtest.StepPod("super")},
		{name: "a super pod that is being deleted", tenantPod: wants, superPod: kindtest.StepPod("super", kindtest.OwnedBy(owner), kindtest.Terminating(30)), want: tokens.TokenStepIssue},
		{name: "a pod that is being deleted", tenantPod: kindtest.StepPod("uid", kindtest.WithToken, kindtest.Bound("r1.n1"), kindtest.Terminating(30)), superPod: running, want: tokens.TokenStepIssue},
		{name: "a pod on no node", tenantPod: kindtest.StepPod("uid", kindtest.WithToken), superPod: running},
		{name: "a pod on no node that has tokens", tenantPod: kindtest.StepPod("uid", kindtest.WithToken), superPod: running, secret: own},
		{name: "a failed pod", tenantPod: kindtest.StepPod("uid", kindtest.WithToken, kindtest.Bound("r1.n1"), kindtest.InPhase(corev1.PodFailed)), superPod: running},
		{name: "a completed pod", tenantPod: kindtest.StepPod("uid", kindtest.WithToken, kindtest.Bound("r1.n1"), kindtest.InPhase(corev1.PodSucceeded)), superPod: running, secret: own},
		{name: "a running pod", tenantPod: kindtest.StepPod("uid", kindtest.WithToken, kindtest.Bound("r1.n1"), kindtest.InPhase(corev1.PodRunning)), superPod: running, want: tokens.TokenStepIssue},
		{name: "a pod without tokens", tenantPod: kindtest.StepPod("uid", withSecret, kindtest.Bound("r1.n1")), superPod: running},
		{name: "a pod without tokens, with a Secret of another", tenantPod: kindtest.StepPod("uid", kindtest.Bound("r1.n1")), superPod: running, secret: foreign},

		{name: "nothing", want: tokens.TokenStepForget},
		{name: "gone, and still terminates", superPod: running, want: tokens.TokenStepForget},
		{name: "gone, still terminates, has tokens", superPod: running, secret: own},
		{name: "gone on both sides", secret: own, want: tokens.TokenStepDelete},
		{name: "gone, and the super pod is another's", superPod: kindtest.StepPod("super", kindtest.OwnedBy(kindtest.OwnerOf("another"))), secret: own, want: tokens.TokenStepDelete},
		{name: "gone, and the Secret is another pod's", secret: foreign},
		{name: "gone, and the Secret has no owner", secret: &corev1.Secret{}},
		{name: "gone, and the Secret is being deleted", secret: secret(owner, true)},
		{name: "created again", tenantPod: kindtest.StepPod("another", kindtest.WithToken, kindtest.Bound("r1.n1")), secret: own, want: tokens.TokenStepDelete},
		{name: "created again while the first terminates", tenantPod: kindtest.StepPod("another", kindtest.WithToken), superPod: running, secret: own},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want.String(), tokens.NextTokenStep(tc.tenantPod, tc.superPod, tc.secret, owner).String())
		})
	}
}

func TestTokenStepNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for step := tokens.TokenStepNone; step <= tokens.TokenStepDelete; step++ {
		require.False(t, seen[step.String()], step)
		seen[step.String()] = true
	}
	require.Equal(t, "unknown", (tokens.TokenStepDelete + 1).String())
	require.Equal(t, "unknown", tokens.TokenStep(-1).String())
}
