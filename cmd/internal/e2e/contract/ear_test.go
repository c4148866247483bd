package contract

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

// ear is a plain NATS subscription to scrip.evt.* and scrip.rmd.*, as anybody may have one: what it hears are readable
// lines. It hears everything from before the first command on.
type ear struct {
	mu       sync.Mutex
	messages []*nats.Msg
}

func listen(nc *nats.Conn) (*ear, error) {
	e := &ear{}
	for _, subject := range []string{"scrip.evt.*", "scrip.rmd.*"} {
		if _, err := nc.Subscribe(subject, e.hear); err != nil {
			return nil, err
		}
	}
	return e, nc.Flush()
}

func (e *ear) hear(msg *nats.Msg) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.messages = append(e.messages, msg)
}

// on lists the messages heard on a subject so far.
func (e *ear) on(subject string) (list []*nats.Msg) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, msg := range e.messages {
		if msg.Subject == subject {
			list = append(list, msg)
		}
	}
	return list
}

// told lists the lines about a campaign heard so far on subjects with a prefix, in order.
func (e *ear) told(prefix, campaign string) (list [][]byte) {
	e.mu.Lock()
	messages := e.messages
	e.mu.Unlock()
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

// events waits until n event lines about a campaign were heard, and returns them.
func (r *rig) events(t *testing.T, campaign string, n int) (list [][]byte) {
	t.Helper()
	eventually(t, "the events of "+campaign, func() bool {
		list = r.ear.told("scrip.evt.", campaign)
		return len(list) >= n
	})
	return list
}

// eventsOf are those of a type, once there are n.
func (r *rig) eventsOf(t *testing.T, campaign, kind string, n int) (list [][]byte) {
	t.Helper()
	eventually(t, kind+" of "+campaign, func() bool {
		list = nil
		for _, line := range r.ear.told("scrip.evt.", campaign) {
			var event struct{ Type string }
			if json.Unmarshal(line, &event) == nil && event.Type == kind {
				list = append(list, line)
			}
		}
		return len(list) >= n
	})
	return list
}

// reminded waits until n reminder.due lines of a campaign were heard.
func (r *rig) reminded(t *testing.T, campaign string, n int) (list [][]byte) {
	t.Helper()
	eventually(t, "fired reminders of "+campaign, func() bool {
		list = r.ear.told("scrip.rmd.", campaign)
		return len(list) >= n
	})
	return list
}
