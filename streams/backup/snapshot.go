package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// chunkSize of a transfer in bytes, the server's own default, far below every max_payload.
	chunkSize = 128 << 10
	// writeBuffer is the size of the buffer before the file.
	writeBuffer = 1 << 20
	// ackPrefix is the prefix of the server's ack subjects of chunks. Acks are published nowhere else, whatever the chunk's sender.
	ackPrefix = "$JS.SNAPSHOT.ACK."
	// archiveMagic begins a copy that ends where the stream ended when it was requested, as NATS sends them since 2.15;
	// archiveHead is how near the start: it follows the head of an S2 stream and of its first frame, and is not compressed,
	// since nothing came before it.
	archiveMagic = "NATSARC1"
	archiveHead  = 64
)

// ErrInterrupted is the kind of a transfer that broke; a retry may help.
var ErrInterrupted = errors.New("transfer interrupted")

// snapshot is a stream's copy in transfer.
type snapshot struct {
	name string
	info streamInfo
	sub  *nats.Subscription
}

// isArchive inspects the start of a copy: the stream's leader sends it, whatever server this program is connected to.
func isArchive(data []byte) bool {
	return bytes.Contains(data[:min(len(data), archiveHead)], []byte(archiveMagic))
}

// begin requests a copy. Chunks arrive from now on; the server waits for their acks. Call receive or drop.
func begin(ctx context.Context, js jetstream.JetStream, name string) (*snapshot, error) {
	nc := js.Conn()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, fmt.Errorf("copying stream %s: %w", name, err)
	}
	// The bytes in flight are bounded by the server's window of 8 MiB.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("copying stream %s: %w", name, err)
	}
	s := &snapshot{name: name, sub: sub}
	settings := map[string]any{"deliver_subject": sub.Subject, "no_consumers": true, "chunk_size": chunkSize}
	if err := request(ctx, js, "STREAM.SNAPSHOT."+name, settings, &s.info); err != nil {
		s.drop()
		if unanswered(err) {
			err = fmt.Errorf("%w: %w", ErrInterrupted, err)
		}
		return nil, fmt.Errorf("copying stream %s: %w", name, err)
	}
	return s, nil
}

// drop makes the server stop sending.
func (s *snapshot) drop() { _ = s.sub.Unsubscribe() }

// receive writes the copy to w until it is complete, and returns its size in bytes and SHA-256. progress is called with bytes
// of the stream itself, before compression.
func (s *snapshot) receive(ctx context.Context, w io.Writer, progress func(n int64)) (size int64, sum string, err error) {
	defer s.drop()
	digest := sha256.New()
	buf := bufio.NewWriterSize(w, writeBuffer)
	var frames frameReader
	for index := 1; ; index++ {
		msg, err := s.next(ctx)
		if err != nil {
			return 0, "", fmt.Errorf("copying stream %s: %w", s.name, err)
		}
		if status := msg.Header.Get("Status"); status >= "400" {
			return 0, "", fmt.Errorf("copying stream %s: %w: the server reported %s %s", s.name, ErrInterrupted, status, msg.Header.Get("Description"))
		}
		if len(msg.Data) == 0 {
			break // the end
		}
		if index == 1 && !isArchive(msg.Data) {
			return 0, "", fmt.Errorf("copying stream %s: the copy has no fixed end, so what is appended meanwhile may be in it; run NATS 2.15 or later", s.name)
		}
		// The last chunk, if it is not a full one, requests no ack. All others are numbered.
		if msg.Reply != "" {
			if !strings.HasPrefix(msg.Reply, ackPrefix) {
				return 0, "", fmt.Errorf("copying stream %s: %w: a chunk is to be acknowledged at %q, which is not the server's", s.name, ErrInterrupted, msg.Reply)
			}
			if at := msg.Reply[strings.LastIndexByte(msg.Reply, '.')+1:]; at != strconv.Itoa(index) {
				return 0, "", fmt.Errorf("copying stream %s: %w: chunk %s arrived where %d was expected", s.name, ErrInterrupted, at, index)
			}
			// The ack requests the next chunk; after a crash before this one is on disk there is no backup anyway.
			if err := msg.Respond(nil); err != nil {
				return 0, "", fmt.Errorf("copying stream %s: %w: %w", s.name, ErrInterrupted, err)
			}
		}
		_, _ = digest.Write(msg.Data)
		if _, err := buf.Write(msg.Data); err != nil {
			return 0, "", err // names the file
		}
		size += int64(len(msg.Data))
		progress(frames.count(msg.Data))
	}
	if size == 0 {
		return 0, "", fmt.Errorf("copying stream %s: %w: the server sent nothing", s.name, ErrInterrupted)
	}
	return size, hexSum(digest), buf.Flush()
}

func (s *snapshot) next(ctx context.Context) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, idleWait, fmt.Errorf("%w: nothing arrived for %s", ErrInterrupted, idleWait))
	defer cancel()
	msg, err := s.sub.NextMsgWithContext(ctx)
	if err == nil {
		return msg, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("%w: %w", ErrInterrupted, err)
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// frameReader counts the content of a compressed copy without decompressing it, so that progress can be reported in bytes of
// the stream, whose number is known from the start. The copy is a series of S2 frames: type, length in three bytes, and in
// data frames a checksum of four bytes before the block, which begins with its decompressed length.
type frameReader struct {
	head []byte // start of a frame, up to where its length can be read
	skip int64  // bytes left of the frame
}

// frameHead is the part of a frame that is read: its own head, the checksum, a length of at most five bytes.
const frameHead = 4 + 4 + 5

// Types of frames that hold data.
const (
	framePacked = 0x00
	framePlain  = 0x01
)

// count reads the next bytes and returns how many bytes the frames that began in them decompress to.
func (f *frameReader) count(p []byte) (n int64) {
	for len(p) > 0 {
		if f.skip > 0 {
			take := min(f.skip, int64(len(p)))
			f.skip -= take
			p = p[take:]
			continue
		}
		f.head = append(f.head, p[0])
		p = p[1:]
		if len(f.head) < 4 {
			continue
		}
		length := int64(f.head[1]) | int64(f.head[2])<<8 | int64(f.head[3])<<16
		if f.head[0] == framePacked && length >= 5 && len(f.head) < frameHead && int64(len(f.head)) < 4+length {
			continue
		}
		switch f.head[0] {
		case framePlain:
			n += max(0, length-4)
		case framePacked:
			if len(f.head) > 8 {
				unpacked, _ := binary.Uvarint(f.head[8:])
				n += int64(unpacked)
			}
		}
		f.skip = 4 + length - int64(len(f.head))
		f.head = f.head[:0]
	}
	return n
}
