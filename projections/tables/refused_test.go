package tables

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Reasons are rows of a fold: PostgreSQL's words change with its version and language, its codes do not.
func TestReasonsContainNoTextOfPostgreSQL(t *testing.T) {
	for _, words := range []string{"value too long", "Wert zu lang"} {
		err := fmt.Errorf("writing: %w", &pgconn.PgError{Code: "22001", Message: words})
		if reason, refused := Refused(err); !refused || reason.Error() != "PostgreSQL refuses it (SQLSTATE 22001)" {
			t.Errorf("%v, %t", reason, refused)
		}
	}
}
