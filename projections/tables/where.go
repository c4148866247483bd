package tables

import (
	"strings"
	"sync"
)

// DefaultSchema is where the read tables are.
const DefaultSchema = "scrip"

// elsewhere holds statements as they read for tables in another schema.
var elsewhere sync.Map // statementIn → string

type statementIn struct{ schema, sql string }

// in is a statement for the tables of a schema, "" for the default. Statements name the default one, so that they can
// be read and tried as they stand.
func in(schema, sql string) string {
	if schema == "" || schema == DefaultSchema {
		return sql
	}
	key := statementIn{schema, sql}
	if done, known := elsewhere.Load(key); known {
		return done.(string)
	}
	done := strings.ReplaceAll(sql, DefaultSchema+".", schema+".")
	elsewhere.Store(key, done)
	return done
}
