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
			end, err := line.take(t.Context(), client, &searchTurn)
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
		for range searchTurn.most {
			go ask("ann")
		}
		synctest.Wait()
		if _, err := line.take(t.Context(), "ann", &searchTurn); err == nil || RefusalOf(err).Code != Overloaded {
			t.Errorf("one more than a client may have: %v", err)
		}
		go ask("bob")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := ended["bob"]; len(got) != 1 || got[0] > 3*(1+searchTurn.rest)*work {
			t.Errorf("bob, beside %d of ann: %v", searchTurn.most, got)
		}
		if got := ended["ann"]; len(got) != searchTurn.most || got[searchTurn.most-1] < time.Duration(searchTurn.most)*(1+searchTurn.rest)*work {
			t.Errorf("ann: %v", got)
		}

		end, err := line.take(t.Context(), "ann", &searchTurn)
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		for _, client := range []string{"ann", "bob"} {
			if _, err := line.take(t.Context(), client, &searchTurn); err == nil || RefusalOf(err).Code != Overloaded {
				t.Errorf("%s, who waits too long: %v", client, err)
			}
		}
		if waited := time.Since(before); waited != 2*searchTurn.wait {
			t.Errorf("they waited %s", waited)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := line.take(gone, "bob", &searchTurn); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that is gone: %v", err)
		}
		end()
		if line.wait["ann"]+line.wait["bob"] != 0 || len(line.by) != 0 {
			t.Errorf("%v %v are left", line.wait, line.by)
		}
		if end, err = line.take(t.Context(), "bob", &searchTurn); err != nil { // after a turn of seconds
			t.Fatal(err)
		}
		end()
		time.Sleep(time.Minute)
	})
}

// Lists without an index: two run at a time, one of a client, which has another one that waits. Who has the server for itself waits for
// half of the rests.
func TestTurnsOfLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turns
		take := func(client string) (end func(), waited time.Duration) {
			began := time.Now()
			end, err := line.take(t.Context(), client, &listTurn)
			if err != nil && RefusalOf(err).Code != Overloaded {
				t.Error(err)
			}
			return end, time.Since(began)
		}
		for n := range 5 {
			end, waited := take("ann")
			if most := min(time.Duration(n/2), 1) * time.Second; waited > most {
				t.Errorf("ann, alone, waits %s for page %d", waited, n)
			}
			time.Sleep(time.Second)
			end()
		}
		time.Sleep(listTurn.mostRest)
		first, _ := take("ann")
		second, waited := take("bob")
		if second == nil || waited > 0 {
			t.Errorf("bob, beside ann, waits %s", waited)
		}
		if end, waited := take("cid"); end != nil || waited != listTurn.wait {
			t.Errorf("cid, beside two, has a turn %v, after %s", end != nil, waited)
		}
		second()
		ended := make(chan time.Duration)
		go func() {
			end, waited := take("ann")
			end()
			ended <- waited
		}()
		synctest.Wait()
		if end, waited := take("ann"); end != nil || waited > 0 {
			t.Errorf("a third one of ann has a turn %v, after %s", end != nil, waited)
		}
		time.Sleep(listTurn.wait / 2)
		first()
		if waited := <-ended; waited != listTurn.mostRest {
			t.Errorf("the second one of ann waits %s", waited)
		}
		time.Sleep(time.Minute)
		if len(line.line)+len(line.by)+len(line.wait) != 0 {
			t.Errorf("%d in the line, %v, %v are left", len(line.line), line.by, line.wait)
		}
	})
}
