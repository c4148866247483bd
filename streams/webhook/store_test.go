package webhook

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// The secret that is returned is the one in force, also where the answer to a write was lost.
func TestAWriteWithoutAResult(t *testing.T) {
	r := newRig(t)
	broken := func() *Store { return r.open(streamtest.LostAnswer(r.js, true)) }
	e, _, err := broken().Create(within(t), ann, Config{URL: "https://shop.example/", Types: []string{"coupon.*"}})
	streamtest.Must(t, err)
	e, secret, err := broken().Rotate(within(t), ann, e.ID)
	streamtest.Must(t, err)
	if got, err := NewKey(codeKey, r.log.UUID).open(e.secrets[0], e.ID); err != nil || got.Text() != secret.Text() || len(e.secrets) != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	if all, err := r.store.List(within(t)); err != nil || len(all) != 1 || all[0].Version != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}

// A change for a version that is not the endpoint's any more is refused, and stores nothing.
func TestVersions(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{})
	first, err := r.store.Set(within(t), ann, e.ID, e.Version, func(s Config) Config { s.Rate = 9; return s })
	if err != nil || first.Rate != 9 || first.Version == e.Version || first.URL != e.URL {
		t.Fatalf("%+v, %v", first, err)
	}
	if _, err := r.store.Set(within(t), ann, e.ID, e.Version, func(s Config) Config { s.Rate = 10; return s }); !errors.Is(err, ErrChanged) {
		t.Errorf("a change for an older version: %v", err)
	}
	if _, err := r.store.Make(within(t), ann, Change{Webhook: e.ID, What: Delete}, e.Version); !errors.Is(err, ErrChanged) {
		t.Errorf("a deletion of an older version: %v", err)
	}
	var invalid *InvalidError
	if _, err := r.store.Set(within(t), ann, e.ID, 0, func(s Config) Config { s.Batch = 501; return s }); !errors.As(err, &invalid) {
		t.Errorf("%v", err)
	}
	if _, err := r.store.Set(within(t), ann, "none", 0, func(s Config) Config { return s }); !errors.Is(err, ErrNotFound) || !errors.As(err, &invalid) {
		t.Errorf("%v", err)
	}
	bob := ann
	bob.Codes = false
	if _, _, err := r.store.Create(within(t), bob, Config{URL: "https://x.example/", Types: []string{"coupon.*"}, Codes: true}); !errors.Is(err, ErrForbidden) {
		t.Errorf("codes for who does not see them: %v", err)
	}
	if _, err := r.store.Set(within(t), bob, e.ID, 0, func(s Config) Config { s.Codes = true; return s }); !errors.Is(err, ErrForbidden) {
		t.Errorf("codes for who does not see them: %v", err)
	}
	if e, err := r.store.Show(within(t), e.ID); err != nil || e.Version != first.Version || e.Rate != 9 {
		t.Errorf("%+v, %v", e, err)
	}
}

// Entries of the audit stream have no secret, and of the URL the host alone. What servers store as results has none, see TestDisabled.
// Which changes have one is shown by TestEveryActionThroughEveryDoor of the API.
func TestChangesAreAudited(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{URL: "https://shop.example/to-ken?key=to-ken"})
	if _, _, err := r.store.Rotate(within(t), ann, e.ID); err != nil {
		t.Fatal(err)
	}
	r.make(t, Change{Webhook: e.ID, What: Test})
	if _, err := r.store.byServer(within(t), Change{Webhook: e.ID, What: Tested, Reason: "delivered"}); err != nil {
		t.Fatal(err)
	}
	r.make(t, Change{Webhook: e.ID, What: Delete})
	if _, err := r.store.Make(within(t), ann, Change{Webhook: e.ID, What: Pause}, 0); err == nil {
		t.Error("a deleted webhook is paused")
	}
	all, _, err := r.store.history.Audit.Read(within(t), audit.Filter{Kind: audit.Webhooks}, 100)
	streamtest.Must(t, err)
	var actions []string
	for _, entry := range all {
		actions = append(actions, entry.Action)
		if entry.Actor != "ann" || entry.Key != ann.ID || entry.Via != "test" || strings.TrimSuffix(entry.About, " shop.example") != e.ID {
			t.Errorf("%+v", entry)
		}
	}
	if got := strings.Join(actions, " "); got != "delete test rotate create" || all[3].About == e.ID {
		t.Errorf("recorded: %s, %+v", got, all)
	}
	if reg, err := r.store.read(within(t)); err != nil || reg.gone[e.ID] == nil {
		t.Errorf("%+v, %v", reg, err)
	}
}

// A kind that is added is delivered from then on; one that is taken out is forgotten, and is so too when it is added again.
func TestTypesAreChanged(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{})
	set := func(types ...string) Endpoint {
		t.Helper()
		e, err := r.store.Set(within(t), ann, e.ID, 0, func(s Config) Config { s.Types = types; return s })
		streamtest.Must(t, err)
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
