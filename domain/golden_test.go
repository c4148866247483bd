package domain

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/worldtest"
)

var update = flag.Bool("update", false, "write testdata/snapshot-1.bin instead of comparing with it")

// everyKind is a lane that has some of all that a snapshot holds.
const everyKind = `
	0   create_campaign codes=5 per_customer=2 max_redemptions=2 expires_at=+48h prefix=SUMMER category=food benefit={"off":5} late_after=1h reminders=7
	0   create_campaign campaign=due codes=4 opens_at=+2h closes_at=+3h valid_for=90s priority=high
	0   create_campaign campaign=imported codes=0 per_customer=0
	1m  import_codes campaign=imported codes=ABC-1,ABC-2 weak_codes=true
	1m  claim campaign=imported customer_id=ann
	2m  claim customer_id=ann
	2m  claim customer_id=bob
	2m  claim customer_id=ann
	3m  remind customer_id=ann kind=expires before=1h
	3m  remind customer_id=bob kind=expires before=2h
	3m  remind campaign=due customer_id=ann kind=opens before=1m
	3m  remind campaign=due customer_id=bob kind=opens before=5m
	3m  unremind campaign=due customer_id=bob kind=opens before=5m
	4m  redeem code=$2 order_id=o1
	5m  redeem code=$2 order_id=o2
	6m  redeem code=$1 order_id=o1
	7m  rollback code=$1 order_id=o1
	7m  allot campaign=due count=2 batch=flyer
	7m  void campaign=due n=1
	7m  allot campaign=due count=1 batch=poster
	7m  redeem campaign=due n=3 order_id=o customer_id=ann
	7m  extend campaign=due n=3 expires_at=2126-01-01T00:00:00.5Z
	8m  claim customer_id=cy
	8m  void code=$4 reason=fraud
	9m  extend code=$1 expires_at=+9h
	9m  extend campaign=imported code=$imported1 expires_at=+9h
	10m pause_campaign campaign=imported
	2h  claim campaign=due customer_id=cy
	3h  end_campaign campaign=due`

// TestTheFormatOfSnapshots: a golden file holds a lane of every kind of content. A change of the format shows here.
func TestTheFormatOfSnapshots(t *testing.T) {
	s := newScript(t)
	s.run(everyKind)
	const file = "testdata/snapshot-1.bin"
	got := snapshot(t, s.lane)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("the snapshot has other bytes than %s: after a release SnapshotFormat must be raised; before the first, run go test ./domain -update", file)
	}
	read := readLane(t, want)
	compareDerived(t, s.lane, read)
	if read.reminders != 2 || read.parked != 1 {
		t.Errorf("%d reminders are pending, %d cancelled by a redemption", read.reminders, read.parked)
	}
	w := newWorld(worldtest.Random(1))
	w.Now = s.lane.Clock()
	bothDecide(t, w, s.lane, read, 100)
}
