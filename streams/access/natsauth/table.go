package natsauth

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// guests are the accounts of users with keys; all import from access.AccountServers.
var guests = []struct {
	account string
	roles   []access.Role
	// outcomes: lanes publish outcomes to inboxes of this account, as a header of a command names them.
	outcomes bool
}{
	{account: access.AccountShop, roles: []access.Role{access.Producer}, outcomes: true},
	{account: access.AccountCounter, roles: []access.Role{access.Producer}},
	{account: access.AccountOps, roles: []access.Role{access.Operator, access.Support}},
	{account: access.AccountAnalysis, roles: []access.Role{access.Analyst}},
	{account: access.AccountSenders, roles: []access.Role{access.Sender}},
}

// Guests returns the accounts of users with keys.
func Guests() (all []string) {
	for _, g := range guests {
		all = append(all, g.account)
	}
	return all
}

// AccountOf returns the account of a user with a key; "" for one that may not log in to NATS.
func AccountOf(p access.Principal) string {
	if p.Role == access.Producer && (p.Public || p.Campaigns != nil || p.Rate > 0 || p.NewOnly) {
		return access.AccountCounter
	}
	for _, g := range guests {
		if slices.Contains(g.roles, p.Role) {
			return g.account
		}
	}
	return ""
}

// inboxes are the subjects of the inboxes of all users of a role.
func inboxes(r access.Role) string { return natsx.Inbox(r.String(), ">") }

// Row is a subject of the servers' account that users of other accounts may publish to.
type Row struct {
	// Op is what it is for: the roles of the operation may publish there.
	Op access.Operation
	// Account that imports it. A role of the operation whose account does not import it does it another way.
	Account string
	// Subject in the account of the servers has wildcards for whole tokens, because NATS knows no others: SCRIP_EVT_* matches
	// nothing. That of an endpoint has the account, so that the service sees where a request comes from.
	Subject string
	// Local is the subject in the accounts that import it; "" = Subject. Users publish there.
	Local string
	// Campaign: the last token is the campaign; a key that is limited to campaigns may publish to those alone.
	Campaign bool
	// Many: a request may have several answers.
	Many bool
	// Clear: its answers have codes and customers in clear; only a key that sees both may publish to it.
	Clear bool
	// names are the local subjects that may be published to, lane by lane; nil = one with the wildcards.
	names func(lanes int) []string
}

const (
	// Info requests the service's description, from any server.
	Info = "$SRV.INFO.scrip"
	// Rollcall requests the status of every server.
	Rollcall = "scrip.rollcall"
	// UserInfo requests a user's own account and permissions. NATS answers it in every account.
	UserInfo = "$SYS.REQ.USER.INFO"

	// API is the prefix of the imported part of the JetStream API (jetstream.NewWithAPIPrefix). NATS itself answers $JS.API in every
	// account, about that account.
	API        = "JS.scrip.API."
	serversAPI = "$JS.API."
	streamInfo = "STREAM.INFO."
	getMessage = "STREAM.MSG.GET."
)

// fromAPI is a row of JetStream API requests about some streams.
func fromAPI(op access.Operation, account, request string, clear bool, streams func(lanes int) []string) Row {
	return Row{
		Op: op, Account: account, Subject: serversAPI + request + "*", Local: API + request + "*", Clear: clear,
		names: func(lanes int) []string {
			var all []string
			for _, stream := range streams(lanes) {
				all = append(all, API+request+stream)
			}
			return all
		},
	}
}

// Rows is the table: the endpoints of the service, and the subjects of the log and of NATS that keys may publish to.
// None of them makes, changes or removes a stream or a consumer. A consumer that a user may make could deliver to any
// subject of the servers' account.
func Rows() []Row {
	var rows []Row
	for op := range access.Operations() {
		for _, endpoint := range op.Endpoints() {
			for _, g := range guests {
				if slices.ContainsFunc(g.roles, func(r access.Role) bool { return slices.Contains(op.Roles(), r) }) {
					rows = append(rows, Row{
						Op: op, Account: g.account, Subject: access.GuestSubject(g.account, endpoint), Local: "scrip." + endpoint,
						Campaign: strings.HasSuffix(endpoint, ".*"),
					})
				}
			}
		}
	}
	return append(rows,
		// Commands straight to the log, of all campaigns: no limit could be enforced there.
		Row{Op: access.OpClaim, Account: access.AccountShop, Subject: topology.CmdPattern},
		Row{Op: access.OpClaim, Account: access.AccountShop, Subject: "scrip.lane.*.shop", names: eachLane(topology.LaneShop)},
		// The SDK finds the log's lanes.
		Row{Op: access.OpValidate, Account: access.AccountShop, Subject: Info},
		Row{Op: access.OpValidate, Account: access.AccountCounter, Subject: Info},
		Row{Op: access.OpValidate, Account: access.AccountOps, Subject: Info},
		Row{Op: access.OpReadStatus, Account: access.AccountOps, Subject: "$SRV.PING.scrip", Many: true},
		Row{Op: access.OpReadStatus, Account: access.AccountOps, Subject: "$SRV.STATS.scrip", Many: true},
		Row{Op: access.OpReadStatus, Account: access.AccountOps, Subject: Rollcall, Many: true},
		fromAPI(access.OpReadStatus, access.AccountOps, streamInfo, false, statusStreams),
		fromAPI(access.OpReadEvents, access.AccountAnalysis, streamInfo, false, eachLane(topology.EvtStream)),
		fromAPI(access.OpReadEvents, access.AccountAnalysis, getMessage, true, eachLane(topology.EvtStream)),
	)
}

// Published is the subject that users publish to, with the wildcards.
func (r *Row) Published() string { return cmp.Or(r.Local, r.Subject) }

func eachLane(subject func(lane int) string) func(lanes int) []string {
	return func(lanes int) []string {
		var all []string
		for lane := range lanes {
			all = append(all, subject(lane))
		}
		return all
	}
}

func statusStreams(lanes int) []string {
	all := []string{topology.LeaseStream, topology.StateStream}
	for lane := range lanes {
		all = append(all, topology.CmdStream(lane), topology.EvtStream(lane), topology.RmdStream(lane))
	}
	return all
}
