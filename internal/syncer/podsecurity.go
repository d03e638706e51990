package syncer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/kinds"
)

const (
	// systemNamespace is the namespace of Superpool in super clusters, and systemAccount a service account in it. Its
	// Pod Security level is restricted (manifests/supercluster).
	systemNamespace, systemAccount = "superpool-system", "syncer"
)

// ErrNoPodSecurity is the error for a super cluster that does not enforce Pod Security.
var ErrNoPodSecurity = errors.New("the super cluster does not enforce Pod Security")

// ProvePodSecurity returns nil if the super cluster that config names refuses a privileged pod in a namespace whose
// Pod Security level is restricted. It asks by a dry run, so no pod is ever there.
func ProvePodSecurity(ctx context.Context, config *rest.Config) error {
	super, err := newClient(config, kinds.Specs())
	if err != nil {
		return err
	}
	return provePodSecurity(ctx, super)
}

func provePodSecurity(ctx context.Context, super client.Writer) error {
	const mend = "enable its admission plugin PodSecurity and apply manifests/supercluster (kubectl vc join does). " +
		`With --pod-security-level="" tenants get a super cluster that does not`
	err := super.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, GenerateName: "pod-security-"},
		Spec: corev1.PodSpec{
			ServiceAccountName: systemAccount, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "privileged", Image: "none", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}},
		},
	}, client.DryRunAll)
	switch {
	case err == nil:
		return fmt.Errorf("%w: it takes a privileged pod in namespace %s: %s", ErrNoPodSecurity, systemNamespace, mend)
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "violates PodSecurity"):
		return nil
	}
	return fmt.Errorf("trying whether the super cluster enforces Pod Security (%s): %w", mend, err)
}
