package doctor

import (
	"context"
	"encoding/json"
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

// rights examines the users on NATS: that of scrip's servers, and that of Options.As.
func (v *visit) rights(ctx context.Context) (all []Finding) {
	var own *nats.Conn
	if address := v.natsURL(); address != "" {
		nc, err := v.connect(address)
		if err == nil { // check nats reports it
			defer nc.Close()
			own, all = nc, servers(ctx, nc)
		}
	}
	if v.As == "" {
		return all
	}
	return append(all, v.user(ctx, own)...)
}

// servers examines the user of scrip's servers, which make streams and consumers and answer requests.
func servers(ctx context.Context, nc *nats.Conn) []Finding {
	info, err := userInfo(ctx, nc)
	switch {
	case err != nil:
		return bad(Warn, "look at the configuration of the NATS servers", "the rights of the servers' user cannot be read: %v", err)
	case !info.limited():
		return good("the servers' user may do everything in account %s", info.Account)
	}
	lanes := topology.DefaultLanes
	if js, err := jetstream.New(nc); err == nil {
		ctx, cancel := context.WithTimeout(ctx, answerWait)
		defer cancel()
		if log, found, err := topology.Inspect(ctx, js); err == nil && found {
			lanes = log.Lanes
		}
	}
	want := natsauth.OfServers(lanes)
	lacks := slices.Concat(without(want.Publish, info.Permissions.Publish.Allow), without(want.Subscribe, info.Permissions.Subscribe.Allow))
	if len(lacks) > 0 {
		return bad(Fail, fmt.Sprintf("print the accounts again, `scrip nats config --lanes %d`, and restart the NATS servers one by one", lanes),
			"user %s of account %s, as which servers connect, lacks %d rights that they need, %s among them", info.User, info.Account, len(lacks), lacks[0])
	}
	return good("the servers' user has the rights that servers need in account %s", info.Account)
}

// without returns what a list of permissions lacks; one that is empty allows everything.
func without(want, allowed []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(s string) bool { return len(allowed) == 0 || slices.Contains(allowed, s) })
}

// info is what NATS has about the user of a connection.
type info struct {
	User        string `json:"user"`
	Account     string `json:"account"`
	Permissions struct {
		Publish   rule `json:"publish"`
		Subscribe rule `json:"subscribe"`
	} `json:"permissions"`
}

// rule is what a user may publish or subscribe to; Allow empty = everything, but subjects that NATS keeps for itself.
type rule struct{ Allow []string }

// limited reports whether the user may not do everything in its account.
func (i *info) limited() bool {
	return len(i.Permissions.Publish.Allow)+len(i.Permissions.Subscribe.Allow) > 0
}

func userInfo(ctx context.Context, nc *nats.Conn) (info, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	var answer struct{ Data info }
	m, err := nc.RequestWithContext(ctx, natsauth.UserInfo, nil)
	if err == nil {
		err = json.Unmarshal(m.Data, &answer)
	}
	return answer.Data, err
}

// user is the user of Options.As.
type user struct {
	urls string // with its credentials
	// id and role are of its key; "" = a user of the NATS configuration.
	id   string
	role access.Role
	// record is what the log has about the key; nil = nothing. looked: the log was read.
	record *access.Key
	looked bool
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
	nc, err := v.connectAs(u.urls)
	if err != nil {
		return append(all, bad(Fail, u.mend(err, v.Clock.Now()), "connecting as %s to %s: %v", u.name(), natsx.WithoutUser(u.urls), err)...)
	}
	defer nc.Close()
	if u.record == nil {
		have, err := userInfo(ctx, nc)
		switch {
		case err != nil: // a user that may not even see what it may
			return append(all, good("it logs in")...)
		case have.limited():
			return append(all, good("user %s of account %s has permissions of its own in the NATS configuration", have.User, have.Account)...)
		}
		return append(all, good("user %s may do everything in account %s, as servers must", have.User, have.Account)...)
	}
	campaign := ""
	if len(u.record.Campaigns) > 0 {
		campaign = u.record.Campaigns[0]
	}
	var may, mayNot []string
	for o := range access.Operations() {
		if u.record.Principal().May(o, campaign) {
			may = append(may, o.String())
		} else {
			mayNot = append(mayNot, o.String())
		}
	}
	return append(append(all, good("may: %s", list(may))...), good("may not: %s", list(mayNot))...)
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
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
		var page ops.Page[access.Key]
		if err := c.Manage(ctx, "access.list", map[string]string{"after": after}, &page); err != nil {
			return bad(Warn, fix, "key %s, role %s; looking it up: %v", u.id, u.role, err)
		}
		if i := slices.IndexFunc(page.Items, func(k access.Key) bool { return k.ID == u.id }); i >= 0 {
			u.record, u.looked = &page.Items[i], true
		}
		after = page.Next
		u.looked = u.looked || after == ""
	}
	if u.record == nil {
		return nil // the log-in fails, and its finding names the mend
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
	if u.record.Customers {
		limits += ", customers in clear"
	}
	if u.record.NewOnly {
		limits += ", codes of new claims only"
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
	return "it is in force, so log-ins do not reach scrip: start a server with role api or lanes; on NATS servers of your own include the accounts of `scrip nats config`, with NATS_ISSUER as `scrip nats env` prints it"
}
