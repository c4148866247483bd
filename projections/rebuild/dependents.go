package rebuild

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// referenceSchema is created and rolled back to list the objects that schema.Create makes.
const referenceSchema = "scrip_reference"

// object is in a schema of read tables, or depends on something in it, directly or not.
type object struct {
	Class string // the catalog that holds it
	OID   uint32
	// Type, Namespace and Identity are those of pg_identify_object: "view", "reports", "reports.holders".
	Type, Identity string
	Kind           string   // relkind or prokind
	On             uint32   // the relation it is part of; 0 = none
	Internal       bool     // PostgreSQL created it as part of another object
	Mine           bool     // the session's role may change it
	Needs          []string // what it depends on, as "catalog:oid"
}

func (o *object) key() string { return fmt.Sprintf("%s:%d", o.Class, o.OID) }

func (o *object) String() string { return o.Type + " " + o.Identity }

//go:embed objects.sql
var objectsSQL string

func objects(ctx context.Context, tx pgx.Tx, name string) ([]object, error) {
	return schema.Collect(ctx, tx, pgx.RowToStructByPos[object], objectsSQL, name)
}

// identified returns the identity that an object has if its schema is named scrip.
func identified(o *object, own *regexp.Regexp) string {
	return o.Type + " " + own.ReplaceAllLiteralString(o.Identity, schema.Name)
}

// others looks after what others built on the read tables.
type others struct {
	db    *pgxpool.Pool
	owner string          // of the read tables
	super bool            // whether the role that connected is a superuser
	drop  bool            // Options.DropDependents
	known map[string]bool // what scrip creates, as identified
}

// withReference runs f in a transaction in which schema referenceSchema has what schema.Create makes, and rolls it
// back.
func (s *others) withReference(ctx context.Context, f func(tx pgx.Tx) error) error {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := schema.Create(ctx, tx, referenceSchema); err != nil {
		return err
	}
	return f(tx)
}

// reference lists what schema.Create makes, as identified.
func (s *others) reference(ctx context.Context) (map[string]bool, error) {
	if s.known != nil {
		return s.known, nil
	}
	var list []object
	err := s.withReference(ctx, func(tx pgx.Tx) (err error) {
		list, err = objects(ctx, tx, referenceSchema)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing what scrip creates: %w", err)
	}
	known, own := map[string]bool{}, regexp.MustCompile(`\b`+referenceSchema+`\b`)
	for i := range list {
		known[identified(&list[i], own)] = true
	}
	s.known = known
	return known, nil
}

// dependents are objects that others created in a schema of read tables, or that depend on the read tables.
type dependents struct {
	indexes []extraIndex
	// moves are in the schema and can be moved without the read tables. recreate are views and functions that depend on
	// the read tables, as statements that create them again on the tables that then have these names.
	moves    []object
	recreate []step
	// left cannot be carried over. standalone are those of them that are not just a part of a read table.
	left, standalone []string
}

type extraIndex struct{ Table, Name, Definition string }

// of compares what is in a schema, and depends on it, with what schema.Create makes.
func (s *others) of(ctx context.Context, tx pgx.Tx, name string) (*dependents, error) {
	known, err := s.reference(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.maintain(ctx, tx); err != nil {
		return nil, err
	}
	list, err := objects(ctx, tx, name)
	if err != nil {
		return nil, fmt.Errorf("listing dependents of the read tables: %w", err)
	}
	var namespace uint32
	if err := tx.QueryRow(ctx, "SELECT coalesce(to_regnamespace($1)::oid, 0)", name).Scan(&namespace); err != nil {
		return nil, err
	}
	own := regexp.MustCompile(`\b` + name + `\b`)
	ours, tables, rules := map[string]bool{}, map[uint32]bool{}, map[uint32][]string{}
	for i := range list {
		o := &list[i]
		if known[identified(o, own)] {
			ours[o.key()] = true
			tables[o.OID] = tables[o.OID] || o.Class == "pg_class"
		} else if o.Class == "pg_rewrite" && o.Internal {
			rules[o.On] = o.Needs
		}
	}
	g := &dependents{}
	for i := range list {
		o := &list[i]
		if known[identified(o, own)] || o.Internal {
			continue
		}
		if o.Class == "pg_class" && o.On == 0 { // what a view's rule depends on, the view depends on
			o.Needs = append(o.Needs, rules[o.OID]...)
		}
		if err := g.add(ctx, tx, o, ours, tables[o.On], slices.Contains(o.Needs, fmt.Sprintf("pg_namespace:%d", namespace))); err != nil {
			return nil, err
		}
	}
	return g, s.resume(ctx, tx)
}

// add decides how an object is treated when the tables are exchanged. part: it is part of a read table. inside: it is
// in the schema.
func (g *dependents) add(ctx context.Context, tx pgx.Tx, o *object, ours map[string]bool, part, inside bool) error {
	direct := slices.ContainsFunc(o.Needs, func(key string) bool { return ours[key] })
	ofType := slices.ContainsFunc(o.Needs, func(key string) bool { return ours[key] && strings.HasPrefix(key, "pg_type:") })
	isRelation, isFunction := o.Class == "pg_class" && o.On == 0, o.Class == "pg_proc" && strings.Contains("fp", o.Kind)
	switch {
	case part && o.Class == "pg_class" && o.Kind == "i":
		var x extraIndex
		err := tx.QueryRow(ctx, "SELECT c.relname::text, i.relname::text, pg_get_indexdef(i.oid) FROM pg_class i, pg_class c WHERE i.oid = $1 AND c.oid = $2", o.OID, o.On).
			Scan(&x.Table, &x.Name, &x.Definition)
		g.indexes = append(g.indexes, x)
		return err
	case part:
		g.left = append(g.left, o.String())
	case o.On != 0 && !direct, !inside && !direct: // belongs to another dependent, which is treated separately
	case !o.Mine:
		g.leave(o.String() + ", which belongs to a role that this one is not a member of")
	case o.Class == "pg_default_acl":
		return g.addStatements(ctx, tx, o, defaultsSQL)
	case isRelation && o.Kind == "v":
		if inside {
			g.moves = append(g.moves, *o)
		}
		if direct {
			return g.addStatements(ctx, tx, o, viewSQL)
		}
	case isFunction && !ofType:
		if inside {
			g.moves = append(g.moves, *o)
		}
		return g.addStatements(ctx, tx, o, functionSQL)
	case isRelation && inside && !direct && o.Kind == "S" && slices.ContainsFunc(o.Needs, func(key string) bool { return strings.HasPrefix(key, "pg_class:") }):
		// a sequence of a table, which is moved with the table
	case isRelation && inside && !direct && strings.Contains("rpS", o.Kind):
		g.moves = append(g.moves, *o)
	default:
		g.leave(o.String())
	}
	return nil
}

func (g *dependents) leave(text string) {
	g.left, g.standalone = append(g.left, text), append(g.standalone, text)
}

// Statements that create a view or a function again, with all schemas named: search_path is pg_catalog. A view keeps
// its owner, its grants and its dependents.
//
// $1 = its oid
const (
	viewSQL = `
SELECT format('CREATE OR REPLACE VIEW %I.%I %s AS %s', s.nspname, c.relname, 'WITH (' || array_to_string(c.reloptions, ', ') || ')', pg_get_viewdef(c.oid))
FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE c.oid = $1`
	functionSQL = `SELECT pg_get_functiondef($1::oid)`
	defaultsSQL = `
SELECT format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA %I GRANT %s ON %s TO %s%s', pg_get_userbyid(d.defaclrole), s.nspname, a.privilege_type,
              CASE d.defaclobjtype WHEN 'r' THEN 'TABLES' WHEN 'S' THEN 'SEQUENCES' WHEN 'f' THEN 'FUNCTIONS' ELSE 'TYPES' END,
              CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END, CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
FROM pg_default_acl d JOIN pg_namespace s ON s.oid = d.defaclnamespace, aclexplode(d.defaclacl) a WHERE d.oid = $1`
)

func (g *dependents) addStatements(ctx context.Context, tx pgx.Tx, o *object, sql string) error {
	statements, err := schema.Collect(ctx, tx, pgx.RowTo[string], sql, o.OID)
	g.recreate = append(g.recreate, step{o.String(), statements})
	return err
}

// check returns an error if an exchange would lose dependents, unless Options.DropDependents allows
// that.
func (s *others) check(g *dependents) error {
	if len(g.left) == 0 || s.drop {
		return nil
	}
	return refuse("these objects depend on the read tables and cannot be kept when the tables are exchanged: %s; drop them and create them again afterwards, "+
		"or leave them on the previous tables, with which they are dropped (--drop-dependents)", strings.Join(g.left, "; "))
}

// checkPrevious returns an error while dependents of others remain on the previous tables: they would be dropped with
// them.
func (s *others) checkPrevious(ctx context.Context, tx pgx.Tx) error {
	_, found, err := previousFormat(ctx, tx)
	if err != nil || !found || s.drop {
		return err
	}
	g, err := s.of(ctx, tx, PreviousSchema)
	if err != nil {
		return err
	}
	names := g.standalone
	for i := range g.moves {
		names = append(names, g.moves[i].String())
	}
	for _, a := range g.recreate {
		if !strings.HasPrefix(a.what, "default acl") && !slices.Contains(names, a.what) {
			names = append(names, a.what)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return refuse("these objects still depend on the tables before the last rebuild, in schema %s, and would be dropped with them: %s; create them again "+
		"(CREATE OR REPLACE), drop them, or allow that (--drop-dependents)", PreviousSchema, strings.Join(names, "; "))
}

const (
	// carryFor is how long an exchange waits for the lock on a dependent that is in use; carryRest how long for each
	// one after the first timeout. The projector waits as long.
	carryFor  = 300 * time.Millisecond
	carryRest = 10 * time.Millisecond
	// carryLate bounds the total wait after the exchange, carryTry one attempt.
	carryLate = 10 * time.Second
	carryTry  = time.Second
)

// step has the statements that carry over one dependent.
type step struct {
	what string
	sql  []string
}

// maintain switches a transaction from the owner of the tables to the session's own role, if that is a superuser:
// dependents may belong to other roles.
func (s *others) maintain(ctx context.Context, tx pgx.Tx) error {
	role := "NONE"
	if !s.super {
		role = pgx.Identifier{s.owner}.Sanitize()
	}
	_, err := tx.Exec(ctx, "SET LOCAL ROLE "+role+"; SET LOCAL search_path = pg_catalog", pgx.QueryExecModeSimpleProtocol)
	return err
}

// resume switches back to the owner.
func (s *others) resume(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL ROLE "+pgx.Identifier{s.owner}.Sanitize())
	return err
}

// steps returns the steps that carry over dependents after their tables became the previous ones: first they move back
// into the schema, then they are created again on the new tables.
func (g *dependents) steps() []step {
	var list []step
	for i := range g.moves {
		o := &g.moves[i]
		list = append(list, step{o.String(), []string{fmt.Sprintf("ALTER %s %s SET SCHEMA %s", o.Type, PreviousSchema+strings.TrimPrefix(o.Identity, schema.Name), schema.Name)}})
	}
	return append(list, g.recreate...)
}

// carry runs steps in the transaction of an exchange. late are those that timed out waiting for a lock, or that may
// depend on such a step: carryLater runs them.
func (s *others) carry(ctx context.Context, tx pgx.Tx, steps []step) (late []step, err error) {
	wait := carryFor
	for _, one := range steps {
		if isLate(late, one) {
			late = append(late, one)
			continue
		}
		err := s.run(ctx, tx, one, wait)
		switch {
		case err == nil:
		case isLockTimeout(err) || len(late) > 0:
			late, wait = append(late, one), carryRest
		case s.drop:
			late = append(late, one)
		default:
			return nil, refuse("%s cannot be kept when the tables are exchanged (%w); drop it and create it again afterwards, or leave it on the previous tables, "+
				"with which it is dropped (--drop-dependents)", one.what, err)
		}
	}
	return late, s.resume(ctx, tx)
}

// isLate reports whether an earlier step of the same dependent is late. Before it is moved, creating it would make a
// second object in the schema.
func isLate(late []step, one step) bool {
	return slices.ContainsFunc(late, func(l step) bool { return l.what == one.what })
}

// run runs one step, or changes nothing.
func (s *others) run(ctx context.Context, tx pgx.Tx, one step, wait time.Duration) error {
	return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { // a savepoint if tx is a transaction
		if err := s.maintain(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", wait.Milliseconds())); err != nil {
			return err
		}
		for _, sql := range one.sql {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// carryLater runs the late steps after the exchange, and returns the dependents that could not be carried over. After a
// crash here these are all late ones: --drop-previous and the next rebuild find and name them.
func (s *others) carryLater(ctx context.Context, steps []step) (left []string) {
	deadline := time.Now().Add(carryLate)
	for len(steps) > 0 {
		var late []step
		var waiting bool
		left = nil
		for _, one := range steps {
			if isLate(late, one) {
				late = append(late, one)
				continue
			}
			err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error { return s.run(ctx, tx, one, carryTry) })
			if err != nil {
				waiting = waiting || isLockTimeout(err)
				late, left = append(late, one), append(left, fmt.Sprintf("%s (%v)", one.what, err))
			}
		}
		if steps = late; !waiting || time.Now().After(deadline) || ctx.Err() != nil {
			return left
		}
	}
	return nil
}
