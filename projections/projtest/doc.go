// Package projtest gives tests of the read side a real PostgreSQL, a real log, and a writer in place of the lanes.
//
//	func TestMain(m *testing.M) { os.Exit(projtest.Main(m)) }     // one cluster for the whole test binary
//
//	pool := projtest.Pool(t, projtest.URL(t))                     // a new empty database, dropped after the test
//	projtest.Foreign(t)                                           // the same, with the rights of a PostgreSQL that scrip does not run
//	cluster := projtest.Cluster(t)                                // a separate cluster, to stop, start and kill
//	projtest.SessionLocks(t, url)                                 // refuses advisory locks of one transaction
//	projtest.Admin(t, url)                                        // a database of the shared cluster, for its superuser
//	projtest.Reads(t, pool, sql)                                  // how many rows a query reads
//	projtest.Execute(t, tx, sql, args…)                           // the same query, by the plan that a connection keeps
//
//	r := projtest.New(t)                                          // an empty log on a server of its own
//	r.Write(0, `{"type":"campaign.created","campaign":"c0","at":"@",…}`)   // one step of lane 0
//	r.Work()                                                      // events of all kinds in campaigns c0 and c1, one per lane
//
// The URLs have the rights of the one that a server writes into scrip.json: their role owns the database and is not a
// superuser.
//
// The clusters run without fsync: they lose data only when the machine fails, not when PostgreSQL is killed. They end with
// the test binary, also when that is killed; its directory is then removed by a later one.
//
// It knows nothing of the tables, whose own tests use it.
package projtest
