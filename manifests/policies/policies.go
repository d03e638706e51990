// Package policies embeds the TenantPolicies that are shipped.
package policies

import "embed"

// Default is the TenantPolicy named default, as YAML. It holds where the meta cluster has no such object, too.
//
//go:embed default.yaml
var Default []byte

// All holds the file of each TenantPolicy that is shipped, by its name and ".yaml".
//
//go:embed default.yaml standard.yaml trusted.yaml
var All embed.FS
