// Package etcdtest has stores of control planes for tests that ask no etcd: one that a control plane has for itself,
// and an external one that others use too. Neither is for more than one goroutine.
package etcdtest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/superpool/superpool/internal/etcd"
)

// Own is the store of one control plane. Without members it does not answer.
type Own struct {
	// List are its members.
	List []etcd.Member
	// Addresses are those of pods: members that have none of them have no name.
	Addresses map[string]etcd.Address
	// Behind is whether members that are added have not caught up.
	Behind bool
}

// Members returns the members, with the names of those alone that are pods.
func (o *Own) Members(context.Context) ([]etcd.Member, error) {
	if len(o.List) == 0 {
		return nil, errors.New("it does not answer")
	}
	list := slices.Clone(o.List)
	for i := range list {
		if _, isPod := o.Addresses[list[i].Name]; !isPod {
			list[i].Name = ""
		}
	}
	return list, nil
}

// Add adds a learner that has not joined.
func (o *Own) Add(_ context.Context, peerURL string) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(peerURL, "https://"), ".")
	o.List = append(o.List, etcd.Member{Name: name, ID: uint64(len(o.List) + 1), Learner: true, Sick: "it has not joined"}) //nolint:gosec // a handful
	return nil
}

// Promote lets a learner vote, unless it is behind.
func (o *Own) Promote(_ context.Context, id uint64) error {
	for i := range o.List {
		if o.List[i].ID == id && !o.Behind {
			o.List[i].Learner = false
		}
	}
	return nil
}

// Remove takes a member out.
func (o *Own) Remove(_ context.Context, id uint64) error {
	o.List = slices.DeleteFunc(o.List, func(member etcd.Member) bool { return member.ID == id })
	return nil
}

// Defragment lets the file of a member be as large as what is in use of it.
func (o *Own) Defragment(_ context.Context, name string) error {
	for i := range o.List {
		if o.List[i].Name == name {
			o.List[i].Size = o.List[i].InUse
		}
	}
	return nil
}

// Disarm lets no member be full.
func (o *Own) Disarm(context.Context) error {
	for i := range o.List {
		o.List[i].Full = false
	}
	return nil
}

// Close does nothing.
func (*Own) Close() {}

// Shared is an external store.
type Shared struct {
	// Identity is its ID, and Err why it does not say it, nil where it does.
	Identity string
	Err      error
	// Users has the prefix of each user, and Keys how many keys there are below each prefix. Neither is nil.
	Users map[string]string
	Keys  map[string]int64
	// Endpoints are those that were asked last.
	Endpoints []string
	// Closed is how many connections to it were closed.
	Closed int
}

// NewShared returns a store without users that has a key of somebody else, below /superpool/other/.
func NewShared(id string) *Shared {
	return &Shared{Identity: id, Users: map[string]string{}, Keys: map[string]int64{"/superpool/other/": 1}}
}

// ID returns Identity and Err.
func (s *Shared) ID(context.Context) (string, error) { return s.Identity, s.Err }

// Knows reports whether a user has a prefix.
func (s *Shared) Knows(_ context.Context, user, prefix string) (bool, error) {
	return s.Users[user] == prefix, nil
}

// Admit gives a user a prefix, with a key at least.
func (s *Shared) Admit(_ context.Context, user, prefix string) error {
	s.Users[user], s.Keys[prefix] = prefix, max(s.Keys[prefix], 1)
	return nil
}

// Expel deletes a user, and no key.
func (s *Shared) Expel(_ context.Context, user string) error {
	delete(s.Users, user)
	return nil
}

// Clear deletes so many keys below a prefix, at most, and reports whether there were none.
func (s *Shared) Clear(_ context.Context, prefix string, most int64) (bool, error) {
	if s.Keys[prefix] == 0 {
		delete(s.Keys, prefix)
		return true, nil
	}
	s.Keys[prefix] = max(0, s.Keys[prefix]-most)
	return false, nil
}

// Close counts itself.
func (s *Shared) Close() { s.Closed++ }
