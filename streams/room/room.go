// Package room keeps a reserve of free space on a disk, so that what is written beside the log never fills the log's disk.
//
//	backup, restore, export, rebuild ─> Fits, at the start ─> Writer, or Check now and then ─> ErrFull
//	                                         └───────── statfs of the directory ───────┘
//
// The reserve is kept on each disk that is written to: which one has the log is not known where NATS runs elsewhere.
//
// Owner: the caller. Nothing is stored, so a crash has no effect.
package room

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// The reserve is a share of the disk, with a least and a most. Of a small disk it is a larger share.
const (
	part    = 0.05
	least   = 256 << 20
	most    = 2 << 30
	ofSmall = 0.25
)

// step is how many bytes are written between two measurements.
const step = 4 << 20

// ErrFull is the kind of the error of a disk that has no more than its reserve left.
var ErrFull = errors.New("the disk is too full")

// Space is what a disk has, in bytes. Free is what a program without privileges may use of it.
type Space struct{ Free, Total uint64 }

// Reserve is what remains free of the disk.
func (s Space) Reserve() uint64 {
	total := float64(s.Total)
	return min(max(uint64(part*total), least), most, uint64(ofSmall*total))
}

// Measure measures the disk of a directory.
func Measure(dir string) (Space, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return Space{}, fmt.Errorf("measuring the disk of %s: %w", dir, err)
	}
	if fs.Blocks == 0 {
		return Space{}, fmt.Errorf("the disk of %s reports no size", dir)
	}
	return Space{Free: fs.Bavail * uint64(fs.Bsize), Total: fs.Blocks * uint64(fs.Bsize)}, nil
}

// Disk is the disk of a directory. It is safe for concurrent use. A nil *Disk has no end.
type Disk struct {
	dir     string
	measure func(dir string) (Space, error)

	mu      sync.Mutex
	written int64 // since the last measurement
}

// At returns the disk of a directory, which must exist when it is measured.
func At(dir string) *Disk { return Measured(dir, Measure) }

// Measured is At with another measurement.
func Measured(dir string, measure func(dir string) (Space, error)) *Disk {
	return &Disk{dir: dir, measure: measure, written: step}
}

// Fits returns an error if need bytes and the reserve are more than is free. A disk that cannot be measured has room.
func (d *Disk) Fits(need int64) error {
	if d == nil {
		return nil
	}
	now, err := d.measure(d.dir)
	if err != nil || now.Free >= now.Reserve()+uint64(max(need, 0)) {
		return nil
	}
	return fmt.Errorf("%w: %s has %s free, about %s are needed, and %s remain free as a reserve for the log; make room, or name a directory on another disk",
		ErrFull, d.dir, Text(now.Free), Text(uint64(max(need, 0))), Text(now.Reserve()))
}

// Take returns an error if the reserve is reached. It is called before n bytes are written, and measures now and then.
func (d *Disk) Take(n int) error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.written += int64(n); d.written < step {
		return nil
	}
	err := d.Fits(0)
	if err == nil {
		d.written = 0 // else the next call measures again
	}
	return err
}

// Writer writes to a file on the disk while there is more than the reserve.
func (d *Disk) Writer(to io.Writer) io.Writer { return &writer{d, to} }

// File writes to an open file while its disk has more than the reserve. A pipe or a device has no end.
func File(f *os.File) io.Writer {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return f
	}
	return At(filepath.Dir(f.Name())).Writer(f)
}

type writer struct {
	disk *Disk
	to   io.Writer
}

func (w *writer) Write(p []byte) (int, error) {
	if err := w.disk.Take(len(p)); err != nil {
		return 0, err
	}
	return w.to.Write(p)
}

// Text is a number of bytes for people.
func Text(bytes uint64) string {
	n, unit := float64(bytes), 0
	for n >= 1024 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	return fmt.Sprintf("%.1f %s", n, units[unit])
}

var units = []string{"B", "KiB", "MiB", "GiB", "TiB"}
