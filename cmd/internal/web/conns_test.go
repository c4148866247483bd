package web

import (
	"testing"
	"testing/synctest"
	"time"
)

// Connections beyond the limit are closed; when one ends, by its client or for being idle, another is accepted.
func TestConnectionsAreLimited(t *testing.T) {
	inMemory(t, 2, bodies(1000), func(t *testing.T, net *pipes) {
		ask := func() (served bool, hangUp func()) {
			c := net.dial()
			got := talk(c, func() {}, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			return got != nil && got.StatusCode == 200, func() { _ = c.Close(); synctest.Wait() }
		}
		first, _ := ask()
		second, hangUp := ask()
		if third, _ := ask(); !first || !second || third {
			t.Fatalf("of three connections where two may be open are served: %v, %v, %v", first, second, third)
		}
		hangUp()
		if served, _ := ask(); !served {
			t.Error("there is no room although one was closed")
		}
		if served, _ := ask(); served {
			t.Error("one more is served")
		}
		time.Sleep(IdleWait + time.Second)
		if served, _ := ask(); !served {
			t.Error("connections without requests are not closed")
		}
	})
}

// Connections leave most of the files that the process may open to JetStream.
func TestConnsLeaveFiles(t *testing.T) {
	if n := Conns(); n < 1 || n > MaxConns {
		t.Errorf("%d connections", n)
	}
}
