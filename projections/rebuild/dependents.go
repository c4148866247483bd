package rebuild

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

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

// Rules, row types and the like depend on the relation that they are part of; the search continues from that relation.
//
// $1 = schema
const objectsSQL = `
WITH RECURSIVE o (classid, objid, objsubid) AS (
    SELECT 'pg_namespace'::regclass::oid, oid, 0 FROM pg_namespace WHERE nspname = $1
    UNION
    SELECT x.classid, x.objid, x.objsubid FROM o CROSS JOIN LATERAL (
        SELECT d.classid, d.objid, d.objsubid FROM pg_depend d
        WHERE d.refclassid = o.classid AND d.refobjid = o.objid AND (o.objsubid = 0 OR d.refobjsubid IN (0, o.objsubid)) AND d.deptype <> 'e'
        UNION ALL
        SELECT d.refclassid, d.refobjid, d.refobjsubid FROM pg_depend d
        WHERE d.classid = o.classid AND d.objid = o.objid AND d.deptype = 'i') x
)
SELECT (SELECT relname::text FROM pg_class WHERE oid = o.classid), o.objid, i.type, i.identity, coalesce(c.relkind::text, p.prokind::text, ''),
       coalesce(x.indrelid, k.conrelid, t.tgrelid, w.ev_class, a.adrelid, pol.polrelid, pub.prrelid, st.stxrelid, nullif(ty.typrelid, 0),
                CASE WHEN o.objsubid > 0 THEN o.objid END, 0),
       coalesce(t.tgisinternal, w.rulename = '_RETURN', ty.typrelid <> 0 AND tc.relkind <> 'c' OR ty.typelem <> 0 AND ty.typlen = -1, false)
           OR c.relkind = 't' IS TRUE OR i.schema = 'pg_toast' IS TRUE
           OR x.indexrelid IS NOT NULL AND EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = o.classid AND d.objid = o.objid AND d.deptype = 'i'),
       pg_has_role(coalesce(c.relowner, p.proowner, acl.defaclrole, current_user::regrole::oid), 'USAGE'),
       ARRAY(SELECT n.relname || ':' || d.refobjid FROM pg_depend d JOIN pg_class n ON n.oid = d.refclassid
             WHERE d.classid = o.classid AND d.objid = o.objid AND d.objsubid = o.objsubid)
FROM o CROSS JOIN LATERAL pg_identify_object(o.classid, o.objid, o.objsubid) i
LEFT JOIN pg_class c ON o.classid = 'pg_class'::regclass AND c.oid = o.objid
LEFT JOIN pg_proc p ON o.classid = 'pg_proc'::regclass AND p.oid = o.objid
LEFT JOIN pg_index x ON o.classid = 'pg_class'::regclass AND x.indexrelid = o.objid
LEFT JOIN pg_constraint k ON o.classid = 'pg_constraint'::regclass AND k.oid = o.objid
LEFT JOIN pg_trigger t ON o.classid = 'pg_trigger'::regclass AND t.oid = o.objid
LEFT JOIN pg_rewrite w ON o.classid = 'pg_rewrite'::regclass AND w.oid = o.objid
LEFT JOIN pg_attrdef a ON o.classid = 'pg_attrdef'::regclass AND a.oid = o.objid
LEFT JOIN pg_policy pol ON o.classid = 'pg_policy'::regclass AND pol.oid = o.objid
LEFT JOIN pg_publication_rel pub ON o.classid = 'pg_publication_rel'::regclass AND pub.oid = o.objid
LEFT JOIN pg_statistic_ext st ON o.classid = 'pg_statistic_ext'::regclass AND st.oid = o.objid
LEFT JOIN pg_default_acl acl ON o.classid = 'pg_default_acl'::regclass AND acl.oid = o.objid
LEFT JOIN pg_type ty ON o.classid = 'pg_type'::regclass AND ty.oid = o.objid
LEFT JOIN pg_class tc ON tc.oid = ty.typrelid
WHERE i.identity IS NOT NULL AND o.classid <> 'pg_namespace'::regclass
UNION ALL
SELECT 'pg_attribute', c.oid, 'column', format('%I.%I.%I', $1::text, c.relname, a.attname), '', c.oid, false, true, '{}'
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace s ON s.oid = c.relnamespace
WHERE s.nspname = $1 AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY 3, 4`

func objects(ctx context.Context, tx pgx.Tx, name string) ([]object, error) {
	rows, err := tx.Query(ctx, objectsSQL, name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[object])
}

// identified returns the identity that an object has if its schema is named scrip.
func identified(o *object, own *regexp.Regexp) string {
	return o.Type + " " + own.ReplaceAllLiteralString(o.Identity, schema.Name)
}

// withReference runs f in a transaction in which schema referenceSchema has what schema.Create makes, and rolls it
// back.
func (s *Session) withReference(ctx context.Context, f func(tx pgx.Tx) error) error {
	tx, err := s.pool.Begin(ctx)
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
func (s *Session) reference(ctx context.Context) (map[string]bool, error) {
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

// dependents compares what is in a schema, and depends on it, with what schema.Create makes.
func (s *Session) dependents(ctx context.Context, tx pgx.Tx, name string) (*dependents, error) {
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
	rows, err := tx.Query(ctx, sql, o.OID)
	if err != nil {
		return err
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	g.recreate = append(g.recreate, step{o.String(), statements})
	return err
}

// checkDependents returns an error if an exchange would leave dependents behind, unless Options.DropDependents allows
// that.
func (s *Session) checkDependents(g *dependents) error {
	if len(g.left) == 0 || s.opts.DropDependents {
		return nil
	}
	return refuse("these objects depend on the read tables and cannot be kept when the tables are exchanged: %s; drop them and create them again afterwards, "+
		"or leave them on the previous tables, with which they are dropped (--drop-dependents)", strings.Join(g.left, "; "))
}

// checkPrevious returns an error while dependents of others remain on the previous tables: they would be dropped with
// them.
func (s *Session) checkPrevious(ctx context.Context, tx pgx.Tx) error {
	_, found, err := previousFormat(ctx, tx)
	if err != nil || !found || s.opts.DropDependents {
		return err
	}
	g, err := s.dependents(ctx, tx, PreviousSchema)
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
