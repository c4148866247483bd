package contract

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// subscriber is a plain NATS subscription to scrip.evt.* and scrip.rmd.*, as any client may have one: what it receives are readable
// lines. It receives everything from before the first command on.
type subscriber struct {
	mu       sync.Mutex
	messages []*nats.Msg
}

func listen(nc *nats.Conn) (*subscriber, error) {
	s := &subscriber{}
	for _, subject := range []string{"scrip.evt.*", "scrip.rmd.*"} {
		if _, err := nc.Subscribe(subject, s.receive); err != nil {
			return nil, err
		}
	}
	return s, nc.Flush()
}

func (s *subscriber) receive(msg *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, msg)
}

// lines returns the lines about a campaign received so far on subjects with a prefix, in order, of a type if that is not "".
func (s *subscriber) lines(prefix, campaign, kind string) (list [][]byte) {
	s.mu.Lock()
	messages := s.messages
	s.mu.Unlock()
	for _, msg := range messages {
		if !strings.HasPrefix(msg.Subject, prefix) || !bytes.Contains(msg.Data, []byte(`"`+campaign+`"`)) {
			continue
		}
		for line := range bytes.Lines(msg.Data) {
			var about struct{ Campaign, Type string }
			if json.Unmarshal(line, &about) == nil && about.Campaign == campaign && (kind == "" || about.Type == kind) {
				list = append(list, bytes.TrimSuffix(line, []byte("\n")))
			}
		}
	}
	return list
}

// events waits until n event lines about a campaign, of a type if that is not "", were received, and returns them.
func (r *rig) events(t *testing.T, campaign, kind string, n int) (list [][]byte) {
	t.Helper()
	streamtest.Eventually(t, kind+" events of "+campaign, func() bool {
		list = r.subscriber.lines("scrip.evt.", campaign, kind)
		return len(list) >= n
	})
	return list
}
