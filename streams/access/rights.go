package access

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
)

const (
	// MaxName is the most bytes of the name of a key. Events carry it as `by`.
	MaxName = 64
	// MaxRate is the highest rate of a key, in requests a second.
	MaxRate = 1_000_000
	// MaxOrigins is the most origins of one key.
	MaxOrigins = 20
	// MaxCampaigns is the most campaigns that one key may be limited to: each is a subject in its permissions.
	MaxCampaigns = 50
)

// Principal is an authenticated user.
type Principal struct {
	// ID of the key; "" = the credentials of the data directory, with all rights of an operator.
	ID string
	// First is the id of the first key of the rotations that led to this one; "" = ID. See Client.
	First string
	// Name is what `by` shows, 1 to MaxName bytes.
	Name string
	Role Role
	// Campaigns that it is limited to, sorted; nil = all.
	Campaigns []string
	// Public: a producer whose key may be in a browser. It may claim and validate only, with the budget for wrong codes.
	Public bool
	// Origins are the pages that may use a public key from browsers, such as https://shop.example.
	Origins []string
	// Codes: it sees codes in clear.
	Codes bool
	// Customers: it sees ids of customers in clear that its own requests do not name. Others get a keyed hash, equal for equal ids.
	Customers bool
	// NewOnly: a producer that gets the codes of new claims only.
	NewOnly bool
	// Rate is how many requests a second it may make at each server, over HTTP and NATS together; 0 = as many as it likes. A
	// producer with a rate may not publish command messages, which no server counts; nor one with NewOnly, whom a lane would answer.
	Rate int
}

// May reports whether p may do o. campaign "" = the operation names none (a code alone, a list): a principal that is limited
// to campaigns may not do it then, unless o is checked again once the campaign is known, or the answer leaves out all others.
func (p Principal) May(o Operation, campaign string) bool {
	if !slices.Contains(o.Roles(), p.Role) || p.Public && o != OpClaim && o != OpValidate {
		return false
	}
	if campaign == "" {
		return p.Campaigns == nil || operations[o].own
	}
	return p.Campaigns == nil || !o.Whole() && slices.Contains(p.Campaigns, campaign)
}

// Check returns nil if p may do o to a campaign as [Principal.May] has it, else why not: an error of kind ErrForbidden.
func (p Principal) Check(o Operation, campaign string) error {
	if err := p.CheckRole(o); err != nil || p.May(o, campaign) {
		return err
	}
	switch {
	case o.Whole():
		return denied(fmt.Sprintf("this key is limited to campaigns, and %s is about the whole log", o))
	case campaign == "":
		return denied(fmt.Sprintf("this key is limited to campaigns; %s needs the name of one", o))
	}
	return denied("this key is limited to other campaigns than " + campaign)
}

// CheckRole is Check without the campaign: its caller checks that once it is known.
func (p Principal) CheckRole(o Operation) error {
	all := p
	all.Campaigns = nil
	switch {
	case all.May(o, ""):
		return nil
	case p.Public:
		return denied(fmt.Sprintf("a public key may not do %s", o))
	}
	return denied(fmt.Sprintf("a key of role %s may not do %s", p.Role, o))
}

// denied is why a principal may not do something.
type denied string

func (d denied) Error() string { return string(d) }

func (d denied) Is(err error) bool { return err == ErrForbidden }

// Client identifies the program or person that uses the key: it stays the same when the key is replaced by a rotation. What a
// client may repeat after a rotation depends on it.
func (p Principal) Client() string { return cmp.Or(p.First, p.ID) }

// Person reports whether what p does is recorded with `by`: support and operator.
func (p Principal) Person() bool { return p.Role == Support || p.Role == Operator }

// Recorded reports whether the audit stream has a command of p that was carried out: those of people, but for what shops do and
// imports of codes, which are many. The event of each has who sent it.
func (p Principal) Recorded(t wire.CommandType) bool {
	return p.Person() && !slices.Contains([]wire.CommandType{wire.Claim, wire.Redeem, wire.Remind, wire.Unremind, wire.ImportCodes}, t)
}

// Hide masks the code in the outcome of a command that p has sent, unless p may see it. The programs of a shop work with codes;
// people see them only with the right to.
func (p Principal) Hide(out *wire.Outcome) {
	if p.Person() && !p.Codes {
		out.Code = code.Mask(out.Code)
	}
}

// Withholds reports whether p gets the outcome of a command without its code: a claim of a customer who has claimed before, where p may
// be anybody or is of a maker who sees no codes. It is shown after all to who repeats its own request, see Withhold.
func (p Principal) Withholds(t wire.CommandType, out *wire.Outcome) bool {
	return (p.Public || p.NewOnly) && t == wire.Claim && out.Repeat
}

// Withhold takes from the outcome of a claim all that is about the coupon.
func Withhold(out *wire.Outcome) {
	out.Code, out.N, out.ExpiresAt, out.CouponStatus, out.Message = "", 0, 0, "", claimedBefore
}

// claimedBefore is the message of an outcome without its code.
const claimedBefore = "the customer has claimed before; this key gets the code of a new claim only, or over HTTP by repeating that request with its Idempotency-Key"

// Clear reports whether p sees all there is: what quotes a line of a producer, or is one, may hold codes and ids of customers.
func (p Principal) Clear() bool { return p.Codes && p.Customers }

// ReadsLog reports whether p may read messages of the log on NATS, with all in clear.
func (p Principal) ReadsLog() bool { return p.Role == Analyst && p.Clear() }

// By is what events and settings show as author: the name of a person, "" for others.
func (p Principal) By() string {
	if p.Person() {
		return p.Name
	}
	return ""
}

// Audience is the name under which a key of role sender delivers reminders: the key's name up to the first character that no
// such name has. So "mobile" and "mobile, Berlin" are two keys for the audience mobile. "" = none.
func (p Principal) Audience() string {
	end := strings.IndexFunc(p.Name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
	if p.Role != Sender {
		return ""
	}
	if end < 0 {
		return p.Name
	}
	return p.Name[:end]
}

// Actor is what the audit stream shows of p.
func (p Principal) Actor() (name, key string) { return p.Name, p.ID }

// Author is who makes a change of keys, settings or webhooks, and how.
type Author struct {
	Principal
	// Via is nats, http or console, and From the address of the client; "" = not known.
	Via, From string
	// Once is the id under which the client sends the same request again; "" = none.
	Once string
	// Makes is a random name for what the request makes. A retry under Once has the same one, until that is forgotten; "" = any.
	Makes string
	// Request is the request id; "" = none.
	Request string
}

// Entry is an entry of the audit stream of what the author does.
func (a Author) Entry(kind audit.Kind, action, about string) audit.Entry {
	e := audit.By(a, kind, action, about)
	e.Via, e.From, e.RequestID = a.Via, a.From, a.Request
	return e
}

// LoggedIn are the entries of the audit stream of a log-in.
func (a Author) LoggedIn() []audit.Entry {
	all := []audit.Entry{a.Entry(audit.Login, a.Role.String(), "")}
	if a.Via == "nats" && a.ReadsLog() {
		all = append(all, a.Entry(audit.Export, audit.Raw, ""))
	}
	return all
}

// mayMake returns an error of kind ErrForbidden if a key has more rights than p: who makes a key gets its secret.
func (p Principal) mayMake(n *New) error {
	if n.Codes && !p.Codes {
		return fmt.Errorf("%w: codes: a key that does not see codes cannot make or replace one that does", ErrForbidden)
	}
	if (n.Customers || n.Role == Sender) && !p.Customers {
		return fmt.Errorf("%w: customers: a key that does not see customers cannot make or replace one that does, or one of a sender, who gets those of reminders", ErrForbidden)
	}
	return nil
}

// mayReplace is mayMake for a rotation. The new key of a producer repeats the commands of the old one, and gets their codes. That of a
// page is no secret: only its Idempotency-Keys are.
func (p Principal) mayReplace(n *New) error {
	if n.Role == Producer && !n.Public && !p.Codes {
		return fmt.Errorf("%w: a key that does not see codes cannot replace one of a producer, whose codes the new one would get; make another key, and revoke this one", ErrForbidden)
	}
	return p.mayMake(n)
}

// localPrefix starts the names of people who use the credentials of the data directory. No key has such a name.
const localPrefix = "local:"

// Local is who uses the credentials of the data directory. name is what that client calls itself, such as
// ann@ops1; it is shown with a prefix, because the credentials do not prove it.
func Local(name string) Principal {
	return Principal{Name: LocalName(name), Role: Operator, Codes: true, Customers: true}
}

// LocalName is the name of a Local.
func LocalName(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, name)
	for len(localPrefix)+len(name) > MaxName {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return strings.TrimRight(localPrefix+name, " ")
}

// CheckName returns an error if a text cannot be the name of a key.
func CheckName(name string) error {
	if strings.HasPrefix(name, localPrefix) {
		return fmt.Errorf("name is %s, and names with %s are of the credentials of the data directory; choose another", wire.Quote(name), localPrefix)
	}
	if err := wire.CheckBy("name", name); err != nil {
		return fmt.Errorf("%w, such as checkout-eu", err)
	}
	return nil
}

// Operation is one thing that people and programs can do, whichever way: NATS subject, HTTP route, CLI command. Permissions by subject
// and by route follow from the table of operations.
type Operation uint8

// The operations.
const (
	NoOperation Operation = iota
	OpClaim
	OpRedeem
	OpRollback
	OpValidate
	OpRemind
	OpUnremind
	OpVoid
	OpExtend
	OpShowCoupon
	OpShowCustomer
	OpShowCampaign
	OpListCampaigns
	OpListReminders
	OpChangeOptOuts
	OpReadOptOuts
	OpCreateCampaign
	OpUpdateCampaign
	OpPauseCampaign
	OpResumeCampaign
	OpEndCampaign
	OpImportCodes
	OpAllot
	OpExportCodes
	OpReadEvents
	OpReadTables
	OpReadReminders // read, acknowledge, report
	OpReadStatus
	OpReadSettings
	OpChangeSettings
	OpReadDeadLetters
	OpRetryDeadLetters
	OpManageKeys
	OpReadAudit
	OpManageWebhooks
	OpRunJobs // rebuild, verify, backup
	OpReadJobs
	OpStopJobs // of those that the key may start
	OpListCoupons
	OpReadStatistics
	OpReadDue
	OpOpenConsole
	OpFindCommand
	OpDiagnose // metrics, profiles, details of readiness
	numOperations
)

// operation is a row of the table.
type operation struct {
	name    string
	roles   []Role
	command wire.CommandType // whose name and endpoint it has; NoCommand = none
	// endpoints of the micro service without "scrip.", beside the command's.
	endpoints []string
	// whole: it is about the log as a whole, and no campaign is named. Keys that are limited to campaigns may not do it.
	whole bool
	// own: without a campaign it is about those of the key that is limited to some.
	own bool
}

var (
	producers = []Role{Producer, Operator}
	shops     = []Role{Producer, Support, Operator}
	helpers   = []Role{Support, Operator}
	operators = []Role{Operator}
	readers   = []Role{Analyst, Operator}
)

// operations is the table of operations. Operators have all of them: everything that people may do.
var operations = [numOperations]operation{
	OpClaim:            {name: "claim", roles: producers, command: wire.Claim},
	OpRedeem:           {name: "redeem", roles: producers, command: wire.Redeem},
	OpRollback:         {name: "rollback", roles: shops, command: wire.Rollback},
	OpValidate:         {name: "coupon.validate", roles: shops, endpoints: []string{"coupon.validate"}},
	OpRemind:           {name: "remind", roles: producers, command: wire.Remind},
	OpUnremind:         {name: "unremind", roles: producers, command: wire.Unremind},
	OpVoid:             {name: "void", roles: helpers, command: wire.Void, endpoints: []string{"coupons.void"}},
	OpExtend:           {name: "extend", roles: helpers, command: wire.Extend, endpoints: []string{"coupons.extend"}},
	OpShowCoupon:       {name: "coupon.show", roles: shops, endpoints: []string{"coupon.show"}},
	OpShowCustomer:     {name: "customer.show", roles: shops, own: true, endpoints: []string{"customer.show"}},
	OpShowCampaign:     {name: "campaign.show", roles: shops, endpoints: []string{"campaign.show"}},
	OpListCampaigns:    {name: "campaign.list", roles: shops, own: true, endpoints: []string{"campaign.list"}},
	OpListReminders:    {name: "reminder.list", roles: shops, endpoints: []string{"reminder.list", "reminder.show"}},
	OpChangeOptOuts:    {name: "optouts.change", roles: shops, endpoints: []string{"optout.add", "optout.remove"}, whole: true},
	OpReadOptOuts:      {name: "optouts.read", roles: shops, endpoints: []string{"optout.show"}, whole: true},
	OpListCoupons:      {name: "coupon.list", roles: shops, own: true, endpoints: []string{"coupon.list"}},
	OpReadStatistics:   {name: "campaign.statistics", roles: helpers, endpoints: []string{"campaign.statistics", "campaign.diff", "campaign.changes"}},
	OpCreateCampaign:   {name: "campaign.create", roles: operators, command: wire.CreateCampaign, endpoints: []string{"campaign.clone"}},
	OpUpdateCampaign:   {name: "campaign.update", roles: operators, command: wire.UpdateCampaign},
	OpPauseCampaign:    {name: "campaign.pause", roles: operators, command: wire.PauseCampaign},
	OpResumeCampaign:   {name: "campaign.resume", roles: operators, command: wire.ResumeCampaign},
	OpEndCampaign:      {name: "campaign.end", roles: operators, command: wire.EndCampaign},
	OpImportCodes:      {name: "codes.import", roles: operators, command: wire.ImportCodes},
	OpAllot:            {name: "codes.allot", roles: operators, command: wire.Allot, endpoints: []string{"codes.allotments"}},
	OpExportCodes:      {name: "codes.export", roles: operators, endpoints: []string{"codes.export", "codes.print"}},
	OpReadEvents:       {name: "events.read", roles: readers},
	OpReadTables:       {name: "tables.read", roles: readers, whole: true},
	OpReadReminders:    {name: "reminders.read", roles: []Role{Sender, Operator}, endpoints: []string{"sender.open", "sender.next", "sender.ack", "sender.store"}, whole: true},
	OpReadStatus:       {name: "status.read", roles: operators, endpoints: []string{"status.show", "overview.show", "log.show", "sender.list"}, whole: true},
	OpReadSettings:     {name: "settings.read", roles: operators, endpoints: []string{"config.get", "config.changes"}, whole: true},
	OpChangeSettings:   {name: "settings.change", roles: operators, endpoints: []string{"config.set"}, whole: true},
	OpReadDeadLetters:  {name: "deadletters.read", roles: operators, endpoints: []string{"deadletter.list", "deadletter.groups", "deadletter.show", "sender.deadletters"}, whole: true},
	OpRetryDeadLetters: {name: "deadletters.retry", roles: operators, endpoints: []string{"deadletter.retry", "deadletter.discard", "sender.discard"}, whole: true},
	OpManageKeys:       {name: "keys.manage", roles: operators, endpoints: []string{"access.create", "access.list", "access.show", "access.revoke", "access.rotate"}, whole: true},
	OpReadAudit:        {name: "audit.read", roles: operators, endpoints: []string{"audit.list"}, whole: true},
	OpManageWebhooks: {name: "webhooks.manage", roles: operators, whole: true, endpoints: []string{
		"webhook.create", "webhook.list", "webhook.show", "webhook.update", "webhook.rotate", "webhook.pause", "webhook.resume",
		"webhook.delete", "webhook.replay", "webhook.test", "webhook.deadletters", "webhook.retry", "webhook.rehearse", "webhook.attempts",
	}},
	OpRunJobs: {name: "jobs.run", roles: operators, whole: true, endpoints: []string{
		"rebuild.start", "rebuild.undo", "rebuild.drop", "verify.start", "backup.start",
	}},
	OpReadJobs:    {name: "jobs.read", roles: helpers, own: true, endpoints: []string{"job.show", "job.list"}},
	OpStopJobs:    {name: "jobs.stop", roles: helpers, own: true, endpoints: []string{"job.stop"}},
	OpReadDue:     {name: "due.read", roles: helpers, whole: true, endpoints: []string{"due.list"}},
	OpFindCommand: {name: "command.show", roles: helpers, own: true, endpoints: []string{"command.show"}},
	OpOpenConsole: {name: "console.open", roles: []Role{Analyst, Support, Operator}, own: true},
	OpDiagnose:    {name: "diagnose", roles: operators, whole: true},
}

// ofCommand is the inverse of operation.command.
var ofCommand = func() map[wire.CommandType]Operation {
	m := map[wire.CommandType]Operation{}
	for o := range Operations() {
		if t := operations[o].command; t != wire.NoCommand {
			m[t] = o
		}
	}
	return m
}()

// Operations returns the operations.
func Operations() iter.Seq[Operation] {
	return func(yield func(Operation) bool) {
		for o := NoOperation + 1; o < numOperations; o++ {
			if !yield(o) {
				return
			}
		}
	}
}

// OperationOf returns the operation of a command. Those of the scheduler have none: NoOperation.
func OperationOf(t wire.CommandType) Operation { return ofCommand[t] }

// OperationOn returns the operation of an endpoint of the micro service, named without "scrip." as [Operation.Endpoints] does;
// NoOperation = there is no such endpoint.
func OperationOn(endpoint string) Operation {
	for o := range Operations() {
		if slices.Contains(o.Endpoints(), endpoint) {
			return o
		}
	}
	return NoOperation
}

// String is the operation's name, such as "claim" and "campaign.create".
func (o Operation) String() string {
	if o == NoOperation || o >= numOperations {
		return "none"
	}
	return operations[o].name
}

// Roles returns the roles that may do it. The caller must not change them.
func (o Operation) Roles() []Role {
	if o >= numOperations {
		return nil
	}
	return operations[o].roles
}

// Whole reports whether it is about the log as a whole: keys that are limited to campaigns may not do it.
func (o Operation) Whole() bool { return o < numOperations && operations[o].whole }

// Endpoints returns the endpoints of the micro service for it, without "scrip.". A last token * is the campaign.
func (o Operation) Endpoints() []string {
	if o >= numOperations {
		return nil
	}
	row := &operations[o]
	if row.command != wire.NoCommand {
		return append([]string{row.command.Spec().Endpoint}, row.endpoints...)
	}
	return row.endpoints
}
