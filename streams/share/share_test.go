package share

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestAClientWaitsForItsShare: others go on, what is owed counts, and room comes back with time.
func TestAClientWaitsForItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1000, 1000*time.Second, nil)
		take := func(client string, bytes int, want time.Duration) {
			t.Helper()
			if wait := s.Take(client, bytes); wait != want {
				t.Errorf("%s takes %d bytes: wait %s, want %s", client, bytes, wait, want)
			}
		}
		take("a", 600, 0)
		take("a", 600, 200*time.Second)
		take("b", 600, 0)
		time.Sleep(200 * time.Second)
		take("a", 600, 0)
		s.Owe("a", 500)
		take("a", 1, 501*time.Second)
		take("b", 400, 0)
		s.GiveBack("b", 400)
		take("b", 400, 0)
		take("", 1<<30, 0)
		take("c", 1<<30, 0) // more than a share is a whole one
		if bytes, used, refused := s.Used(); bytes != 1000 || used != 1500 || refused != 2 {
			t.Errorf("%d of %d are used, %d refused", used, bytes, refused)
		}
		for i := range 2 * mostClients {
			s.Take(fmt.Sprint("client ", i), 1)
		}
		if len(s.by) > mostClients {
			t.Errorf("%d clients are counted", len(s.by))
		}
		if (*Share)(nil).Take("a", 1) != 0 {
			t.Error("no share has a bound")
		}
	})
}
