package secrets_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/provision/secrets"
)

const (
	root = "default-abc123-acme"
	name = "user"
)

func keeper(c client.WithWatch) *secrets.Keeper {
	return &secrets.Keeper{Client: c, Reader: c, Namespace: root, Now: time.Now()}
}

// TestKeep: a Secret is written where it says something else, and where nobody has written since it was read.
func TestKeep(t *testing.T) {
	t.Parallel()
	k := keeper(fake.NewClientBuilder().Build())
	keep := func(read *corev1.Secret, value string) (*corev1.Secret, error) {
		err := k.Keep(t.Context(), name, corev1.SecretTypeOpaque, read, map[string][]byte{"key": []byte(value)})
		live, failed := k.Get(t.Context(), name)
		require.NoError(t, failed)
		return live, err
	}
	none, err := k.Get(t.Context(), name)
	require.NoError(t, err)
	require.Nil(t, none)
	first, err := keep(nil, "a")
	require.NoError(t, err)
	again, err := keep(first, "a")
	require.NoError(t, err)
	require.Equal(t, first, again)
	second, err := keep(first, "b")
	require.NoError(t, err)
	require.Equal(t, "b", string(second.Data["key"]))
	require.Equal(t, "a", string(first.Data["key"]), "what was read stays as it was read")
	live, err := keep(first, "c")
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.Equal(t, second, live)
	live, err = keep(nil, "c")
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	require.Equal(t, second, live)
}

// TestGet: a Secret of somebody else, one that may not be read, and one that cannot be read now are told apart.
func TestGet(t *testing.T) {
	t.Parallel()
	failing := func(err error) client.WithWatch {
		return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return err
			},
		})
	}
	var broken *objects.BrokenError
	var ungranted *secrets.UngrantedError
	_, err := keeper(fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: name}}).Build()).Get(t.Context(), name)
	require.ErrorAs(t, err, &broken)
	_, err = keeper(failing(apierrors.NewForbidden(corev1.Resource("secrets"), name, nil))).Get(t.Context(), name)
	require.ErrorAs(t, err, &ungranted)
	_, err = keeper(failing(apierrors.NewInternalError(context.DeadlineExceeded))).Get(t.Context(), name)
	require.True(t, apierrors.IsInternalError(err), "%v", err)
	require.False(t, errors.As(err, &broken) || errors.As(err, &ungranted), "%v", err)
}

// TestIssue: a pair stays until it is due, and what is known of several is of the first that is due and ends, and the
// last that was issued.
func TestIssue(t *testing.T) {
	t.Parallel()
	authority, err := pki.NewAuthority("users")
	require.NoError(t, err)
	k := keeper(fake.NewClientBuilder().Build())
	require.Equal(t, time.Hour, k.Until(time.Hour), "it has seen none")
	long, short := pki.Certificate{User: "long", Validity: 48 * time.Hour}, pki.Certificate{User: "short", Validity: 24 * time.Hour}
	pair, err := k.Issue(authority, name, long, nil)
	require.NoError(t, err)
	_, ends := pki.Life(pair)
	require.Equal(t, ends, k.Ends())
	kept, err := k.Issue(authority, name, long, &corev1.Secret{Data: secrets.DataOf(pair)})
	require.NoError(t, err)
	require.Equal(t, pair, kept)
	other, err := k.Issue(authority, name, short, nil)
	require.NoError(t, err)
	issued, ends := pki.Life(other)
	require.Equal(t, ends, k.Ends())
	require.Equal(t, issued, k.Issued())
	require.Less(t, k.Until(time.Hour*1000), 24*time.Hour)

	later := keeper(fake.NewClientBuilder().Build())
	later.Now = ends
	anew, err := later.Issue(authority, name, short, &corev1.Secret{Data: secrets.DataOf(other)})
	require.NoError(t, err)
	require.NotEqual(t, other, anew)
	later.Now = ends.Add(48 * time.Hour)
	require.Equal(t, time.Second, later.Until(time.Hour), "what is overdue is not asked for at once")
}
