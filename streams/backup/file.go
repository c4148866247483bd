package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// The most bytes that small files can have. A log has at most topology.MaxLanes lanes of three streams.
const (
	mostSums     = 1 << 20
	mostManifest = 4 << 20
	mostInfo     = 16 << 20 // with the holes of a stream
	mostKey      = 1 << 10  // also for a seal
)

// openRegular opens a file of a directory that others may write to. A link, a FIFO, a device or a socket is refused: it could
// block, or have no end. It is checked on the open file, so it cannot be exchanged in between.
func openRegular(dir, name string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, err
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENXIO):
		return nil, nil, damaged("%s is no regular file", name)
	case err != nil:
		return nil, nil, fmt.Errorf("reading the backup: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = damaged("%s is no regular file", name)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// source reads a file of a backup. It looks at the context each time, so that a signal ends a restore.
type source struct {
	ctx    context.Context
	file   *os.File
	digest hash.Hash
	read   func(n int)
	failed error // of the file or the context, in contrast to its content
}

// open opens one of the backup's files, which must be of that size, or of at most most bytes where size is negative. read is
// called with the number of bytes of each read.
func (b *Backup) open(ctx context.Context, name string, size, most int64, read func(n int)) (*source, error) {
	f, info, err := openRegular(b.dir, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, damaged("%s is missing", name)
	case err != nil:
		return nil, err
	case size >= 0 && info.Size() != size:
		err = damaged("%s has %d bytes, %s lists %d", name, info.Size(), manifestFile, size)
	case size < 0 && info.Size() > most:
		err = damaged("%s has %d bytes, and can have %d", name, info.Size(), most)
	default:
		return &source{ctx: ctx, file: f, digest: sha256.New(), read: read}, nil
	}
	return nil, errors.Join(err, f.Close())
}

func (s *source) Read(p []byte) (int, error) {
	if s.ctx.Err() != nil {
		s.failed = context.Cause(s.ctx)
		return 0, s.failed
	}
	n, err := s.file.Read(p)
	_, _ = s.digest.Write(p[:n])
	s.read(n)
	if err != nil && err != io.EOF {
		s.failed = fmt.Errorf("reading the backup: %w", err)
		return n, s.failed
	}
	return n, err
}

func (s *source) Close() error { return s.file.Close() }

// small reads a small file completely, and no more than most bytes. sums = it must have its checksum.
func (b *Backup) small(ctx context.Context, name string, most int64, sums bool) ([]byte, error) {
	s, err := b.open(ctx, name, -1, most, func(int) {})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	data, err := io.ReadAll(io.LimitReader(s, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > most:
		return nil, damaged("%s can have %d bytes, and has more", name, most)
	case sums && hexSum(s.digest) != b.sums[name]:
		return nil, b.mismatch(name)
	}
	return data, nil
}

// content is the text of an encrypted file. Its end is reported only if the file has its checksum.
type content struct {
	*source
	text io.Reader
	b    *Backup
	name string
}

// decrypted opens an encrypted file; see open.
func (b *Backup) decrypted(ctx context.Context, name string, size, most int64, read func(n int)) (*content, error) {
	s, err := b.open(ctx, name, size, most, read)
	if err != nil {
		return nil, err
	}
	c := &content{source: s, b: b, name: name}
	if c.text, err = decrypt(s, b.box, name); err != nil {
		return nil, errors.Join(c.because(err), s.Close())
	}
	return c, nil
}

func (c *content) Read(p []byte) (int, error) {
	n, err := c.text.Read(p)
	if err == io.EOF && hexSum(c.digest) != c.b.sums[c.name] {
		return n, c.b.mismatch(c.name)
	}
	return n, c.because(err)
}

// because returns what made reading fail: the file's or the context's error, else damage.
func (c *content) because(err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case c.failed != nil:
		return c.failed
	}
	return damaged("%s: %w", c.name, err)
}
