package backup

import (
	"context"
	"syscall"

	"github.com/nats-io/nats.go/jetstream"
)

// CreateHooked is Create that calls hook when a stream's copying has begun; its error is that of the copying.
func CreateHooked(ctx context.Context, js jetstream.JetStream, dir string, opts CreateOptions, hook func(stream string) error) (*Manifest, error) {
	w, err := newWorkdir(dir)
	if err != nil {
		return nil, err
	}
	return create(ctx, js, w, opts, hook)
}

// CreateFull is Create on a disk with room for so many bytes.
func CreateFull(ctx context.Context, js jetstream.JetStream, dir string, opts CreateOptions, room int) (*Manifest, error) {
	w, err := newWorkdir(dir)
	if err != nil {
		return nil, err
	}
	w.create = func(path string) (file, error) {
		f, err := createFile(path)
		return &fullFile{f, &room}, err
	}
	return create(ctx, js, w, opts, nil)
}

type fullFile struct {
	file
	room *int
}

func (f *fullFile) Write(p []byte) (int, error) {
	if *f.room -= len(p); *f.room < 0 {
		return 0, syscall.ENOSPC
	}
	return f.file.Write(p)
}

// SumOf is the SHA-256 as SHA256SUMS has it.
var SumOf = sumOf
