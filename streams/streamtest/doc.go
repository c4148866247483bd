// Package streamtest starts real NATS servers for a test: one, restartable on its directory after a clean stop or a
// crash, or a cluster of three on loopback, in this process or as processes of their own. Only tests import it.
//
//	s := streamtest.Start(t)                    c := streamtest.StartCluster(t)
//	s.Restart(t)  clean stop, same directory    c.Stop(t, i)  c.Start(t, i)
//	s.Kill(t)     as kill -9, same directory    c.StreamLeader(t, "SCRIP_EVT_0")
//
//	p := streamtest.StartProcess(t)     one server in a process; TestMain calls NodeMain
//	p.Kill(t)                           SIGKILL, also while clients write, and up again
//
//	n := streamtest.StartNodes(t)       three processes, each a NATS server; TestMain calls NodeMain
//	n.Kill(t, i)  n.Start(t, i)         SIGKILL, and up again
//	n.Pause(t, i) n.Resume(t, i)        SIGSTOP, SIGCONT
//	n.Cut(i, true, true)  n.Heal(i)     packets dropped, no end of the connection is sent
//	site := n.Site(t); site.Cut(…)      the same for a client or a scrip server
package streamtest
