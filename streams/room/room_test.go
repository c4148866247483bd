package room

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestReserve: a share, within bounds.
func TestReserve(t *testing.T) {
	for total, want := range map[uint64]uint64{0: 0, 400 << 20: 100 << 20, 1 << 30: least, 20 << 30: 1 << 30, 1 << 40: most} {
		if have := (Space{Total: total}).Reserve(); have != want {
			t.Errorf("of %s: %s, want %s", Text(total), Text(have), Text(want))
		}
	}
	if s, err := Measure(t.TempDir()); err != nil || s.Total == 0 {
		t.Errorf("this disk: %+v, %v", s, err)
	}
}

// TestWriterStopsAtTheReserve: others fill the disk, too. It goes on when there is room again.
func TestWriterStopsAtTheReserve(t *testing.T) {
	free := uint64(least + 100)
	d := Measured("/d", func(string) (Space, error) { return Space{Free: free, Total: 1 << 30}, nil })
	for need, want := range map[int64]error{0: nil, 100: nil, 101: ErrFull} {
		if err := d.Fits(need); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v", need, err)
		}
	}
	var to strings.Builder
	w := d.Writer(&to)
	write := func(n int) error { _, err := w.Write(make([]byte, n)); return err }
	if err := write(1); err != nil {
		t.Errorf("the first write: %v", err)
	}
	free = least - 1
	if err := write(step - 1); err != nil {
		t.Errorf("before the next measurement: %v", err)
	}
	for range 2 {
		if err := write(1); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "/d has 256.0 MiB free") {
			t.Errorf("on a full disk: %v", err)
		}
	}
	if free = least; write(1) != nil || to.Len() != step+1 {
		t.Errorf("on a disk with room again: %d bytes", to.Len())
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, ok := File(null).(*writer); ok {
		t.Error("a device has a reserve")
	}
	unknown := Measured("/d", func(string) (Space, error) { return Space{}, errors.New("no such disk") })
	if err := errors.Join(unknown.Fits(1<<40), unknown.Take(step), (*Disk)(nil).Take(step)); err != nil {
		t.Errorf("a disk that cannot be measured: %v", err)
	}
}
