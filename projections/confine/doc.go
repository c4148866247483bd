// Package confine gives each SQL projection a role of its own, so that PostgreSQL keeps it from everything else.
//
//	schema claims_by_hour ──owned by──> role scrip_claims_by_hour_<hash> (LOGIN)
//	                                      may: its schema, temporary tables, SELECT in schema scrip
//	                                      may not: write anywhere else, make schemas or roles, run programs
//
// The projection's session logs in as that role: a role that a session only switches to (SET ROLE) could be left again by
// the projection's own statements. The role that makes it is a member of it, and so can read and drop its tables.
//
// Making a role takes rights that the role in scrip.json must not have: with CREATEROLE, PostgreSQL up to 15 lets it join
// pg_execute_server_program. In a private cluster a function that the superuser owns does just this one thing (Install). In
// a database of somebody else the same statements run with the rights of whoever asks, who then needs CREATEROLE.
//
// What a crash does: everything happens in one transaction, and doing it again changes the password only.
package confine
