package report

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"time"
)

// archive is a tar.gz of files below one folder, of at most so many bytes together before they are compressed.
type archive struct {
	folder     string
	modified   time.Time
	left       int
	compressor *gzip.Writer
	writer     *tar.Writer
}

// errNoRoom is the error of a file that would make an archive too large.
var errNoRoom = errors.New("the archive has as much as it may")

func newArchive(out io.Writer, folder string, modified time.Time, most int) *archive {
	compressor := gzip.NewWriter(out)
	return &archive{folder: folder, modified: modified, left: most, compressor: compressor, writer: tar.NewWriter(compressor)}
}

// add adds a file, or returns errNoRoom.
func (a *archive) add(name string, content []byte) error {
	if len(content) > a.left {
		return errNoRoom
	}
	a.left -= len(content)
	const readable = 0o644
	header := &tar.Header{Name: path.Join(a.folder, name), Typeflag: tar.TypeReg, Mode: readable, Size: int64(len(content)), ModTime: a.modified}
	err := a.writer.WriteHeader(header)
	if err == nil {
		_, err = a.writer.Write(content)
	}
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// close ends the archive.
func (a *archive) close() error {
	if err := errors.Join(a.writer.Close(), a.compressor.Close()); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}
