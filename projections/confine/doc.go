// Package confine gives each SQL projection a role of its own, so that PostgreSQL denies it everything outside its
// schema, and each analyst one that reads.
//
//	schema claims_by_hour ──owned by──> role scrip_claims_by_hour_<hash> (LOGIN)
//	                                      may: its schema, temporary tables, SELECT in schema scrip
//	                                      may not: write anywhere else, create schemas or roles, run programs
//
// The projection's session logs in as that role: after SET ROLE in another role's session, the projection's own
// statements could switch back. The role that creates it is a member of it, and so can read and drop its tables.
//
// Creating a role needs rights that the role in scrip.json must not have: with CREATEROLE, PostgreSQL up to 15 lets it
// join pg_execute_server_program. In a private cluster a function of the superuser does this one thing (Install). In
// another database the same statements run with the rights of the caller, who then needs CREATEROLE.
//
// Analysts have a role each, too, for the tables of others. Since PostgreSQL gives everybody more than reading, Install takes that away, and
// Analysts ends sessions, twice a second:
//
//	keys in force ──> guard.sql: pg_terminate_backend of the revoked, the idle, the writing, of all while the disk is full
//	                     │ no locks: it reads the catalog and sends signals
//	                     └──> analyst.sql, a transaction for each role: NOLOGIN, later DROP; or password, settings and memberships put back
//
// They read schema scrip, copies of the tables (Copied), and the projections whose files name them (Share).
//
// Owner: every server runs rounds, and none needs to be the only one.
//
// What a crash does: the role is created in one transaction; a retry only changes its password.
package confine
