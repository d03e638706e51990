package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Snapshot writes a snapshot of the member at a URL, which dial reaches, with the sum of it that etcdutl checks, and
// returns how many bytes that were. With an error, also where the sum is not that of what came, what was written is no
// snapshot. The context bounds it.
func Snapshot(
	ctx context.Context, url string, config *tls.Config, dial func(context.Context, string) (net.Conn, error), out io.Writer,
) (written int64, err error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{url}, TLS: config, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)},
	})
	if err != nil {
		return 0, fmt.Errorf("connecting to etcd: %w", err)
	}
	defer func() { _ = client.Close() }() // nobody is asked any more
	response, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		return 0, fmt.Errorf("asking for a snapshot: %w", err)
	}
	defer func() { _ = response.Snapshot.Close() }() // as above
	s := &summed{out: out, hash: sha256.New()}
	if written, err = io.Copy(s, response.Snapshot); err != nil {
		return written, fmt.Errorf("reading the snapshot: %w", err)
	}
	return written, s.check()
}

// summed writes what it gets, of which the last bytes are the sum of those before.
type summed struct {
	out  io.Writer
	hash hash.Hash
	// last are the last bytes, as many as a sum has at most.
	last []byte
}

// Write implements io.Writer.
func (s *summed) Write(part []byte) (int, error) {
	s.last = append(s.last, part...)
	if before := len(s.last) - sha256.Size; before > 0 {
		_, _ = s.hash.Write(s.last[:before]) // it takes all
		s.last = append(s.last[:0], s.last[before:]...)
	}
	return s.out.Write(part) //nolint:wrapcheck // Snapshot says what it did
}

// check returns an error unless the sum is right.
func (s *summed) check() error {
	if !bytes.Equal(s.last, s.hash.Sum(nil)) {
		return errors.New("the snapshot does not have the sum that came with it: it was cut off, or changed on its way")
	}
	return nil
}
