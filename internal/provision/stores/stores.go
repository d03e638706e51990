// Package stores keeps the store of each control plane: an etcd of its own, whose members it adds, replaces and mends,
// or a part of an external one; its backups, and its restore from one. It says what a store cannot become. It keeps no
// state: what there is, the objects of the root namespace say.
package stores

import (
	"context"
	"crypto/tls"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/etcd"
	"github.com/superpool/superpool/internal/provision/objects"
	"github.com/superpool/superpool/internal/provision/secrets"
)

// AskPeriod is how often a store that is not whole is asked again: nothing tells when its members are.
const AskPeriod = 5 * time.Second

// concurrentDefragmented is how many members of etcd are defragmented at a time: each takes a worker for half a minute
// at most, and tenants decide how often.
const concurrentDefragmented = 2

// EtcdClient asks and changes a store. See etcd.Client.
type EtcdClient interface {
	Members(ctx context.Context) ([]etcd.Member, error)
	Add(ctx context.Context, peerURL string) error
	Promote(ctx context.Context, id uint64) error
	Remove(ctx context.Context, id uint64) error
	Defragment(ctx context.Context, member string) error
	Disarm(ctx context.Context) error
	Close()
}

// DialEtcd connects to a store.
func DialEtcd(addresses map[string]etcd.Address, config *tls.Config) (EtcdClient, error) {
	return etcd.Dial(addresses, config) //nolint:wrapcheck // it says what it did
}

// SharedEtcd asks and changes an external store. See etcd.Shared.
type SharedEtcd interface {
	ID(ctx context.Context) (string, error)
	Knows(ctx context.Context, user, prefix string) (bool, error)
	Admit(ctx context.Context, user, prefix string) error
	Expel(ctx context.Context, user string) error
	Clear(ctx context.Context, prefix string, most int64) (bool, error)
	Close()
}

// DialShared connects to an external store.
func DialShared(endpoints []string, config *tls.Config) (SharedEtcd, error) {
	return etcd.DialShared(endpoints, config) //nolint:wrapcheck // it says what it did
}

// Options are what stores are kept with. All are needed.
type Options struct {
	// Client writes, and reads vc-manager's objects from a cache.
	Client client.Client
	// Reader reads without a cache.
	Reader client.Reader
	Clock  clock.PassiveClock
	// DialEtcd connects to the store whose pods, by name, are at these addresses, as the function of that name does.
	DialEtcd func(addresses map[string]etcd.Address, config *tls.Config) (EtcdClient, error)
	// DialShared connects to the external store at these URLs, as the function of that name does.
	DialShared func(endpoints []string, config *tls.Config) (SharedEtcd, error)
	// Manager is vc-manager's namespace, with the Secrets that have the authorities of external stores.
	Manager string
	// Validity is how long certificates are valid of VirtualClusters that do not say it.
	Validity time.Duration
	// Workers is how many control planes are worked on at a time. Half of them, rounded up, ask external stores at a
	// time: one that is silent is that of many. With 0 no store is asked that has to wait for its turn.
	Workers int
}

// Stores opens the stores of control planes, and releases external ones. It is safe for concurrent use.
type Stores struct {
	client     client.Client
	reader     client.Reader
	clock      clock.PassiveClock
	dialEtcd   func(addresses map[string]etcd.Address, config *tls.Config) (EtcdClient, error)
	dialShared func(endpoints []string, config *tls.Config) (SharedEtcd, error)
	manager    string
	validity   time.Duration
	objects    objects.Writer
	// asking has an element for each reconcile that asks an external store, and defragmenting one for each that waits
	// for a member of etcd.
	asking, defragmenting chan struct{}
}

// New returns the stores of a meta cluster.
func New(o Options) *Stores {
	return &Stores{
		client: o.Client, reader: o.Reader, clock: o.Clock, dialEtcd: o.DialEtcd, dialShared: o.DialShared, manager: o.Manager, validity: o.Validity,
		objects: objects.Writer{Client: o.Client, Reader: o.Reader},
		asking:  make(chan struct{}, (o.Workers+1)/2), defragmenting: make(chan struct{}, min(o.Workers, concurrentDefragmented)),
	}
}

// keeper keeps the Secrets of a namespace.
func (ss *Stores) keeper(namespace string) *secrets.Keeper {
	return &secrets.Keeper{Client: ss.client, Reader: ss.reader, Namespace: namespace, Now: ss.clock.Now()}
}
