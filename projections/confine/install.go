package confine

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The limits of analysts and projections. A session may change all settings but temp_file_limit, so that guard.sql
// judges by what sessions do.
const (
	// connections are those of one analyst, or one projection, and sessions those of all analysts together. With the
	// limit of temporary files they bound what analysts can take of the disk.
	connections, sessions = "5", "60"
	// tempFiles is the limit of temporary files of one process.
	tempFiles = "temp_file_limit=512MB"
	// idle is how long a transaction may wait for its client, and long how old that of an analyst may be: rows that it
	// sees are kept.
	idle, long = "5min", "1h"
	// queue is the part of PostgreSQL's queue of notifications, 8 GB of disk, from which sessions end whose transaction
	// is older than unread: one that listens and does not read keeps it from being emptied, and which one that is cannot
	// be seen. It stays in a transaction, also if only its client does not read. All others are innocent: to send the
	// notifications takes longer than unread.
	queue, unread = "0.03", "1s"
	// settings of an analyst's role, in order.
	settings = "default_transaction_read_only=on,idle_in_transaction_session_timeout=" + idle + ",statement_timeout=60s"
)

// Schema has the functions of Install.
const Schema = "projection_roles"

var (
	//go:embed functions.txt
	functionsText string
	//go:embed open.sql
	openSQL string
	//go:embed rights.sql
	rightsSQL string
	//go:embed changed.sql
	changedSQL string
	//go:embed guard.sql
	guardSQL string
	//go:embed analyst.sql
	analystSQL string
	//go:embed readable.sql
	readersSQL string
	//go:embed role.sql
	roleSQL string
)

// kept are the functions of functions.txt.
func kept() (names []string) {
	for line := range strings.Lines(functionsText) {
		if _, list, found := strings.Cut(line, ": "); found && !strings.HasPrefix(line, "#") {
			names = append(names, strings.Fields(list)...)
		}
	}
	slices.Sort(names)
	return names
}

// filled is a text of SQL with what a superuser can do and see, or another role. wanted and full are the two arguments
// of a guard.
func filled(text string, superuser bool, wanted, full string) string {
	roles, forged, set := "pg_roles", "false", settings
	if superuser {
		roles, forged, set = "pg_authid", "u.rolpassword IS DISTINCT FROM w.verifier", settings+","+tempFiles
	}
	changed := strings.NewReplacer("{{roles}}", roles, "{{forged}}", forged, "{{settings}}", "{"+set+"}",
		"{{connections}}", connections, "{{wanted}}", wanted, "{{mark}}", mark("w.id", "w.verifier")).Replace(changedSQL)
	return strings.NewReplacer("{{changed}}", changed, "{{wanted}}", wanted, "{{full}}", full, "{{idle}}", idle,
		"{{long}}", long, "{{queue}}", queue, "{{unread}}", unread, "{{sessions}}", sessions, "{{connections}}", connections,
		"{{settings}}", "{"+set+"}", "{{relations}}", analystTables, "{{readers}}", readersBody(), "{{mark}}", mark("(who ->> 'id')", "(who ->> 'verifier')"),
		"{{temp}}", strings.TrimPrefix(tempFiles, "temp_file_limit="), "{{open}}", openFunctions()).Replace(text)
}

// mark is the comment on an analyst's role, of the expressions of its first key's id and its verifier. Everybody may read it: keys
// are random, so that the hash gives nothing away.
func mark(id, verifier string) string {
	return "'key ' || " + id + " || ' ' || left(encode(sha256(convert_to(" + verifier + ", 'UTF8')), 'hex'), 16)"
}

func openFunctions() string {
	return strings.Replace(openSQL, "{{kept}}", strings.Join(kept(), ","), 1)
}

// readersBody is readable.sql. An empty line after a semicolon would end the statement that it is a part of where initdb runs it.
func readersBody() string {
	return strings.TrimSpace(strings.NewReplacer("{{views}}", "{"+analystViews+"}", "{{readable}}", readableSQL).Replace(readersSQL))
}

// analystBody is analyst.sql.
func analystBody(superuser bool) string {
	return filled(analystSQL, superuser, "jsonb_build_array(who)", "false")
}

// Install returns statements for a superuser that let role owner make roles for projections and analysts in the current
// database, and no other roles, and take from everybody there what is more than reading. They are idempotent. A private
// cluster runs them when it is made; with a PostgreSQL of one's own the administrator does.
func Install(owner string) []string {
	const (
		analyst    = Schema + ".analyst(jsonb)"
		guard      = Schema + ".guard(jsonb, boolean)"
		projection = Schema + ".projection(text, text)"
	)
	function := func(head, language, body string) string {
		return "CREATE OR REPLACE FUNCTION " + Schema + "." + head + " LANGUAGE " + language + " SECURITY DEFINER " +
			"SET search_path = pg_catalog, pg_temp AS $confine$" + body + "$confine$"
	}
	quoted := pgx.Identifier{owner}.Sanitize()
	all := []string{
		strings.Replace(filled(rightsSQL, true, "", ""), "{{owner}}", strings.ReplaceAll(owner, "'", "''"), 1),
		"CREATE SCHEMA IF NOT EXISTS " + Schema,
		function("analyst(who jsonb) RETURNS void", "plpgsql", analystBody(true)),
		function("guard(wanted jsonb, full boolean) RETURNS TABLE (name text, why text, ended int)", "sql",
			filled(guardSQL, true, "$1", "$2")),
		function("projection(wanted text, secret text) RETURNS text", "plpgsql", filled(roleSQL, true, "", "")),
		"REVOKE ALL ON SCHEMA " + Schema + " FROM PUBLIC",
		"REVOKE ALL ON FUNCTION " + analyst + ", " + guard + ", " + projection + " FROM PUBLIC",
		"GRANT USAGE ON SCHEMA " + Schema + " TO " + quoted,
		"GRANT EXECUTE ON FUNCTION " + analyst + ", " + guard + ", " + projection + " TO " + quoted,
	}
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	// Last: all before it is there then.
	return append(all, "COMMENT ON SCHEMA "+Schema+" IS 'functions of scrip, "+hex.EncodeToString(sum[:6])+"'")
}

// installed is the comment that Install ends with.
func installed(owner string) string {
	all := Install(owner)
	_, comment, _ := strings.Cut(all[len(all)-1], "'")
	return strings.TrimSuffix(comment, "'")
}

// Script is Install for psql.
func Script(owner string) string {
	return "-- What a superuser runs in the database of scrip's tables, whose owner is role " + strconv.Quote(owner) + ".\n" +
		strings.Join(Install(owner), ";\n\n") + ";\n"
}
