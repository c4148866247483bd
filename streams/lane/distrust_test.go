package lane

import (
	"errors"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/load"
)

// A snapshot that cannot be unpacked ends the term, and the next one does without a snapshot. Other panics are none of its.
func TestADamagedSnapshotIsNotUsedAgain(t *testing.T) {
	l := New(Options{Load: load.NewMeter(1)})
	damaged := &domain.DamagedError{Err: errors.New("counts")}
	term := func(v any) (err error) {
		defer l.distrust(&err)
		panic(v)
	}
	if err := term(damaged); !errors.Is(err, damaged.Err) || !l.distrusts {
		t.Errorf("%v, %t", err, l.distrusts)
	}
	defer func() {
		if v := recover(); v != "other" {
			t.Errorf("%v", v)
		}
	}()
	_ = term("other")
}
