// Package scheme registers the args of Superpool's scheduler plugins where kube-scheduler decodes its configuration.
package scheme

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeschedulerv1 "k8s.io/kube-scheduler/config/v1"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler/apis/config"
	kubeschedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/superpool/superpool/apis/config"
	configv1 "github.com/superpool/superpool/apis/config/v1"
)

// A registered kind is decoded strictly. It belongs into two schemes: kube-scheduler builds the one for defaults from
// the scheme builders, when it is first needed, and its decoder's scheme is there already.
func init() {
	kubescheduler.SchemeBuilder.Register(config.AddToScheme)
	kubeschedulerv1.SchemeBuilder.Register(configv1.AddToScheme)
	utilruntime.Must(config.AddToScheme(kubeschedulerscheme.Scheme))
	utilruntime.Must(configv1.AddToScheme(kubeschedulerscheme.Scheme))
}
