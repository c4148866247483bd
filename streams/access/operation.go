package access

import (
	"iter"
	"slices"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

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
	OpCreateCampaign
	OpUpdateCampaign
	OpPauseCampaign
	OpResumeCampaign
	OpEndCampaign
	OpImportCodes
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
	OpRunJobs  // rebuild, verify, backup
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
}

var (
	producers = []Role{Producer, Operator}
	helpers   = []Role{Support, Operator}
	operators = []Role{Operator}
	readers   = []Role{Analyst, Operator}
)

// operations is the table of operations. Operators have all of them: everything that people may do.
var operations = [numOperations]operation{
	OpClaim:            {name: "claim", roles: producers, command: wire.Claim},
	OpRedeem:           {name: "redeem", roles: producers, command: wire.Redeem},
	OpRollback:         {name: "rollback", roles: []Role{Producer, Support, Operator}, command: wire.Rollback},
	OpValidate:         {name: "coupon.validate", roles: []Role{Producer, Support, Operator}, endpoints: []string{"coupon.validate"}},
	OpRemind:           {name: "remind", roles: producers, command: wire.Remind},
	OpUnremind:         {name: "unremind", roles: producers, command: wire.Unremind},
	OpVoid:             {name: "void", roles: helpers, command: wire.Void},
	OpExtend:           {name: "extend", roles: helpers, command: wire.Extend},
	OpShowCoupon:       {name: "coupon.show", roles: helpers, endpoints: []string{"coupon.show"}},
	OpShowCustomer:     {name: "customer.show", roles: helpers, endpoints: []string{"customer.show"}},
	OpShowCampaign:     {name: "campaign.show", roles: helpers, endpoints: []string{"campaign.show"}},
	OpListCampaigns:    {name: "campaign.list", roles: helpers, endpoints: []string{"campaign.list"}},
	OpCreateCampaign:   {name: "campaign.create", roles: operators, command: wire.CreateCampaign},
	OpUpdateCampaign:   {name: "campaign.update", roles: operators, command: wire.UpdateCampaign},
	OpPauseCampaign:    {name: "campaign.pause", roles: operators, command: wire.PauseCampaign},
	OpResumeCampaign:   {name: "campaign.resume", roles: operators, command: wire.ResumeCampaign},
	OpEndCampaign:      {name: "campaign.end", roles: operators, command: wire.EndCampaign},
	OpImportCodes:      {name: "codes.import", roles: operators, command: wire.ImportCodes},
	OpExportCodes:      {name: "codes.export", roles: operators, endpoints: []string{"codes.export"}},
	OpReadEvents:       {name: "events.read", roles: readers},
	OpReadTables:       {name: "tables.read", roles: readers, whole: true},
	OpReadReminders:    {name: "reminders.read", roles: []Role{Sender, Operator}, endpoints: []string{"sender.open", "sender.next", "sender.ack", "sender.store"}, whole: true},
	OpReadStatus:       {name: "status.read", roles: operators, endpoints: []string{"status.show"}, whole: true},
	OpReadSettings:     {name: "settings.read", roles: operators, endpoints: []string{"config.get", "config.history"}, whole: true},
	OpChangeSettings:   {name: "settings.change", roles: operators, endpoints: []string{"config.set"}, whole: true},
	OpReadDeadLetters:  {name: "deadletters.read", roles: operators, endpoints: []string{"deadletter.list", "deadletter.show"}, whole: true},
	OpRetryDeadLetters: {name: "deadletters.retry", roles: operators, endpoints: []string{"deadletter.retry", "deadletter.discard"}, whole: true},
	OpManageKeys:       {name: "keys.manage", roles: operators, endpoints: []string{"access.create", "access.list", "access.revoke", "access.rotate"}, whole: true},
	OpReadAudit:        {name: "audit.read", roles: operators, endpoints: []string{"audit.list"}, whole: true},
	OpManageWebhooks: {name: "webhooks.manage", roles: operators, whole: true, endpoints: []string{
		"webhook.create", "webhook.list", "webhook.show", "webhook.update", "webhook.rotate", "webhook.pause", "webhook.resume",
		"webhook.delete", "webhook.replay", "webhook.test", "webhook.deadletters", "webhook.retry",
	}},
	OpRunJobs: {name: "jobs.run", roles: operators, whole: true, endpoints: []string{
		"rebuild.start", "rebuild.undo", "rebuild.drop", "verify.start", "backup.start", "job.show", "job.list",
	}},
	OpDiagnose: {name: "diagnose", roles: operators, whole: true},
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
