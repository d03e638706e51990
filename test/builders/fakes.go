package builders

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	metafake "sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// A watch of these clients panics when nobody has taken so many events, of which a test can make more than the hundred
// that are the default before an informer has its turn.
func init() { watch.DefaultChanSize = 1000 }

// Clientset returns a clientset in memory that tracks no managed fields. The one that does builds a mapping of all
// kinds with each write, which takes milliseconds, and a hundred of them under the race detector. It cannot apply.
func Clientset(objects ...runtime.Object) *fake.Clientset {
	return fake.NewSimpleClientset(objects...)
}

// Client returns the builder of a client in memory for the kinds of scheme that tracks no managed fields, for the same
// reason: the one that does builds a scheme of all kinds of Kubernetes, too. It cannot apply.
func Client(scheme *runtime.Scheme) *metafake.ClientBuilder {
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	return metafake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker)
}
