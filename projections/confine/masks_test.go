package confine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// ofTheShop are the texts that analysts read in clear whatever their rights: names, and what the shop or a gateway chooses freely, see
// CONTRACT.md. No other column shows what is in the table behind it.
var ofTheShop = strings.Fields("campaign category prefix priority benefit status attributes void_reason order_id reason batch attribute value " +
	"what type by kind state projection log digest stream name message")

// insertSQL fills a table with one row: $1 in each text.
const insertSQL = `
SELECT format('INSERT INTO %s (%s) VALUES (%s)', c.oid::regclass, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum), string_agg(
	CASE format_type(a.atttypid, NULL) WHEN 'text' THEN quote_literal($1) WHEN 'bigint' THEN '1' WHEN 'integer' THEN '0' WHEN 'boolean' THEN 'false'
	WHEN 'timestamp with time zone' THEN quote_literal('2026-01-01Z') END, ', ' ORDER BY a.attnum))
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
WHERE s.nspname IN ('scrip_1', 'scrip_meta') AND c.relkind IN ('r', 'p') AND NOT c.relispartition
AND c.relname NOT IN ('segment', 'removal', 'leaving', 'mask', 'format', 'push_round') GROUP BY c.oid`

// TestWhatAnalystsSeeOfCodesAndCustomers: every text of every table is the id of a customer, which is a code as well. Of all that
// analysts may read, those without a right see masks in its columns, equal to those of events; and by these they find rows and join.
// Those with it see texts, by way of indexes.
func TestWhatAnalystsSeeOfCodesAndCustomers(t *testing.T) {
	url := projtest.URL(t)
	w := newWorld(t, url, projtest.Admin(t, url))
	const planted = "ann@shop.example"
	for _, made := range []string{
		"SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint WHERE contype = 'c' AND conislocal AND coninhcount = 0 " +
			"AND connamespace IN ('scrip_1'::regnamespace, 'scrip_meta'::regnamespace)",
		strings.ReplaceAll(insertSQL, "$1", "'"+planted+"'"),
	} {
		rows, err := w.pool.Query(t.Context(), made)
		streamtest.Must(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		streamtest.Must(t, err)
		for _, sql := range all {
			_, err := w.pool.Exec(t.Context(), sql)
			streamtest.Must(t, err)
		}
	}
	mask := replay.NewMask([32]byte{7}, true, true)
	inner, outer := mask.Pads()
	analysts := map[string]access.Login{}
	for id, sees := range map[string][2]bool{"0none000": {}, "0code000": {true, false}, "0cust000": {false, true}, "0both000": {true, true}} {
		login := w.login(id)
		login.Codes, login.Customers = sees[0], sees[1]
		analysts[id] = login
	}
	var wanted []access.Login
	for _, login := range analysts {
		wanted = append(wanted, login)
	}
	_, err := confine.Analysts(t.Context(), w.pool, wanted, inner, outer, false, false)
	streamtest.Must(t, err)
	for id, login := range analysts {
		conn := w.connect(w.as(login, "secret"))
		code, customer := mask.Code(planted), mask.Customer(planted)
		if login.Codes {
			code = planted
		}
		if login.Customers {
			customer = planted
		}
		names := map[string]int{}
		for _, c := range readable(t, conn) {
			var text string
			sql := fmt.Sprintf("SELECT coalesce(string_agg(%s::text, ' '), '') FROM %s", c.Column, c.Relation)
			streamtest.Must(t, conn.QueryRow(t.Context(), sql).Scan(&text))
			names[c.Column]++
			switch {
			case c.Column == "code":
				streamtest.Equal(t, id+": "+c.Relation+".code", text, code)
			case c.Column == "customer_id":
				streamtest.Equal(t, id+": "+c.Relation+".customer_id", text, customer)
			case c.Column == "payload": // the quote of a line
				streamtest.Equal(t, id+": a line is shown", text != "", login.Codes && login.Customers)
			case strings.Contains(text, planted) && !slices.Contains(ofTheShop, c.Column):
				t.Errorf("%s reads %s in %s.%s: mask it in views.sql, or say in the contract whose text it is", id, text, c.Relation, c.Column)
			}
		}
		want := map[string]int{"code": 2, "customer_id": 4, "by": 2, "payload": 1}
		for column, n := range want {
			streamtest.Equal(t, id+": relations with "+column, names[column], n)
		}
		var found int
		streamtest.Must(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM scrip.coupon c JOIN scrip.redemption r USING (campaign, n, code, customer_id)
			JOIN scrip.reminder m USING (customer_id) JOIN scrip_meta.push_dead_letter d USING (customer_id) WHERE customer_id = $1 AND code = $2`, customer, code).Scan(&found))
		streamtest.Equal(t, id+": rows of the customer and the code", found, 1)
		for sql, clear := range map[string]bool{
			"SELECT n FROM scrip.coupon WHERE customer_id = 'x'":                   login.Customers,
			"SELECT n FROM scrip.coupon WHERE code = 'x'":                          login.Codes,
			"SELECT kind FROM scrip.reminder WHERE customer_id = 'x'":              login.Customers,
			"SELECT kind FROM scrip_meta.push_dead_letter WHERE customer_id = 'x'": login.Customers,
		} {
			rows, err := conn.Query(t.Context(), "EXPLAIN "+sql)
			streamtest.Must(t, err)
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			streamtest.Must(t, err)
			if bare := !strings.Contains(strings.Join(plan, "\n"), "sha256"); bare != clear {
				t.Errorf("%s: %s compares the column itself: %t, want %t:\n%s", id, sql, bare, clear, strings.Join(plan, "\n"))
			}
		}
	}
	// A right that is given or taken is in force in the next round.
	login := analysts["0cust000"]
	login.Codes, login.Customers = true, false
	w.round(login)
	var code, customer string
	streamtest.Must(t, w.connect(w.as(login, "secret")).QueryRow(t.Context(), "SELECT code, customer_id FROM scrip.coupon").Scan(&code, &customer))
	if code != planted || customer == planted {
		t.Errorf("after its rights have changed: %s %s", code, customer)
	}
}

type readableColumn struct{ Relation, Column string }

// readable are the columns that a session may read.
func readable(t *testing.T, conn *pgx.Conn) []readableColumn {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT n.nspname || '.' || c.relname, a.attname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE n.nspname LIKE 'scrip%' AND c.relkind IN ('r', 'v', 'p', 'm') AND has_schema_privilege(n.oid, 'USAGE') AND has_column_privilege(c.oid, a.attnum, 'SELECT')`)
	streamtest.Must(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[readableColumn])
	streamtest.Must(t, err)
	return all
}
