package ops

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// numbers is a list of which each part of so many rows takes a time, and has those that can be divided by a number.
type numbers struct {
	last, each, of int
	takes          time.Duration
	parts          int
}

func (n *numbers) part(_ context.Context, p Paging) (page Page[int], err error) {
	n.parts++
	time.Sleep(n.takes)
	at, _ := strconv.Atoi(p.After)
	for end := at + n.each; at < end && at < n.last && len(page.Items) < p.Limit; {
		if at++; at%n.of == 0 {
			page.Items = append(page.Items, at)
		}
	}
	if at < n.last {
		page.Next, page.Looked = strconv.Itoa(at), strconv.Itoa(at)
	}
	return page, nil
}

// costly is a part that no index serves.
func (n *numbers) costly(ctx context.Context, p Paging) (page Page[int], err error) {
	if err := Turn(ctx); err != nil {
		return page, err
	}
	return n.part(ctx, p)
}

// TestPagesByTime: a page ends when it is full, when the list ends, or after a second, at least one part on; what pages have together is
// the list. Only a page that the time ended has how far it looked.
func TestPagesByTime(t *testing.T) {
	for name, c := range map[string]struct {
		list  numbers
		limit int
		pages string
	}{
		"full":          {numbers{last: 100, each: 10, of: 1, takes: time.Millisecond}, 60, "60 of 6 parts, 40 of 4 parts"},
		"sparse":        {numbers{last: 100, each: 10, of: 50, takes: 300 * time.Millisecond}, 9, "0 of 4 parts to 40, 1 of 4 parts to 80, 1 of 2 parts"},
		"slow":          {numbers{last: 30, each: 10, of: 10, takes: time.Minute}, 9, "1 of 1 parts to 10, 1 of 1 parts to 20, 1 of 1 parts"},
		"empty":         {numbers{each: 10, of: 1}, 9, "0 of 1 parts"},
		"exactly full":  {numbers{last: 20, each: 20, of: 10, takes: time.Minute}, 2, "2 of 1 parts"},
		"full and slow": {numbers{last: 30, each: 20, of: 10, takes: time.Minute}, 2, "2 of 1 parts, 1 of 1 parts"},
	} {
		synctest.Test(t, func(t *testing.T) {
			o, pages, sum := &Ops{}, "", 0
			for p := (Paging{Limit: c.limit}); ; {
				c.list.parts = 0
				page, err := list(t.Context(), o, ann, p, c.list.costly)
				if err != nil || len(page.Items) > c.limit {
					t.Fatalf("%s: %+v, %v", name, page, err)
				}
				if pages != "" {
					pages += ", "
				}
				pages += fmt.Sprintf("%d of %d parts", len(page.Items), c.list.parts)
				if page.Looked != "" {
					pages += " to " + page.Looked
				}
				sum += len(page.Items)
				if p.After = page.Next; p.After == "" {
					break
				}
			}
			if pages != c.pages || sum != c.list.last/max(1, c.list.of) {
				t.Errorf("%s: %s with %d, want %s", name, pages, sum, c.pages)
			}
			time.Sleep(time.Minute) // timers end
		})
	}
}

// TestWhatAPartCosts: a part that calls Turn is not read without a turn. One that an index serves is, if it is the first
// one. After a part an error ends the page, which goes on where it was.
func TestWhatAPartCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &Ops{}
		for range listTurn.each {
			if _, err := o.lists.take(t.Context(), ann.Client(), &listTurn); err != nil {
				t.Fatal(err)
			}
		}
		few := numbers{last: 100, each: 10, of: 10}
		var no *Refusal
		if page, err := list(t.Context(), o, ann, Paging{Limit: 9}, few.costly); !errors.As(err, &no) || no.Code != Overloaded || few.parts > 0 {
			t.Errorf("without a turn: %+v, %v", page, err)
		}
		if page, err := list(t.Context(), o, ann, Paging{Limit: 9}, few.part); err != nil || len(page.Items) != 1 || page.Next != "10" || page.Looked != "10" {
			t.Errorf("of an index, without a turn: %+v, %v", page, err)
		}
		bob := ann
		bob.ID = "bob"
		away := errors.New("away")
		page, err := list(t.Context(), o, bob, Paging{Limit: 9}, func(ctx context.Context, p Paging) (Page[int], error) {
			if p.After == "30" {
				return Page[int]{}, away
			}
			return few.part(ctx, p)
		})
		if err != nil || page.Next != "30" {
			t.Errorf("until an error: %+v, %v", page, err)
		}
		if page, err := list(t.Context(), o, bob, Paging{Limit: 9, After: "30"}, func(context.Context, Paging) (Page[int], error) { return Page[int]{}, away }); !errors.Is(err, away) {
			t.Errorf("from an error on: %+v, %v", page, err)
		}
		time.Sleep(time.Second)
	})
}
