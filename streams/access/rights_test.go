package access_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/registry"
)

// TestNobodyGivesMoreThanTheyHave: each cell of the table. A refused change stores and records nothing; one that is made is
// recorded once, with its author.
func TestNobodyGivesMoreThanTheyHave(t *testing.T) {
	m := access.NewMemory(t)
	s := m.Store(nil)
	server := access.Author{Principal: access.Local("server")}
	for i, c := range rights() {
		c.Key.Name = fmt.Sprint("key ", i)
		var old access.Key
		var err error
		if c.Action == "rotate" {
			if old, _, err = s.Create(t.Context(), c.Key, server); err != nil { // by credentials: any key may be made
				t.Fatal(err)
			}
		}
		before, err := s.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m.Recorded()
		var k access.Key
		var secret string
		by := access.Author{Principal: c.By, Via: "nats"}
		want := ""
		if c.Action == "rotate" {
			k, secret, err = s.Rotate(t.Context(), c.Key.Name, 0, by)
			want = fmt.Sprintf("%s nats rotate %s %s %s %s", c.By.Name, old.ID, k.ID, c.Key.Name, c.Key.Role)
		} else {
			k, secret, err = s.Create(t.Context(), c.Key, by)
			want = fmt.Sprintf("%s nats create %s %s %s", c.By.Name, k.ID, c.Key.Name, c.Key.Role)
		}
		var recorded []string
		for _, e := range m.Recorded() {
			recorded = append(recorded, strings.Join([]string{e.Actor, e.Via, e.Action, e.About}, " "))
		}
		if c.May {
			if err != nil || secret == "" || k.Codes != c.Key.Codes || !slices.Equal(recorded, []string{want}) {
				t.Errorf("%s: %+v %v, recorded %q", c, k, err, recorded)
			}
			continue
		}
		after, listed := s.List(t.Context())
		if !errors.Is(err, access.ErrForbidden) || secret != "" || listed != nil || len(after) != len(before) || len(recorded) != 0 {
			t.Errorf("%s: %v, %d keys became %d, recorded %q", c, err, len(before), len(after), recorded)
		}
		if _, err := s.Revoke(t.Context(), c.Key.Name, by); c.By.Role != access.Operator && !errors.Is(err, access.ErrForbidden) {
			t.Errorf("revoke by %s: %v", c.By.Name, err)
		}
	}
}

// TestAChangeThatIsNotRecorded is not answered, and its key can be found and revoked.
func TestAChangeThatIsNotRecorded(t *testing.T) {
	m := access.NewMemory(t)
	s := m.Store(nil)
	m.Fails(errors.New("the stream is away"))
	by := access.Author{Principal: access.Local("ann")}
	_, secret, err := s.Create(t.Context(), access.New{Name: "x", Role: access.Operator}, by)
	if !errors.Is(err, registry.ErrUnrecorded) || secret != "" {
		t.Errorf("%q %v", secret, err)
	}
	all, err := s.List(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	m.Fails(nil)
	if k, err := s.Revoke(t.Context(), all[0].ID, by); err != nil || k.Ended.IsZero() {
		t.Errorf("%+v %v", k, err)
	}
}

// TestPages: each key once, in the order of their making.
func TestPages(t *testing.T) {
	s := access.NewMemory(t).Store(nil)
	by := access.Author{Principal: access.Local("ann")}
	for i := range 5 {
		if _, _, err := s.Create(t.Context(), access.New{Name: fmt.Sprint(i), Role: access.Sender}, by); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{0, 1, 2, 4, 5, access.MostListed} {
		names, pages := "", 0
		for after := ""; ; {
			page, next, err := s.Page(t.Context(), after, limit)
			if err != nil || limit > 0 && len(page) > limit {
				t.Fatalf("limit %d: %d keys, %v", limit, len(page), err)
			}
			for _, k := range page {
				names += k.Name
			}
			pages++
			if after = next; next == "" {
				break
			}
		}
		if names != "01234" || limit > 0 && pages != (5+limit-1)/limit {
			t.Errorf("limit %d: %s on %d pages", limit, names, pages)
		}
	}
	for _, limit := range []int{-1, access.MostListed + 1} {
		if _, _, err := s.Page(t.Context(), "", limit); !errors.Is(err, access.ErrInvalid) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	if _, _, err := s.Page(t.Context(), "nobody", 1); !errors.Is(err, access.ErrInvalid) {
		t.Error(err)
	}
}
