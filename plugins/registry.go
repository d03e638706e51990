// Package plugins lists the scheduler plugins that profiles of Superpool can enable: our own and those of scheduler-plugins.
package plugins

import (
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme" // the args of scheduler-plugins decode in profiles
	"sigs.k8s.io/scheduler-plugins/pkg/capacityscheduling"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"
	"sigs.k8s.io/scheduler-plugins/pkg/networkaware/networkoverhead"
	"sigs.k8s.io/scheduler-plugins/pkg/networkaware/topologicalsort"
	"sigs.k8s.io/scheduler-plugins/pkg/noderesources"
	"sigs.k8s.io/scheduler-plugins/pkg/podstate"
	"sigs.k8s.io/scheduler-plugins/pkg/preemptiontoleration"
	"sigs.k8s.io/scheduler-plugins/pkg/qos"
	"sigs.k8s.io/scheduler-plugins/pkg/sysched"
	"sigs.k8s.io/scheduler-plugins/pkg/trimaran/loadvariationriskbalancing"
	"sigs.k8s.io/scheduler-plugins/pkg/trimaran/lowriskovercommitment"
	"sigs.k8s.io/scheduler-plugins/pkg/trimaran/peaks"
	"sigs.k8s.io/scheduler-plugins/pkg/trimaran/targetloadpacking"

	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/plugins/namespaceroom"
	"github.com/superpool/superpool/plugins/nodenameorder"
	"github.com/superpool/superpool/plugins/nodeshape"
	"github.com/superpool/superpool/plugins/placementstability"
	"github.com/superpool/superpool/plugins/slicespread"
	"github.com/superpool/superpool/plugins/superclusterbinder"
)

// Options are what plugins need from the program that runs them.
type Options struct {
	// Committer writes decisions about namespaces. Nil in a scheduler of pods, whose profiles cannot enable NamespaceGang.
	Committer namespacegang.Committer
}

// Registry returns the plugins for one scheduler. State that plugins share is made here, so two schedulers need two registries.
func Registry(options Options) runtime.Registry {
	gangs := namespacegang.NewState()
	return runtime.Registry{
		namespacegang.Name:      namespacegang.New(options.Committer, gangs),
		namespaceroom.Name:      namespaceroom.New,
		nodenameorder.Name:      nodenameorder.New,
		nodeshape.Name:          nodeshape.New,
		placementstability.Name: placementstability.New,
		slicespread.Name:        slicespread.New(gangs),
		superclusterbinder.Name: superclusterbinder.New,

		capacityscheduling.Name:         capacityscheduling.New,
		coscheduling.Name:               coscheduling.New,
		loadvariationriskbalancing.Name: loadvariationriskbalancing.New,
		lowriskovercommitment.Name:      lowriskovercommitment.New,
		networkoverhead.Name:            networkoverhead.New,
		noderesources.AllocatableName:   noderesources.NewAllocatable,
		peaks.Name:                      peaks.New,
		podstate.Name:                   podstate.New,
		preemptiontoleration.Name:       preemptiontoleration.New,
		qos.Name:                        qos.New,
		sysched.Name:                    sysched.New,
		targetloadpacking.Name:          targetloadpacking.New,
		topologicalsort.Name:            topologicalsort.New,
	}
}
