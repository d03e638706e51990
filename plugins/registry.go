// Package plugins lists the scheduler plugins that profiles of Superpool can enable: our own and those of
// scheduler-plugins that work over a view. docs/plugins.md has the list with reasons.
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
	"github.com/superpool/superpool/plugins/namespaceplacement"
	"github.com/superpool/superpool/plugins/nodenameorder"
	"github.com/superpool/superpool/plugins/nodeshape"
	"github.com/superpool/superpool/plugins/placementstability"
	"github.com/superpool/superpool/plugins/slicespread"
	"github.com/superpool/superpool/plugins/superclusterbinder"
)

// Options are what plugins need from the program that runs them.
type Options struct {
	// Committer writes decisions about namespaces. Nil in a scheduler of pods, whose profiles cannot enable
	// NamespaceGang.
	Committer namespacegang.Committer
}

// Registry returns the plugins for one scheduler. State that plugins share is made here, so two schedulers need two
// registries.
//
// A plugin is here when a test builds it and schedules with it, in a real scheduler over a view. It must live with one
// scheduler per tenant in one process that engages and disengages tenants all day: no package variables, no goroutine
// that outlives its context, no request inside a scheduling cycle, nothing that the view leaves out.
func Registry(options Options) runtime.Registry {
	gangs := namespacegang.NewState()
	return runtime.Registry{
		namespacegang.Name:      namespacegang.New(options.Committer, gangs),
		namespaceplacement.Name: namespaceplacement.New,
		nodenameorder.Name:      nodenameorder.New,
		nodeshape.Name:          nodeshape.New,
		placementstability.Name: placementstability.New,
		slicespread.Name:        slicespread.New(gangs),
		superclusterbinder.Name: superclusterbinder.New,

		noderesources.AllocatableName: noderesources.NewAllocatable,
		podstate.Name:                 podstate.New,
		preemptiontoleration.Name:     preemptiontoleration.New,
		qos.Name:                      qos.New,
	}
}

// NotRegistered returns the plugins of scheduler-plugins that are left out, and why.
func NotRegistered() map[string]string {
	const (
		loads = "it scores by the loads that a load watcher measures on Nodes of one cluster and knows no super clusters, and starts a " +
			"goroutine with each scheduler that no context ends, so each tenant that is engaged again leaks one"
		apps = "it asks the tenant's API server for AppGroups and NetworkTopologies inside scheduling cycles, where a list that fails " +
			"holds up every other pod"
	)
	return map[string]string{
		coscheduling.Name: "it asks the tenant's API server for PodGroups while it holds the lock of the scheduling queue, with a " +
			"context that nothing ends, for any pod with a label that the tenant writes; it compares minResources with cpu and memory of " +
			"Nodes, which the pod view replaces by resources of namespaces",
		capacityscheduling.Name: "it lists ElasticQuotas in New, so a tenant without the CRD gets no scheduler at all, and it counts cpu " +
			"and memory, which the pod view replaces by resources of namespaces",
		networkoverhead.Name: apps,
		topologicalsort.Name: apps + "; it orders the queue by them",
		sysched.Name:         "it reads seccomp profiles from security contexts, which the pod view leaves out because super clusters judge them",

		loadvariationriskbalancing.Name: loads,
		lowriskovercommitment.Name:      loads,
		peaks.Name:                      loads + "; it reads a file that an environment variable names",
		targetloadpacking.Name:          loads + "; its New writes package variables, a race of all tenants' schedulers",
	}
}
