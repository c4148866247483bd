package replay

import (
	"errors"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// On another PostgreSQL server an ordinary administrator's rights are enough; a role that lacks them, and could write
// the read tables, is refused with what to grant.
func TestRolesOnAServerOfOthers(t *testing.T) {
	r := newRig(t)
	r.work()
	db := projtest.Foreign(t)
	projtest.SessionLocks(t, db)
	as := projtest.Role(t, db, "builder")
	execute(t, db, "GRANT CREATE ON DATABASE "+query(t, db, "SELECT current_database()")+" TO builder")
	execute(t, as, "CREATE SCHEMA scrip; CREATE TABLE scrip.t (n int); INSERT INTO scrip.t VALUES (7)")
	reads := "-- scrip: create\nCREATE TABLE got (n int);\n-- scrip: fold\nINSERT INTO got SELECT n FROM scrip.t;\n"
	_, err := r.try(Postgres(as, parse(t, "foreign_one.sql", reads).Definition(), false), Options{})
	var much *confine.TooMuchError
	if !errors.As(err, &much) || much.Role != "builder" || !strings.Contains(err.Error(), `ALTER ROLE "builder" CREATEROLE`) {
		t.Fatalf("without CREATEROLE: %v", err)
	}
	execute(t, projtest.Admin(t, db), "ALTER ROLE builder CREATEROLE")
	for range 2 { // the second time there are role and schema
		r.run(Postgres(as, parse(t, "foreign_one.sql", reads).Definition(), false), Options{})
		r.claim(campaigns[0], "again")
	}
	streamtest.Equal(t, "the projection read", query(t, as, "SELECT max(n)::text FROM foreign_one.got"), "7")
	writes := parse(t, "foreign_two.sql", "-- scrip: fold\nUPDATE scrip.t SET n = 8;\n")
	if _, err := r.try(Postgres(as, writes.Definition(), false), Options{}); err == nil || !strings.Contains(err.Error(), "denied for table t") {
		t.Errorf("a projection that writes the read tables: %v", err)
	}
	// Another projection's tables are not its own either.
	other := parse(t, "foreign_three.sql", "-- scrip: fold\nDELETE FROM foreign_one.got;\n")
	if _, err := r.try(Postgres(as, other.Definition(), false), Options{}); err == nil || !strings.Contains(err.Error(), "denied for schema foreign_one") {
		t.Errorf("a projection that writes another's tables: %v", err)
	}
	// The roles go with what they own, or the role that is a member of them could not be dropped.
	t.Cleanup(func() {
		for _, name := range []string{"foreign_one", "foreign_two", "foreign_three"} {
			role := query(t, projtest.Admin(t, db), "SELECT rolname::text FROM pg_roles WHERE rolname LIKE 'scrip_"+name+"_%'")
			execute(t, projtest.Admin(t, db), "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role)
		}
	})
}
