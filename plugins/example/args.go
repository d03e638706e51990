package example

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
)

// DefaultLabel is ExampleArgs.Label where a profile sets none.
const DefaultLabel = "example.superpool.dev/allowed"

// ExampleArgs is the plugin's part of a profile's pluginConfig. The name is the plugin's and Args: kube-scheduler finds
// the type by it.
//
// One Go type serves the version in files (v1) and the internal one, so no conversion is written. A second version
// would end that.
type ExampleArgs struct { //nolint:revive // kube-scheduler asks for this name
	metav1.TypeMeta `json:",inline"`
	// Label is the key that Nodes must have. Defaults to DefaultLabel.
	Label string `json:"label,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (a *ExampleArgs) DeepCopyObject() runtime.Object {
	c := *a
	return &c
}

// setDefaults fills what a file leaves out. It runs when the file is decoded, and for a profile that has no
// pluginConfig for the plugin.
func setDefaults(a *ExampleArgs) {
	if a.Label == "" {
		a.Label = DefaultLabel
	}
}

// A registered kind is decoded strictly, so that an unknown field is an error when vc-scheduler starts. It belongs into
// two schemes: kube-scheduler builds the one for defaults from the scheme builders, when it is first needed, and its
// decoder's scheme is there already.
func init() {
	config.SchemeBuilder.Register(addInternal)
	configv1.SchemeBuilder.Register(addV1)
	utilruntime.Must(addInternal(scheme.Scheme))
	utilruntime.Must(addV1(scheme.Scheme))
}

func addInternal(s *runtime.Scheme) error {
	s.AddKnownTypes(config.SchemeGroupVersion, &ExampleArgs{})
	return nil
}

func addV1(s *runtime.Scheme) error {
	s.AddKnownTypes(configv1.SchemeGroupVersion, &ExampleArgs{})
	s.AddTypeDefaultingFunc(&ExampleArgs{}, func(object any) { setDefaults(object.(*ExampleArgs)) })
	return nil
}
