package changelog

import "testing"

func TestNumbers(t *testing.T) {
	for _, n := range []uint64{1, 9, 10, 123456789, 12345678901} {
		if got, ok := Number(Key(n)); !ok || got != n {
			t.Errorf("%s is read as %d, %t", Key(n), got, ok)
		}
	}
	for _, bad := range []string{"", "change.", "change.0", "change.0000000000", "change.1", "change.00000000001", "change.-000000001", "skip.0000000001", "change.0000000000000000001"} {
		if n, ok := Number(bad); ok {
			t.Errorf("%q is read as %d", bad, n)
		}
	}
	var s Numbers
	if s.Next() != 1 || !s.Add(1) || s.Next() != 2 {
		t.Errorf("%+v", s)
	}
	// A number written by hand, far above the others, is passed over when the numbers arrive there.
	if s.Add(2 + MostAhead) {
		t.Error("a number too far ahead counts")
	}
	if !s.Add(1+MostAhead) || s.Next() != 3+MostAhead || !s.Add(0) || s.Last != 1+MostAhead {
		t.Errorf("%+v, next %d", s, s.Next())
	}
}
