package projector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// A time limit that the role carries does not meet the same batch for ever.
func TestTimeLimitsOfTheRole(t *testing.T) {
	r := newRig(t)
	r.create(0)
	r.create(1)
	// Each row takes twice as long as statements may.
	r.exec(`CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.7); RETURN NULL; END $$`)
	p := r.projector(projtest.Pool(t, r.pool.Config().ConnString()+"&statement_timeout=300ms&idle_in_transaction_session_timeout=300ms"), Options{}).start()
	r.synced(r.pool)
	r.exec(`CREATE TRIGGER slow AFTER INSERT ON scrip_1.coupon_claim FOR EACH ROW EXECUTE FUNCTION public.slow()`)
	r.Claim(0, 1)
	r.synced(r.pool)
	streamtest.Equal(t, "cancelled", p.logged("canceling statement"), 0)
}

// Damage in PostgreSQL's files is not an outage: the lane stops, logs the next command once, and continues when the
// damage is repaired. While an error lasts, PostgreSQL is not reported as available.
func TestDamagedFiles(t *testing.T) {
	r := newRig(t)
	r.create(0)
	r.create(1)
	p := r.project(Options{})
	r.synced(r.pool)
	for code, state := range map[string]State{"XX001": Stopped, "53100": Waiting} {
		r.exec(fmt.Sprintf(`CREATE FUNCTION public.boom() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'it is broken' USING ERRCODE = '%s'; END $$`, code))
		r.exec(`CREATE TRIGGER boom BEFORE INSERT ON scrip_1.coupon_claim FOR EACH ROW WHEN (NEW.campaign = 'c0') EXECUTE FUNCTION public.boom()`)
		stops, backs := p.logged("lane is not projected any more"), p.logged("PostgreSQL is available")
		aways := p.logged("PostgreSQL is unavailable")
		r.Claim(0, 1)
		now := p.reaches(0, state)
		if advised := strings.Contains(fmt.Sprint(now.Err), "run `scrip rebuild`"); advised != (state == Stopped) {
			t.Errorf("%s: %v", code, now.Err)
		}
		p.becomes(0, func(now Progress) bool { return now.State == state && now.Behind != nil && *now.Behind == 1 })
		for range 5 { // the other lane continues, and logs nothing of the first
			r.Claim(1, 1)
			r.reached(r.pool, 1, r.Last[1])
		}
		if n := p.logged("PostgreSQL is available") - backs; n != 0 {
			t.Errorf("%s: PostgreSQL was reported as available %d times", code, n)
		}
		r.exec("DROP FUNCTION public.boom() CASCADE")
		r.synced(r.pool)
		p.reaches(0, Following)
		want := [3]int{0, 1, 1}
		if state == Stopped {
			want = [3]int{1, 0, 0}
		}
		if state == Waiting { // logged after the rows are visible
			p.notices("PostgreSQL is unavailable")
			p.notices("PostgreSQL is available")
		}
		got := [3]int{p.logged("lane is not projected any more") - stops, p.logged("PostgreSQL is unavailable") - aways, p.logged("PostgreSQL is available") - backs}
		if got != want {
			t.Errorf("%s: logged %v times that the lane stopped, that PostgreSQL is unavailable, that it is available, want %v", code, got, want)
		}
	}
	r.check(r.pool)
}
