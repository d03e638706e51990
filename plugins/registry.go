// Package plugins lists the scheduler plugins that profiles of Superpool can enable: our own and those of
// scheduler-plugins that work over a view. docs/reference/plugins.md is made of the list.
package plugins

import (
	"k8s.io/apimachinery/pkg/types"
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

	"github.com/superpool/superpool/plugins/choicebackoff"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/plugins/namespaceplacement"
	"github.com/superpool/superpool/plugins/nodegroups"
	"github.com/superpool/superpool/plugins/nodenameorder"
	"github.com/superpool/superpool/plugins/nodeshape"
	"github.com/superpool/superpool/plugins/placementstability"
	"github.com/superpool/superpool/plugins/slicepack"
	"github.com/superpool/superpool/plugins/slicespread"
	"github.com/superpool/superpool/plugins/superclusterbinder"
)

// Options are what plugins need from the program that runs them.
type Options struct {
	// Committer writes decisions about namespaces. Nil in a scheduler of pods, whose profiles cannot enable
	// NamespaceGang.
	Committer namespacegang.Committer
	// Chose is called before a super cluster is written onto a pod, and with "" when that failed. Nil: nobody is told.
	Chose func(pod types.UID, superCluster string)
}

// Scheduler is a kind of scheduler.
type Scheduler string

// The kinds of schedulers.
const (
	// Namespaces is the namespace scheduler, which places slices.
	Namespaces Scheduler = "namespaces"
	// Pods is a pod scheduler, of which each tenant has one.
	Pods Scheduler = "pods"
)

// Entry is one plugin. It is registered when it has a Factory, and has a reason in WhyNot otherwise.
type Entry struct {
	// Name is what profiles enable it by.
	Name string
	// Factory builds it.
	Factory runtime.PluginFactory
	// Schedulers are those whose profiles it is for. TestRegisteredPlugins of internal/view runs it in each.
	Schedulers []Scheduler
	// InPlaceOf names the plugin of kube-scheduler that a profile disables for it, "" for none.
	InPlaceOf string
	// Doc says what docs/reference/plugins.md has about a plugin of scheduler-plugins, or adds about one of ours, whose
	// package comment is there already.
	Doc string
	// WhyNot says why it is not registered.
	WhyNot string
}

// Entries returns all plugins: ours, those of scheduler-plugins that are registered, and those that are not. State that
// plugins share is made here, so two schedulers need two lists.
//
// A plugin is registered when a test builds it and schedules with it, in a real scheduler over a view. It must live
// with one scheduler per tenant in one process that engages and disengages tenants all day: no package variables, no
// goroutine that outlives its context, no request inside a scheduling cycle, nothing that the view leaves out.
func Entries(options Options) []Entry {
	gangs := namespacegang.NewState()
	ofNamespaces, ofPods, ofBoth := []Scheduler{Namespaces}, []Scheduler{Pods}, []Scheduler{Namespaces, Pods}
	return append([]Entry{
		{Name: choicebackoff.Name, Schedulers: ofPods, Factory: choicebackoff.New},
		{Name: namespacegang.Name, Schedulers: ofNamespaces, Factory: namespacegang.New(options.Committer, gangs)},
		{Name: namespaceplacement.Name, Schedulers: ofPods, Factory: namespaceplacement.New},
		{Name: nodenameorder.Name, Schedulers: ofBoth, Factory: nodenameorder.New},
		{Name: nodegroups.Name, Schedulers: ofPods, Factory: nodegroups.New},
		{Name: nodeshape.Name, Schedulers: ofNamespaces, Factory: nodeshape.New},
		{Name: placementstability.Name, Schedulers: ofNamespaces, Factory: placementstability.New},
		{Name: slicepack.Name, Schedulers: ofNamespaces, Factory: slicepack.New(gangs)},
		{Name: slicespread.Name, Schedulers: ofNamespaces, Factory: slicespread.New(gangs)},
		{Name: superclusterbinder.Name, Schedulers: ofPods, Factory: superclusterbinder.New(options.Chose)},

		{
			Name: noderesources.AllocatableName, Schedulers: ofNamespaces, Factory: noderesources.NewAllocatable,
			Doc: "Scores by allocatable cpu and memory. In the pod view these are resources of namespaces: it scores nothing there.",
		},
		{Name: podstate.Name, Schedulers: ofPods, Factory: podstate.New, Doc: "Scores by pods that are terminating or nominated."},
		{
			Name: preemptiontoleration.Name, Schedulers: ofPods, Factory: preemptiontoleration.New, InPlaceOf: "DefaultPreemption",
			Doc: "Spares pods whose PriorityClass tolerates preemption. Slices are not preempted.",
		},
		{
			Name: qos.Name, Schedulers: ofPods, Factory: qos.New, InPlaceOf: "PrioritySort",
			Doc: "Orders by priority and the QoS class in the pod's status. NamespaceGang has an order of its own.",
		},
	}, notRegistered()...)
}

// notRegistered returns the plugins of scheduler-plugins that are left out.
func notRegistered() []Entry {
	const (
		loads = "it scores by the loads that a load watcher measures on Nodes of one cluster and knows no super clusters, and starts a " +
			"goroutine with each scheduler that no context ends, so each tenant that is engaged again leaks one"
		apps = "it asks the tenant's API server for AppGroups and NetworkTopologies inside scheduling cycles, where a list that fails " +
			"holds up every other pod"
	)
	return []Entry{
		{Name: coscheduling.Name, WhyNot: "it asks the tenant's API server for PodGroups while it holds the lock of the scheduling queue, with a " +
			"context that nothing ends, for any pod with a label that the tenant writes; it compares minResources with cpu and memory of " +
			"Nodes, which the pod view replaces by resources of namespaces"},
		{Name: capacityscheduling.Name, WhyNot: "it lists ElasticQuotas in New, so a tenant without the CRD gets no scheduler at all, and it counts cpu " +
			"and memory, which the pod view replaces by resources of namespaces"},
		{Name: networkoverhead.Name, WhyNot: apps},
		{Name: topologicalsort.Name, WhyNot: apps + "; it orders the queue by them"},
		{Name: sysched.Name, WhyNot: "it reads seccomp profiles from security contexts, which the pod view leaves out because super clusters judge them"},
		{Name: loadvariationriskbalancing.Name, WhyNot: loads},
		{Name: lowriskovercommitment.Name, WhyNot: loads},
		{Name: peaks.Name, WhyNot: loads + "; it reads a file that an environment variable names"},
		{Name: targetloadpacking.Name, WhyNot: loads + "; its New writes package variables, a race of all tenants' schedulers"},
		// By name alone: nothing else of the package is linked.
		{Name: "NodeResourceTopologyMatch", WhyNot: "it judges the NUMA zones of single nodes, and a Node of either view is a whole super cluster"},
	}
}

// Registry returns the plugins for one scheduler.
func Registry(options Options) runtime.Registry {
	registry := runtime.Registry{}
	for _, entry := range Entries(options) {
		if entry.Factory != nil {
			registry[entry.Name] = entry.Factory
		}
	}
	return registry
}
