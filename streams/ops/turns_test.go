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

// Lists without an index: three run at a time, two of a client, which are all that it may have; the next one waits for a second.
func TestTurnsOfLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turns
		take := func(client string) (end func(), why string) {
			end, err := line.take(t.Context(), client, &listTurn)
			if err == nil {
				return end, ""
			}
			if RefusalOf(err).Code != Overloaded {
				t.Error(err)
			}
			return nil, err.Error()
		}
		first, _ := take("ann")
		second, _ := take("ann")
		began := time.Now()
		if _, why := take("ann"); why == "" || time.Since(began) > 0 {
			t.Errorf("a third one of ann: %q after %s", why, time.Since(began))
		}
		third, _ := take("bob")
		if _, why := take("cid"); why == "" || time.Since(began) != listTurn.wait {
			t.Errorf("a fourth one: %q after %s", why, time.Since(began))
		}
		time.AfterFunc(listTurn.wait/2, first)
		fourth, why := take("cid")
		if why != "" {
			t.Fatal(why)
		}
		for _, end := range []func(){second, third, fourth} {
			end()
		}
		synctest.Wait()
		if len(line.line)+len(line.by)+len(line.wait) != 0 {
			t.Errorf("%d in the line, %v, %v are left", len(line.line), line.by, line.wait)
		}
	})
}
