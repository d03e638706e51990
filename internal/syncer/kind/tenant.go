package kind

import (
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/tenants"
)

// Recorder records Events in a tenant. It is safe for concurrent use.
type Recorder interface {
	// Event records an Event about an object later, and returns whether it has room for it.
	Event(object runtime.Object, eventType, reason, message string) bool
}

// Tenant is a connected tenant: its identity, and access to its control plane.
type Tenant struct {
	*tenants.Tenant
	// Client reads and writes the control plane, without a cache.
	Client client.Client
	// Cache holds the objects of its informers.
	Cache Cache
	// Since is when the syncer began to fill Cache. While others may have worked on the tenant since, see Take.
	Since time.Time
	// Recorder records Events in it.
	Recorder Recorder

	// taken is when this process last began to work on the tenant after another one, nil for never.
	taken atomic.Pointer[time.Time]
	// kept holds what kinds keep with it, by type (Kept).
	kept sync.Map
}

// Take notes that another process may have worked on the tenant until now.
func (t *Tenant) Take(now time.Time) { t.taken.Store(&now) }

// Alone returns since when no other process has worked on the tenant, zero if that is not known.
func (t *Tenant) Alone() time.Time {
	if taken := t.taken.Load(); taken != nil {
		return *taken
	}
	return t.Since
}

// MaxGrace returns the longest grace period of the tenant's pods, in seconds.
func (t *Tenant) MaxGrace() int64 { return t.Policy.Get().Spec().Pods.MaxGracePeriodSeconds }

// Kept returns the place of the value of a type that kinds keep with a connection of a tenant, which holds nil before
// one is stored. It may be called concurrently.
func Kept[T any](tenant *Tenant) *atomic.Pointer[T] {
	place, exists := tenant.kept.Load(reflect.TypeFor[T]())
	if !exists {
		place, _ = tenant.kept.LoadOrStore(reflect.TypeFor[T](), &atomic.Pointer[T]{})
	}
	return place.(*atomic.Pointer[T]) //nolint:forcetypeassert // its key is its type
}

// HostOf returns address and port of the server of a client configuration, false if it has a name instead of an
// address.
func HostOf(server string) (address netip.Prefix, port int32, ok bool) {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	parsed, err := url.Parse(server)
	if err != nil {
		return netip.Prefix{}, 0, false
	}
	number, err := strconv.ParseUint(parsed.Port(), 10, 16)
	switch {
	case err == nil:
	case parsed.Port() != "":
		return netip.Prefix{}, 0, false
	case parsed.Scheme == "http":
		number = 80
	default:
		number = 443
	}
	address, ok = ParseAddress(parsed.Hostname())
	return address, int32(number), ok
}

// NamesHost returns whether the server of a client configuration has a name instead of an address. A syncer does not
// resolve it, so its addresses are not closed to pods.
func NamesHost(server string) bool {
	_, _, ok := HostOf(server)
	return !ok
}

// APIServer returns address and port of the tenant's API server, false if its kubeconfig has a name instead of an
// address.
func (t *Tenant) APIServer() (address netip.Prefix, port int32, ok bool) {
	if t.Config == nil {
		return netip.Prefix{}, 0, false
	}
	return HostOf(t.Config.Host)
}
