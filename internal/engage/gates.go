package engage

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"
	_ "k8s.io/kubernetes/pkg/features" // registers those of client-go
)

// WatchListClient is off in programs that serve tenants: informers list, and then watch. With it, they ask for a watch
// that begins with all objects. What bounds the lists of tenants counts pages, and sources that are made of others
// (Optional, and those of several namespaces) begin no watch with all objects, for whose end an informer would wait for
// ever.
func init() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(featuregate.Feature(clientfeatures.WatchListClient), false))
}
