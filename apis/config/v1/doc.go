// Package v1 is how files write the args of Superpool's scheduler plugins. What a file leaves out is nil here, and gets
// its default when it is decoded. Fields that are not here are refused.
//
// +kubebuilder:object:generate=true
package v1
