// Package config holds the args of Superpool's scheduler plugins, as plugins read them: the internal version of
// apis/config/v1, in group kubescheduler.config.k8s.io, where kube-scheduler looks for them. Importing
// apis/config/scheme registers them.
//
// +kubebuilder:object:generate=true
package config
