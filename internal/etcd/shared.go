package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Root is the user of a shared store that may do everything, by the name that etcd gives it.
const Root = "root"

// ErrOpen is the error for a store that asks nobody who he is: each user would read what all others have.
var ErrOpen = errors.New("etcd knows no users")

// ErrNotRoot is the error for a store in which the certificate that was shown is not that of Root.
var ErrNotRoot = errors.New("etcd does not take the certificate for that of user root")

// Shared asks and changes a store that others use too, as Root. Each user has what is below a prefix, by a role of its own
// name. It is for one goroutine.
type Shared struct{ client *clientv3.Client }

// DialShared returns a client of the store at URLs, of which config trusts the certificates, and to which it shows that of
// Root. It waits for nobody.
func DialShared(endpoints []string, config *tls.Config) (*Shared, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: config, Logger: zap.NewNop(), MaxUnaryRetries: 1})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}
	return &Shared{client: client}, nil
}

// Close ends the connection.
func (s *Shared) Close() { _ = s.client.Close() } // nobody is asked any more

// ID returns by what a store is another one than all others, as text. ErrOpen and ErrNotRoot say why it cannot be used.
func (s *Shared) ID(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	status, err := s.client.AuthStatus(ctx)
	switch {
	case errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserNotFound):
		return "", fmt.Errorf("%w: %w", ErrNotRoot, err)
	case err != nil:
		return "", fmt.Errorf("asking etcd for its users: %w", err)
	case !status.Enabled:
		return "", ErrOpen
	}
	return strconv.FormatUint(status.Header.ClusterId, 16), nil
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
	wanted := authpb.Permission{PermType: authpb.READWRITE, Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix))}
	found, err := s.client.RoleGet(ctx, name)
	if errors.Is(err, rpctypes.ErrRoleNotFound) {
		found = &clientv3.AuthRoleGetResponse{}
		_, err = s.client.RoleAdd(ctx, name)
	}
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it did
	}
	has := false
	for _, permission := range found.Perm {
		if string(permission.Key) == string(wanted.Key) && string(permission.RangeEnd) == string(wanted.RangeEnd) && permission.PermType == wanted.PermType {
			has = true
			continue
		}
		if _, err := s.client.RoleRevokePermission(ctx, name, string(permission.Key), string(permission.RangeEnd)); err != nil {
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
// holds up all others.
func (s *Shared) Clear(ctx context.Context, prefix string, most int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	end := clientv3.GetPrefixRangeEnd(prefix)
	found, err := s.client.Get(ctx, prefix, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(most))
	if err != nil {
		return false, fmt.Errorf("listing keys of etcd: %w", err)
	}
	if len(found.Kvs) == 0 {
		return true, nil
	}
	last := string(found.Kvs[len(found.Kvs)-1].Key) + "\x00"
	if _, err := s.client.Delete(ctx, prefix, clientv3.WithRange(last)); err != nil {
		return false, fmt.Errorf("deleting keys of etcd: %w", err)
	}
	return false, nil
}
