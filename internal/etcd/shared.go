package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// Root is the user of a shared store that may do everything, by the name that etcd gives it.
const Root = "root"

// greetingTimeout is how long a member that is silent is listened to for why.
const greetingTimeout = 300 * time.Millisecond

// Why a shared store cannot be used.
var (
	// ErrOpen is the error for one that asks nobody who he is: each user would read what all others have.
	ErrOpen = errors.New("etcd knows no users")
	// ErrNotRoot is the error for one that does not take the certificate that is shown for that of Root.
	ErrNotRoot = errors.New("etcd does not take the certificate for that of user root")
	// ErrUntrusted is the error for one that shows a certificate which nobody vouches for who is trusted.
	ErrUntrusted = errors.New("etcd shows a certificate that is not trusted")
	// ErrMixed is the error for URLs that lead to more than one store.
	ErrMixed = errors.New("these are members of more than one etcd")
)

// Shared asks and changes a store that others use too, as Root. Each user has what is below a prefix, by a role of its own
// name. It is for one goroutine.
type Shared struct {
	client *clientv3.Client
	config *tls.Config
	// id is that of the store once ID has returned it: an answer of another one is an error.
	id uint64
	// cleared is up to which key Clear has come.
	cleared string
}

// DialShared returns a client of the store at URLs, of which config trusts the certificates, and to which it shows that of
// Root. It waits for nobody.
func DialShared(endpoints []string, config *tls.Config) (*Shared, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: config, Logger: zap.NewNop(), MaxUnaryRetries: 1})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return &Shared{client: client, config: config}, nil
}

// Close ends the connection.
func (s *Shared) Close() { _ = s.client.Close() } // nobody is asked any more

// ID returns by what a store is another one than those with other members, as text. It is the same when they have lost what
// they had. Of the URLs one must answer, and all that do have the same one. ErrOpen, ErrNotRoot, ErrUntrusted and ErrMixed
// say why it cannot be used.
func (s *Shared) ID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.identify(ctx); err != nil {
		return "", err
	}
	status, err := s.client.AuthStatus(ctx)
	switch {
	case err != nil:
		return "", fmt.Errorf("asking etcd for its users: %w", notRoot(err))
	case !status.Enabled:
		return "", ErrOpen
	}
	return strconv.FormatUint(s.id, 16), s.same(status.Header)
}

// identify asks all members for the ID of their store.
func (s *Shared) identify(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, listingTimeout)
	defer cancel()
	endpoints := s.client.Endpoints()
	ids, errs := make([]uint64, len(endpoints)), make([]error, len(endpoints))
	var group sync.WaitGroup
	for i, at := range endpoints {
		group.Go(func() {
			status, err := s.client.Status(asked, at)
			if err != nil {
				errs[i] = err
				return
			}
			ids[i] = status.Header.ClusterId
		})
	}
	group.Wait()
	ids = slices.Compact(slices.Sorted(slices.Values(slices.DeleteFunc(ids, func(id uint64) bool { return id == 0 }))))
	switch len(ids) {
	case 0:
		return fmt.Errorf("asking etcd who it is: %w", errors.Join(notRoot(errors.Join(errs...)), s.greet(ctx, endpoints[0])))
	case 1:
		s.id = ids[0]
		return nil
	default:
		return ErrMixed
	}
}

// notRoot returns an error as it is, and as ErrNotRoot where it is the answer to somebody who is nobody, or another
// one. Which question is answered so is not the same in all versions of etcd.
func notRoot(err error) error {
	for _, answer := range []error{rpctypes.ErrUserEmpty, rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserNotFound} {
		if errors.Is(err, answer) {
			return fmt.Errorf("%w: %w", ErrNotRoot, err)
		}
	}
	return err
}

// greet returns why a member that does not answer is not connected to, where that is for a certificate, nil else: a client
// of etcd says that it has not answered.
func (s *Shared) greet(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, greetingTimeout)
	defer cancel()
	at, err := url.Parse(endpoint)
	if err != nil {
		return nil // it has no certificate
	}
	conn, err := (&tls.Dialer{Config: s.config}).DialContext(ctx, "tcp", at.Host)
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	if err != nil {
		return nil // as above
	}
	defer conn.Close()                                        //nolint:errcheck // nothing was written
	_ = conn.SetReadDeadline(time.Now().Add(greetingTimeout)) // it is open
	_, err = conn.Read(make([]byte, 1))                       // who does not take a certificate says so behind the handshake
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "remote error" {
		return fmt.Errorf("%w: %w", ErrNotRoot, err)
	}
	return nil
}

// same returns an error for the answer of another store than ID has returned.
func (s *Shared) same(header *etcdserverpb.ResponseHeader) error {
	if header.GetClusterId() != s.id {
		return ErrMixed
	}
	return nil
}

// Knows reports whether a user is one that Admit has made, and nothing else.
func (s *Shared) Knows(ctx context.Context, user, prefix string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	role, err := s.client.RoleGet(ctx, user)
	if errors.Is(err, rpctypes.ErrRoleNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting role %s of etcd: %w", user, err)
	}
	found, err := s.client.UserGet(ctx, user)
	if errors.Is(err, rpctypes.ErrUserNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("getting user %s of etcd: %w", user, err)
	}
	return slices.Equal(found.Roles, []string{user}) && len(role.Perm) == 1 && proto.Equal(role.Perm[0], permission(prefix)), errors.Join(s.same(found.Header), s.same(role.Header))
}

// permission returns the right to read and write what is below a prefix.
func permission(prefix string) *authpb.Permission {
	return &authpb.Permission{PermType: authpb.READWRITE, Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix))}
}

// Admit lets a user, who shows a certificate with that name, read and write what is below a prefix, and nothing else.
func (s *Shared) Admit(ctx context.Context, user, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.role(ctx, user, prefix); err != nil {
		return fmt.Errorf("making role %s of etcd: %w", user, err)
	}
	if err := s.user(ctx, user); err != nil {
		return fmt.Errorf("making user %s of etcd: %w", user, err)
	}
	return nil
}

// user lets a user have the role of its name, and no other.
func (s *Shared) user(ctx context.Context, name string) error {
	found, err := s.client.UserGet(ctx, name)
	if errors.Is(err, rpctypes.ErrUserNotFound) {
		found = &clientv3.AuthUserGetResponse{}
		_, err = s.client.UserAddWithOptions(ctx, name, "", &clientv3.UserAddOptions{NoPassword: true})
	}
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it did
	}
	for _, role := range found.Roles {
		if role == name {
			continue
		}
		if _, err := s.client.UserRevokeRole(ctx, name, role); err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	if !slices.Contains(found.Roles, name) {
		_, err = s.client.UserGrantRole(ctx, name, name)
	}
	return err //nolint:wrapcheck // as above
}

// role lets a role have the right to what is below a prefix, and no other.
func (s *Shared) role(ctx context.Context, name, prefix string) error {
	wanted, has := permission(prefix), false
	found, err := s.client.RoleGet(ctx, name)
	if errors.Is(err, rpctypes.ErrRoleNotFound) {
		found = &clientv3.AuthRoleGetResponse{}
		_, err = s.client.RoleAdd(ctx, name)
	}
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it did
	}
	for _, other := range found.Perm {
		if proto.Equal(other, wanted) {
			has = true
			continue
		}
		if _, err := s.client.RoleRevokePermission(ctx, name, string(other.Key), string(other.RangeEnd)); err != nil {
			return err //nolint:wrapcheck // as above
		}
	}
	if !has {
		_, err = s.client.RoleGrantPermission(ctx, name, prefix, string(wanted.RangeEnd), clientv3.PermissionType(wanted.PermType))
	}
	return err //nolint:wrapcheck // as above
}

// Expel lets a user do nothing any more, whatever he is connected to.
func (s *Shared) Expel(ctx context.Context, user string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := s.client.UserDelete(ctx, user); err != nil && !errors.Is(err, rpctypes.ErrUserNotFound) {
		return fmt.Errorf("deleting user %s of etcd: %w", user, err)
	}
	if _, err := s.client.RoleDelete(ctx, user); err != nil && !errors.Is(err, rpctypes.ErrRoleNotFound) {
		return fmt.Errorf("deleting role %s of etcd: %w", user, err)
	}
	return nil
}

// Clear deletes so many keys below a prefix, at most, and reports whether there are none left. A request that deletes many
// holds up all others, and so does one that looks for them among those that were deleted: it goes on where it ended, and
// looks from the beginning only when it has come to the end.
func (s *Shared) Clear(ctx context.Context, prefix string, most int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	from := max(s.cleared, prefix)
	found, err := s.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithKeysOnly(), clientv3.WithLimit(most))
	if err == nil {
		err = s.same(found.Header)
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("listing keys of etcd: %w", err)
	case len(found.Kvs) == 0:
		s.cleared = ""
		return from == prefix, nil
	}
	s.cleared = string(found.Kvs[len(found.Kvs)-1].Key) + "\x00"
	if _, err := s.client.Delete(ctx, from, clientv3.WithRange(s.cleared)); err != nil {
		return false, fmt.Errorf("deleting keys of etcd: %w", err)
	}
	return false, nil
}
