// Package await has what tests do at API servers where others write at the same time.
package await

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// patience is how long one call may take.
	patience = 30 * time.Second
	tick     = 10 * time.Millisecond
)

// Change reads object, by its name, lets change write to what was read, and updates it at the API server of c. It
// starts again where another wrote the object in between: change is then called with the object as that one left it.
// Every other error fails the test. Afterwards object is as the API server has it. subresource is what is updated
// instead of the object itself, as "status".
//
// It works in a t.Cleanup, too, when the context of t has ended.
func Change[T client.Object](t testing.TB, c client.Client, object T, change func(T), subresource ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	update := func() error {
		if len(subresource) == 0 {
			return c.Update(ctx, object)
		}
		return c.SubResource(strings.Join(subresource, "/")).Update(ctx, object)
	}
	err := wait.PollUntilContextTimeout(ctx, tick, patience, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return false, err
		}
		change(object)
		err := update()
		if apierrors.IsConflict(err) {
			return false, nil
		}
		return err == nil, err
	})
	require.NoError(t, err, "changing %T %s", object, client.ObjectKeyFromObject(object))
}
