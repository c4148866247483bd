// Package streamtest starts real NATS servers inside a test: one, restartable on its directory after a clean stop or a
// crash, or a cluster of three on loopback. Only tests import it.
//
//	s := streamtest.Start(t)                    c := streamtest.StartCluster(t)
//	s.Restart(t)  clean stop, same directory    c.Stop(t, i)  c.Start(t, i)
//	s.Kill(t)     as kill -9, same directory    c.StreamLeader(t, "SCRIP_EVT_0")
package streamtest
