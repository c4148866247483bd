package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// SQLSyntax describes the files of SQL projections.
const SQLSyntax = `A SQL projection is a file of two sections:

  -- scrip: name daily_claims                     its schema; left out, the file's name
  -- scrip: types coupon.claimed coupon.redeemed  the events it wants; left out, all
  -- scrip: create
  CREATE TABLE claims (day date PRIMARY KEY, claims bigint NOT NULL);
  -- scrip: fold
  INSERT INTO claims SELECT (at AT TIME ZONE 'UTC')::date, count(*) FROM events GROUP BY 1
  ON CONFLICT (day) DO UPDATE SET claims = claims.claims + excluded.claims;

The statements of create run once, in an empty schema. Those of fold run for each batch of events, in the transaction
that moves the checkpoint; the batch is the temporary table events:

  lane sequence line   its place in the log, the order within a lane
  type campaign at id n code customer_id order_id expires_at redeemed_count status reason
  kind due_at r fired dropped through count command_sequence command_line
  raw                  the whole line, jsonb: raw->'attributes'->>'channel'. NULL unless the word raw stands in the
                       file, since it costs more than all other columns together

A batch is any number of whole messages of one lane, so a fold adds to what is there and never counts on where a batch
ends. A campaign lives on one lane; a customer may have coupons on several. Names are looked up in the projection's
schema. Other schemas may be read (scrip.campaign); writing to them is refused and rolled back.`

// SQLFile is a SQL projection as read from a file, see SQLSyntax.
type SQLFile struct {
	// Name is the schema of its tables.
	Name string
	// Types are the events it wants, none = all. Run is given them in Filter.Types.
	Types []wire.EventType

	file                   string // for messages
	create, fold           []statement
	createPrint, foldPrint string
	raw                    bool // the lines themselves are wanted
}

// SyntaxError is a mistake in a SQL file, found by us or by PostgreSQL.
type SyntaxError struct {
	File    string
	Line    int // from 1
	Problem string
	Err     error // PostgreSQL's, or nil
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem) }
func (e *SyntaxError) Unwrap() error { return e.Err }

var rawPattern = regexp.MustCompile(`(?i)\braw\b`)

var directivePattern = regexp.MustCompile(`^\s*--\s*scrip:\s*(\S*)\s*(.*?)\s*$`)

// forbidden statements would end the transaction that holds rows and checkpoint together, or take the connection away
// from us.
var forbidden = []string{"abort", "begin", "commit", "copy", "discard", "end", "listen", "prepare", "release", "rollback", "savepoint", "start", "unlisten"}

// ParseSQL reads a SQL projection. file is its path, for messages and for its name where it gives none. Errors are
// *SyntaxError.
func ParseSQL(file string, text []byte) (*SQLFile, error) {
	f := &SQLFile{file: file, raw: rawPattern.Match(text), Name: strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))}
	wrong := func(line int, format string, args ...any) error {
		return &SyntaxError{File: file, Line: line, Problem: fmt.Sprintf(format, args...)}
	}
	var into *[]statement
	var section strings.Builder
	first := 0
	seen := map[string]int{}
	finish := func() {
		if into != nil {
			*into = split(section.String(), first)
			section.Reset()
		}
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		d := directivePattern.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if d == nil {
			if into != nil {
				section.WriteString(line)
			} else if blankLen(line) < len(strings.TrimSpace(line)) {
				return nil, wrong(number, "this stands in no section; begin with `-- scrip: create` or `-- scrip: fold`")
			}
			continue
		}
		if seen[d[1]] != 0 {
			return nil, wrong(number, "`-- scrip: %s` stands in line %d already; keep one", d[1], seen[d[1]])
		}
		seen[d[1]] = number
		switch d[1] {
		case "name":
			f.Name = d[2]
		case "types":
			for name := range strings.FieldsSeq(strings.ReplaceAll(d[2], ",", " ")) {
				t, err := ParseType(name)
				if err != nil {
					return nil, wrong(number, "%s", err)
				}
				f.Types = append(f.Types, t)
			}
		case "create", "fold":
			finish()
			if into = &f.create; d[1] == "fold" {
				into = &f.fold
			}
			first = number + 1
		default:
			return nil, wrong(number, "there is no `-- scrip: %s`; give name, types, create or fold", d[1])
		}
	}
	finish()
	if err := checkName(f.Name); err != nil {
		return nil, wrong(max(seen["name"], 1), "the projection's %s; give one with `-- scrip: name`", err)
	}
	if len(f.fold) == 0 {
		return nil, wrong(max(seen["fold"], 1), "there is nothing to do for a batch; add `-- scrip: fold` and a statement that reads from events")
	}
	for _, s := range slices.Concat(f.create, f.fold) {
		word := strings.ToLower(s.sql[:tokenLen(s.sql, 0)])
		if slices.Contains(forbidden, word) {
			return nil, wrong(s.line, "%s is not for a projection, whose rows and checkpoint are one transaction of scrip's; take it out", strings.ToUpper(word))
		}
	}
	f.createPrint, f.foldPrint = fingerprint(f.create), fingerprint(f.fold)
	return f, nil
}

// fingerprint names statements; white space and comments between them do not count.
func fingerprint(list []statement) string {
	sum := sha256.New()
	for _, s := range list {
		sum.Write([]byte(s.sql + ";\n"))
	}
	return "sql " + hex.EncodeToString(sum.Sum(nil)[:16])
}
