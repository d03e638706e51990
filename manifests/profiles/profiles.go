// Package profiles embeds the scheduler configurations that are in force where none is given.
package profiles

import _ "embed" // the files beside this one

// NamespaceScheduler is the default KubeSchedulerConfiguration of the namespace scheduler.
//
//go:embed namespace-scheduler.yaml
var NamespaceScheduler []byte

// PodScheduler is the default KubeSchedulerConfiguration of the pod schedulers.
//
//go:embed pod-scheduler.yaml
var PodScheduler []byte
