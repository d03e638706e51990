// Package etcd asks and changes the members of a store, and says which of its pods is replaced or added next. It knows
// nothing of the meta cluster: members have the names of their pods.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// timeout is how long a question may take, and listing that of all who are asked for it together.
	timeout        = 2 * time.Second
	listingTimeout = time.Second
	// defragmentTimeout is how long a member is waited for that writes its file anew. It goes on, whoever waits.
	defragmentTimeout = 30 * time.Second
)

// Address is where a member is found: by clients, and by other members.
type Address struct{ Client, Peer string }

// Member is a member as the store has it, and as it answers itself.
type Member struct {
	// Name is that of its pod, which has its peer URL; "" is no pod's.
	Name string
	ID   uint64
	// Joined is whether it has ever run.
	Joined bool
	// Learner is whether it has no vote yet.
	Learner bool
	// Leader is whether it leads the others.
	Leader bool
	// Size is that of its file, InUse what of it is not free, and Quota how large it may be, in bytes; 0 is not known.
	Size, InUse, Quota int64
	// Full is whether it says that the store takes no writes, because a file was too large once.
	Full bool
	// Sick is why it is not whole; "" is whole: it answers and follows a leader.
	Sick string
}

// Client asks and changes a store, for one goroutine. What members say of themselves is not believed, and no Member has
// it: the API servers of a tenant may write it.
type Client struct {
	// client asks the member that has answered last: one without a vote refuses most questions.
	client    *clientv3.Client
	addresses map[string]Address
}

// Dial returns a client of the store whose pods, by name, are at these addresses and show certificates that config
// trusts. It waits for nobody.
func Dial(addresses map[string]Address, config *tls.Config) (*Client, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints(addresses), TLS: config, Logger: zap.NewNop(), MaxUnaryRetries: 1})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return &Client{client: client, addresses: addresses}, nil
}

func endpoints(addresses map[string]Address) (urls []string) {
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		urls = append(urls, addresses[name].Client)
	}
	return urls
}

// Close ends the connection.
func (c *Client) Close() { _ = c.client.Close() } // nobody is asked any more

// Members returns all members, each asked how it is. Without a majority that answers it is an error.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	list, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	asked, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	members := make([]Member, len(list.Members))
	var group sync.WaitGroup
	for i, of := range list.Members {
		members[i] = Member{Name: c.nameOf(of), ID: of.ID, Joined: of.Name != "", Learner: of.IsLearner}
		group.Go(func() { c.ask(asked, of, &members[i]) })
	}
	group.Wait()
	return members, nil
}

// list asks one member after the other for the list of all, until one answers.
func (c *Client) list(ctx context.Context) (list *clientv3.MemberListResponse, err error) {
	for _, at := range endpoints(c.addresses) {
		c.client.SetEndpoints(at)
		asked, cancel := context.WithTimeout(ctx, listingTimeout)
		list, err = c.client.MemberList(asked)
		cancel()
		if err == nil {
			return list, nil
		}
	}
	return nil, fmt.Errorf("listing the members of etcd: %w", err)
}

// ask asks a member how it is.
func (c *Client) ask(ctx context.Context, of *etcdserverpb.Member, member *Member) {
	switch {
	case member.Name == "":
		member.Sick = "it is no pod's"
		return
	case !member.Joined:
		member.Sick = "it has not joined"
		return
	}
	status, err := c.client.Status(ctx, c.addresses[member.Name].Client)
	switch {
	case err != nil:
		member.Sick = "it does not answer"
	case status.Header.MemberId != of.ID:
		member.Sick = "another one answers at its address"
	case status.Leader == 0:
		member.Sick = "it follows no leader"
	default:
		member.Leader = status.Leader == of.ID
		member.Size, member.InUse, member.Quota = status.DbSize, status.DbSizeInUse, status.DbSizeQuota
		member.Full = slices.ContainsFunc(status.Errors, func(alarm string) bool { return strings.Contains(alarm, etcdserverpb.AlarmType_NOSPACE.String()) })
	}
}

// nameOf returns the name of the pod that has a member's peer URL, "" for none.
func (c *Client) nameOf(member *etcdserverpb.Member) string {
	for name, at := range c.addresses {
		if slices.Equal(member.PeerURLs, []string{at.Peer}) {
			return name
		}
	}
	return ""
}

// Add adds a member that has no vote yet, by its peer URL.
func (c *Client) Add(ctx context.Context, peerURL string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := c.client.MemberAddAsLearner(ctx, []string{peerURL}); err != nil && !errors.Is(err, rpctypes.ErrPeerURLExist) {
		return fmt.Errorf("adding %s to etcd: %w", peerURL, err)
	}
	return nil
}

// Defragment has a member write its file anew, without what is free in it. It does nothing else meanwhile.
func (c *Client) Defragment(ctx context.Context, member string) error {
	ctx, cancel := context.WithTimeout(ctx, defragmentTimeout)
	defer cancel()
	if _, err := c.client.Defragment(ctx, c.addresses[member].Client); err != nil {
		return fmt.Errorf("defragmenting %s: %w", member, err)
	}
	return nil
}

// Disarm lets a store take writes again that was full.
func (c *Client) Disarm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list, err := c.client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("listing the alarms of etcd: %w", err)
	}
	for _, alarm := range list.Alarms {
		if alarm.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if _, err := c.client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(alarm)); err != nil {
			return fmt.Errorf("taking back an alarm of etcd: %w", err)
		}
	}
	return nil
}

// Remove takes a member out: nothing of what it has counts any more.
func (c *Client) Remove(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := c.client.MemberRemove(ctx, id); err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
		return fmt.Errorf("removing a member of etcd: %w", err)
	}
	return nil
}

// Promote gives a member its vote if it has caught up.
func (c *Client) Promote(ctx context.Context, id uint64) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := c.client.MemberPromote(ctx, id)
	if err != nil && !errors.Is(err, rpctypes.ErrMemberLearnerNotReady) && !errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return fmt.Errorf("giving a member of etcd its vote: %w", err)
	}
	return nil
}
