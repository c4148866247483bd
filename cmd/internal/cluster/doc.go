// Package cluster runs the cluster that docker/compose.cluster.yaml describes as processes on one machine: three NATS nodes,
// PostgreSQL and three scrip servers.
//
//	docker/compose.cluster.yaml ── Read ──> services ── layout ──> commands, environment, ports of this machine
//	docker/nats/cluster.conf ───────────────────────────────────────> nats-server ×3 ──┐
//	<folder>/secrets.env ── passwords, code key ────────────────────> scrip serve ×3 ──┼── Cluster: Start, Kill, Pause, Cut, Close
//	projections/pgd ────────────────────────────────────────────────> PostgreSQL ──────┘
//
// A service becomes a process with the service's command, environment and configuration files. Only what depends on the place
// changes: a directory of the container is one in the folder, and HOST:PORT of a service is a port of loopback. With
// Options.Cuttable each service reaches each other one through a link of its own, so that one can be cut off.
//
//	<folder>/lock          one runner at a time
//	<folder>/secrets.env   made at the first start, 0600
//	<folder>/nats-config   configuration of the nodes with accounts for another number of lanes than docker/nats has
//	<folder>/<volume>      data of a service
//	<folder>/<service>.log, <service>.pid
//	<folder>/control.sock  takes commands such as "kill nats-2"
//
// Owner: the runner, cmd/internal/cluster/up. If it is killed, the processes go on; the next start names them. Data is what
// the services stored: a second start continues the log.
package cluster
