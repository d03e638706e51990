package builders

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metafake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A watch of these clients panics when nobody has taken so many events, of which a test can make more than the hundred
// that are the default before an informer has its turn.
func init() { watch.DefaultChanSize = 1000 }

// Clientset returns a clientset in memory that tracks no managed fields. The one that does builds a mapping of all
// kinds with each write, which takes milliseconds, and a hundred of them under the race detector. It cannot apply.
//
// Its watches give copies. Those of client-go's give the objects themselves that were written between a list and the
// watch after it (fixture.go of 1.37, tracker.Watch), and an informer's transform would change what is stored.
func Clientset(objects ...runtime.Object) *fake.Clientset {
	api := fake.NewSimpleClientset(objects...)
	api.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		var options metav1.ListOptions
		if watched, ok := action.(clienttesting.WatchActionImpl); ok {
			options = watched.ListOptions
		}
		events, err := api.Tracker().Watch(action.GetResource(), action.GetNamespace(), options)
		if err != nil {
			return true, nil, err //nolint:wrapcheck // it is the API's
		}
		given := &copies{events: events, result: make(chan watch.Event), stopped: make(chan struct{})}
		go given.run()
		return true, given, nil
	})
	return api
}

// copies is a watch that gives copies of the objects of another one. It ends with Stop, whoever reads it then.
type copies struct {
	events  watch.Interface
	result  chan watch.Event
	stopped chan struct{}
	once    sync.Once
}

// ResultChan implements watch.Interface.
func (c *copies) ResultChan() <-chan watch.Event { return c.result }

// Stop implements watch.Interface.
func (c *copies) Stop() {
	c.once.Do(func() { close(c.stopped) })
	c.events.Stop()
}

func (c *copies) run() {
	defer close(c.result)
	for event := range c.events.ResultChan() {
		event.Object = event.Object.DeepCopyObject()
		select {
		case c.result <- event:
		case <-c.stopped:
			return
		}
	}
}

// VersionedPods lets a clientset give the pods that are written to it resource versions, and refuse writes of others
// than the last one, as API servers do: where two programs write one pod, the outcome hangs on it.
func VersionedPods(api *fake.Clientset) {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	var mu sync.Mutex
	last := 0
	version := func(pod *corev1.Pod) *corev1.Pod {
		last++
		pod.ResourceVersion = strconv.Itoa(last)
		return pod
	}
	current := func(namespace, name, written string) (*corev1.Pod, error) {
		object, err := api.Tracker().Get(pods, namespace, name)
		if err != nil {
			return nil, err //nolint:wrapcheck // it is the API's
		}
		pod, ok := object.(*corev1.Pod)
		if !ok || written != "" && written != pod.ResourceVersion {
			return nil, apierrors.NewConflict(pods.GroupResource(), name, errors.New("it has changed"))
		}
		return pod.DeepCopy(), nil
	}
	api.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		switch action := action.(type) {
		case clienttesting.CreateActionImpl:
			if pod, ok := action.Object.(*corev1.Pod); ok {
				version(pod)
			}
		case clienttesting.UpdateActionImpl:
			if pod, ok := action.Object.(*corev1.Pod); ok {
				if _, err := current(action.Namespace, pod.Name, pod.ResourceVersion); err != nil {
					return true, nil, err
				}
				version(pod)
			}
		case clienttesting.PatchActionImpl:
			var written corev1.Pod
			if err := json.Unmarshal(action.Patch, &written); err != nil {
				return true, nil, fmt.Errorf("reading the patch: %w", err)
			}
			pod, err := current(action.Namespace, action.Name, written.ResourceVersion)
			if err != nil {
				return true, nil, err
			}
			patched, err := patchedPod(pod, action)
			if err != nil {
				return true, nil, err
			}
			version(patched)
			return true, patched, api.Tracker().Update(pods, patched, action.Namespace)
		}
		return false, nil, nil
	})
}

// patchedPod returns what a patch makes of a pod.
func patchedPod(pod *corev1.Pod, action clienttesting.PatchActionImpl) (*corev1.Pod, error) {
	before, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("encoding the pod: %w", err)
	}
	var after []byte
	switch action.PatchType {
	case types.MergePatchType:
		after, err = merged(before, action.Patch)
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, action.Patch, pod)
	default:
		err = fmt.Errorf("patches of type %s are unknown here", action.PatchType)
	}
	if err != nil {
		return nil, fmt.Errorf("patching the pod: %w", err)
	}
	patched := &corev1.Pod{}
	if err := json.Unmarshal(after, patched); err != nil {
		return nil, fmt.Errorf("decoding the pod: %w", err)
	}
	return patched, nil
}

// merged returns what a JSON merge patch (RFC 7386) makes of an object.
func merged(before, patch []byte) ([]byte, error) {
	var object, change map[string]any
	if err := errors.Join(json.Unmarshal(before, &object), json.Unmarshal(patch, &change)); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	var merge func(into, from map[string]any)
	merge = func(into, from map[string]any) {
		for key, value := range from {
			inner, isMap := value.(map[string]any)
			switch existing, _ := into[key].(map[string]any); {
			case value == nil:
				delete(into, key)
			case isMap:
				if existing == nil {
					existing = map[string]any{}
				}
				merge(existing, inner)
				into[key] = existing
			default:
				into[key] = value
			}
		}
	}
	merge(object, change)
	after, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return after, nil
}

// Client returns the builder of a client in memory for the kinds of scheme that tracks no managed fields, for the same
// reason: the one that does builds a scheme of all kinds of Kubernetes, too. It cannot apply.
func Client(scheme *runtime.Scheme) *ClientBuilder {
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	return &ClientBuilder{metafake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker)}
}

// ClientBuilder builds a client in memory that holds copies of the objects which it is given: the fake client writes a
// resource version into its own, and tests of one table, which run side by side, share theirs. It is that of
// controller-runtime otherwise.
type ClientBuilder struct{ builder *metafake.ClientBuilder }

// WithObjects adds objects that the client holds from the beginning.
func (b *ClientBuilder) WithObjects(objects ...client.Object) *ClientBuilder {
	b.builder.WithObjects(Copies(objects)...)
	return b
}

// WithStatusSubresource says whose status is written by itself.
func (b *ClientBuilder) WithStatusSubresource(objects ...client.Object) *ClientBuilder {
	b.builder.WithStatusSubresource(objects...)
	return b
}

// WithIndex lets objects be selected by a field.
func (b *ClientBuilder) WithIndex(object runtime.Object, field string, value client.IndexerFunc) *ClientBuilder {
	b.builder.WithIndex(object, field, value)
	return b
}

// WithInterceptorFuncs lets functions answer in the place of the client.
func (b *ClientBuilder) WithInterceptorFuncs(funcs interceptor.Funcs) *ClientBuilder {
	b.builder.WithInterceptorFuncs(funcs)
	return b
}

// Build returns the client.
func (b *ClientBuilder) Build() client.WithWatch { return b.builder.Build() }
