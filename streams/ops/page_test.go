package ops

import (
	"errors"
	"strconv"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// TestCursorsOfOthers: a cursor of another log, list or client is none, and is refused at after. A rotated key is the same client.
func TestCursorsOfOthers(t *testing.T) {
	c, ann := Cursors{Log: "1"}, access.Principal{ID: "a2", First: "a1"}
	own := c.Seal("keys", ann, "summer 7")
	if place, err := c.Open("keys", access.Principal{ID: "a1"}, own); err != nil || place != "summer 7" {
		t.Errorf("%q, %v", place, err)
	}
	for _, wrong := range []string{Cursors{Log: "2"}.Seal("keys", ann, "x"), c.Seal("jobs", ann, "x"), c.Seal("keys", access.Principal{ID: "b1"}, "x"), own[1:], "x", "AAAA"} {
		var no *Refusal
		if place, err := c.Open("keys", ann, wrong); !errors.As(err, &no) || no.Code != wire.Invalid || no.Field != "after" {
			t.Errorf("%s is read as %q, %v", wrong, place, err)
		}
	}
}

// TestPageOf: each entry once, in order, and no empty page at the end.
func TestPageOf(t *testing.T) {
	text := func(i *int) string { return strconv.Itoa(*i) }
	for _, limit := range []int{1, 2, 4, 5, 1000} {
		names, pages := "", 0
		for p := (Paging{Limit: limit}); ; {
			page, err := PageOf([]int{0, 1, 2, 3, 4}, p, text)
			if err != nil || len(page.Items) > limit {
				t.Fatalf("limit %d: %+v, %v", limit, page, err)
			}
			for _, i := range page.Items {
				names += strconv.Itoa(i)
			}
			pages++
			if p.After = page.Next; page.Next == "" {
				break
			}
		}
		if names != "01234" || pages != (5+limit-1)/limit {
			t.Errorf("limit %d: %s on %d pages", limit, names, pages)
		}
	}
	if page, err := PageOf([]int{1}, Paging{After: "2", Limit: 1}, text); err == nil {
		t.Errorf("after an entry that is gone: %+v", page)
	}
}
