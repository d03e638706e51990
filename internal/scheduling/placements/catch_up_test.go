package placements

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// versions are the resource versions of NamespacePlacements, by name.
type versions map[string]string

// writing is held while versions are read or changed.
var writing sync.Mutex

// storedVersions are those of the API server, knownVersions those of a cache.
type (
	storedVersions struct {
		client.Reader
		versions
	}
	knownVersions struct {
		client.Client
		versions
	}
)

func (v versions) get(name string, object client.Object) error {
	writing.Lock()
	defer writing.Unlock()
	version, exists := v[name]
	if !exists {
		return apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	object.SetResourceVersion(version)
	return nil
}

func (s storedVersions) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	return s.get(key.Name, object)
}

func (s storedVersions) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	writing.Lock()
	defer writing.Unlock()
	items := &list.(*metav1.PartialObjectMetadataList).Items
	for name, version := range s.versions {
		*items = append(*items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name, ResourceVersion: version}})
	}
	return nil
}

func (k knownVersions) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	return k.get(key.Name, object)
}

// stumbling is an API server that fails now and then.
type stumbling struct {
	storedVersions
	requests *int
}

func (s stumbling) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if *s.requests++; *s.requests%2 == 1 {
		return errors.New("too many requests")
	}
	return s.storedVersions.Get(ctx, key, object, options...)
}

func (s stumbling) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if *s.requests++; *s.requests%2 == 1 {
		return errors.New("too many requests")
	}
	return s.storedVersions.List(ctx, list, options...)
}

func TestNewLeaderWaitsForWhatTheOldOneWrote(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stored, known versions
		// follow is what happens while the new leader waits.
		follow []func(stored, known versions)
	}{
		"nothing is there":           {},
		"the cache is up to date":    {stored: versions{"a": "3"}, known: versions{"a": "3"}},
		"the cache has one more":     {stored: versions{"a": "3"}, known: versions{"a": "3", "gone": "2"}},
		"a placement is not known":   {versions{"a": "3"}, versions{"a": "2"}, []func(stored, known versions){func(_, known versions) { known["a"] = "3" }}},
		"a namespace is not known":   {versions{"a": "3"}, versions{}, []func(stored, known versions){func(_, known versions) { known["a"] = "3" }}},
		"one after the other":        {versions{"a": "3", "b": "4"}, versions{}, []func(stored, known versions){func(_, known versions) { known["a"] = "3" }, func(_, known versions) { known["b"] = "4" }}},
		"it is written all the time": {versions{"a": "3"}, versions{"a": "1"}, []func(stored, known versions){func(stored, known versions) { stored["a"] = "5" }, func(stored, known versions) { stored["a"], known["a"] = "7", "5" }}},
		"it is written meanwhile":    {versions{"a": "3"}, versions{"a": "1"}, []func(stored, known versions){func(stored, _ versions) { stored["a"] = "5" }, func(_, known versions) { known["a"] = "5" }}},
		"it is deleted meanwhile":    {versions{"a": "3"}, versions{"a": "1"}, []func(stored, known versions){func(stored, _ versions) { delete(stored, "a") }, func(_, known versions) { delete(known, "a") }}},
		"the cache is ahead of us":   {versions{"a": "3"}, versions{"a": "1"}, []func(stored, known versions){func(stored, known versions) { stored["a"], known["a"] = "5", "5" }}},
		"it is new and then is not":  {versions{"a": "3"}, versions{}, []func(stored, known versions){func(stored, _ versions) { delete(stored, "a") }}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				caughtUp := make(chan bool, 1)
				go func() {
					caughtUp <- CatchUp(t.Context(), stumbling{storedVersions{versions: test.stored}, new(int)}, knownVersions{versions: test.known})
				}()
				for _, step := range test.follow {
					<-time.After(time.Minute)
					require.Empty(t, caughtUp, "the cache is behind")
					writing.Lock()
					step(test.stored, test.known)
					writing.Unlock()
				}
				<-time.After(time.Minute)
				require.Len(t, caughtUp, 1)
				require.True(t, <-caughtUp)
			})
		})
	}
}

// TestNewLeaderThatIsNoneAnyMore: waiting ends with the context.
func TestNewLeaderThatIsNoneAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan bool, 1)
		go func() {
			ended <- CatchUp(ctx, stumbling{storedVersions{versions: versions{"a": "3"}}, new(int)}, knownVersions{})
		}()
		<-time.After(time.Minute)
		require.Empty(t, ended)
		cancel()
		<-time.After(time.Minute)
		require.Len(t, ended, 1)
		require.False(t, <-ended)
	})
}

func TestBehind(t *testing.T) {
	t.Parallel()
	a, b, c := client.ObjectKey{Namespace: "t1", Name: "b"}, client.ObjectKey{Namespace: "t1", Name: "web"}, client.ObjectKey{Namespace: "t2", Name: "a"}
	for name, tc := range map[string]struct {
		stored map[client.ObjectKey]sets.Set[string]
		cached map[client.ObjectKey]string
		want   []client.ObjectKey
	}{
		"nothing is stored":          {cached: map[client.ObjectKey]string{a: "1"}},
		"the same":                   {stored: map[client.ObjectKey]sets.Set[string]{a: sets.New("3")}, cached: map[client.ObjectKey]string{a: "3"}},
		"an older one":               {stored: map[client.ObjectKey]sets.Set[string]{a: sets.New("3")}, cached: map[client.ObjectKey]string{a: "2"}, want: []client.ObjectKey{a}},
		"one that was never read":    {stored: map[client.ObjectKey]sets.Set[string]{a: sets.New("3")}, cached: map[client.ObjectKey]string{a: "4"}, want: []client.ObjectKey{a}},
		"any of those that were":     {stored: map[client.ObjectKey]sets.Set[string]{a: sets.New("3", "5")}, cached: map[client.ObjectKey]string{a: "5"}},
		"not cached yet":             {stored: map[client.ObjectKey]sets.Set[string]{a: sets.New("3")}, want: []client.ObjectKey{a}},
		"deleted and not cached":     {stored: map[client.ObjectKey]sets.Set[string]{a: sets.New("3", "")}},
		"deleted and cached as gone": {stored: map[client.ObjectKey]sets.Set[string]{a: sets.New("3", "")}, cached: map[client.ObjectKey]string{a: ""}},
		"deleted and still cached":   {stored: map[client.ObjectKey]sets.Set[string]{a: sets.New("")}, cached: map[client.ObjectKey]string{a: "3"}, want: []client.ObjectKey{a}},
		"sorted": {
			stored: map[client.ObjectKey]sets.Set[string]{c: sets.New("3"), b: sets.New("1"), a: sets.New("2")},
			cached: map[client.ObjectKey]string{b: "1"},
			want:   []client.ObjectKey{a, c},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, cmp.Diff(tc.want, behind(tc.stored, tc.cached)))
		})
	}
}

// TestReadsOfANewLeader: a cache that is far behind costs the API server few requests at a time.
func TestReadsOfANewLeader(t *testing.T) {
	t.Parallel()
	stored, waiting := versions{}, map[client.ObjectKey]sets.Set[string]{}
	for i := range 10 * catchUpReads {
		name := fmt.Sprint(i)
		stored[name] = "2"
		waiting[client.ObjectKey{Namespace: "tenant", Name: name}] = sets.New("1")
	}
	requests := 0
	require.NoError(t, compareVersions(t.Context(), counting{storedVersions{versions: stored}, &requests}, knownVersions{}, waiting))
	require.Equal(t, catchUpReads, requests)
	require.Len(t, waiting, 10*catchUpReads, "all are still behind")
}

// counting counts reads.
type counting struct {
	storedVersions
	requests *int
}

func (c counting) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	*c.requests++
	return c.storedVersions.Get(ctx, key, object, options...)
}
