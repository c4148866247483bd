package webhook

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// A write whose result is lost, stored or not, is one change, and the secret that was returned is the one in force.
func TestAWriteWithoutAResult(t *testing.T) {
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprintf("stored=%t", stored), func(t *testing.T) {
			r := newRig(t)
			broken := func() *Store { return Open(streamtest.LostAnswer(r.js, stored), NewKey(codeKey, r.log.UUID)) }
			e, _, err := broken().Create(within(t), ann, Settings{URL: "https://shop.example/", Types: []string{"coupon.*"}})
			if err != nil {
				t.Fatal(err)
			}
			e, secret, err := broken().Rotate(within(t), ann, e.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := NewKey(codeKey, r.log.UUID).open(e.secrets[0], e.ID); err != nil || got.Text() != secret.Text() || len(e.secrets) != 2 {
				t.Errorf("%+v, %v", e, err)
			}
			if _, err := broken().Set(within(t), ann, e.ID, e.Version, func(s Settings) Settings { s.Batch = 7; return s }); err != nil {
				t.Error(err)
			}
			if again, err := broken().Make(within(t), ann, Change{Webhook: e.ID, What: Replay, From: e.Created}, 0); err != nil || again.audiences[0].generation != 1 {
				t.Errorf("%+v, %v", again.audiences, err)
			}
			reg, err := r.store.read(within(t))
			if err != nil || reg.Last != 4 || len(reg.endpoints) != 1 || reg.endpoints[e.ID].Batch != 7 {
				t.Errorf("%+v, %v", reg, err)
			}
		})
	}
}

// A change for a version that is not the endpoint's any more is refused, and stores nothing.
func TestVersions(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Settings{})
	first, err := r.store.Set(within(t), ann, e.ID, e.Version, func(s Settings) Settings { s.Rate = 9; return s })
	if err != nil || first.Rate != 9 || first.Version == e.Version || first.URL != e.URL {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := r.store.Set(within(t), ann, e.ID, e.Version, func(s Settings) Settings { s.Rate = 10; return s }); !errors.Is(err, ErrChanged) {
		t.Errorf("a change for an older version: %v", err)
	}
	if _, err := r.store.Make(within(t), ann, Change{Webhook: e.ID, What: Delete}, e.Version); !errors.Is(err, ErrChanged) {
		t.Errorf("a deletion of an older version: %v", err)
	}
	var invalid *InvalidError
	if _, err := r.store.Set(within(t), ann, e.ID, 0, func(s Settings) Settings { s.Batch = 501; return s }); !errors.As(err, &invalid) {
		t.Errorf("%v", err)
	}
	if _, err := r.store.Set(within(t), ann, "none", 0, func(s Settings) Settings { return s }); !errors.Is(err, ErrNotFound) || !errors.As(err, &invalid) {
		t.Errorf("%v", err)
	}
	tooLong := func(s Settings) Settings {
		s.URL, s.Campaigns = "https://x.example/"+strings.Repeat("<", 2000), nil // each is six bytes of JSON
		for i := range 100 {
			s.Campaigns = append(s.Campaigns, fmt.Sprintf("%064d", i))
		}
		return s
	}
	if _, err := r.store.Set(within(t), ann, e.ID, 0, tooLong); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "bytes, at most") {
		t.Errorf("a record that is too long: %v", err)
	}
	bob := ann
	bob.Codes = false
	if _, _, err := r.store.Create(within(t), bob, Settings{URL: "https://x.example/", Types: []string{"coupon.*"}, Codes: true}); !errors.Is(err, ErrForbidden) {
		t.Errorf("codes for who does not see them: %v", err)
	}
	if _, err := r.store.Set(within(t), bob, e.ID, 0, func(s Settings) Settings { s.Codes = true; return s }); !errors.Is(err, ErrForbidden) {
		t.Errorf("codes for who does not see them: %v", err)
	}
	if e, err := r.store.Show(within(t), e.ID); err != nil || e.Version != first.Version || e.Rate != 9 {
		t.Errorf("%+v, %v", e, err)
	}
}

// What people change is in the audit stream, with who did it; results that servers store are not, see TestDisabled. No entry has a secret, or the path
// of the URL.
func TestChangesAreAudited(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Settings{URL: "https://shop.example/to-ken?key=to-ken"})
	if _, _, err := r.store.Rotate(within(t), ann, e.ID); err != nil {
		t.Fatal(err)
	}
	for _, c := range []Change{{What: Pause}, {What: Resume}, {What: Replay, From: e.Created}, {What: Test}, {What: Retry}, {What: Delete}} {
		if c.Webhook = e.ID; c.What == Delete {
			if _, err := r.store.byServer(within(t), Change{Webhook: e.ID, What: Tested, Reason: "delivered", By: "scrip serve"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.store.Make(within(t), ann, c, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.store.Make(within(t), ann, Change{Webhook: e.ID, What: Pause}, 0); err == nil {
		t.Error("a deleted webhook is paused")
	}
	all, _, err := r.store.Audit.Read(within(t), audit.Filter{Kind: audit.Webhooks}, 100)
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, entry := range all {
		actions = append(actions, entry.Action)
		if entry.Actor != "ann" || entry.Key != ann.ID || entry.Via != "test" || !strings.HasPrefix(entry.About, e.ID) || strings.Contains(entry.About, "to-ken") || strings.Contains(entry.About, "whsec") {
			t.Errorf("%+v", entry)
		}
	}
	if got := strings.Join(actions, " "); got != "create rotate pause resume replay test retry delete" {
		t.Errorf("recorded: %s", got)
	}
	if all[0].About != e.ID+" shop.example" {
		t.Errorf("%+v", all[0])
	}
	reg, err := r.store.read(within(t))
	if err != nil || reg.gone[e.ID] == nil {
		t.Errorf("%+v, %v", reg, err)
	}

	// Without the audit stream the change is stored, and the error is of a kind of its own.
	other, _ := r.create(t, Settings{})
	if err := r.js.DeleteStream(within(t), topology.AuditStream); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Make(within(t), ann, Change{Webhook: other.ID, What: Pause}, 0); !errors.Is(err, ErrUnrecorded) {
		t.Errorf("%v", err)
	}
	if e, err := r.store.Show(within(t), other.ID); err != nil || e.State != Paused {
		t.Errorf("%+v, %v", e, err)
	}
}

// A kind that is added begins then; one that is taken out is forgotten, and begins at that time when it is added again.
func TestTypesAreChanged(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Settings{})
	set := func(types ...string) Endpoint {
		t.Helper()
		e, err := r.store.Set(within(t), ann, e.ID, 0, func(s Settings) Settings { s.Types = types; return s })
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	both := set("coupon.*", "reminder.due")
	if both.name(0) != e.name(0) || !both.audiences[0].since.Equal(e.Created) || both.name(reminders) != e.name(reminders) || !both.audiences[reminders].since.After(e.Created) {
		t.Errorf("%+v", both.audiences)
	}
	only := set("reminder.due")
	if only.name(0) == e.name(0) || len(only.names(0, true)) != 2 || only.audiences[reminders] != both.audiences[reminders] {
		t.Errorf("%+v", only.audiences)
	}
	again := set("campaign.*", "reminder.due")
	if again.name(0) != only.name(0) || !again.audiences[0].since.After(both.audiences[reminders].since) {
		t.Errorf("%+v", again.audiences)
	}

	// What is delivered follows.
	run := r.runner(r.js, nil)
	stop := r.serve(t, run, e)
	r.event(t, claimed("ann"))
	r.until(t, "ann's claim is delivered", func() bool { return len(r.received()) == 1 })
	stop()
	r.until(t, "its position is recorded", func() bool {
		all, err := push.Positions(within(t), r.js, e.name(0))
		return err == nil && len(all) == 1
	})
	r.event(t, claimed("bob"))
	stop = r.serve(t, run, again)
	r.event(t, claimed("cid"), paused)
	r.until(t, "the campaign's pause is delivered", func() bool {
		got := r.received()
		return len(got) == 2 && strings.Contains(got[1].body, "campaign.paused")
	})
	if all, err := push.Positions(within(t), r.js, e.name(0)); err != nil || len(all) != 0 {
		t.Errorf("the name before is not forgotten: %+v, %v", all, err)
	}
	stop()
}

// A server keeps the webhooks when the bucket is lost and exists again without any.
func TestTheBucketIsLost(t *testing.T) {
	r := newRig(t)
	run := r.runner(r.js, nil)
	f := &fold{runner: run, ignored: map[uint64]bool{}}
	e, _ := r.create(t, Settings{})
	f.Begin()
	reg, err := r.store.read(within(t))
	if err != nil {
		t.Fatal(err)
	}
	f.registry = reg
	if err := f.Current(false); err != nil {
		t.Fatal(err)
	}
	f.Begin()
	if err := f.Current(true); !errors.Is(err, errEmpty) {
		t.Errorf("%v", err)
	}
	if all, _, _ := run.state(); len(all) != 1 || all[0].ID != e.ID {
		t.Errorf("%+v", all)
	}
	if err := f.Current(false); err != nil {
		t.Fatal(err)
	}
	if all, _, _ := run.state(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}
