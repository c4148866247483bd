// Package sample keeps the numbers of the last ten minutes, for people who look at a log as a whole.
//
//	once a second:  reports of all servers (scrip.rollcall) ──> Sample ──> ring of 600 ──> the console, GET /v1/overview
//	each 15 s:      metrics of this server ──> 16 minutes of them ──> the alerts of docker/prometheus that would fire now
//
// There is one [Sampler] per server, whatever the number of viewers. The reports have counters of what lanes decided; a
// sample has their rates.
//
// Owner: a Sampler has the goroutine that runs Run; the others read.
//
// What a crash does: the ring is lost. The next server has rates from its second report on.
package sample
