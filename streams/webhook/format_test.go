package webhook

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// The keys and values of changes are as the golden file has them, one line each, and their fold is what they say.
func TestTheFormat(t *testing.T) {
	at := time.Date(2026, 11, 20, 9, 0, 0, 123456789, time.UTC)
	changes := []registry.Change[Change]{
		{Record: Change{Webhook: "aaaaaaaa", What: Create, Config: &Config{
			URL: "https://shop.example/hooks?a=1&b=2", Types: []string{"coupon.*", "reminder.due"}, Campaigns: []string{"summer"},
			Batch: 10, Rate: 50, Concurrency: 4, MaxAge: wire.Period(168 * time.Hour), Codes: true,
		}, Secret: []byte("sealed")}, By: "ann@ops", At: at},
		{Record: Change{Webhook: "bbbbbbbb", What: Create, Config: &Config{URL: "https://crm.example/", Types: []string{"campaign.*"}}, Secret: []byte("sealed")}, By: "ann@ops", At: at},
		{Record: Change{Webhook: "aaaaaaaa", What: Rotate, Secret: []byte("newer")}, By: "bob@ops", At: at},
		{Record: Change{Webhook: "aaaaaaaa", What: Replay, From: at.Add(-time.Hour)}, By: "bob@ops", At: at},
		{Record: Change{Webhook: "bbbbbbbb", What: Disable, Reason: "the endpoint responded 410 Gone"}, By: "scrip serve", At: at},
		{Record: Change{Webhook: "aaaaaaaa", What: Failing, From: at}, By: "scrip serve", At: at},
		{Record: Change{Webhook: "aaaaaaaa", What: Test}, By: "bob@ops", At: at},
		{Record: Change{Webhook: "aaaaaaaa", What: Tested, Reason: "delivered"}, By: "scrip serve", At: at},
	}
	var lines bytes.Buffer
	for i := range changes {
		changes[i].N = uint64(i + 1)
		streamtest.Must(t, changes[i].Encode())
		fmt.Fprintf(&lines, "%s %s\n", registry.Key(changes[i].N), changes[i].Value)
	}
	f := Open(nil, nil, registry.Options{}).history.Fold()
	for i, line := range bytes.Split(bytes.TrimSpace(golden.Bytes(t, "bucket.golden", lines.Bytes())), []byte("\n")) {
		key, value, _ := bytes.Cut(line, []byte(" "))
		if got := f.Apply(registry.Message{Key: string(key), Value: value}); !reflect.DeepEqual(got, changes[i]) {
			t.Errorf("%s is read as %+v", value, got)
		}
	}
	a, b := f.State.endpoints["aaaaaaaa"], f.State.endpoints["bbbbbbbb"]
	if a.URL != "https://shop.example/hooks?a=1&b=2" || a.Batch != 10 || a.State != Active || a.By != "ann@ops" || a.Version != 4 || !a.FailingSince.Equal(at) ||
		a.LastTest != "delivered" || a.Testing() || string(a.secrets[0]) != "newer" || string(a.secrets[1]) != "sealed" {
		t.Errorf("%+v", a)
	}
	if a.name(0) != "webhook-aaaaaaaa-1e" || a.name(reminders) != "webhook-aaaaaaaa-1r" || !a.audiences[0].since.Equal(at.Add(-time.Hour)) {
		t.Errorf("%+v", a)
	}
	if b.State != Disabled || !strings.Contains(b.Reason, "410") || b.name(0) != "webhook-bbbbbbbb-0e" || !b.audiences[0].since.Equal(b.Created) {
		t.Errorf("%+v", b)
	}
	if err := f.State.take(&registry.Change[Change]{Record: Change{Webhook: "aaaaaaaa", What: Works}}); err != nil || !a.FailingSince.IsZero() {
		t.Errorf("%v, %+v", err, a)
	}
}
