package syncer

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/test/builders"
)

// TestProvePodSecurity: only a refusal by Pod Security is a proof.
func TestProvePodSecurity(t *testing.T) {
	t.Parallel()
	forbidden := func(why string) error { return apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New(why)) }
	for _, tc := range []struct {
		name    string
		answer  error
		wantErr string // "" for a proof
	}{
		{name: "refused", answer: forbidden(`violates PodSecurity "restricted:latest": privileged`)},
		{name: "taken", wantErr: "does not enforce Pod Security"},
		{name: "no right to ask", answer: forbidden(`User "syncer" cannot create resource "pods"`), wantErr: "cannot create"},
		{name: "no account", answer: forbidden(`error looking up service account superpool-system/syncer`), wantErr: "manifests/supercluster"},
		{name: "no answer", answer: errors.New("connection refused"), wantErr: "connection refused"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			super := builders.Client(scheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, options ...client.CreateOption) error {
					require.Contains(t, options, client.DryRunAll, "no pod is ever there")
					require.Equal(t, "superpool-system", object.GetNamespace())
					return tc.answer
				},
			}).Build()
			err := provePodSecurity(t.Context(), super)
			if tc.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wantErr)
		})
	}
}
