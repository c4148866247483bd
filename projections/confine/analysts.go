package confine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// What analysts may read: analystViews in schema scrip and in each copy, and analystTables. They are those of the contract.
const (
	analystViews = "allotment,campaign,campaign_event,campaign_stats,checkpoint,coupon,coupon_event,dead_letter,expiry_task,lag," +
		"redemption,refusal_stats,reminder"
	analystTables = "scrip_meta.push_audience, scrip_meta.push_held, scrip_meta.push_dead_letter"
)

// copyMark begins the comment on the schema with the views of a copy.
const copyMark = "read tables of scrip as of "

// readableSQL are the schemas n with these views. Who does not own schema scrip makes no copy.
const readableSQL = `(n.nspname = 'scrip' OR starts_with(obj_description(n.oid, 'pg_namespace'), '` + copyMark + `')
        AND n.nspowner = (SELECT o.nspowner FROM pg_namespace o WHERE o.nspname = 'scrip'))`

// lockTimeout bounds what waits for a lock: an analyst holds one on the row of its role while it changes its own
// password.
const lockTimeout = "SET LOCAL lock_timeout = '200ms'"

// meSQL reads who the caller is, and whether the functions of Install are there and may be used.
const meSQL = `
SELECT session_user::text, r.rolsuper,
       coalesce((SELECT obj_description(s.oid, 'pg_namespace') FROM pg_namespace s JOIN pg_roles o ON o.oid = s.nspowner
         WHERE s.nspname = '` + Schema + `' AND o.rolsuper AND has_schema_privilege(s.oid, 'USAGE')), '')
FROM pg_roles r WHERE r.rolname = session_user`

// tablesSQL shows whether the key of masks is stored, and whether the groups of analysts may read, and have no settings:
// an analyst may SET ROLE to its group, and give that some. They have no effect, but stay. It fails without the tables.
//
// $1 = inner pad, NULL = any
const tablesSQL = `
WITH g AS (SELECT oid FROM pg_roles WHERE rolname = left(current_database(), 40) || '_analyst')
SELECT coalesce($1::bytea IS NULL OR (SELECT inner_pad FROM scrip_meta.mask) = $1, false), EXISTS (SELECT FROM g),
       coalesce((SELECT bool_and(has_table_privilege(g.oid, r, 'SELECT'))
         FROM g, unnest('{` + analystTables + `,scrip.campaign}'::regclass[]) r), false)
         AND NOT EXISTS (SELECT FROM g, pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
         WHERE c.relkind = 'v' AND c.relname = ANY ('{` + analystViews + `}') AND ` + readableSQL + `
           AND NOT has_table_privilege(g.oid, c.oid, 'SELECT'))
         AND NOT EXISTS (SELECT FROM pg_db_role_setting s JOIN pg_roles c ON c.oid = s.setrole
         WHERE c.rolname ~ '_analyst(_codes|_customers|_clear|)$' AND starts_with(c.rolname, left(current_database(), 40) || '_analyst'))`

const processesSQL = `
SELECT a.pid FROM pg_stat_activity a JOIN pg_auth_members m ON m.member = a.usesysid JOIN pg_roles g ON g.oid = m.roleid
WHERE g.rolname = left(current_database(), 40) || '_analyst' AND a.usename ~ '^analyst_'`

// The reasons for which sessions are ended.
const (
	Revoked       = "revoked"       // the key is not in force
	Closed        = "closed"        // the key is not in force, its role is closed and has no session
	Changed       = "changed"       // the role is new, or has another password or other settings than scrip gave it
	Disk          = "disk"          // the disk has less than its reserve
	Notifications = "notifications" // PostgreSQL's queue fills, and a transaction may keep it
	Idle          = "idle"          // a transaction waits for its client
	Writes        = "writes"        // an analyst writes, such as to its own role
	Long          = "long"          // a transaction is too old
	Many          = "many"          // analysts have too many sessions
)

// Ended are the sessions of one role that a round has ended.
type Ended struct {
	Role, Why string
	Sessions  int
}

// Round is what Analysts has done.
type Round struct {
	Ended []Ended
	// Installed is true if it ran Install, because its role is a superuser.
	Installed bool
	// Guarded is true if each session that had to end was sent its end, and no revoked key can open another one.
	Guarded bool
}

// Analysts makes the roles of analysts in the database of the read tables equal to the keys in force. First it ends the
// sessions of other keys, which waits for nothing that an analyst may hold, and those that take what all share; full is
// true while the disk has less than its reserve. Then it closes the roles of other keys, each by a separate statement,
// and ends their sessions once more; roles that a round before has closed are dropped, with what was granted to them. At
// last it stores the key of masks, unless inner is nil, and gives the others their roles, members of DATABASE_analyst,
// which may read the relations of the contract. Without the right to make roles the error names what to do.
//
// stale is true while a server may have missed changes of keys: then it only ends and closes, and neither opens what another
// server has closed nor drops what it has made.
//
// Servers do so at the same time, without a lock: what fails because another one was first is as it should be in the
// next round. After a crash that continues.
func Analysts(ctx context.Context, pool *pgxpool.Pool, wanted []access.Login, inner, outer []byte, full, stale bool) (
	Round, error) {
	r := newRound(wanted)
	err := pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		r.conn = conn.Conn()
		closed, changed, err := r.guard(ctx, full)
		if err != nil {
			return err
		}
		if stale {
			return nil
		}
		// In this order: a new key may have the name of one whose role is dropped.
		return errors.Join(r.drop(ctx, closed), r.make(ctx, changed, inner, outer))
	})
	return r.done, err
}

type round struct {
	conn     *pgx.Conn
	of       map[string]access.Login // by role
	list     []access.Login
	me       string
	function bool // Install was run
	done     Round
}

func newRound(wanted []access.Login) *round {
	r := &round{of: map[string]access.Login{}, list: append([]access.Login{}, wanted...)} // null is no list
	for _, login := range wanted {
		r.of[access.SQLUser(login.Name)] = login
	}
	return r
}

// guard ends what is to end; closed are the roles that are to be dropped, and changed those that are to be set.
func (r *round) guard(ctx context.Context, full bool) (closed, changed []string, err error) {
	var superuser bool
	var comment string
	if err := r.conn.QueryRow(ctx, meSQL).Scan(&r.me, &superuser, &comment); err != nil {
		return nil, nil, err
	}
	r.function = comment == installed(r.me)
	if superuser && !r.function && len(r.list) > 0 { // as in the compose file
		if err := r.install(ctx); err != nil {
			return nil, nil, fmt.Errorf("taking rights from everybody: %w", err)
		}
	}
	found, err := r.end(ctx, full)
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	var revoked bool
	for _, one := range found {
		switch {
		case one.Sessions > 0:
		case one.Why == Closed:
			closed = append(closed, one.Role)
		case one.Why == Changed:
			changed = append(changed, one.Role)
		case one.Why == Revoked:
			revoked = true
			if err := r.set(ctx, r.revoked(one.Role, false)); err != nil {
				errs = append(errs, fmt.Errorf("closing role %s: %w", one.Role, err))
			}
		}
	}
	if revoked { // those that began before it was closed
		_, err := r.end(ctx, full)
		errs = append(errs, err)
	}
	err = errors.Join(errs...)
	r.done.Guarded = err == nil
	return closed, changed, err
}

// revoked is the argument of analyst.sql that closes or drops a role. Another server may have put the role of the key in force in its
// place since it was judged, so that key is named.
func (r *round) revoked(role string, drop bool) map[string]any {
	who := map[string]any{"name": access.SQLName(role), "drop": drop}
	if login, found := r.of[role]; found {
		who["id"] = login.ID
	}
	return who
}

// drop drops roles. What fails is tried again in the next round: nobody can log in as one of them.
func (r *round) drop(ctx context.Context, closed []string) error {
	var errs []error
	for _, role := range closed {
		if err := r.set(ctx, r.revoked(role, true)); err != nil {
			errs = append(errs, fmt.Errorf("dropping role %s of a revoked key: %w", role, err))
		}
	}
	return errors.Join(errs...)
}

func (r *round) install(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		for _, sql := range append([]string{lockTimeout}, Install(r.me)...) {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
	r.function, r.done.Installed = err == nil, err == nil
	return err
}

// end runs guard.sql.
func (r *round) end(ctx context.Context, full bool) ([]Ended, error) {
	list, err := json.Marshal(r.list)
	if err != nil {
		return nil, err
	}
	sql := "SELECT name, why, ended FROM " + Schema + ".guard($1, $2)"
	if !r.function {
		sql = filled(guardSQL, false, "$1::jsonb", "$2::boolean")
	}
	rows, err := r.conn.Query(ctx, sql, string(list), full)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Ended])
	for _, one := range all {
		if one.Sessions > 0 {
			r.done.Ended = append(r.done.Ended, one)
		}
	}
	return all, err
}

// set runs analyst.sql for who.
func (r *round) set(ctx context.Context, who any) error {
	value, err := json.Marshal(who)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, r.conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, lockTimeout)
		switch {
		case err != nil:
		case r.function:
			_, err = tx.Exec(ctx, "SELECT "+Schema+".analyst(nullif($1::jsonb, 'null'))", string(value))
		default: // the same statements with the caller's rights; a name may have any character
			declared := fmt.Sprintf("DECLARE\n  who jsonb := nullif(convert_from('\\x%x', 'UTF8')::jsonb, 'null');\n", value)
			_, err = tx.Exec(ctx, "DO $confine$"+strings.Replace(analystBody(false), "DECLARE\n", declared, 1)+"$confine$")
		}
		return err
	})
}

// make stores the key of masks, and sets groups and roles.
func (r *round) make(ctx context.Context, changed []string, inner, outer []byte) error {
	var mask, groups, read bool
	err := r.conn.QueryRow(ctx, tablesSQL, inner).Scan(&mask, &groups, &read)
	if err == nil && !mask {
		_, err = r.conn.Exec(ctx, "INSERT INTO scrip_meta.mask VALUES ($1, $2) "+
			"ON CONFLICT (one) DO UPDATE SET inner_pad = $1, outer_pad = $2", inner, outer)
	}
	if err == nil && !read && (groups || len(changed) > 0) {
		err = r.set(ctx, nil)
	}
	if err == nil {
		var errs []error // of one analyst, without the others
		for _, role := range changed {
			errs = append(errs, r.set(ctx, r.of[role]))
		}
		err = errors.Join(errs...)
	}
	if err != nil && !r.function {
		return fmt.Errorf("making the roles of analysts: %w; where it is a missing right, "+
			"have an administrator of the database run: ALTER ROLE %s CREATEROLE", err, pgx.Identifier{r.me}.Sanitize())
	}
	return err
}

// Copied is a statement that marks a schema as that of a copy as of a time, and lets the analysts that there are read it. Who comes
// later may read it from the next round of Analysts on.
func Copied(name string, asOf time.Time) string {
	return fmt.Sprintf("COMMENT ON SCHEMA %s IS '%s%s'; ", pgx.Identifier{name}.Sanitize(), copyMark, asOf.UTC().Format(time.RFC3339Nano)) +
		"DO $confine$ DECLARE readers name := left(current_database(), 40) || '_analyst'; was record; BEGIN\n" +
		"IF to_regrole(quote_ident(readers)) IS NOT NULL THEN\n" + readersBody() + "\nEND IF; END $confine$"
}

// Processes are those of PostgreSQL that work for analysts, parallel workers too.
func Processes(ctx context.Context, pool *pgxpool.Pool) ([]int, error) {
	rows, err := pool.Query(ctx, processesSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// Exposed is what analysts may do beside reading because Install was not run; "" = nothing, or there are none.
func Exposed(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	var functions []string
	var temporary, analysts bool
	var me, comment string
	var superuser bool
	err := pool.QueryRow(ctx, meSQL).Scan(&me, &superuser, &comment)
	if err == nil {
		err = pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
			WHERE g.rolname = left(current_database(), 40) || '_analyst'),
			coalesce((SELECT array_agg(DISTINCT o.proname::text) FROM (`+openFunctions()+`) o), '{}'),
			EXISTS (SELECT FROM pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
			WHERE d.datname = current_database() AND a.grantee = 0 AND a.privilege_type = 'TEMPORARY')`).
			Scan(&analysts, &functions, &temporary)
	}
	if err != nil || !analysts || len(functions) == 0 && !temporary && comment == installed(me) {
		return "", err
	}
	var may []string
	if len(functions) > 0 {
		may = append(may, fmt.Sprintf("execute lo_create, pg_advisory_lock and others (%d functions)", len(functions)))
	}
	if temporary {
		may = append(may, "make temporary tables")
	}
	if comment != installed(me) {
		may = append(may, "fill the disk with temporary files and keep another password until the key ends")
	}
	return "analysts may " + strings.Join(may, ", ") + "; have a superuser run what `scrip postgres rights " + me + "` prints", nil
}
