package placements

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

const (
	// catchUpPeriod is how often a new leader compares its cache with the API server.
	catchUpPeriod = 100 * time.Millisecond
	// catchUpReads bounds the objects read from the API server in one period.
	catchUpReads = 10
)

// CatchUp waits until cached holds all NamespacePlacements as they were stored when it was called, or later. The leader
// before may have reserved something a moment ago, and a commit checks the namespace that it is for, not what others
// hold: decisions on an older cache could reserve the same again. It returns false when ctx ended.
func CatchUp(ctx context.Context, stored, cached client.Reader) bool {
	logger := klog.FromContext(ctx)
	var waiting map[client.ObjectKey]sets.Set[string] // nil: not listed yet
	_ = wait.PollUntilContextCancel(ctx, catchUpPeriod, true, func(ctx context.Context) (bool, error) {
		var err error
		if waiting == nil {
			waiting, err = listVersions(ctx, stored)
		}
		if err == nil {
			err = compareVersions(ctx, stored, cached, waiting)
		}
		if err != nil {
			// Leaders change when API servers are in trouble.
			logger.Error(err, "Reading NamespacePlacements failed, trying again before the first decision")
			return false, nil
		}
		return len(waiting) == 0, nil
	})
	return ctx.Err() == nil
}

// behind returns the keys of stored, sorted, whose cached version is none of those that were stored. Resource versions
// can be compared for equality only, so stored holds each one that was read; "" stands for an object that is not there.
func behind(stored map[client.ObjectKey]sets.Set[string], cached map[client.ObjectKey]string) []client.ObjectKey {
	var keys []client.ObjectKey
	for key, versions := range stored {
		if !versions.Has(cached[key]) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b client.ObjectKey) int {
		return cmp.Compare(a.String(), b.String())
	})
	return keys
}

// compareVersions removes from waiting what cached holds as it was stored. To the versions of what is left it adds the
// one that is stored now: an object that is written all the time may never be cached as it was listed.
func compareVersions(ctx context.Context, stored, cached client.Reader, waiting map[client.ObjectKey]sets.Set[string]) error {
	versions := make(map[client.ObjectKey]string, len(waiting))
	for key := range waiting {
		var err error
		if versions[key], err = versionOf(ctx, cached, key, &schedulerv1alpha1.NamespacePlacement{}); err != nil {
			return err
		}
	}
	keep := func(keys []client.ObjectKey) {
		kept := sets.New(keys...)
		maps.DeleteFunc(waiting, func(key client.ObjectKey, _ sets.Set[string]) bool { return !kept.Has(key) })
	}
	late := behind(waiting, versions)
	keep(late)
	for _, key := range late[:min(len(late), catchUpReads)] {
		klog.FromContext(ctx).V(2).Info("Waiting for a NamespacePlacement that is newer than the cache", "placement", key)
		newest := &metav1.PartialObjectMetadata{}
		newest.SetGroupVersionKind(schedulerv1alpha1.GroupVersion.WithKind("NamespacePlacement"))
		version, err := versionOf(ctx, stored, key, newest)
		if err != nil {
			return err
		}
		waiting[key].Insert(version)
	}
	keep(behind(waiting, versions))
	return nil
}

// listVersions returns the resource version of each NamespacePlacement.
func listVersions(ctx context.Context, reader client.Reader) (map[client.ObjectKey]sets.Set[string], error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schedulerv1alpha1.GroupVersion.WithKind("NamespacePlacementList"))
	if err := reader.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	versions := make(map[client.ObjectKey]sets.Set[string], len(list.Items))
	for i := range list.Items {
		versions[client.ObjectKeyFromObject(&list.Items[i])] = sets.New(list.Items[i].ResourceVersion)
	}
	return versions, nil
}

// versionOf reads object and returns its resource version, "" if it is not there.
func versionOf(ctx context.Context, reader client.Reader, key client.ObjectKey, object client.Object) (string, error) {
	if err := reader.Get(ctx, key, object); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading NamespacePlacement %s: %w", key, err)
	}
	return object.GetResourceVersion(), nil
}
