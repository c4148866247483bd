package ops

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// One runs at a time, with a rest after it. Clients take turns, whatever one of them asks for; what waits too long is refused.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turns
		const work = 200 * time.Millisecond
		began, ended := time.Now(), map[string][]time.Duration{}
		var mu sync.Mutex // of ended
		ask := func(client string) {
			end, err := line.take(t.Context(), client)
			if err != nil {
				t.Error(client, err)
				return
			}
			time.Sleep(work)
			end()
			mu.Lock()
			defer mu.Unlock()
			ended[client] = append(ended[client], time.Since(began))
		}
		for range turnsMost {
			go ask("ann")
		}
		synctest.Wait()
		if _, err := line.take(t.Context(), "ann"); err == nil || RefusalOf(err).Code != Overloaded {
			t.Errorf("one more than a client may have: %v", err)
		}
		go ask("bob")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := ended["bob"]; len(got) != 1 || got[0] > 3*(1+turnRest)*work {
			t.Errorf("bob, beside %d of ann: %v", turnsMost, got)
		}
		if got := ended["ann"]; len(got) != turnsMost || got[turnsMost-1] < turnsMost*(1+turnRest)*work {
			t.Errorf("ann: %v", got)
		}

		end, err := line.take(t.Context(), "ann")
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		for _, client := range []string{"ann", "bob"} {
			if _, err := line.take(t.Context(), client); err == nil || RefusalOf(err).Code != Overloaded {
				t.Errorf("%s, who waits too long: %v", client, err)
			}
		}
		if waited := time.Since(before); waited != 2*turnWait {
			t.Errorf("they waited %s", waited)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := line.take(gone, "bob"); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that is gone: %v", err)
		}
		end()
		if line.wait["ann"]+line.wait["bob"] != 0 || len(line.by) != 0 {
			t.Errorf("%v %v are left", line.wait, line.by)
		}
		if end, err = line.take(t.Context(), "bob"); err != nil { // after a turn of seconds
			t.Fatal(err)
		}
		end()
		time.Sleep(time.Minute)
	})
}
