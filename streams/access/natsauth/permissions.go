package natsauth

import (
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// Permissions are what a user may do in its account.
type Permissions struct {
	Account   Account
	Publish   []string
	Subscribe []string
}

// Of returns the permissions of a user with a key, in a log of that many lanes. ok is false for one that may not log in to
// NATS. Publish is never empty: an empty list would allow everything.
func Of(p access.Principal, lanes int) (perms Permissions, ok bool) {
	account := AccountOf(p)
	if account == NoAccount || !access.ValidID(p.ID) {
		return Permissions{}, false
	}
	perms = Permissions{Account: account, Publish: []string{UserInfo}, Subscribe: []string{natsx.Inbox(p.Role.String(), p.ID) + ".>"}}
	for _, row := range Rows() {
		if slices.Contains(row.Accounts, account) {
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
	case r.Codes && !p.Codes:
		return nil // HTTP masks codes
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
