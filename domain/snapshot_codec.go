package domain

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// snapshotWriter appends to buf and hands it on from time to time.
type snapshotWriter struct {
	w    io.Writer
	buf  []byte
	body *snapshotWriter // of campaigns' bodies, made when it is needed
}

// fullBuffer is when, in bytes.
const fullBuffer = 64 << 10

func (w *snapshotWriter) u32(v uint32)           { w.buf = binary.LittleEndian.AppendUint32(w.buf, v) }
func (w *snapshotWriter) u64(v uint64)           { w.buf = binary.LittleEndian.AppendUint64(w.buf, v) }
func (w *snapshotWriter) instant(i wire.Instant) { w.u64(uint64(i)) }

// text writes a string of at most 65,535 bytes.
func (w *snapshotWriter) text(s string) {
	w.buf = append(binary.LittleEndian.AppendUint16(w.buf, uint16(len(s))), s...)
}

// flushFull hands on what has come together, if it is much.
func (w *snapshotWriter) flushFull() error {
	if len(w.buf) < fullBuffer {
		return nil
	}
	return w.flush()
}

func (w *snapshotWriter) flush() error {
	_, err := w.w.Write(w.buf)
	w.buf = w.buf[:0]
	return err
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// checkSum finds what is damaged or cut off: a CRC-32C and the number of bytes. It is no seal, and cheap: who stores a snapshot
// has a hash of it already.
type checkSum struct {
	crc hash.Hash32
	n   uint64
}

const checkSumSize = 4 + 8

func newCheckSum() *checkSum { return &checkSum{crc: crc32.New(crc32.MakeTable(crc32.Castagnoli))} }

func (s *checkSum) Write(p []byte) (int, error) {
	s.n += uint64(len(p))
	return s.crc.Write(p)
}

func (s *checkSum) bytes() []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, s.crc.Sum32()), s.n)
}

// snapshotReader reads and checks; after the first problem everything it returns is zero.
type snapshotReader struct {
	from io.Reader
	sum  *checkSum // of all before at; nil = it was checked before
	buf  []byte    // read are at to end
	at   int
	end  int
	err  error

	spare   []byte // buffer of small bodies
	packAll bool
}

// readBuffer is the size of the buffer in bytes: more than is ever taken at once.
const readBuffer = 128 << 10

func (r *snapshotReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("it is damaged: "+format, args...)
	}
}

// take returns the next n bytes, valid until the next call; zeroes after a problem.
func (r *snapshotReader) take(n int) []byte {
	if r.err != nil || r.end-r.at < n && !r.fill(n) {
		clear(r.buf[:n])
		return r.buf[:n]
	}
	r.at += n
	return r.buf[r.at-n : r.at]
}

// fill reads until n bytes are there, and sums up those before them.
func (r *snapshotReader) fill(n int) bool {
	if r.sum != nil {
		r.sum.Write(r.buf[:r.at])
	}
	r.end = copy(r.buf, r.buf[r.at:r.end])
	r.at = 0
	got, err := io.ReadAtLeast(r.from, r.buf[r.end:], n-r.end)
	r.end += got
	switch err {
	case nil:
		return true
	case io.EOF, io.ErrUnexpectedEOF:
		r.fail("it ends too early")
	default:
		r.err = err
	}
	return false
}

func (r *snapshotReader) u8() byte              { return r.take(1)[0] }
func (r *snapshotReader) u32() uint32           { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *snapshotReader) u64() uint64           { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *snapshotReader) instant() wire.Instant { return wire.Instant(r.u64()) }

// text reads a string of at most the given size in bytes.
func (r *snapshotReader) text(most int) string { return string(r.textBytes(most)) }

// pooled reads a string that many campaigns have.
func (r *snapshotReader) pooled(p *settingsPool, most int) string {
	return p.text(wire.View(r.textBytes(most)))
}

func (r *snapshotReader) textBytes(most int) []byte {
	n := int(binary.LittleEndian.Uint16(r.take(2)))
	if n > most {
		r.fail("a text of %d bytes where at most %d are allowed", n, most)
		return nil
	}
	s := r.take(n)
	if !utf8.Valid(s) {
		r.fail("a text is not UTF-8")
	}
	return s
}

// uvarint reads a number of variable length; zero after a problem.
func (r *snapshotReader) uvarint() uint64 {
	// There are always so many bytes: the checksum at the end is longer.
	if r.err != nil || r.end-r.at < binary.MaxVarintLen64 && !r.fill(binary.MaxVarintLen64) {
		return 0
	}
	v, n := binary.Uvarint(r.buf[r.at:r.end])
	if n <= 0 {
		r.fail("a number is too long")
		return 0
	}
	r.at += n
	return v
}

func (r *snapshotReader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}
