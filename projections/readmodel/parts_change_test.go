package readmodel

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// meanwhile changes the tables before the second query of a pool.
type meanwhile struct {
	t       *testing.T
	pool    *pgxpool.Pool
	change  string
	queries int
}

func (m *meanwhile) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "FROM") {
		if m.queries++; m.queries == 2 {
			exec(m.t, m.pool, m.change)
		}
	}
	return ctx
}

func (m *meanwhile) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestPartsOfTablesThatChange: while a part is read, rows are added before it, or some of its rows are deleted. The parts have each
// entry that stays once.
func TestPartsOfTablesThatChange(t *testing.T) {
	t.Cleanup(func() { partRows = 10_000 })
	pool := database(t)
	fillTables(t, pool)
	exec(t, pool, `CREATE TABLE all_reminders AS SELECT * FROM scrip_1.reminder; CREATE TABLE all_letters AS SELECT * FROM scrip_tables.dead_letter`)
	config := pool.Config()
	changing := &meanwhile{t: t, pool: pool}
	config.ConnConfig.Tracer = changing
	traced, err := pgxpool.NewWithConfig(t.Context(), config)
	streamtest.Must(t, err)
	t.Cleanup(traced.Close)
	r := &reader{nil, NewHistory(traced, nothing), NewLetters(traced)}
	lists := map[string]part{
		"reminders": r.reminders(ops.ListReminders{Campaign: "a", State: "fired"}),
		"letters":   r.lettersOf(LetterFilter{State: Open}),
		"groups":    r.groups,
	}
	// An entry is the first or the last of the rows that are counted twice, or not at all, if the end of the part moves.
	for _, c := range []struct {
		name, change string
		rows         int
	}{
		{"rows are added", `
INSERT INTO scrip_1.reminder (campaign, r, before_us, due_at, set_at, customer_id, kind, state, set_place)
    SELECT 'a', r, 3600000000, now(), now(), 'k', 'opens', 'pending', r FROM (SELECT max(r) AS last FROM scrip_1.reminder) x, generate_series(last + 1, last + 9) r;
WITH d AS (INSERT INTO scrip_tables.dead_letter (lane, sequence, line, event_sequence, event_line, at, stream, reason, payload)
    SELECT 0, i, 1, i, 1, now(), 'SCRIP_CMD_0', 'r', 'p' FROM (SELECT max(sequence) AS last FROM scrip_tables.dead_letter) x, generate_series(last + 1, last + 9) i
    RETURNING event_sequence, at)
INSERT INTO scrip_meta.dead_letter (log, lane, event_sequence, event_line, at, settled_at, state, note)
    SELECT 'l', 0, d.event_sequence, 1, d.at, now(), 'discarded', '' FROM d`, every + 1},
		{"rows are deleted", `
DELETE FROM scrip_1.reminder WHERE r IN (SELECT r FROM scrip_1.reminder WHERE r % 1000 BETWEEN 500 AND 900 ORDER BY r DESC LIMIT 9);
DELETE FROM scrip_tables.dead_letter WHERE sequence IN
    (SELECT sequence FROM scrip_tables.dead_letter WHERE sequence % 1000 BETWEEN 500 AND 900 ORDER BY sequence DESC LIMIT 9)`, every - 1},
	} {
		for name, list := range lists {
			exec(t, pool, `DELETE FROM scrip_1.reminder; DELETE FROM scrip_tables.dead_letter;
INSERT INTO scrip_1.reminder SELECT * FROM all_reminders; INSERT INTO scrip_tables.dead_letter SELECT * FROM all_letters`)
			partRows, changing.change, changing.queries = c.rows, c.change, 0
			sum := 0
			for p := (ops.Paging{Limit: 100}); ; {
				n, next, err := list(t.Context(), p)
				streamtest.Must(t, err)
				sum += n
				if p.After = next; next == "" {
					break
				}
			}
			streamtest.Equal(t, name+" while "+c.name, sum, rows/every)
		}
	}
}
