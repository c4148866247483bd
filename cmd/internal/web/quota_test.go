package web

import "testing"

// A client that holds all it may leaves the rest to others; what is refused is counted by the limit that was reached.
func TestQuota(t *testing.T) {
	q := NewQuota[string]("exports", "key", 4, 2)
	for i, c := range []struct {
		client string
		exempt bool
		over   string
	}{{"slow", false, ""}, {"slow", false, ""}, {"slow", false, "exports_per_key"}, {"", true, ""}, {"", true, ""}, {"", true, "exports"}, {"other", false, "exports"}} {
		over := q.Take(c.client, c.exempt)
		if (over == nil) != (c.over == "") || over != nil && over.What != c.over {
			t.Errorf("%d: %+v, want %q", i, over, c.over)
		}
	}
	q.Release("slow")
	if over := q.Take("other", false); over != nil {
		t.Errorf("what was released is not free: %+v", over)
	}
	if l := q.Limits(); l[0].Used != 4 || l[0].Refused != 2 || l[1].Used != 2 || l[1].Refused != 1 {
		t.Errorf("%+v", l)
	}
}
