package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
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
	people := &ops.Ops{Coupons: readmodel.NewCoupons(db), Queries: r.Shop, Lanes: lanes}
	rows := func(want int, sql string) {
		t.Helper()
		apitest.Until(t, fmt.Sprint(want, " ", sql), func() bool {
			var n int
			streamtest.Must(t, db.QueryRow(t.Context(), sql, c).Scan(&n))
			return n == want
		})
	}
	rows(claimed, `SELECT count(*) FROM scrip.coupon WHERE campaign = $1`)

	change := func(ctx context.Context, id, action, request string, kept json.RawMessage, report func(ops.JobProgress)) (ops.CouponsChanged, error) {
		run := ops.JobRun{ID: id, Action: "coupons." + action, Request: json.RawMessage(strings.Replace(request, "{", `{"campaign":"`+c+`",`, 1)), By: "ann", Kept: kept, Report: report}
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
	if !errors.Is(err, context.Canceled) || len(kept) != 3 {
		t.Fatalf("killed: %v after %s", err, kept)
	}
	got, err := change(t.Context(), "coupons-1", "extend", extend, kept[1], func(ops.JobProgress) {})
	if err != nil || got.Matched != claimed || got.Done != 1500 || got.Repeated != 1000 || len(got.Refused) != 0 {
		t.Errorf("sent again: %+v, %v", got, err)
	}
	rows(claimed, `SELECT count(*) FROM scrip.coupon_event WHERE campaign = $1 AND what = 'extended'`)

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
		if is := fmt.Sprint(got.Matched, got.Done, got.Repeated, got.Refused, named); err != nil || is != test.want {
			t.Errorf("%s: %s, %v, want %s", test.request, is, err, test.want)
		}
	}
	rows(4, `SELECT count(*) FROM scrip.coupon WHERE campaign = $1 AND status = 'voided'`)
}
