package domain

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/table"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/domain/worldtest"
)

func snapshot(t testing.TB, l *Lane) []byte {
	t.Helper()
	return written(t, l.Freeze())
}

func written(t testing.TB, f *Frozen) []byte {
	t.Helper()
	var buf bytes.Buffer
	n, err := f.WriteTo(&buf)
	if err != nil || n != int64(buf.Len()) {
		t.Fatalf("WriteTo = %d, %v; wrote %d bytes", n, err, buf.Len())
	}
	return buf.Bytes()
}

func readLane(t testing.TB, raw []byte) *Lane {
	t.Helper()
	l, err := ReadLane(LaneOptions{Lane: 0, Lanes: 1, Key: testKey}, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLaneReadFromASnapshotGoesOnAsTheOriginal(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rapidChooser(rt))
		l := testLane()
		w.run(l, rapid.IntRange(0, 120).Draw(rt, "commands before"))
		raw := snapshot(t, l)
		read, err := ReadLane(LaneOptions{Lanes: 1, Key: testKey, packAll: rapid.Bool().Draw(rt, "packed")}, bytes.NewReader(raw))
		if err != nil {
			rt.Fatal(err)
		}
		var late []*Packed
		for range rapid.IntRange(0, 3).Draw(rt, "unpacked") {
			if p := read.Packed(); p != nil {
				p.Unpack()
				late = append(late, p)
			}
		}
		if len(late) > 1 {
			read.Install(late[0])
		}
		if !bytes.Equal(snapshot(t, read), raw) {
			rt.Fatal("the snapshot of what was read has other bytes")
		}
		if rapid.Bool().Draw(rt, "used before it was unpacked") {
			bothDecide(t, w, l, read, 20)
		}
		for _, p := range late { // what was used since stays as it is
			read.Install(p)
		}
		compareDerived(rt, l, read)
		bothDecide(t, w, l, read, 60)
		if !bytes.Equal(snapshot(t, read), snapshot(t, l)) {
			rt.Fatal("after further commands the two lanes differ")
		}
	})
}

// compareDerived checks that what a snapshot does not hold was worked out right.
func compareDerived(t interface{ Fatalf(string, ...any) }, a, b *Lane) {
	pending := 0
	for name, x := range a.campaigns {
		y := b.open(b.campaigns[name])
		pending += x.reminders().Len()
		if x.redeemed != y.redeemed || x.voided != y.voided || x.inheriting != y.inheriting {
			t.Fatalf("%s: spent %d, void %d, inheriting %d; read %d, %d, %d", name, x.redeemed, x.voided, x.inheriting, y.redeemed, y.voided, y.inheriting)
		}
		for n := uint32(1); n <= x.claimed(); n++ {
			if x.allotted.of(n) != nil {
				continue
			}
			newest, _ := x.newestOf(x.coupon(n).customer)
			if x.before(n) != y.before(n) || x.held(newest) != y.held(newest) {
				t.Fatalf("%s: coupon %d follows %d, its holder has %d; read %d, %d", name, n, x.before(n), x.held(newest), y.before(n), y.held(newest))
			}
		}
		falls, read := x.ensureSparse().due.counts, y.ensureSparse().due.counts
		for at, n := range falls {
			if n != read[at] {
				t.Fatalf("%s: %d fall at %s, read %d", name, n, at, read[at])
			}
		}
		for at, n := range read {
			if n != falls[at] {
				t.Fatalf("%s: %d fall at %s, but read %d", name, falls[at], at, n)
			}
		}
	}
	if a.voided != b.voided {
		t.Fatalf("%d coupons are void, read %d", a.voided, b.voided)
	}
	if a.reminders != pending || b.reminders != pending {
		t.Fatalf("%d reminders are pending, counted %d, read %d", pending, a.reminders, b.reminders)
	}
}

func TestFrozenLaneDoesNotSeeWhatComesLater(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(worldtest.Random(seed))
		l := testLane()
		w.run(l, 200)
		before := snapshot(t, l)
		frozen := l.Freeze()
		w.run(l, 200)
		if !bytes.Equal(written(t, frozen), before) {
			t.Fatalf("seed %d: what came after Freeze shows in the snapshot", seed)
		}
	}
}

func TestSnapshotIsWrittenWhileTheLaneGoesOn(t *testing.T) {
	w := newWorld(worldtest.Random(7))
	l := testLane()
	w.run(l, 2000)
	fill(t, l, 3*table.PageSize)
	before := snapshot(t, l)
	frozen := l.Freeze()
	done := make(chan []byte)
	go func() {
		var buf bytes.Buffer
		if _, err := frozen.WriteTo(&buf); err != nil {
			t.Error(err)
		}
		done <- buf.Bytes()
	}()
	for n := 0; ; n++ {
		select {
		case raw := <-done:
			if !bytes.Equal(raw, before) {
				t.Fatal("the snapshot is not the lane at the moment of Freeze")
			}
			return
		default:
			w.run(l, 10)
		}
	}
}

// fill makes a campaign "big" and claims n of its coupons.
func fill(t testing.TB, l *Lane, n int) {
	t.Helper()
	at := l.Clock() + 1
	create := wire.Command{Type: wire.CreateCampaign, ID: "big", Campaign: "big", Patch: wire.PatchOf(wire.DefaultSettings(uint32(n + 10)))}
	if _, out := l.Decide(&create, at, nil); out.Refused() {
		t.Fatal(outcomeText(out))
	}
	var evs []wire.Event
	for i := range n {
		c := wire.Command{Type: wire.Claim, ID: fmt.Sprint("big", i), Campaign: "big", CustomerID: fmt.Sprint("customer", i)}
		var out wire.Outcome
		if evs, out = l.Decide(&c, at, evs[:0]); out.Status != wire.StatusClaimed {
			t.Fatal(outcomeText(out))
		}
	}
}

func TestSnapshotOfManyPagesAndCodes(t *testing.T) {
	l := testLane()
	fill(t, l, 5000)
	create := wire.Command{Type: wire.CreateCampaign, ID: "imp", Campaign: "imp", Patch: wire.PatchOf(wire.DefaultSettings(0))}
	l.Decide(&create, start, nil)
	for batch := range 12 {
		c := wire.Command{Type: wire.ImportCodes, ID: fmt.Sprint("imp", batch), Campaign: "imp"}
		for i := range 1000 {
			c.Codes = append(c.Codes, fmt.Sprintf("SHOP-%04d-%04d", batch, i))
		}
		if _, out := l.Decide(&c, start, nil); out.Count != 1000 {
			t.Fatal(outcomeText(out))
		}
	}
	raw := snapshot(t, l)
	read := readLane(t, raw)
	if !bytes.Equal(snapshot(t, read), raw) {
		t.Fatal("the snapshot of what was read has other bytes")
	}
	for i := range 5000 {
		c := wire.Command{Type: wire.Claim, ID: fmt.Sprint("big", i), Campaign: "big", CustomerID: fmt.Sprint("customer", i)}
		if _, out := read.Decide(&c, start, nil); !out.Repeat || out.N != uint32(i+1) {
			t.Fatalf("customer %d is answered %s", i, outcomeText(out))
		}
	}
	again := wire.Command{Type: wire.ImportCodes, ID: "again", Campaign: "imp", Codes: []string{"SHOP-0011-0999", "SHOP00000000", "NEW-ONE"}, WeakCodes: true}
	if _, out := read.Decide(&again, start, nil); out.Count != 1 {
		t.Fatalf("importing two known codes and a new one: %s", outcomeText(out))
	}
}

func TestReadLaneRefuses(t *testing.T) {
	w := newWorld(worldtest.Random(3))
	l := testLane()
	w.run(l, 300)
	raw := snapshot(t, l)
	other := testKey
	other[0]++
	patched := func(at int, b ...byte) []byte {
		c := bytes.Clone(raw)
		copy(c[at:], b)
		return c
	}
	for _, tc := range []struct {
		name string
		o    LaneOptions
		raw  []byte
		want string
	}{
		{"another key", LaneOptions{Lane: 0, Lanes: 1, Key: other}, raw, "another code key"},
		{"another lane", LaneOptions{Lane: 1, Lanes: 2, Key: testKey}, raw, "it is of lane 0 of 1"},
		{"another number of lanes", LaneOptions{Lane: 0, Lanes: 2, Key: testKey}, raw, "it is of lane 0 of 1"},
		{"nothing", LaneOptions{Lanes: 1, Key: testKey}, nil, "ends too early"},
		{"something else", LaneOptions{Lanes: 1, Key: testKey}, []byte("PK\x03\x04zzzzzzzz"), "no snapshot"},
		{"format 0", LaneOptions{Lanes: 1, Key: testKey}, patched(8, 0), "format 0"},
		{"something after it", LaneOptions{Lanes: 1, Key: testKey}, append(bytes.Clone(raw), 0), "follows its end"},
		{"a bit of its sum", LaneOptions{Lanes: 1, Key: testKey}, patched(len(raw)-1, raw[len(raw)-1]^1), "check sum"},
		{"a count of claims beyond all bounds", LaneOptions{Lanes: 1, Key: testKey}, hugeCount(t), "ends too early"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ReadLane(tc.o, bytes.NewReader(tc.raw))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want an error with %q", err, tc.want)
			}
			if errors.Is(err, ErrNewerSnapshot) {
				t.Fatal("it is not a newer format")
			}
		})
	}
	_, err := ReadLane(LaneOptions{Lanes: 1, Key: testKey}, bytes.NewReader(patched(8, 2)))
	if want := "it has format 2, this version reads format 1: start the newer version"; !errors.Is(err, ErrNewerSnapshot) || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want %q", err, want)
	}
}

// hugeCount is a snapshot that claims to have a billion claims and ends there.
func hugeCount(t *testing.T) []byte {
	l := testLane()
	s := wire.DefaultSettings(wire.MaxCodes)
	create := wire.Command{Type: wire.CreateCampaign, ID: "c", Campaign: "c", Patch: wire.PatchOf(s)}
	l.Decide(&create, start, nil)
	raw := snapshot(t, l)
	// Behind the claims: number of touched printed coupons, irregular expiries, acts (one), reminders, cancelled reminders, end of
	// the body, sum.
	at := len(raw) - checkSumSize - 4 - 4 - 4 - 26 - 4 - 4 - 4 - 4
	if binary.LittleEndian.Uint32(raw[at:]) != 0 {
		t.Fatal("the number of claims is elsewhere")
	}
	binary.LittleEndian.PutUint32(raw[at:], wire.MaxCodes)
	return raw
}

func TestReadLaneRefusesEveryTruncationAndEveryFlippedByte(t *testing.T) {
	w := newWorld(worldtest.Random(5))
	l := testLane()
	w.run(l, 60)
	raw := snapshot(t, l)
	o := LaneOptions{Lanes: 1, Key: testKey}
	for n := range raw {
		if _, err := ReadLane(o, bytes.NewReader(raw[:n])); err == nil {
			t.Fatalf("the first %d of %d bytes are taken for a snapshot", n, len(raw))
		}
		bad := bytes.Clone(raw)
		bad[n] ^= 0x41
		if _, err := ReadLane(o, bytes.NewReader(bad)); err == nil {
			t.Fatalf("byte %d of %d may be anything", n, len(raw))
		}
	}
}

func TestSnapshotPassesOnAWriteError(t *testing.T) {
	l := testLane()
	fill(t, l, 10_000)
	full := errors.New("disk full")
	for _, room := range []int{0, 100, 70_000, 200_000} {
		if _, err := l.Freeze().WriteTo(&limitedWriter{room, full}); !errors.Is(err, full) {
			t.Fatalf("with room for %d bytes: %v", room, err)
		}
		if _, err := ReadLane(LaneOptions{Lanes: 1, Key: testKey}, io.MultiReader(bytes.NewReader(snapshot(t, l)[:room]), failing{full})); !errors.Is(err, full) {
			t.Fatalf("reading fails after %d bytes: %v", room, err)
		}
	}
}

type limitedWriter struct {
	room int
	err  error
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if len(p) > w.room {
		n := w.room
		w.room = 0
		return n, w.err
	}
	w.room -= len(p)
	return len(p), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// FuzzReadLane gives a valid sum to whatever the fuzzer makes, so that it gets behind it.
func FuzzReadLane(f *testing.F) {
	for seed := range uint64(3) {
		w := newWorld(worldtest.Random(seed))
		l := testLane()
		w.run(l, 100)
		raw := snapshot(f, l)
		f.Add(raw[:len(raw)-checkSumSize])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := newCheckSum()
		_, _ = sum.Write(body)
		o := LaneOptions{Lanes: 1, Key: testKey}
		l, err := ReadLane(o, io.MultiReader(bytes.NewReader(body), bytes.NewReader(sum.bytes())))
		if err != nil {
			return
		}
		// What was let in must be a lane that works and comes back the same.
		raw := snapshot(t, l)
		if !bytes.Equal(snapshot(t, readLane(t, raw)), raw) {
			t.Fatal("read and written again, the snapshot has other bytes")
		}
		newWorld(worldtest.Random(1)).run(l, 50)
	})
}

// A large campaign is packed until it is used, and one that cannot be unpacked is reported.
func TestLargeCampaignsStayPacked(t *testing.T) {
	l := testLane()
	fill(t, l, 10_000)
	raw := snapshot(t, l)
	read := readLane(t, raw)
	c := read.campaigns["big"]
	if !c.isPacked() || len(c.sparse.packed.frames) < 4 {
		t.Fatal("it is not packed")
	}
	if v, ok := read.Campaign("big"); !ok || v.Claimed != 10_000 || !read.campaigns["big"].isPacked() {
		t.Errorf("%+v", v)
	}
	if views, _, _ := read.CustomerAfter("customer7", start, CouponPlace{}, 10, 10); len(views) != 1 || read.campaigns["big"].isPacked() || read.Packed() != nil {
		t.Errorf("%+v", views)
	}
	read = readLane(t, raw)
	read.campaigns["big"].sparse.packed.counts.reminders++
	defer func() {
		if _, ok := recover().(*DamagedError); !ok {
			t.Error("it was unpacked")
		}
	}()
	read.find("big")
}
