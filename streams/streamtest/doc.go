// Package streamtest starts real NATS servers for a test: one, restartable on its directory after a clean stop or a
// crash, or a cluster of three on loopback, in this process. Only tests import it.
//
//	s := streamtest.Start(t)                    c := streamtest.StartCluster(t)
//	s.Restart(t)  clean stop, same directory    c.Stop(t, i)  c.Start(t, i)
//	s.Kill(t)     as kill -9, same directory    c.StreamLeader(t, "SCRIP_EVT_0")
//
//	l := streamtest.NewLink(t, address)         l.Cut(there, back)  l.Heal()   packets dropped, no end of the connection is sent
//	o := streamtest.StartOwner(t, nc, spec)     a test double of the owner of every lane
//	streamtest.NewRelay(t, s)                   a server whose API answers what a test wants
//	streamtest.Allocations(f)                   what a function allocates, beside the servers of the process
package streamtest
