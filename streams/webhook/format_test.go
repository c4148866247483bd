package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
	"github.com/seed-4a2410e3/scrip/streams/golden"
)

// The keys and values of changes are as the golden file has them, one line each, and their fold is what they say.
func TestTheFormat(t *testing.T) {
	at := time.Date(2026, 11, 20, 9, 0, 0, 123456789, time.UTC)
	changes := []Change{
		{Webhook: "aaaaaaaa", What: Create, Settings: &Settings{
			URL: "https://shop.example/hooks?a=1&b=2", Types: []string{"coupon.*", "reminder.due"}, Campaigns: []string{"summer"},
			Batch: 10, Rate: 50, Concurrency: 4, MaxAgeHours: 168, Codes: true,
		}, Secret: []byte("sealed"), By: "ann@ops", At: at},
		{Webhook: "bbbbbbbb", What: Create, Settings: &Settings{URL: "https://crm.example/", Types: []string{"campaign.*"}}, Secret: []byte("sealed"), By: "ann@ops", At: at},
		{Webhook: "aaaaaaaa", What: Rotate, Secret: []byte("newer"), By: "bob@ops", At: at},
		{Webhook: "aaaaaaaa", What: Replay, From: at.Add(-time.Hour), By: "bob@ops", At: at},
		{Webhook: "bbbbbbbb", What: Disable, Reason: "the endpoint responded 410 Gone", By: "scrip serve", At: at},
		{Webhook: "aaaaaaaa", What: Failing, From: at, By: "scrip serve", At: at},
		{Webhook: "aaaaaaaa", What: Test, By: "bob@ops", At: at},
		{Webhook: "aaaaaaaa", What: Tested, Reason: "delivered", By: "scrip serve", At: at},
	}
	var lines bytes.Buffer
	for i := range changes {
		changes[i].N = uint64(i + 1)
		value, err := json.Marshal(changes[i])
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s %s\n", changelog.Key(changes[i].N), value)
	}
	r := newRegistry()
	for i, line := range bytes.Split(bytes.TrimSpace(golden.Bytes(t, "bucket.golden", lines.Bytes())), []byte("\n")) {
		key, value, _ := bytes.Cut(line, []byte(" "))
		got := Change{N: uint64(i + 1)}
		if err := json.Unmarshal(value, &got); err != nil || !reflect.DeepEqual(got, changes[i]) {
			t.Errorf("%s is read as %+v, %v", value, got, err)
		}
		if err := r.fold(changelog.Message{Key: string(key), Value: value}); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
	a, b := r.endpoints["aaaaaaaa"], r.endpoints["bbbbbbbb"]
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
	if err := r.fold(changelog.Message{Key: changelog.Key(9), Value: []byte(`{"webhook":"aaaaaaaa","what":"works","by":"scrip serve","at":"2026-11-20T09:00:00Z"}`)}); err != nil || !r.endpoints["aaaaaaaa"].FailingSince.IsZero() {
		t.Errorf("%v, %+v", err, r.endpoints["aaaaaaaa"])
	}
}
