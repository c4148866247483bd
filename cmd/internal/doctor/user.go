package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// user is the user of Options.As.
type user struct {
	urls string // with its credentials
	// id and role are of its key; "" = a user of the NATS configuration.
	id   string
	role access.Role
	// record is what the log has about the key; nil = nothing. looked: the log was read.
	record *access.Key
	looked bool
	// lanes of the log, once it was read.
	lanes int
}

// errNoNATS: a key alone names no server.
var errNoNATS = errors.New("a key alone names no server, and none runs on this data directory")

// parse reads Options.As: a key, for the NATS server that is examined, or URLs with credentials.
func (v *visit) parse() (u user, err error) {
	key := ""
	if strings.HasPrefix(v.As, "sk_") && !strings.Contains(v.As, "@") {
		if key = v.As; v.natsURL() == "" {
			return u, errNoNATS
		}
		all, err := natsx.URLs(v.natsURL())
		if err != nil {
			return u, err
		}
		var texts []string
		for _, one := range all {
			one.User = url.User(key)
			texts = append(texts, one.String())
		}
		u.urls = strings.Join(texts, ",")
	} else {
		all, err := natsx.URLs(v.As)
		if err != nil {
			return u, err
		}
		u.urls = v.As
		for _, one := range all {
			password, _ := one.User.Password()
			for _, text := range []string{one.User.Username(), password} {
				if natsx.KeyInbox(text) != "" {
					key = text
				}
			}
		}
	}
	if key != "" {
		u.role, u.id, err = access.ParseKey(key)
	}
	return u, err
}

// user examines what the user of Options.As may do. own is a connection of the servers, nil if there is none.
func (v *visit) user(ctx context.Context, own *nats.Conn) (all []Finding) {
	u, err := v.parse()
	switch {
	case errors.Is(err, access.ErrNoKey):
		return bad(Fail, "copy it as `scrip access create` printed it, or make another one", "%v", err)
	case errors.Is(err, errNoNATS):
		return bad(Fail, "start the server, or give --nats URL", "%v", err)
	case err != nil:
		return bad(Fail, "give --as KEY, or nats://USER:PASSWORD@HOST:PORT", "%v", err)
	}
	if u.id != "" {
		all = append(all, u.look(ctx, own)...)
	}
	denied := &denials{}
	nc, err := v.connectAs(u.urls, nats.ErrorHandler(denied.note))
	if err != nil {
		return append(all, bad(Fail, u.mend(err, v.Clock.Now()), "connecting as %s to %s: %v", u.name(), natsx.WithoutUser(u.urls), err)...)
	}
	defer nc.Close()
	campaign := anyCampaign
	if u.record != nil {
		all = append(all, u.permissions(ctx, nc)...)
		if len(u.record.Campaigns) > 0 {
			campaign = u.record.Campaigns[0]
		}
	}
	all = append(all, denied.tryAll(ctx, nc, campaign)...)
	if u.record != nil {
		var may []string
		for o := range access.Operations() {
			if u.record.Principal().May(o, campaign) {
				may = append(may, o.String())
			}
		}
		all = append(all, good("over HTTP may: %s", list(may))...)
	}
	return all
}

func (u *user) name() string {
	if u.id == "" {
		return "this user"
	}
	return "key " + u.id
}

// look looks the key up with the servers' connection.
func (u *user) look(ctx context.Context, own *nats.Conn) []Finding {
	const fix = "give the credentials of scrip's servers with --nats, or run this where the server's data directory is"
	if own == nil {
		return bad(Warn, fix, "key %s, role %s; its limits are unknown here", u.id, u.role)
	}
	c := client.New(own, client.Options{Timeout: answerWait})
	defer c.Close()
	for after := ""; !u.looked; {
		var page ops.KeyPage
		if err := c.Manage(ctx, "access.list", map[string]string{"after": after}, &page); err != nil {
			return bad(Warn, fix, "key %s, role %s; looking it up: %v", u.id, u.role, err)
		}
		if i := slices.IndexFunc(page.Keys, func(k access.Key) bool { return k.ID == u.id }); i >= 0 {
			u.record, u.looked = &page.Keys[i], true
		}
		after = page.Next
		u.looked = u.looked || after == ""
	}
	if u.record == nil {
		return nil // the log-in fails, and its finding names the mend
	}
	js, err := jetstream.New(own)
	if err == nil {
		var log topology.Log
		log, _, err = topology.Inspect(ctx, js)
		u.lanes = log.Lanes
	}
	if err != nil {
		return bad(Warn, "see the check nats", "looking for the log: %v", err)
	}
	limits := "all campaigns"
	if u.record.Campaigns != nil {
		limits = "campaigns " + strings.Join(u.record.Campaigns, ", ") + " only"
	}
	if u.record.Public {
		limits += ", public"
	}
	if u.record.Rate > 0 {
		limits += fmt.Sprintf(", %d requests a second", u.record.Rate)
	}
	if u.record.Codes {
		limits += ", codes in clear"
	}
	return good("key %s of %s, role %s, %s", u.id, u.record.Name, u.role, limits)
}

// mend is what to do when the log-in failed.
func (u *user) mend(err error, now time.Time) string {
	switch {
	case !errors.Is(err, nats.ErrAuthorization):
		return "start the NATS server, or give another URL with --nats"
	case u.id == "":
		return "check user and password, or the key; `scrip env` prints those of the server on a data directory"
	case !u.looked:
		return "see whether it is in force: `scrip access list`"
	case u.record == nil:
		return "this log has no such key: make one with `scrip access create NAME --role ROLE`"
	case !u.record.In(now):
		return fmt.Sprintf("it ended at %s by %s: make another one with `scrip access create NAME --role ROLE`", u.record.Ended.Format(time.RFC3339), u.record.EndedBy)
	}
	return "it is in force, so log-ins do not reach scrip: start a server with role api or lanes; on NATS servers of your own include the accounts of `scrip nats config`, with NATS_ISSUER as `scrip nats issuer` prints it"
}

// permissions compares what NATS lets the user publish to with the table.
func (u *user) permissions(ctx context.Context, nc *nats.Conn) []Finding {
	have, err := userInfo(ctx, nc)
	if err != nil {
		return bad(Warn, "look at the configuration of the NATS servers", "its permissions cannot be read: %v", err)
	}
	want, ok := natsauth.Of(u.record.Principal(), u.lanes)
	if !ok || !have.limited() {
		return bad(Fail, "take the user out of the NATS configuration: users with keys are in none", "NATS has it as user %s of account %s", have.User, have.Account)
	}
	const fix = "upgrade all servers of scrip to one version, and connect again: the log-in was answered from another table"
	missing, extra := without(want.Publish, have.Permissions.Publish.Allow), without(have.Permissions.Publish.Allow, want.Publish)
	var all []Finding
	if len(extra) > 0 {
		all = bad(Fail, fix, "its permissions on NATS have what its role may not: %s", list(extra))
	}
	if len(missing) > 0 {
		all = append(all, bad(Fail, fix, "its permissions on NATS lack what its role may: %s", list(missing))...)
	}
	if len(all) > 0 {
		return all
	}
	return good("its permissions on NATS are those of its role, in account %s", have.Account)
}
