package confine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The readers that a projection may name. Its rows have what its events had, so codes and customers too where it stores them. There is
// no reader for the right to customers.
const (
	AllAnalysts       = "analyst" // every analyst
	AnalystsWithCodes = "codes"   // analysts whose keys see codes
)

// CheckReaders returns an error if a reader is none of these. It names the fix.
func CheckReaders(readers []string) error {
	for _, reader := range readers {
		if reader != AllAnalysts && reader != AnalystsWithCodes {
			return fmt.Errorf("unknown reader %q; give %s, for every analyst, or %s, for analysts whose keys see codes", reader, AllAnalysts, AnalystsWithCodes)
		}
	}
	if len(readers) == 0 {
		return fmt.Errorf("there is no reader; give %s or %s, or remove the line", AllAnalysts, AnalystsWithCodes)
	}
	return nil
}

// groupsSQL are the roles of readers, whether each is there, and whether it may use a schema.
//
// $1 = schema
const groupsSQL = `
SELECT g.reader, g.role, o.oid IS NOT NULL, o.oid IS NOT NULL AND EXISTS (SELECT FROM pg_namespace n, aclexplode(n.nspacl) a
         WHERE n.nspname = $1 AND a.grantee = o.oid AND a.privilege_type = 'USAGE')
FROM (VALUES ('` + AllAnalysts + `', left(current_database(), 40) || '_analyst'),
             ('` + AnalystsWithCodes + `', left(current_database(), 40) || '_analyst_codes')) g (reader, role)
LEFT JOIN pg_roles o ON o.rolname = g.role`

// shareSQL is what readers of a schema may do: read the tables that are there, and those that the owner makes later.
//
// The parameters of Sprintf are GRANT or REVOKE, the schema, TO or FROM, the role
const shareSQL = `
%[1]s USAGE ON SCHEMA %[2]s %[3]s %[4]s;
%[1]s SELECT ON ALL TABLES IN SCHEMA %[2]s %[3]s %[4]s;
ALTER DEFAULT PRIVILEGES IN SCHEMA %[2]s %[1]s SELECT ON TABLES %[3]s %[4]s`

// Share lets these readers read the schema of a projection, and no others of them, in a transaction of its owner. Rights of single
// roles stay.
func Share(ctx context.Context, tx pgx.Tx, schema string, readers []string) error {
	rows, _ := tx.Query(ctx, groupsSQL, schema) // its error is that of the rows
	groups, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Reader, Role string
		There, Reads bool
	}])
	if err != nil {
		return err
	}
	for _, g := range groups {
		do, to := "GRANT", "TO"
		switch wanted := slices.Contains(readers, g.Reader); {
		case wanted && !g.There:
			return fmt.Errorf("readers: %s is nobody here, because there is no role %s; in the PostgreSQL of scrip's tables make a first key "+
				"(scrip access create NAME --role analyst), in another one remove the line of readers and GRANT what you like", g.Reader, g.Role)
		case wanted == g.Reads:
			continue
		case !wanted:
			do, to = "REVOKE", "FROM"
		}
		sql := fmt.Sprintf(shareSQL, do, pgx.Identifier{schema}.Sanitize(), to, pgx.Identifier{g.Role}.Sanitize())
		for statement := range strings.SplitSeq(sql, ";") {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
	}
	return nil
}
