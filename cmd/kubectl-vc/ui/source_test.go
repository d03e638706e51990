package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/vctest"
)

// cacheOf reads as a cache does: a limit is one of all, there is no second page, and each list says that there is one.
type cacheOf struct{ client.Reader }

func (c cacheOf) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	of := (&client.ListOptions{}).ApplyOptions(options)
	if of.Continue != "" {
		return errors.New("a cache has no second page")
	}
	if err := c.Reader.List(ctx, list, options...); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	if of.Limit > 0 && int64(len(items)) > of.Limit {
		items = items[:of.Limit]
	}
	list.SetContinue("continue-not-supported")
	return meta.SetList(list, items)
}

// TestLook: all that is cached is read, however much, and where headroom or a watch fails that is a note for a while.
func TestLook(t *testing.T) {
	t.Parallel()
	const namespaces = 1_234
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), tenancyv1alpha1.AddToScheme(scheme), schedulerv1alpha1.AddToScheme(scheme)))
	objects := []client.Object{vctest.SuperNode("r1"), vctest.SuperNode("r2"), &vctest.Tenants()[0]}
	for i := range namespaces {
		objects = append(objects, builders.Placement("root", fmt.Sprintf("n%d", i)).Slice("cpu", "1").Quota("cpu", "1").Obj())
	}
	cluster := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	l := &live{cached: unpaged{cacheOf{cluster}}, changed: make(chan struct{}, 1)} // a look asks no cluster
	found, err := l.look(t.Context())
	require.NoError(t, err)
	require.Len(t, found.pool.Placements, namespaces)
	require.Len(t, found.pool.Nodes, 2)
	require.Len(t, found.tenants, 1)
	require.Empty(t, found.notes)

	l.cluster = cluster
	l.keep(t.Context())
	<-l.changes()
	found, err = l.look(t.Context())
	require.NoError(t, err)
	require.Len(t, found.notes, 1)
	require.Contains(t, found.notes[0], "headroom is not known: finding the kind Cluster")

	l.failed(t.Context(), nil, errors.New("no route to host"))
	<-l.changes()
	found, err = l.look(t.Context())
	require.NoError(t, err)
	require.Contains(t, found.notes[1], "the meta cluster does not answer, and this may be old: no route to host")
}

// TestFailing: a watch that failed is said until it was tried again, and one that ended as all do never.
func TestFailing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &live{changed: make(chan struct{}, 1)}
		l.failed(t.Context(), nil, io.EOF)
		l.failed(t.Context(), nil, apierrors.NewResourceExpired("too old"))
		require.Empty(t, l.failing(time.Now()))
		require.Empty(t, l.changed)
		l.failed(t.Context(), nil, apierrors.NewForbidden(corev1.Resource("nodes"), "", errors.New("no")))
		l.failed(t.Context(), nil, errors.New("last"))
		require.Equal(t, "last", l.failing(time.Now()))
		<-time.After(time.Minute + cli.RequestTimeout) // a reflector waits so long at most, and then dials
		require.Equal(t, "last", l.failing(time.Now()))
		<-time.After(failedFor)
		require.Empty(t, l.failing(time.Now()))
	})
}
