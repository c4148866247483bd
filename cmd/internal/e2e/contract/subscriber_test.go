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

// subscriber is a plain NATS subscription to scrip.evt.* and scrip.rmd.*, as anybody may have one: what it receives are readable
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

// on lists the messages received on a subject so far.
func (s *subscriber) on(subject string) (list []*nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, msg := range s.messages {
		if msg.Subject == subject {
			list = append(list, msg)
		}
	}
	return list
}

// lines returns the lines about a campaign received so far on subjects with a prefix, in order.
func (s *subscriber) lines(prefix, campaign string) (list [][]byte) {
	s.mu.Lock()
	messages := s.messages
	s.mu.Unlock()
	needle := []byte(`"` + campaign + `"`)
	for _, msg := range messages {
		if !strings.HasPrefix(msg.Subject, prefix) || !bytes.Contains(msg.Data, needle) {
			continue
		}
		for line := range bytes.Lines(msg.Data) {
			line = bytes.TrimSuffix(line, []byte("\n"))
			var about struct{ Campaign string }
			if json.Unmarshal(line, &about) == nil && about.Campaign == campaign {
				list = append(list, line)
			}
		}
	}
	return list
}

// events waits until n event lines about a campaign were received, and returns them.
func (r *rig) events(t *testing.T, campaign string, n int) (list [][]byte) {
	t.Helper()
	streamtest.Eventually(t, "the events of "+campaign, func() bool {
		list = r.subscriber.lines("scrip.evt.", campaign)
		return len(list) >= n
	})
	return list
}

// eventsOf are those of a type, once there are n.
func (r *rig) eventsOf(t *testing.T, campaign, kind string, n int) (list [][]byte) {
	t.Helper()
	streamtest.Eventually(t, kind+" of "+campaign, func() bool {
		list = nil
		for _, line := range r.subscriber.lines("scrip.evt.", campaign) {
			var event struct{ Type string }
			if json.Unmarshal(line, &event) == nil && event.Type == kind {
				list = append(list, line)
			}
		}
		return len(list) >= n
	})
	return list
}

// reminded waits until n reminder.due lines of a campaign were received.
func (r *rig) reminded(t *testing.T, campaign string, n int) (list [][]byte) {
	t.Helper()
	streamtest.Eventually(t, "fired reminders of "+campaign, func() bool {
		list = r.subscriber.lines("scrip.rmd.", campaign)
		return len(list) >= n
	})
	return list
}
