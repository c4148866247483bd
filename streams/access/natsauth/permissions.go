package natsauth

import (
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Permissions are what a user may do in its account.
type Permissions struct {
	Account   string
	Publish   []string
	Subscribe []string
}

// Of returns the permissions of a user with a key, in a log of that many lanes. ok is false for one that may not log in to
// NATS. Publish is never empty: an empty list would allow everything.
func Of(p access.Principal, lanes int) (perms Permissions, ok bool) {
	account := AccountOf(p)
	if account == "" || !access.ValidID(p.ID) {
		return Permissions{}, false
	}
	perms = Permissions{Account: account, Publish: []string{UserInfo}, Subscribe: []string{natsx.Inbox(p.Role.String(), p.ID) + ".>"}}
	for _, row := range Rows() {
		if row.Account == account {
			perms.Publish = append(perms.Publish, row.permits(p, lanes)...)
		}
	}
	slices.Sort(perms.Publish)
	perms.Publish = slices.Compact(perms.Publish)
	return perms, true
}

// permits returns the subjects of a row that a user may publish to. Where a subject names no campaign, the service checks the
// campaign of a user that is limited to some. What is of no campaign is closed to such a user here, too.
func (r *Row) permits(p access.Principal, lanes int) []string {
	all := p
	all.Campaigns = nil
	switch {
	case !all.May(r.Op, ""), p.Campaigns != nil && r.Op.Whole():
		return nil
	case p.Public && r.Subject != Info:
		return nil // HTTP alone hides the codes of earlier claims from public keys, and counts their wrong codes
	case r.Clear && !p.Clear():
		return nil // HTTP masks codes and customers
	case r.names != nil:
		return r.names(lanes)
	case !r.Campaign || p.Campaigns == nil:
		return []string{r.Published()}
	}
	var own []string
	for _, campaign := range p.Campaigns {
		own = append(own, strings.TrimSuffix(r.Published(), "*")+campaign)
	}
	return own
}

// OfServers returns the permissions of the user of the servers, and of the data directory, in a log of that many lanes: the
// log's own subjects and streams, by name, since NATS has no wildcard for SCRIP_EVT_*. A backup and a restore use them too.
func OfServers(lanes int) Permissions {
	p := Permissions{
		Account: access.AccountServers,
		Publish: []string{
			topology.CmdPattern, topology.AdminPattern, "scrip.lane.*.*", "scrip.lane.*.cmd.*", "scrip.lane.*.admin.*", "scrip.evt.*", "scrip.rmd.*",
			topology.AuditSubject, "scrip.push.dead.>", "scrip.push.wait.>", topology.PushOut, Rollcall, Info, Connections, kick, UserInfo,
			"$SYS._INBOX.>",                                                 // answers to log-ins
			topology.Inboxes + ">", topology.ProducerInboxes + ">", "_R_.>", // topology.MayReply
			serversAPI + "STREAM.NAMES", "$O." + topology.SnapBucket + ".>",
		},
		Subscribe: []string{
			"_INBOX.>", topology.CmdPattern, topology.AdminPattern, "scrip.lane.*.query", "scrip.evt.*", "scrip.rmd.*", Rollcall, "$SRV.*", "$SRV.*.scrip", "$SRV.*.scrip.*", "$SYS.REQ.USER.AUTH",
		},
	}
	for op := range access.Operations() {
		for _, endpoint := range op.Endpoints() {
			if op != access.OpReadReminders { // with a key
				p.Publish = append(p.Publish, "scrip."+endpoint)
			}
			p.Subscribe = append(p.Subscribe, "scrip."+endpoint, access.GuestSubject("*", endpoint))
		}
	}
	copied := slices.DeleteFunc(topology.Streams(lanes), func(stream string) bool { // by a backup
		return slices.Contains([]string{topology.LeaseStream, topology.JobsStream, topology.OnceStream}, stream)
	})
	cmd, evt, rmd := eachLane(topology.CmdStream)(lanes), eachLane(topology.EvtStream)(lanes), eachLane(topology.RmdStream)(lanes)
	for _, right := range []struct {
		subjects string // # is the stream
		streams  []string
	}{
		{"$JS.API.STREAM.CREATE.# $JS.API.STREAM.INFO.# $JS.API.STREAM.MSG.GET.# $JS.API.CONSUMER.CREATE.#.> $JS.API.CONSUMER.INFO.#.* " +
			"$JS.API.CONSUMER.DELETE.#.* $JS.API.CONSUMER.MSG.NEXT.#.*", topology.Streams(lanes)},
		{"$JS.API.STREAM.SNAPSHOT.# $JS.SNAPSHOT.ACK.#.> $JS.API.STREAM.RESTORE.# $JS.SNAPSHOT.RESTORE.#.* $JS.API.STREAM.DELETE.#", copied},
		{"$JS.API.STREAM.UPDATE.#", append(copied, topology.LeaseStream)}, // a restore to another number of copies
		{"$JS.API.STREAM.PURGE.#", append(cmd, topology.SnapStream, topology.PushWaitStream)},
		{"$JS.API.STREAM.MSG.DELETE.#", []string{topology.PushDeadStream}},
		{"$JS.API.DIRECT.GET.# $JS.API.DIRECT.GET.#.>", []string{topology.StateStream, topology.LeaseStream, topology.SnapStream, topology.PushStream, topology.JobsStream}},
		{"$JS.FC.#.> $JS.FC.*.*.#.>", []string{topology.StateStream, topology.SnapStream, topology.JobsStream}},
		{"$JS.ACK.#.> $JS.ACK.*.*.#.>", slices.Concat(evt, rmd, []string{topology.PushWaitStream, topology.PushOutStream})}, // also as NATS' flag js_ack_fc_v2 has it
	} {
		for _, stream := range right.streams {
			p.Publish = append(p.Publish, strings.Fields(strings.ReplaceAll(right.subjects, "#", stream))...)
		}
	}
	for _, stream := range topology.Streams(lanes) {
		if bucket, ok := strings.CutPrefix(stream, "KV_"); ok {
			p.Publish = append(p.Publish, "$KV."+bucket+".>")
		}
	}
	return p
}
