package natsauth

import (
	"slices"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// Account is a NATS account.
type Account uint8

// The accounts. Servers is that of the log; all others import from it.
const (
	NoAccount Account = iota
	Servers           // scrip's servers, and the credentials of the data directory
	Shop              // producers
	Counter           // producers limited to campaigns or to a rate, and public ones
	Ops               // operators and support
	Analysis          // analysts
	Senders           // senders of reminders
	numAccounts
)

// account is a row of the table of accounts.
type account struct {
	name  string
	roles []access.Role
	// outcomes: lanes publish outcomes to inboxes of this account, as a header of a command names them.
	outcomes bool
}

var accounts = [numAccounts]account{
	Servers:  {name: access.AccountServers, roles: []access.Role{access.Server}},
	Shop:     {name: access.AccountShop, roles: []access.Role{access.Producer}, outcomes: true},
	Counter:  {name: access.AccountCounter, roles: []access.Role{access.Producer}},
	Ops:      {name: access.AccountOps, roles: []access.Role{access.Operator, access.Support}},
	Analysis: {name: access.AccountAnalysis, roles: []access.Role{access.Analyst}},
	Senders:  {name: access.AccountSenders, roles: []access.Role{access.Sender}},
}

// String is the account's name in a nats-server configuration.
func (a Account) String() string {
	if a == NoAccount || a >= numAccounts {
		return "none"
	}
	return accounts[a].name
}

// Guests returns the accounts of users with keys: all but Servers.
func Guests() []Account { return []Account{Shop, Counter, Ops, Analysis, Senders} }

// AccountOf returns the account of a user with a key; NoAccount for one that may not log in to NATS.
func AccountOf(p access.Principal) Account {
	if p.Role == access.Producer && (p.Public || p.Campaigns != nil || p.Rate > 0) {
		return Counter
	}
	for _, a := range Guests() {
		if slices.Contains(accounts[a].roles, p.Role) {
			return a
		}
	}
	return NoAccount
}

// inboxes are the subjects of the inboxes of all users of a role.
func inboxes(r access.Role) string { return natsx.Inbox(r.String(), ">") }
