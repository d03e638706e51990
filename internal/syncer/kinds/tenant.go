package kinds

import (
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/tenants"
)

// Tenant is a tenant that is connected.
type Tenant struct {
	*tenants.Tenant
	// Client reads and writes the control plane, without a cache.
	Client client.Client
	// Cache holds what is watched of it.
	Cache Cache
	// Recorder writes Events there.
	Recorder record.EventRecorder
}
