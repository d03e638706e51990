// Package policies embeds the TenantPolicy that is shipped.
package policies

import _ "embed" // the file beside this one

// Default is the TenantPolicy named default, as YAML. It holds where the meta cluster has no such object, too.
//
//go:embed default.yaml
var Default []byte
