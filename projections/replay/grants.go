package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// insufficientPrivilege is SQLSTATE insufficient_privilege.
const insufficientPrivilege = "42501"

// deniedPattern parses PostgreSQL's message about a missing right. If the server's language is not English, the hint is
// a general one.
var deniedPattern = regexp.MustCompile(`^permission denied for (database|schema|table|view|materialized view|sequence|function|relation|foreign table) (\S+)$`)

// grants adds to an error about a missing right the GRANT that would help. PostgreSQL does not report which right to a
// table is missing; a projection may only be granted SELECT.
func (p *projection) grants(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != insufficientPrivilege {
		return err
	}
	found := deniedPattern.FindStringSubmatch(pg.Message)
	own := fmt.Sprintf("a projection writes to its own schema %s only, where names without a schema are looked up", p.Name)
	if found == nil {
		return fmt.Errorf("%w; %s; it runs as role %s", err, own, p.role)
	}
	kind, name := strings.ToUpper(found[1]), found[2]
	right := "SELECT"
	switch kind {
	case "DATABASE":
		right = "CREATE"
	case "SCHEMA":
		right = "USAGE"
	case "SEQUENCE":
		right = "USAGE"
	case "FUNCTION":
		right = "EXECUTE"
	default:
		kind = "TABLE" // GRANT calls views tables, too
	}
	return fmt.Errorf("%w; %s; to let it read or use other objects run: GRANT %s ON %s %s TO %s", err, own, right, kind, quote(name), quote(p.role))
}

var plainIdentifier = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// quote quotes an identifier only if necessary.
func quote(name string) string {
	if plainIdentifier.MatchString(name) {
		return name
	}
	return pgx.Identifier{name}.Sanitize()
}

// noDatabase reports whether an error means that the database is unavailable, starting or stopping.
func noDatabase(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		// 08 is a connection error; 57P01 to 57P03: the server is stopping, was killed, or is starting.
		return strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "57P0")
	}
	var network net.Error
	var connect *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connect) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), "conn closed")
}
