package replay

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/confine"
)

//go:embed syntax.txt
var syntax string

// SQLSyntax describes the files of SQL projections.
func SQLSyntax() string {
	const width = 100
	lines := []string{" "}
	for _, name := range columnNames() {
		if slices.Contains([]string{"lane", "sequence", "line", "raw"}, name) {
			continue // the text has them
		}
		last := &lines[len(lines)-1]
		if len(*last)+len(name) >= width {
			lines = append(lines, " ")
			last = &lines[len(lines)-1]
		}
		*last += " " + name
	}
	return strings.Replace(syntax, "{columns}", strings.Join(lines, "\n"), 1)
}

// SQLFile is a parsed SQL projection, see SQLSyntax.
type SQLFile struct {
	// Name is the schema of its tables.
	Name string
	// Types are the event types that it reads, none = all. Pass them to Run in Filter.Types.
	Types []wire.EventType
	// Readers are those of package confine who may read its tables, none = who was granted it otherwise.
	Readers []string

	file                   string // for messages
	create, fold           []statement
	createPrint, foldPrint string
	raw                    bool // the statements use column raw
}

// SyntaxError is an error in a SQL file, reported by ParseSQL or by PostgreSQL.
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

// forbidden statements would end the transaction that contains rows and checkpoint, or change the state of the
// connection.
var forbidden = []string{"abort", "begin", "commit", "copy", "discard", "end", "listen", "prepare", "release", "rollback", "savepoint", "start", "unlisten"}

// ParseSQL parses a SQL projection. file is its path, for messages and as the default of its name. Errors are
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
				return nil, wrong(number, "this is before the first section; start with `-- scrip: create` or `-- scrip: fold`")
			}
			continue
		}
		if seen[d[1]] != 0 {
			return nil, wrong(number, "`-- scrip: %s` is repeated from line %d; keep one", d[1], seen[d[1]])
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
		case "readers":
			f.Readers = strings.Fields(strings.ReplaceAll(d[2], ",", " "))
			if err := confine.CheckReaders(f.Readers); err != nil {
				return nil, wrong(number, "readers: %s", err)
			}
		case "create", "fold":
			finish()
			if into = &f.create; d[1] == "fold" {
				into = &f.fold
			}
			first = number + 1
		default:
			return nil, wrong(number, "unknown directive `-- scrip: %s`; give name, types, readers, create or fold", d[1])
		}
	}
	finish()
	if err := checkName(f.Name); err != nil {
		return nil, wrong(max(seen["name"], 1), "the projection's %s; give one with `-- scrip: name`", err)
	}
	if len(f.fold) == 0 {
		return nil, wrong(max(seen["fold"], 1), "the fold section is empty; add `-- scrip: fold` and a statement that reads from events")
	}
	for _, s := range slices.Concat(f.create, f.fold) {
		word := strings.ToLower(s.sql[:tokenLen(s.sql, 0)])
		if slices.Contains(forbidden, word) {
			return nil, wrong(s.line, "%s is not allowed: rows and checkpoint are committed in one transaction of scrip; remove it", strings.ToUpper(word))
		}
	}
	f.createPrint, f.foldPrint = fingerprint(f.create), fingerprint(f.fold)
	return f, nil
}

// fingerprint identifies statements; white space and comments between them do not count.
func fingerprint(list []statement) string {
	sum := sha256.New()
	for _, s := range list {
		sum.Write([]byte(s.sql + ";\n"))
	}
	return "sql " + hex.EncodeToString(sum.Sum(nil)[:16])
}

// statement is one SQL statement and the line of the file in which it starts.
type statement struct {
	sql  string
	line int // from 1
}

// split divides SQL into statements at semicolons outside of strings, quoted identifiers, dollar quotes and comments.
// first is the line of the file in which text starts. A wrong division causes a syntax error, nothing worse: each piece
// is sent separately, by a protocol that allows one statement only.
func split(text string, first int) []statement {
	var list []statement
	start := 0
	add := func(end int) {
		piece := text[start:end]
		if skip := blankLen(piece); skip < len(piece) {
			at := start + skip
			list = append(list, statement{sql: strings.TrimSpace(text[at:end]), line: first + strings.Count(text[:at], "\n")})
		}
		start = end + 1
	}
	for i := 0; i < len(text); {
		if text[i] == ';' {
			add(i)
			i++
			continue
		}
		i += tokenLen(text, i)
	}
	add(len(text))
	return list
}

// blankLen returns the length of white space and comments at the start of s.
func blankLen(s string) int {
	for i := 0; i < len(s); {
		if strings.IndexByte(" \t\r\n\f", s[i]) < 0 && !strings.HasPrefix(s[i:], "--") && !strings.HasPrefix(s[i:], "/*") {
			return i
		}
		i += tokenLen(s, i)
	}
	return len(s)
}

// tokenLen returns the length of the token at offset i: a whole string or comment, an identifier, or one byte.
func tokenLen(s string, i int) int {
	rest := s[i:]
	upTo := func(end string) int {
		if at := strings.Index(rest[1:], end); at >= 0 {
			return 1 + at + len(end)
		}
		return len(rest)
	}
	switch c := rest[0]; {
	case strings.HasPrefix(rest, "--"):
		return upTo("\n")
	case strings.HasPrefix(rest, "/*"):
		return commentLen(rest)
	case c == '\'' || c == '"':
		return quotedLen(rest, false)
	case (c == 'e' || c == 'E') && strings.HasPrefix(rest[1:], "'"):
		return 1 + quotedLen(rest[1:], true)
	case isLetter(c):
		n := 1
		for n < len(rest) && (isLetter(rest[n]) || rest[n] >= '0' && rest[n] <= '9' || rest[n] == '$') {
			n++
		}
		return n
	case c == '$':
		// $tag$…$tag$, but not $1.
		n := 1
		for n < len(rest) && (isLetter(rest[n]) || n > 1 && rest[n] >= '0' && rest[n] <= '9') {
			n++
		}
		if n < len(rest) && rest[n] == '$' {
			tag := rest[:n+1]
			if end := strings.Index(rest[n+1:], tag); end >= 0 {
				return n + 1 + end + len(tag)
			}
			return len(rest)
		}
	}
	return 1
}

func isLetter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// quotedLen returns the length of a quoted string or identifier; a doubled quote is one quote.
func quotedLen(s string, backslashes bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case backslashes && s[i] == '\\':
			i++
		case s[i] == s[0] && i+1 < len(s) && s[i+1] == s[0]:
			i++
		case s[i] == s[0]:
			return i + 1
		}
	}
	return len(s)
}

// commentLen returns the length of a comment, which may be nested.
func commentLen(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			i++
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

//go:embed examples/*.sql
var examples embed.FS

// ExamplePrefix before the name of an example refers to its embedded file.
const ExamplePrefix = "example:"

// Examples returns the sorted names of the SQL projections that are embedded in scrip.
func Examples() []string {
	files, _ := fs.Glob(examples, "examples/*.sql") // the pattern is well formed
	for i, name := range files {
		files[i] = strings.TrimSuffix(strings.TrimPrefix(name, "examples/"), ".sql")
	}
	slices.Sort(files)
	return files
}

// ExampleSQL returns the text of an example.
func ExampleSQL(name string) ([]byte, error) {
	text, err := examples.ReadFile("examples/" + name + ".sql")
	if err != nil {
		return nil, fmt.Errorf("unknown example %q; the examples are %s", name, strings.Join(Examples(), ", "))
	}
	return text, nil
}
