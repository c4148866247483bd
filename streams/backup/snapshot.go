package backup

import (
	"bytes"
	"context"
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
	// ackPrefix is the prefix of the server's ack subjects of chunks. Acks are published nowhere else, whatever the chunk's sender.
	ackPrefix = "$JS.SNAPSHOT.ACK."
	// archiveMagic starts a copy that ends where the stream ended when it was requested, as NATS sends them since 2.15;
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

// start requests a copy. Chunks arrive from now on; the server waits for their acks when as many bytes as the window are in
// flight, 0 = its default of 8 MiB. Call receive or drop.
func start(ctx context.Context, js jetstream.JetStream, name string, window int) (*snapshot, error) {
	nc := js.Conn()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, fmt.Errorf("copying stream %s: %w", name, err)
	}
	// The window bounds the bytes in flight.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("copying stream %s: %w", name, err)
	}
	s := &snapshot{name: name, sub: sub}
	settings := map[string]any{"deliver_subject": sub.Subject, "no_consumers": true, "chunk_size": chunkSize}
	if window > 0 {
		settings["chunk_size"], settings["window_size"] = min(chunkSize, window), window
	}
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

// receive writes the copy to w until it is complete, and returns its size in bytes. progress is called with the bytes of each
// chunk.
func (s *snapshot) receive(ctx context.Context, w io.Writer, progress func(n int64)) (size int64, err error) {
	defer s.drop()
	for index := 1; ; index++ {
		msg, err := s.next(ctx)
		if err != nil {
			return 0, fmt.Errorf("copying stream %s: %w", s.name, err)
		}
		if status := msg.Header.Get("Status"); status >= "400" {
			return 0, fmt.Errorf("copying stream %s: %w: the server reported %s %s", s.name, ErrInterrupted, status, msg.Header.Get("Description"))
		}
		if len(msg.Data) == 0 {
			break // the end
		}
		if index == 1 && !isArchive(msg.Data) {
			return 0, fmt.Errorf("copying stream %s: the copy has no fixed end, so what is appended meanwhile may be in it; run NATS 2.15 or later", s.name)
		}
		// The last chunk, if it is not a full one, requests no ack. All others are numbered.
		if msg.Reply != "" {
			if !strings.HasPrefix(msg.Reply, ackPrefix) {
				return 0, fmt.Errorf("copying stream %s: %w: a chunk is to be acknowledged at %q, which is not the server's", s.name, ErrInterrupted, msg.Reply)
			}
			if at := msg.Reply[strings.LastIndexByte(msg.Reply, '.')+1:]; at != strconv.Itoa(index) {
				return 0, fmt.Errorf("copying stream %s: %w: chunk %s arrived where %d was expected", s.name, ErrInterrupted, at, index)
			}
			// The ack requests the next chunk; after a crash before this one is on disk there is no backup anyway.
			if err := msg.Respond(nil); err != nil {
				return 0, fmt.Errorf("copying stream %s: %w: %w", s.name, ErrInterrupted, err)
			}
		}
		if _, err := w.Write(msg.Data); err != nil {
			return 0, err // names the file
		}
		size += int64(len(msg.Data))
		progress(int64(len(msg.Data)))
	}
	if size == 0 {
		return 0, fmt.Errorf("copying stream %s: %w: the server sent nothing", s.name, ErrInterrupted)
	}
	return size, nil
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
