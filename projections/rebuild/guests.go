package rebuild

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// referenceSchema is made and rolled back to learn which objects migrations make.
const referenceSchema = "scrip_reference"

// object is one that lies in a schema of read tables, or depends on something in it, at whatever distance.
type object struct {
	Class string // the catalog that holds it
	OID   uint32
	// Type, Namespace and Identity are those of pg_identify_object: "view", "reports", "reports.holders".
	Type, Identity string
	Kind           string   // relkind or prokind
	On             uint32   // the relation it is part of; 0 = none
	Internal       bool     // PostgreSQL made it for another object, with which it comes and goes
	Mine           bool     // we may change it
	Needs          []string // what it depends on, as "catalog:oid"
}

func (o *object) key() string { return fmt.Sprintf("%s:%d", o.Class, o.OID) }

func (o *object) String() string { return o.Type + " " + o.Identity }

// Rules, row types and the like depend on the relation that they are part of; from them the search goes on to it.
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

// identified is what an object is called in tables of the usual name.
func identified(o *object, own *regexp.Regexp) string {
	return o.Type + " " + own.ReplaceAllLiteralString(o.Identity, schema.Name)
}

// reference lists what the migrations up to a version make, as identified. It makes it, and rolls that back.
func (s *Session) reference(ctx context.Context, version int64) (map[string]bool, error) {
	if known := s.known[version]; known != nil {
		return known, nil
	}
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := schema.CreateVersion(ctx, tx, referenceSchema, version); err != nil {
		return nil, err
	}
	list, err := objects(ctx, tx, referenceSchema)
	if err != nil {
		return nil, fmt.Errorf("listing what migrations make: %w", err)
	}
	known, own := map[string]bool{}, regexp.MustCompile(`\b`+referenceSchema+`\b`)
	for i := range list {
		known[identified(&list[i], own)] = true
	}
	s.known[version] = known
	return known, nil
}

// guests is what others made in a schema of read tables, or upon them.
type guests struct {
	indexes []extraIndex
	// moves lie in the schema and take nothing of our tables along. anew are views and functions that hold on to our tables,
	// as statements that make them hold on to those which have the names then.
	moves []object
	anew  []step
	// left cannot be kept. alone are those of them that are more than a part of one of our tables.
	left, alone []string
}

type extraIndex struct{ Table, Name, Definition string }

// guests compares what is in a schema, and upon it, with what the migrations up to a version make.
func (s *Session) guests(ctx context.Context, tx pgx.Tx, name string, version int64) (*guests, error) {
	known, err := s.reference(ctx, version)
	if err != nil {
		return nil, err
	}
	if err := s.maintain(ctx, tx); err != nil {
		return nil, err
	}
	list, err := objects(ctx, tx, name)
	if err != nil {
		return nil, fmt.Errorf("listing what others made on the tables: %w", err)
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
	g := &guests{}
	for i := range list {
		o := &list[i]
		if known[identified(o, own)] || o.Internal {
			continue
		}
		if o.Class == "pg_class" && o.On == 0 { // what a view's rule needs, the view needs
			o.Needs = append(o.Needs, rules[o.OID]...)
		}
		if err := g.add(ctx, tx, o, ours, tables[o.On], slices.Contains(o.Needs, fmt.Sprintf("pg_namespace:%d", namespace))); err != nil {
			return nil, err
		}
	}
	return g, s.resume(ctx, tx)
}

// add says what becomes of an object when the tables are exchanged. part: it is part of one of our tables. inside: it lies
// in the schema.
func (g *guests) add(ctx context.Context, tx pgx.Tx, o *object, ours map[string]bool, part, inside bool) error {
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
	case o.On != 0 && !direct, !inside && !direct: // stays with another guest, which is looked at by itself
	case !o.Mine:
		g.leave(o.String() + ", which belongs to a role that this one is not a member of")
	case o.Class == "pg_default_acl":
		return g.again(ctx, tx, o, defaultsSQL)
	case isRelation && o.Kind == "v":
		if inside {
			g.moves = append(g.moves, *o)
		}
		if direct {
			return g.again(ctx, tx, o, viewSQL)
		}
	case isFunction && !ofType:
		if inside {
			g.moves = append(g.moves, *o)
		}
		return g.again(ctx, tx, o, functionSQL)
	case isRelation && inside && !direct && o.Kind == "S" && slices.ContainsFunc(o.Needs, func(key string) bool { return strings.HasPrefix(key, "pg_class:") }):
		// a sequence of a table, which goes along with it
	case isRelation && inside && !direct && strings.Contains("rpS", o.Kind):
		g.moves = append(g.moves, *o)
	default:
		g.leave(o.String())
	}
	return nil
}

func (g *guests) leave(text string) {
	g.left, g.alone = append(g.left, text), append(g.alone, text)
}

// Statements that make a view or a function what it is, naming all schemas: search_path is pg_catalog. A view keeps its
// owner, its grants and what depends on it.
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

func (g *guests) again(ctx context.Context, tx pgx.Tx, o *object, sql string) error {
	rows, err := tx.Query(ctx, sql, o.OID)
	if err != nil {
		return err
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	g.anew = append(g.anew, step{o.String(), statements})
	return err
}

// refused says what an exchange would cost others, and the way out. Nil if it costs nothing, or may.
func (s *Session) refused(g *guests) error {
	if len(g.left) == 0 || s.opts.DropDependents {
		return nil
	}
	return refuse("others made these on the read tables, and they cannot be kept when the tables are exchanged: %s; drop them and make them again afterwards, "+
		"or let them stay with the tables put aside, with which they are dropped (--drop-dependents)", strings.Join(g.left, "; "))
}

// droppable refuses while something of others hangs on the previous tables: it would go with them.
func (s *Session) droppable(ctx context.Context, tx pgx.Tx) error {
	comment, found, err := commentOn(ctx, tx, PreviousSchema)
	if err != nil || !found || s.opts.DropDependents {
		return err
	}
	version, _ := strconv.ParseInt(strings.TrimPrefix(comment, previousMark), 10, 64)
	if version < 1 || version > schema.Version() {
		version = schema.Version()
	}
	g, err := s.guests(ctx, tx, PreviousSchema, version)
	if err != nil {
		return err
	}
	names := g.alone
	for i := range g.moves {
		names = append(names, g.moves[i].String())
	}
	for _, a := range g.anew {
		if !strings.HasPrefix(a.what, "default acl") && !slices.Contains(names, a.what) {
			names = append(names, a.what)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return refuse("these still hold on to the tables before the last rebuild, in schema %s, and would be dropped with them: %s; make them anew "+
		"(CREATE OR REPLACE), drop them, or allow that (--drop-dependents)", PreviousSchema, strings.Join(names, "; "))
}
