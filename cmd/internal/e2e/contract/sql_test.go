package contract

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestColumns: names and types that outside queries rely on.
func TestColumns(t *testing.T) {
	r := server(t)
	for relation, columns := range map[string]string{
		"campaign":       "campaign:text status:text category:text codes:bigint claimed:bigint redeemed:bigint expired:bigint voided:bigint opens_at:time closes_at:time expires_at:time created_at:time",
		"coupon":         "campaign:text n:bigint code:text customer_id:text status:text claimed_at:time expires_at:time redeemed_count:bigint redeemed_at:time",
		"redemption":     "campaign:text n:bigint code:text customer_id:text order_id:text redeemed_at:time rolled_back_at:time",
		"expiry_task":    "campaign:text due_at:time pending:bigint redeemed:bigint expired:bigint state:text",
		"reminder":       "campaign:text customer_id:text kind:text due_at:time state:text",
		"campaign_stats": "campaign:text day:time attribute:text",
		"refusal_stats":  "campaign:text reason:text",
		"checkpoint":     "projection:text lane:bigint sequence:bigint updated_at:time",
		"dead_letter":    "stream:text lane:bigint sequence:bigint line:bigint reason:text payload:text at:time",
	} {
		rows, err := r.db.Query(t.Context(), `SELECT column_name || ':' || CASE data_type WHEN 'timestamp with time zone' THEN 'time' ELSE data_type END
			FROM information_schema.columns WHERE table_schema = 'scrip' AND table_name = $1`, relation)
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		there := " " + strings.Join(list, " ") + " "
		for _, column := range strings.Fields(columns) {
			if !strings.Contains(there, " "+column+" ") {
				t.Errorf("%s has no %s, it has%s", relation, column, there)
			}
		}
	}
	matchRows(t, r.rows(t, `SELECT count(*) > 0 AS there FROM pg_indexes WHERE schemaname = 'scrip' AND tablename = 'expiry_task' AND indexdef LIKE '%due_at%' AND indexdef LIKE '%state%'`), `{"there":true}`)
	// Whoever reads scrip.json is the owner of the schema.
	matchRows(t, r.rows(t, `SELECT pg_get_userbyid(nspowner) = current_user AS mine FROM pg_namespace WHERE nspname = 'scrip'`), `{"mine":true}`)
}

// TestCampaignRow: what was chosen, and what follows where nothing was.
func TestCampaignRow(t *testing.T) {
	r := server(t)
	const query = `SELECT campaign, status, category, codes, claimed, redeemed, expired, voided, opens_at, closes_at, expires_at, created_at FROM scrip.campaign WHERE campaign = $1`
	all := r.campaign(t, `"codes":5,"category":"food","opens_at":"2030-01-01T00:00:00Z","closes_at":"2030-02-01T00:00:00Z","expires_at":"2030-03-01T00:00:00Z"`)
	matchRows(t, r.rows(t, query, all), `{"campaign":"`+all+`","status":"active","category":"food","codes":5,"claimed":0,"redeemed":0,"expired":0,"voided":0,"opens_at":"~at:2030-01-01T00:00:00Z","closes_at":"~at:2030-02-01T00:00:00Z","expires_at":"~at:2030-03-01T00:00:00Z","created_at":"~text"}`)
	// Absent: opens now, closes when it expires.
	some := r.campaign(t, `"codes":5,"expires_at":"2030-03-01T00:00:00Z"`)
	created := parse(t, r.eventsOf(t, some, "campaign.created", 1)[0])["at"].(string)
	matchRows(t, r.rows(t, query, some), `{"campaign":"`+some+`","status":"active","category":null,"codes":5,"claimed":0,"redeemed":0,"expired":0,"voided":0,"opens_at":"~at:`+created+`","closes_at":"~at:2030-03-01T00:00:00Z","expires_at":"~at:2030-03-01T00:00:00Z","created_at":"~at:`+created+`"}`)
	none := r.campaign(t, `"codes":5`)
	matchRows(t, r.rows(t, `SELECT closes_at, expires_at FROM scrip.campaign WHERE campaign = $1`, none), `{"closes_at":null,"expires_at":null}`)
}

// TestRedemptionRows: one per redemption; the customer comes from the claim.
func TestRedemptionRows(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":5,"max_redemptions":2`)
	code := r.claim(t, c, "ann")
	for _, order := range []string{"o1", "o2"} {
		r.wantStatus(t, "scrip.redeem", `{"code":"`+code+`","order_id":"`+order+`"}`, "redeemed")
	}
	r.wantStatus(t, "scrip.rollback", `{"code":"`+code+`","order_id":"o1"}`, "rolled_back")
	r.wantStatus(t, "scrip.redeem", `{"code":"`+code+`","order_id":"o1"}`, "redeemed")
	at := map[int]string{}
	for i, event := range r.eventsOf(t, c, "coupon.redeemed", 3) {
		at[i] = parse(t, event)["at"].(string)
	}
	back := parse(t, r.eventsOf(t, c, "coupon.rolled_back", 1)[0])["at"].(string)
	row := func(order, redeemed, rolledBack string) string {
		return fill(`{"n":1,"code":"$1","customer_id":"ann","order_id":"$o","redeemed_at":"~at:$r","rolled_back_at":$b}`, "$1", code, "$o", order, "$r", redeemed, "$b", rolledBack)
	}
	matchRows(t, r.rows(t, `SELECT n, code, customer_id, order_id, redeemed_at, rolled_back_at FROM scrip.redemption WHERE campaign = $1 ORDER BY redeemed_at`, c),
		row("o1", at[0], `"~at:`+back+`"`), row("o2", at[1], "null"), row("o1", at[2], "null"))
	matchRows(t, r.rows(t, `SELECT status, redeemed_count, redeemed_at, claimed_at FROM scrip.coupon WHERE campaign = $1`, c),
		`{"status":"redeemed","redeemed_count":2,"redeemed_at":"~at:`+at[2]+`","claimed_at":"~at:`+parse(t, r.eventsOf(t, c, "coupon.claimed", 1)[0])["at"].(string)+`"}`)
}

// TestStats count by day and attribute, refusals by reason.
func TestStats(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":3`)
	for i, channel := range []string{"app", "app", "web", "web"} {
		r.request(t, "scrip.claim."+c, fmt.Sprintf(`{"customer_id":"c%d","attributes":{"channel":"%s"}}`, i, channel))
	}
	matchRows(t, r.rows(t, `SELECT attribute, value, sum(claimed)::bigint AS claimed FROM scrip.campaign_stats WHERE campaign = $1 GROUP BY 1, 2 ORDER BY 1, 2`, c),
		`{"attribute":"","value":"","claimed":3}`, `{"attribute":"channel","value":"app","claimed":2}`, `{"attribute":"channel","value":"web","claimed":1}`)
	matchRows(t, r.rows(t, `SELECT DISTINCT day = date_trunc('day', claimed_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS that_day FROM scrip.campaign_stats s JOIN scrip.coupon k ON k.campaign = s.campaign WHERE s.campaign = $1`, c), `{"that_day":true}`)
	matchRows(t, r.rows(t, `SELECT reason, sum(refused)::bigint AS refused FROM scrip.refusal_stats WHERE campaign = $1 GROUP BY 1`, c), `{"reason":"sold_out","refused":1}`)
}

// TestCheckpoint: one row per lane, at the end of the log once the tables have caught up, moved in the transaction that
// wrote the rows.
func TestCheckpoint(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":3`)
	r.claim(t, c, "ann")
	matchRows(t, r.rows(t, `SELECT count(DISTINCT projection) AS projections, count(*) AS lanes, bool_and(updated_at <= now()) AS past FROM scrip.checkpoint`),
		fmt.Sprintf(`{"projections":1,"lanes":%d,"past":true}`, r.desc.Lanes))
	// By status.
	matchRows(t, r.rows(t, `SELECT status, count(*) FROM scrip.coupon WHERE campaign = $1 GROUP BY 1`, c), `{"status":"claimed","count":1}`)
}
