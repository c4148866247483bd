package confine

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// analystRelations are those of the contract that analysts may read whole; of scrip.dead_letter they may not read the lines.
const analystRelations = "scrip.campaign, scrip.campaign_event, scrip.coupon, scrip.allotment, scrip.redemption, scrip.expiry_task, scrip.reminder, scrip.campaign_stats, " +
	"scrip.refusal_stats, scrip.checkpoint, scrip.lag, scrip_meta.push_audience, scrip_meta.push_held, scrip_meta.push_dead_letter"

//go:embed analysts.sql
var analystsSQL string

func analystsBody() string { return strings.Replace(analystsSQL, "{{relations}}", analystRelations, 1) }

// analystsLook shows whether all is as Analysts makes it: the key of masks; the grants, the roles that may log in, and no session
// of another. It fails without the tables.
//
// $1 = inner pad, NULL = any   $2 = the roles, by name
const analystsLook = `
WITH g AS (SELECT oid FROM pg_roles WHERE rolname = left(current_database(), 40) || '_analyst'),
     u AS (SELECT u.rolname, u.rolcanlogin FROM pg_roles u JOIN pg_auth_members m ON m.member = u.oid JOIN g ON g.oid = m.roleid WHERE u.rolname ~ '^analyst_')
SELECT coalesce($1::bytea IS NULL OR (SELECT inner_pad FROM scrip_meta.mask) = $1, false),
       $2::text[] = '{}' AND NOT EXISTS (SELECT FROM g) OR coalesce(
         (SELECT bool_and(has_table_privilege(g.oid, r, 'SELECT')) FROM g, unnest('{` + analystRelations + `}'::regclass[]) r), false)
       AND coalesce((SELECT array_agg(rolname::text ORDER BY rolname::text COLLATE "C") FROM u WHERE rolcanlogin), '{}') = $2
       AND NOT EXISTS (SELECT FROM pg_stat_activity a JOIN u ON u.rolname = a.usename WHERE NOT u.rolcanlogin),
       EXISTS (SELECT FROM pg_proc p JOIN pg_namespace s ON s.oid = p.pronamespace JOIN pg_roles o ON o.oid = p.proowner
         WHERE s.nspname = '` + Schema + `' AND p.proname = 'analysts' AND o.rolsuper AND has_schema_privilege(s.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE')),
       session_user::text`

// Analysts gives the analysts a role each in the database of the read tables, ends those of others with their sessions, and stores
// the key of masks unless inner is nil. The roles are members of DATABASE_analyst, which may read the relations of the contract.
// It does nothing if all is so. Without the right to make roles the error names what to do.
func Analysts(ctx context.Context, pool *pgxpool.Pool, wanted []access.Login, inner, outer []byte) error {
	names := []string{}
	for _, login := range wanted {
		names = append(names, access.SQLUser(login.ID))
	}
	var mask, roles, function bool
	var me string
	err := pool.QueryRow(ctx, analystsLook, inner, names).Scan(&mask, &roles, &function, &me)
	if err == nil && !mask {
		_, err = pool.Exec(ctx, "INSERT INTO scrip_meta.mask VALUES ($1, $2) ON CONFLICT (one) DO UPDATE SET inner_pad = $1, outer_pad = $2", inner, outer)
	}
	if err != nil || roles {
		return err
	}
	list, err := json.Marshal(append([]access.Login{}, wanted...)) // null is no list
	if err != nil {
		return err
	}
	if function {
		_, err = pool.Exec(ctx, "SELECT "+Schema+".analysts($1)", list)
		return err
	}
	// The same statements with the caller's rights. The list has no quotes but JSON's.
	if _, err = pool.Exec(ctx, "DO $confine$"+strings.Replace(analystsBody(), "DECLARE\n", "DECLARE\n  wanted jsonb := '"+string(list)+"';\n", 1)+"$confine$"); err != nil {
		return fmt.Errorf("making the roles of analysts: %w; where it is a missing right, have an administrator of the database run: ALTER ROLE %s CREATEROLE", err, pgx.Identifier{me}.Sanitize())
	}
	return nil
}
