package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestChangeOfManyCoupons: what a list or a filter selects is counted before anything is sent; the lane decides each. A run that is
// killed half way, and its last progress lost, is sent again: it goes on from what it kept, and no coupon is changed twice.
func TestChangeOfManyCoupons(t *testing.T) {
	r := apitest.Shared(t)
	const claimed = 2500
	c := r.Campaign(t, map[string]any{"codes": claimed + 9})
	outcomes := make(chan wire.Outcome, claimed)
	for i := range claimed {
		err := r.Shop.DoAsync(t.Context(), wire.Command{Type: wire.Claim, Campaign: c, CustomerID: fmt.Sprint("k", i)}, func(out wire.Outcome, err error) { outcomes <- out })
		streamtest.Must(t, err)
	}
	for range claimed {
		if out := <-outcomes; out.Status != wire.StatusClaimed {
			t.Fatal(out)
		}
	}
	db, err := pgxpool.New(t.Context(), r.Postgres)
	streamtest.Must(t, err)
	t.Cleanup(db.Close)
	lanes := command.New(r.Shop.Conn(), command.Options{Count: 2})
	t.Cleanup(streamtest.Background(t, lanes.Run))
	js, err := jetstream.New(r.Shop.Conn())
	streamtest.Must(t, err)
	people := &ops.Ops{Coupons: readmodel.NewCoupons(db), Queries: r.Shop, Lanes: lanes, JetStream: js, Log: topology.Log{Lanes: 2}}
	rows := func(want int, sql string) {
		t.Helper()
		apitest.Until(t, fmt.Sprint(want, " ", sql), func() bool {
			var n int
			streamtest.Must(t, db.QueryRow(t.Context(), sql, c).Scan(&n))
			return n == want
		})
	}
	rows(claimed, `SELECT count(*) FROM scrip.coupon WHERE campaign = $1`)

	var stop chan struct{}
	change := func(ctx context.Context, id, action, request string, kept json.RawMessage, report func(ops.JobProgress)) (ops.CouponsChanged, error) {
		run := ops.JobRun{ID: id, Action: "coupons." + action, Request: json.RawMessage(strings.Replace(request, "{", `{"campaign":"`+c+`",`, 1)), By: "ann", Kept: kept,
			Report: report, Stop: stop}
		got, err := people.ChangeCoupons(ctx, run)
		result, _ := got.(ops.CouponsChanged)
		return result, err
	}
	const extend = `{"all":true,"most":2500,"expires_at":"2099-01-01T00:00:00Z"}`
	ctx, kill := context.WithCancel(t.Context())
	var kept []json.RawMessage
	_, err = change(ctx, "coupons-1", "extend", extend, nil, func(p ops.JobProgress) {
		if kept = append(kept, p.Kept); p.Phase == "changing" && p.Done == 2000 {
			kill()
		}
	})
	if kept = slices.DeleteFunc(kept, func(k json.RawMessage) bool { return k == nil }); !errors.Is(err, context.Canceled) || len(kept) != 2 {
		t.Fatalf("killed: %v after %s", err, kept)
	}
	got, err := change(t.Context(), "coupons-1", "extend", extend, kept[0], func(ops.JobProgress) {})
	if err != nil || got.Matched != claimed || got.Done != 1500 || got.Repeated != 1000 || len(got.Refused) != 0 {
		t.Errorf("sent again: %+v, %v", got, err)
	}
	rows(claimed, `SELECT count(*) FROM scrip_tables.coupon_event WHERE campaign = $1 AND what = 'extended'`)

	// One that is stopped ends after the batch under way, and what it counted is what it did.
	stop = make(chan struct{})
	got, err = change(t.Context(), "coupons-stopped", "extend", strings.Replace(extend, "2099", "2098", 1), nil, func(p ops.JobProgress) {
		if p.Phase == "changing" {
			close(stop)
		}
	})
	if err == nil || err.Error() != "stopped" || got.Matched != claimed || got.Done != 1000 || got.Repeated != 0 || len(got.Refused) != 0 {
		t.Errorf("stopped: %+v, %v", got, err)
	}
	stop = nil
	rows(claimed+1000, `SELECT count(*) FROM scrip_tables.coupon_event WHERE campaign = $1 AND what = 'extended'`)

	for i, test := range []struct{ action, request, want, refused string }{
		{"void", `{"all":true,"dry_run":true}`, "2500 0 0 map[] []", ""},
		{"void", `{"all":true,"most":2499}`, "", "most: 2500 coupons are selected, more than 2499; nothing was changed"},
		{"void", `{"n":[1,2,2501],"dry_run":true}`, "2 0 0 map[] []", ""},
		{"void", `{"n":[1,2,2501],"most":3,"reason":"fraud"}`, "3 2 0 map[code_not_found:1] [2501]", ""},
		{"void", `{"n":[2,3],"most":3}`, "2 1 1 map[] []", ""}, // as another job: void already
		{"extend", `{"n":[3,4],"most":2,"expires_at":"2020-01-01T00:00:00Z"}`, "2 0 0 map[invalid:1 voided:1] [3 4]", ""},
		{"void", `{"customer_id":"k7","most":1}`, "1 1 0 map[] []", ""},
		{"void", `{"claimed_before":"2020-01-01T00:00:00Z","most":1}`, "0 0 0 map[] []", ""},
	} {
		got, err := change(t.Context(), fmt.Sprint("coupons-", i+2), test.action, test.request, nil, func(ops.JobProgress) {})
		var no *ops.Refusal
		if test.refused != "" {
			if !errors.As(err, &no) || no.Message != test.refused {
				t.Errorf("%s: %v", test.request, err)
			}
			continue
		}
		named := []uint32{}
		for _, of := range got.First {
			named = append(named, of.N)
		}
		if is := fmt.Sprint(got.Matched, got.Done, got.Repeated, got.Refused, named); err != nil || is != test.want || got.Behind == nil || *got.Behind != 0 {
			t.Errorf("%s: %s, behind %v, %v, want %s", test.request, is, got.Behind, err, test.want)
		}
	}
	rows(4, `SELECT count(*) FROM scrip.coupon WHERE campaign = $1 AND status = 'voided'`)

	// The tables stand still while one more is claimed: the change waits for that coupon.
	still, err := db.Begin(t.Context())
	streamtest.Must(t, err)
	_, err = still.Exec(t.Context(), "LOCK TABLE scrip.checkpoint IN SHARE MODE")
	streamtest.Must(t, err)
	r.Claim(t, c, "late")
	goOn := sync.OnceFunc(func() { _ = still.Rollback(context.WithoutCancel(t.Context())) })
	got, err = change(t.Context(), "coupons-late", "void", `{"customer_id":"late","most":1}`, nil, func(p ops.JobProgress) {
		if p.Phase == "waiting for the tables" {
			goOn()
		}
	})
	goOn()
	if err != nil || got.Matched != 1 || got.Done != 1 || got.Behind == nil || *got.Behind != 0 {
		t.Errorf("of tables that lagged: %+v, %v", got, err)
	}
}
