// Package plugins lists the scheduler plugins that profiles of Superpool can enable, our own and those in place of
// scheduler-plugins', and those of scheduler-plugins that they cannot, with the reason. docs/reference/plugins.md is
// made of the list.
package plugins

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme" // the args of scheduler-plugins decode in profiles

	_ "github.com/superpool/superpool/apis/config/scheme" // so do those of our own
	"github.com/superpool/superpool/apis/config/validation"
	"github.com/superpool/superpool/plugins/choicebackoff"
	"github.com/superpool/superpool/plugins/coscheduling"
	"github.com/superpool/superpool/plugins/library"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/plugins/namespaceplacement"
	"github.com/superpool/superpool/plugins/namespaceroom"
	"github.com/superpool/superpool/plugins/nodegroups"
	"github.com/superpool/superpool/plugins/nodenameorder"
	"github.com/superpool/superpool/plugins/nodeshape"
	"github.com/superpool/superpool/plugins/placementstability"
	"github.com/superpool/superpool/plugins/slicepack"
	"github.com/superpool/superpool/plugins/slicespread"
	"github.com/superpool/superpool/plugins/superclusterbinder"
	"github.com/superpool/superpool/plugins/volumehome"
)

// Options are what plugins need from the program that runs them.
type Options struct {
	// Committer writes decisions about namespaces. Nil in a scheduler of pods, whose profiles cannot enable
	// NamespaceGang.
	Committer namespacegang.Committer
	// Gangs is what NamespaceGang knows of decisions in the making, for a program that waits for it. Nil: one of its
	// own.
	Gangs *namespacegang.State
	// Choices is told of the super clusters that are written onto pods. Nil: nobody is.
	Choices superclusterbinder.Choices
	// ShowsTaint returns whether a pod's tenant may be told of a taint of nodes. Nil: of all.
	ShowsTaint func(taint *corev1.Taint) bool
	// PodGangs are what plugin Coscheduling needs.
	PodGangs coscheduling.Options
	// OutOfTree are plugins that somebody else builds into the program, for profiles of pods.
	OutOfTree runtime.Registry
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
	// Validate returns what is wrong with args of a profile, which it must not change. Nil: it takes none.
	Validate func(path *field.Path, args apiruntime.Object) field.ErrorList
	// Doc says what docs/reference/plugins.md has about a plugin in place of one of scheduler-plugins, or adds about
	// one of ours, whose package comment is there already.
	Doc string
	// WhyNot says why it is not registered.
	WhyNot string
}

// Entries returns all plugins: ours, those in place of scheduler-plugins', and those of scheduler-plugins that are not
// registered. State that plugins share is made here, so two schedulers need two lists.
//
// A plugin is registered when a test builds it and schedules with it, in a real scheduler over a view. It must live
// with one scheduler per tenant in one process that engages and disengages tenants all day: no package variables, no
// goroutine that outlives its context, no request inside a scheduling cycle, nothing that the view leaves out.
func Entries(options Options) []Entry {
	gangs, podGangs := options.Gangs, options.PodGangs.State
	if gangs == nil {
		gangs = namespacegang.NewState()
	}
	if podGangs == nil {
		podGangs = coscheduling.NewState()
	}
	ofNamespaces, ofPods, ofBoth := []Scheduler{Namespaces}, []Scheduler{Pods}, []Scheduler{Namespaces, Pods}
	return append([]Entry{
		{Name: choicebackoff.Name, Schedulers: ofPods, Factory: choicebackoff.New},
		{
			Name: coscheduling.Name, Schedulers: ofPods, Factory: coscheduling.New(options.PodGangs, podGangs),
			Validate: validating(coscheduling.ValidateArgs),
			Doc:      "Takes the place and the args of scheduler-plugins' plugin of that name, and comes before SuperClusterBinder.",
		},
		{Name: namespacegang.Name, Schedulers: ofNamespaces, Factory: namespacegang.New(options.Committer, gangs), Validate: validating(validation.ValidateNamespaceGangArgs)},
		{Name: namespaceplacement.Name, Schedulers: ofPods, Factory: namespaceplacement.New},
		{Name: namespaceroom.Name, Schedulers: ofPods, Factory: namespaceroom.New, Validate: validating(validation.ValidateNamespaceRoomArgs)},
		{Name: nodenameorder.Name, Schedulers: ofBoth, Factory: nodenameorder.New},
		{Name: nodegroups.Name, Schedulers: ofPods, Factory: nodegroups.New(options.ShowsTaint)},
		{Name: nodeshape.Name, Schedulers: ofNamespaces, Factory: nodeshape.New},
		{Name: placementstability.Name, Schedulers: ofNamespaces, Factory: placementstability.New},
		{Name: slicepack.Name, Schedulers: ofNamespaces, Factory: slicepack.New(gangs)},
		{Name: slicespread.Name, Schedulers: ofNamespaces, Factory: slicespread.New(gangs)},
		{Name: superclusterbinder.Name, Schedulers: ofPods, Factory: superclusterbinder.New(options.Choices, podGangs.Holds), Validate: validating(validation.ValidateSuperClusterBinderArgs)},
		{Name: volumehome.Name, Schedulers: ofPods, Factory: volumehome.New(volumehome.NewState())},

		{
			Name: library.AllocatableName, Schedulers: ofNamespaces, Factory: library.NewAllocatable, Validate: validating(library.ValidateAllocatable),
			Doc: "Scores by allocatable cpu and memory. In the pod view these are resources of namespaces: it scores nothing there.",
		},
		{Name: library.PodStateName, Schedulers: ofPods, Factory: library.NewPodState, Doc: "Scores by pods that are terminating or nominated."},
		{
			Name: library.PreemptionTolerationName, Schedulers: ofPods, Factory: library.NewPreemptionToleration(clock.RealClock{}),
			InPlaceOf: "DefaultPreemption", Validate: validating(library.ValidatePreemptionToleration),
			Doc: "Spares pods whose PriorityClass tolerates preemption. Slices are not preempted.",
		},
		{
			Name: library.QOSSortName, Schedulers: ofPods, Factory: library.NewQOSSort, InPlaceOf: "PrioritySort",
			Doc: "Orders by priority and the QoS class in the pod's status. NamespaceGang has an order of its own.",
		},
	}, notRegistered()...)
}

// notRegistered returns the plugins of scheduler-plugins that are left out, by name alone: its packages do not compile
// with the Kubernetes release in go.mod.
func notRegistered() []Entry {
	const (
		loads = "it scores by the loads that a load watcher measures on Nodes of one cluster and knows no super clusters, and starts a " +
			"goroutine with each scheduler that no context ends, so each tenant that is engaged again leaks one"
		apps = "it asks the tenant's API server for AppGroups and NetworkTopologies inside scheduling cycles, where a list that fails " +
			"holds up every other pod"
	)
	return []Entry{
		{Name: "CapacityScheduling", WhyNot: "it lists ElasticQuotas in New, so a tenant without the CRD gets no scheduler at all, and it counts cpu " +
			"and memory, which the pod view replaces by resources of namespaces"},
		{Name: "NetworkOverhead", WhyNot: apps},
		{Name: "TopologicalSort", WhyNot: apps + "; it orders the queue by them"},
		{Name: "SySched", WhyNot: "it reads seccomp profiles from security contexts, which the pod view leaves out because super clusters judge them"},
		{Name: "LoadVariationRiskBalancing", WhyNot: loads},
		{Name: "LowRiskOverCommitment", WhyNot: loads},
		{Name: "Peaks", WhyNot: loads + "; it reads a file that an environment variable names"},
		{Name: "TargetLoadPacking", WhyNot: loads + "; its New writes package variables, a race of all tenants' schedulers"},
		{Name: "CrossNodePreemption", WhyNot: "scheduler-plugins calls it a sample and builds it into no scheduler; it tries all sets of victims of all Nodes in one cycle"},
		{Name: "NodeResourceTopologyMatch", WhyNot: "it judges the NUMA zones of single nodes, and a Node of either view is a whole super cluster"},
	}
}

// validating returns a check of args that must be of one type.
func validating[T apiruntime.Object](validate func(path *field.Path, args T) field.ErrorList) func(*field.Path, apiruntime.Object) field.ErrorList {
	return func(path *field.Path, object apiruntime.Object) field.ErrorList {
		args, ok := object.(T)
		if !ok {
			var want T
			return field.ErrorList{field.Invalid(path, fmt.Sprintf("%T", object), fmt.Sprintf("must be a %T", want))}
		}
		return validate(path, args)
	}
}

// Registry returns the plugins for one scheduler.
func Registry(options Options) runtime.Registry {
	registry := maps.Clone(options.OutOfTree)
	if registry == nil {
		registry = runtime.Registry{}
	}
	for _, entry := range Entries(options) {
		if entry.Factory != nil {
			registry[entry.Name] = entry.Factory
		}
	}
	return registry
}
